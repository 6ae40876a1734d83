#include "cli/support/recordings.h"

#include <fmt/ostream.h>

#include <cstdio>
#include <iostream>
#include <vector>

#include "cli/support/console.h"
#include "core/error.h"
#include "core/temporary_folder.h"
#include "traces/formats.h"
#include "traces/memory/memory_record.h"
#include "traces/open_trace.h"

namespace stepcast::cli {

bool is_recording(const std::string& path) {
  return !path.empty() && path != "-" &&
         (traces::is_trace(path) || traces::is_memory_snapshot(path));
}

std::string trace_file(const std::string& path) {
  if (path != "-") {
    return path;
  }
  const TemporaryFolder folder("stepcast");  // gone when this returns: the open file stays
  const std::string name = folder.path() / "input";
  std::FILE* file = std::fopen(name.c_str(), "w+b");
  if (file == nullptr) {
    throw EnvironmentError(name + ": cannot be made to keep standard input in");
  }
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
    if (std::fwrite(part.data(), 1, got, file) != got || std::fflush(file) != 0) {
      throw RunError("-: standard input does not fit into the folder for temporary files");
    }
  }
  return fmt::format("/proc/self/fd/{}", fileno(file));
}

DeviceName recorded_device(const traces::Recording& recording, const char* option) {
  const auto& devices = recording.ranks.front().devices;
  const std::string device = devices.empty() ? "" : devices.front();
  const auto named = device_named(device);
  if (!named) {
    throw InputError(option,
                     device.empty()
                         ? "is needed: the trace does not say what it was recorded on"
                         : fmt::format("is needed: the trace was recorded on \"{}\", which is none "
                                       "of `stepcast list devices`",
                                       device));
  }
  return *named;
}

void tell_oddities(const std::string& path, const traces::ParseWarnings& oddities,
                   std::optional<traces::ParseWarning> only) {
  for (std::size_t k = 0; k < static_cast<std::size_t>(traces::ParseWarning::kCount); ++k) {
    const auto kind = static_cast<traces::ParseWarning>(k);
    if (oddities[kind].count > 0 && only.value_or(kind) == kind) {
      fmt::print(notes(), "stepcast: {}: {} {} ({}), e.g. {}\n", path, oddities[kind].count,
                 traces::name_of(kind), traces::meaning_of(kind), oddities[kind].example);
    }
  }
}

traces::Recording open_recording(const std::string& path) {
  traces::Recording recording = traces::open_trace(trace_file(path));
  tell_oddities(path, recording.all_oddities(), traces::ParseWarning::kMissingRank);
  return recording;
}

traces::MeasuredRun read_run(const std::string& path, const std::string& mark) {
  return traces::measured_run(open_recording(path), mark);
}

}  // namespace stepcast::cli
