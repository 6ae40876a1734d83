#include "profiler/capture/captured_parts.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>

#include "core/error.h"
#include "core/whole_file.h"
#include "traces/native/native_trace.h"

namespace stepcast::profiler {
namespace {

namespace fs = std::filesystem;
using State = ProcessStatus::State;

constexpr std::array<std::string_view, 5> kStates{"started", "written", "empty", "busy", "failed"};
constexpr const char* kStatus = ".status";
constexpr const char* kRankUnknown = "rank.unknown";

}  // namespace

void CapturedParts::write(const std::string& name, traces::Recording recording) const {
  for (traces::RankRecording& rank : recording.ranks) {
    if (rank.rank < 0) {  // a rank is a number in the format
      rank.rank = 0;
      rank.metadata[kRankUnknown] = "yes";
    }
  }
  traces::write_recording(folder_ / name, recording);
}

void CapturedParts::write(const std::string& name, State state, const std::string& text) const {
  std::error_code failure;
  fs::create_directories(folder_, failure);
  write_whole_file(folder_ / (name + kStatus),
                   fmt::format("{}\n{}\n", kStates[static_cast<std::size_t>(state)], text));
}

std::vector<ProcessStatus> CapturedParts::processes() const {
  std::vector<ProcessStatus> all;
  std::error_code absent;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, absent)) {
    if (entry.path().extension() != kStatus) {
      continue;
    }
    std::ifstream in(entry.path());
    std::string state;
    ProcessStatus status;
    std::getline(in, state);
    std::getline(in, status.text);
    const auto found = std::find(kStates.begin(), kStates.end(), state);
    status.state =
        found == kStates.end() ? State::kFailed : static_cast<State>(found - kStates.begin());
    status.process = entry.path().stem().string();
    all.push_back(std::move(status));
  }
  std::sort(all.begin(), all.end(),
            [](const ProcessStatus& a, const ProcessStatus& b) { return a.process < b.process; });
  return all;
}

std::vector<traces::Recording> CapturedParts::recordings() const {
  std::vector<fs::path> folders;
  std::error_code absent;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, absent)) {
    if (entry.is_directory() && traces::is_native(entry.path())) {
      folders.push_back(entry.path());
    }
  }
  std::sort(folders.begin(), folders.end());
  std::vector<traces::Recording> all;
  for (const fs::path& folder : folders) {
    all.push_back(traces::read_recording(folder));
    for (traces::RankRecording& rank : all.back().ranks) {
      rank.rank = rank.metadata.erase(kRankUnknown) > 0 ? -1 : rank.rank;
    }
  }
  return all;
}

void CapturedParts::remove() const {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace stepcast::profiler
