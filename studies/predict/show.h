#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/memory_use.h"
#include "core/graph/program.h"
#include "core/job/job.h"

namespace stepcast::studies {

/// Contents of a step, read off its execution graph: nothing here asks a model or a clock, so
/// it holds for predicted and for recorded graphs alike.

/// Times each segment of a program is called in one step.
std::vector<std::int64_t> calls_of(const Program& program);

/// One op template and how often a rank of the class executes it.
struct OpContent {
  std::int32_t rank_class = 0;
  std::string segment;
  std::int64_t calls = 0;
  const Op* op = nullptr;  ///< of the graph
  std::string name;
  std::string stream;
  std::string communicator;         ///< collectives only
  std::vector<std::int64_t> waits;  ///< op templates whose events it awaits, by index
};
/// In issue order of the templates, class by class.
std::vector<OpContent> op_list(const ExecutionGraph& graph);

/// Ops of one kind (and phase): sums over the executions of a step on every rank, and on the rank
/// that does most of it.
struct WorkRow {
  OpKind kind = OpKind::kFill;
  Phase phase = Phase::kForward;  ///< meaningless when summed over phases
  double executions = 0;          ///< over all ranks
  Flops flops;
  Bytes read, written;
  Flops flops_most;  ///< of the rank with most FLOPs in this row
  Bytes bytes_most;  ///< of the rank with most traffic in this row
};
/// Computing ops, most FLOPs first, then most bytes.
std::vector<WorkRow> work_by_kind(const ExecutionGraph& graph, bool split_phases);

/// Ops of one kind on one communicator.
struct TrafficRow {
  std::string communicator;
  OpKind kind = OpKind::kAllReduce;
  double executions = 0;       ///< over all ranks
  std::size_t group = 0;       ///< members of the (largest) group
  Bytes buffers;               ///< sum of the ops' buffers, over all ranks
  Bytes sent;                  ///< over all ranks, see sent_bytes
  Bytes sent_most;             ///< of the rank that sends most
  std::int32_t rank_most = 0;  ///< that rank (the first of its class)
};
std::vector<TrafficRow> traffic(const ExecutionGraph& graph);

/// Bytes one member of a group of n must put on its link for an op with a buffer of B bytes, with
/// the algorithm that sends least:
///   all-reduce 2 (n-1)/n B, all-gather, reduce-scatter and all-to-all (n-1)/n B, send and
///   broadcast B (a broadcast averaged over members: (n-1)/n B), receive and barrier 0,
///   all-to-all-v what goes to others.
/// Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005.
Bytes sent_bytes(const Program& program, const Op& op, std::size_t members, std::size_t position);

/// Lookups of one embedding table in a training step over all devices.
struct LookupRow {
  std::string table;
  std::int64_t rows = 0, dim = 0;
  double pooling = 0;         ///< of all features together
  std::int64_t features = 1;  ///< that share the rows
  Format format = Format::kFp32;
  Bytes weights;         ///< one copy
  double lookups = 0;    ///< in the global batch
  double unique = 0;     ///< expected distinct rows among them
  bool sampled = false;  ///< `unique` goes beyond the recorded sample
  Bytes looked_up;       ///< lookups * bytes of a row, forward
  Bytes looked_up_unique;
};
/// In the order of the workload; empty for workloads without tables.
std::vector<LookupRow> lookups(const Job& job);

/// The ledger of one class and its largest allocations.
struct MemoryContent {
  std::int32_t rank_class = 0;
  std::vector<std::int32_t> ranks;
  MemoryUse use;
  struct Allocation {
    std::string name;
    TensorRole role = TensorRole::kActivation;
    Format format = Format::kFp32;
    std::int64_t rows = 0, columns = 0;
    std::int64_t instances = 1;  ///< live at once, at most: per-microbatch tensors have several
    Bytes bytes;                 ///< of all instances
  };
  std::vector<Allocation> largest;  ///< descending
};
std::vector<MemoryContent> memory_content(const ExecutionGraph& graph, std::size_t largest);

}  // namespace stepcast::studies
