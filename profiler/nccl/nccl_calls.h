#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "profiler/nccl/nccl_call.h"
#include "traces/events/rank_builder.h"

namespace stepcast::profiler {

/// "ncclAllReduce", ...
std::string_view name_of(NcclFunction function);
/// Bytes of one element of an ncclDataType_t and its name as traces write it; {0, ""} if unknown.
struct NcclType {
  std::int32_t bytes = 0;
  std::string_view name;
};
NcclType nccl_type(std::int32_t type);

/// The NCCL calls of one rank, joined with the kernels they launched.
///
/// A call outside a group launches on its own; the calls of a group launch together when the group
/// ends, and NCCL may serve several with one kernel. A launch's kernels are matched with its calls
/// by kind, in order; sends and receives of a group on one communicator are one exchange, whose
/// parts by member are kept. Calls that share a kernel are described by their sum.
class NcclCalls {
 public:
  void add(const NcclCall& call) { calls_.push_back(call); }
  /// Detail of the n-th collective of its function in a launch; its name then says it, too.
  void add(const NcclDetail& detail) { details_.push_back(detail); }
  [[nodiscard]] bool empty() const { return calls_.empty(); }

  /// Adds a host range per call (per exchange) that begins in [begin, end), with its collective.
  /// `global_rank`: of this process.
  void write(traces::RankBuilder& builder, std::int64_t process, std::int32_t global_rank,
             std::int64_t begin, std::int64_t end);
  /// Index into the builder's collectives for the `nth` of `kernels` that a launch made, whose name
  /// says `kind` (kCount: nothing); kNoDetail where no call explains it.
  [[nodiscard]] std::int32_t detail_of(traces::RankBuilder& builder, std::uint64_t launch,
                                       OpKind kind, std::size_t nth, std::size_t kernels) const;

 private:
  struct Launched {
    std::uint64_t launch;
    OpKind kind;
    std::int32_t detail;
  };
  std::int32_t describe(traces::RankBuilder& builder, const std::vector<NcclCall>& exchange,
                        std::int32_t global_rank) const;

  [[nodiscard]] std::string detailed_name(const NcclCall& call) const;

  std::vector<NcclCall> calls_;
  std::vector<NcclDetail> details_;
  std::vector<Launched> launched_;  ///< by launch, then order
};

}  // namespace stepcast::profiler
