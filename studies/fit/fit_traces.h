#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/system.h"
#include "studies/fit_rows.h"

namespace stepcast::studies {

struct FitTracesOptions {
  std::string device = {};  ///< name of the device that is fitted
  std::string system = {};  ///< name of the system around it; empty: the device's
  /// Hardware facts to fit on. What they carry as fitted is replaced: all of it by traces of cores,
  /// which show every op; by traces of devices what these show. Without, for our own traces:
  /// those of the job where it names a system whose ranks share cores, as `stepcast calibrate`
  /// writes it, else a bare core. For captures of other programs: the device of that name in the
  /// library, on one level of fabric.
  std::optional<System> facts = {};
  std::string mark = {};               ///< captures: the name of the ranges that are steps
  std::filesystem::path library = {};  ///< where names in the traces' jobs are looked up
};

/// One trace that was fitted to.
struct FittedTrace {
  std::string folder, workload;
  std::string hash;  ///< FNV-1a of its files, in hexadecimal
  std::int64_t ranks = 0;
  std::int64_t steps = 0;       ///< recorded
  std::int64_t used_steps = 0;  ///< whole on every rank
};

struct FitTracesResult {
  System system;  ///< device inline, everything fitted, with residuals
  std::vector<FittedTrace> traces;
  std::vector<MeasuredRow> rows;         ///< what the fits were made from
  std::vector<Unexplained> unexplained;  ///< what they could not use, by reason and name
  double seconds = 0;                    ///< of all recorded ops, waits in collectives left out
  std::vector<std::string> kept;         ///< models of the base that the traces left as they were
  std::vector<std::string> warnings;     ///< of captures: what their record leaves open
};

/// From captured traces to models: joins every op span of a native trace to its op's shape (through
/// the graph in the trace, and the job in it for embedding tables and exchanges), takes collectives
/// from the last arrival to the end, host gaps as they were, and fits what `stepcast calibrate`
/// fits, and the straggler term.
///
/// Captures of other programs (Kineto, `stepcast profile`) join device work to the shapes of the
/// operators that launched it (traces/graph/operator_join.h); what has none is listed with its
/// time. A capture is a file of one rank or a folder of all of a run; wait and transfer are told
/// apart where all members of a communicator are in it. Captures are not mixed with our own traces:
/// one holds a core's rows, the other a device's.
///
/// Traces carry no index streams: lookups follow the access law of the trace's job.
/// Deterministic: the same traces, in any order, give the same bytes.
/// Errors: InputError naming the trace: no trace at that place, a missing rank file, no complete
/// step, ranks that differ from the first trace's.
FitTracesResult fit_traces(std::span<const std::filesystem::path> folders,
                           const FitTracesOptions& options);

}  // namespace stepcast::studies
