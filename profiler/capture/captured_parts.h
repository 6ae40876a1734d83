#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "traces/events/recording.h"

namespace stepcast::profiler {

/// How far the capture of one process came. Each process that loads the module keeps a file that
/// says so, so that a capture which gave nothing can say why.
struct ProcessStatus {
  enum class State {
    kStarted,  ///< records are being collected; the last word of a process that died
    kWritten,  ///< its part is there
    kEmpty,    ///< it ran to its end, but nothing fell into the window
    kBusy,     ///< another tool holds CUPTI
    kFailed,   ///< CUPTI or the disk said no
  };
  State state = State::kStarted;
  std::string process;  ///< host and process id
  std::string text;     ///< the reason, for people
};

/// The parts of a capture lie in a folder of their own inside the trace's: PARTS/NAME/ a recording
/// of one rank, PARTS/NAME.status. Both appear whole or not at all.
class CapturedParts {
 public:
  explicit CapturedParts(const std::filesystem::path& out) : folder_(out / ".parts") {}

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  /// `name` is that of a process: host and process id. A rank of -1 is not known. Errors:
  /// InputError as write_recording's.
  void write(const std::string& name, traces::Recording recording) const;
  void write(const std::string& name, ProcessStatus::State state, const std::string& text) const;

  [[nodiscard]] std::vector<ProcessStatus> processes() const;
  [[nodiscard]] std::vector<traces::Recording> recordings() const;
  void remove() const;

 private:
  std::filesystem::path folder_;
};

/// One recording of all ranks from those of each. Names are shared; communicators learn the global
/// ranks of their members, and collectives those of their peers, from what each rank knew of
/// itself; clocks of ranks that ran on one boot of one machine are one clock, others are set by the
/// time of day. A process that knew no rank gets that of its largest communicator, else the lowest
/// that is free, in order of start; of two that claim one rank the one with more device work stays,
/// and the other is counted as an oddity.
///
/// Errors: InputError when there is no part.
traces::Recording merge_ranks(std::vector<traces::Recording> parts);

}  // namespace stepcast::profiler
