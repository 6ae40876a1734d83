#pragma once
// Calls that the tests of embedding plans share.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command_line.h"

namespace stepcast::cli_test {

/// Six tables that differ, on 8 devices in one machine.
inline Words command(const std::string& name, const Words& more = {}) {
  return with_sets(name, "workload=rm2 system=dgx-h100 devices=8 batch.global=16384", more);
}

/// Seconds of a step with the plan of a file.
inline double planned_step(const std::string& plan) {
  return step_of(command("predict", {"--set", "embedding.plan=" + plan}));
}

/// A plan made for other lookups, so that there is something to gain.
inline std::string plan_in_use(const Folder& folder) {
  const std::string file = folder / "used.json";
  succeeded(command("plan",
                    "--set workload.tables[3].pooling=600 --set "
                    "workload.tables[5].pooling=500 --no-row-replication "
                    "--device-memory-only") +
            Words{"--out", file});
  return file;
}

}  // namespace stepcast::cli_test
