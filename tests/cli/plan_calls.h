#pragma once
// Calls that the tests of embedding plans share.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command_line.h"

namespace stepcast::cli_test {

/// Six tables that differ, on 8 devices in one machine.
inline std::vector<std::string> command(const std::string& name,
                                        const std::vector<std::string>& more = {}) {
  return with_sets(name, {"workload=rm2", "system=dgx-h100", "devices=8", "batch.global=16384"},
                   more);
}

/// A plan made for other lookups, so that there is something to gain.
inline std::string plan_in_use(const TemporaryFolder& folder) {
  const std::string file = folder / "used.json";
  const Outcome made = call(command(
      "plan", {"--set", "workload.tables[3].pooling=600", "--set", "workload.tables[5].pooling=500",
               "--out", file, "--no-row-replication", "--device-memory-only"}));
  INFO(made.err);
  REQUIRE(made.code == 0);
  return file;
}

}  // namespace stepcast::cli_test
