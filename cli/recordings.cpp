#include "cli/recordings.h"

#include <fmt/format.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string_view>
#include <vector>

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

std::string trace_file(const std::string& path) {
  if (path != "-") {
    return path;
  }
  std::string name = (std::filesystem::temp_directory_path() / "stepcast-XXXXXX").string();
  const int file = mkstemp(name.data());
  if (file < 0) {
    throw EnvironmentError(name + ": cannot be made to keep standard input in");
  }
  unlink(name.c_str());
  constexpr std::uint64_t kMost = std::uint64_t{8} << 30U;
  std::vector<char> part(1 << 20U);
  std::uint64_t size = 0;
  while (std::cin.read(part.data(), static_cast<std::streamsize>(part.size())) ||
         std::cin.gcount() > 0) {
    const auto got = static_cast<std::size_t>(std::cin.gcount());
    size += got;
    if (size > kMost) {
      throw InputError("-", "standard input is more than 8 GiB; give the trace as a file");
    }
    for (std::size_t done = 0; done < got;) {
      const ssize_t written = write(file, part.data() + done, got - done);
      if (written <= 0) {
        throw RunError("-: standard input does not fit into the folder for temporary files");
      }
      done += static_cast<std::size_t>(written);
    }
  }
  return fmt::format("/proc/self/fd/{}", file);
}

traces::Recording open_recording(const std::string& path) {
  traces::Recording recording = traces::open_trace(trace_file(path));
  const traces::Oddities oddities = recording.all_oddities();
  const traces::Oddities::Entry& missing = oddities[traces::Oddity::kMissingRank];
  if (missing.count > 0) {
    fmt::print(stderr, "stepcast: {}: {} {} ({}), e.g. {}\n", path, missing.count,
               traces::name_of(traces::Oddity::kMissingRank),
               traces::meaning_of(traces::Oddity::kMissingRank), missing.example);
  }
  return recording;
}

traces::MeasuredRun read_run(const std::string& given, const std::string& mark) {
  const std::string path = trace_file(given);
  if (!traces::is_native(path)) {
    return traces::measured_run(open_recording(path), mark);
  }
  if (!mark.empty()) {
    throw InputError("--mark", path + " is a trace of our own, whose steps are marked");
  }
  return traces::measured_run(traces::read_native(path));
}

}  // namespace stepcast::cli
