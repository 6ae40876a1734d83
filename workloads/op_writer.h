#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/graph/program_builder.h"

namespace stepcast::workloads {

/// A ProgramBuilder that knows which stream follows which. Ops are written for the compute stream;
/// a transfer may go to a stream of its own, then it starts once all compute ops written before it
/// are done, and what needs its result says so with `await`.
///
///   const auto done = w.transfer("tensor", overlap, OpKind::kAllReduce, "mlp.reduce", {n}, {x},
///   {x});
///   ... compute ops that do not need x ...
///   w.await(done);
///   w.compute(OpKind::kAdd, ...)
class OpWriter {
 public:
  using OpEdit = ProgramBuilder::OpEdit;
  /// The event of a transfer; -1 when it is on the compute stream and so in order anyway.
  using Event = std::int32_t;

  /// `overlapping`: some transfers will have streams of their own.
  OpWriter(Format compute, bool overlapping) : overlapping_(overlapping) {
    builder_.set_format(compute);
  }

  OpEdit compute(OpKind kind, std::string_view name, std::initializer_list<std::int64_t> shape);

  struct Transfer {
    OpKind kind = OpKind::kAllReduce;
    std::string_view name;
    std::int64_t elements = 0;
    std::int64_t tag = 0;
    std::vector<TensorId> in, out;
    std::int32_t communicator = -1;
    std::int32_t peer = -1;
    Format format = Format::kFp32;
    CollectiveAttributes attributes{};  ///< of a collective
    std::int32_t routing = -1;          ///< of copies of tokens
    bool after_compute = true;          ///< false: needs nothing of this rank (a receive)
    Event event = -1;                   ///< recorded at the end; -1: one of its own
    Event after = -1;                   ///< a transfer that it waits for where the next op need not
  };
  Event transfer(std::string_view stream, bool own_stream, const Transfer& t);
  /// The next compute op waits for the transfer.
  void await(Event event);
  /// The host issues nothing more until the compute stream's latest op is done.
  void synchronise_host();
  /// From now on so after every op of the compute stream.
  void block_launches() { blocks_ = true; }

  /// A temporary of the compute stream, one per name: layers use it one after the other.
  TensorId workspace(const std::string& name, std::int64_t rows, std::int64_t columns,
                     Format format);

  std::uint32_t begin_segment(std::string name, SegmentKind kind,
                              MicrobatchRole microbatches = MicrobatchRole::kAny) {
    return builder_.begin_segment(std::move(name), kind, microbatches);
  }
  void end_segment();
  void set_phase(Phase phase) { builder_.set_phase(phase); }
  ProgramBuilder& builder() { return builder_; }
  Program finish() && { return std::move(builder_).finish(); }

 private:
  void record_compute();

  ProgramBuilder builder_;
  std::unordered_map<std::string, TensorId> workspaces_;
  std::vector<Event> pending_;
  std::optional<OpEdit> last_;
  bool overlapping_ = false;
  bool host_waits_ = false;  ///< for the next compute op
  bool blocks_ = false;      ///< for every op
  bool compute_is_last_ =
      false;  ///< the latest op is on the compute stream, so it can still be told to record
  Event compute_event_ = -1;
};

}  // namespace stepcast::workloads
