#include "cli/recordings.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "core/error.h"
#include "traces/graph/measured_recording.h"
#include "traces/native/native_trace.h"
#include "traces/open_trace.h"

namespace stepcast::cli {

bool is_recording(const std::string& path) {
  if (path.empty() || path == "-") {
    return false;
  }
  if (!std::filesystem::is_regular_file(path)) {
    return std::filesystem::is_directory(path);
  }
  std::string head(1 << 20U, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(file.gcount()));
  if (head.find('\0') != std::string::npos || head.starts_with("\x1f\x8b")) {
    return true;
  }
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || (head[first] != '{' && head[first] != '[')) {
    return false;
  }
  return head[first] == '[' || head.find("\"traceEvents\"") != std::string::npos ||
         head.find("\"nodes\"") != std::string::npos;
}

traces::Recording open_recording(const std::string& path) {
  traces::Recording recording = traces::open_trace(path);
  const traces::Oddities oddities = recording.all_oddities();
  const traces::Oddities::Entry& missing = oddities[traces::Oddity::kMissingRank];
  if (missing.count > 0) {
    fmt::print(stderr, "stepcast: {}: {} {} ({}), e.g. {}\n", path, missing.count,
               traces::name_of(traces::Oddity::kMissingRank),
               traces::meaning_of(traces::Oddity::kMissingRank), missing.example);
  }
  return recording;
}

traces::MeasuredRun read_run(const std::string& path, const std::string& mark) {
  if (!traces::is_native(path)) {
    return traces::measured_run(open_recording(path), mark);
  }
  if (!mark.empty()) {
    throw InputError("--mark", path + " is a trace of our own, whose steps are marked");
  }
  return traces::measured_run(traces::read_native(path));
}

}  // namespace stepcast::cli
