#pragma once
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "tests/folder.h"

namespace stepcast::traces::test {

using fixtures::Folder;
using fixtures::text_of;

/// ../shared/data/traces; empty, with the reason printed, where it is absent.
inline std::filesystem::path shared_traces() {
  const std::filesystem::path folder = std::filesystem::path(STEPCAST_SHARED_DATA) / "traces";
  if (!std::filesystem::is_directory(folder)) {
    WARN("skipped: no recorded traces in " << folder.string());
    return {};
  }
  return folder;
}

}  // namespace stepcast::traces::test
