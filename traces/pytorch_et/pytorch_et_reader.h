#pragma once
#include "core/input/input.h"
#include "traces/events/recording.h"

namespace stepcast::traces {

/// One rank from a PyTorch execution trace, schemas 1.0.1 to 1.1.1: {"schema": ..., "nodes":
/// [...]}.
///
/// An execution trace has no times (Timing::kNone): events stand in order of node id, `external` is
/// the id, Dependencies hold the parent (control) and the producers of a node's input tensors
/// (data, by tensor id, latest earlier producer). Ops are kCpuOp, ranges kUserRange;
/// record_param_comms and communication nodes carry a CollectiveInfo. rank is -1: the file does not
/// say. Errors: InputError naming file and byte. Source: the files;
/// reference/profiling-and-traces.md 5.2.
RankRecording read_pytorch_et(Input& input, Names& names);

}  // namespace stepcast::traces
