#pragma once
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

namespace stepcast::traces::test {

/// ../shared/data/traces; empty, with the reason printed, where it is absent.
inline std::filesystem::path shared_traces() {
  const std::filesystem::path folder = std::filesystem::path(STEPCAST_SHARED_DATA) / "traces";
  if (!std::filesystem::is_directory(folder)) {
    WARN("skipped: no recorded traces in " << folder.string());
    return {};
  }
  return folder;
}

struct TemporaryFolder {
  std::filesystem::path path = std::filesystem::temp_directory_path() /
                               ("stepcast-recording-" + std::to_string(std::random_device{}()));
  TemporaryFolder() { std::filesystem::create_directories(path); }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path put(const std::string& name, const std::string& text) const {
    std::ofstream(path / name, std::ios::binary) << text;
    return path / name;
  }
};

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace stepcast::traces::test
