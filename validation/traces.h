#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "studies/traces/replay.h"

namespace stepcast::validation {

/// One recorded run of a folder of traces: what it holds, and how well it replays.
struct TraceSet {
  std::string name;  ///< path below the folder
  std::int64_t ranks = 0, steps = 0;
  std::uint64_t events = 0;  ///< complete events of the source
  std::uint64_t kernels = 0, collectives = 0;
  std::optional<studies::Replay> replay;  ///< of runs of several ranks or steps
  std::optional<std::string> skipped;     ///< why it is not replayed, or not scored
  bool opens = true;
  [[nodiscard]] bool scored() const { return replay && !skipped; }
};

/// All runs below a folder. A folder is one run when its files are named alike but for digits, are
/// of different ranks, and lie over each other in time; else every file is a run of its own. A file
/// that does not open is listed with the reason.
///
/// Not replayed: execution graphs, which have no times, and single steps of a single rank, which
/// predict nothing. Not scored: runs that are host-bound (rule R1).
/// Errors: InputError when the folder holds no trace.
std::vector<TraceSet> replay_sets(const std::filesystem::path& data);

/// A program recorded on one device, moved to another on which it was recorded too: device time of
/// a step, without communication.
struct MovedTrace {
  std::string name, device, to;
  Seconds recorded, predicted, truth;  ///< on `device`; `to` by the models; recorded on `to`
  double covered = 0;                  ///< share of device time that models moved
  [[nodiscard]] double error() const { return predicted / truth - 1; }
  [[nodiscard]] double naive_error() const { return recorded / truth - 1; }  ///< nothing changes
};

/// Files of a folder named DEVICE_PROGRAM of which several have the same PROGRAM and DEVICE begins
/// the name of the device they were recorded on ("h100_vit.json.gz", "mi300_vit.json.gz"): each as
/// on each other one's device. Empty where there are none.
std::vector<MovedTrace> moved_traces(const std::filesystem::path& data,
                                     const config::Library& library);

}  // namespace stepcast::validation
