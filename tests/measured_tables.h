#pragma once
#include <filesystem>

namespace stepcast::measurements {

/// Benchmark tables of others in the schema of stepcast: ctest converts ../shared/data once a run
/// (tests/CMakeLists.txt). A test whose table is absent warns `kNoTables` and ends.
inline std::filesystem::path measured_tables(const std::filesystem::path& what) {
  return std::filesystem::path(STEPCAST_EXECUTABLE).parent_path().parent_path() / "measured" / what;
}
constexpr const char* kNoTables =
    "skipped: no converted tables; ctest converts them where ../shared/data is "
    "(scripts/data/convert)";

}  // namespace stepcast::measurements
