#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/graph/program_builder.h"
#include "workloads/passes/draft.h"

namespace stepcast::workloads {

/// A ProgramBuilder that also notes the order of what it writes (workloads/passes/draft.h).
/// Ops are written for the compute stream; a transfer has a lane, and what needs its result says so
/// with `await`. Which transfers get a stream of their own is decided later
/// (workloads/passes/streams.h): then one starts once all compute ops written before it are done.
///
///   const auto done = w.transfer(Lane::kTensor, {.kind = OpKind::kAllReduce, ...});
///   ... compute ops that do not need x ...
///   w.await(done);
///   w.compute(OpKind::kAdd, ...)
class OpWriter {
 public:
  using OpEdit = ProgramBuilder::OpEdit;
  using Event = AsyncHandle;  ///< when a transfer is done

  explicit OpWriter(Format compute) { builder_.set_format(compute); }
  /// Writes a program that is begun.
  explicit OpWriter(ProgramBuilder builder) : builder_(std::move(builder)) {}

  OpEdit compute(OpKind kind, std::string_view name, std::initializer_list<std::int64_t> shape);

  /// An op of any lane in a program whose ops follow others by name (DependencyInfo::by_name).
  ///
  ///   w.op(Lane::kInput, OpKind::kLoadBatch, "load_batch", {bytes}).out(batch);
  ///   const OpId loaded = w.written();
  ///   w.compute(OpKind::kGemm, ...);
  ///   w.follows(loaded);
  OpEdit op(Channel channel, OpKind kind, std::string_view name,
            std::initializer_list<std::int64_t> shape);
  /// The op written last.
  [[nodiscard]] OpId written() const { return static_cast<OpId>(order_.ops.size()) - 1; }
  /// The op written last starts once `on` is done, whatever streams the two have.
  void follows(OpId on);

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
    Event event = kNoTransfer;          ///< its name, where it has one already
    Event after = kNoTransfer;          ///< a transfer that it waits for where the next op need not
  };
  Event transfer(Channel channel, const Transfer& t);
  /// Between the device and the memory of the host (kHostTier): fetched from it or written to it.
  /// Waits for `after` alone.
  Event host_move(OpKind kind, std::string_view name, Bytes bytes, const std::vector<TensorId>& in,
                  const std::vector<TensorId>& out, Event after = kNoTransfer);
  /// A name for a transfer; `early` where ops written before it await it, as the last one of that
  /// name.
  Event name_transfer(Channel channel, bool early = true);
  /// An op as it is (ProgramBuilder::copy); `of` says all but what it awaits.
  void copy(const Op& op, const DependencyInfo::OfOp& of, std::uint32_t name,
            std::span<const TensorId> in, std::span<const TensorId> out);
  /// The next compute op waits for the transfer.
  void await(Event event);
  /// The host issues nothing more until the compute stream's latest op is done.
  void synchronise_host() { awaits_.push_back(kHostSynchronises); }

  /// Marks what `write` writes as this part of a layer.
  template <class Write>
  void part(LayerPart part, std::int64_t layer, const Write& write, std::int64_t piece = 0) {
    const std::size_t index = order_.parts.size();
    order_.parts.push_back({{part, layer, piece}, place(), 0});
    write();
    order_.parts[index].end = place().op;
  }
  /// The backward pass needs from here on what the part made.
  void needs(LayerPart part, std::int64_t layer, std::int64_t piece = 0) {
    order_.needs.push_back({{part, layer, piece}, place()});
  }
  /// From here on the segment reads weights of the unit, to which its ops belong.
  void uses_weights(std::int64_t unit) {
    builder_.set_layer(unit);
    order_.unit_uses.push_back({unit, false, segment_, place()});
  }
  /// From here on the segment adds to gradients of the unit, to which its ops belong.
  void adds_gradients(std::int64_t unit) {
    builder_.set_layer(unit);
    order_.unit_uses.push_back({unit, true, segment_, place()});
  }
  /// Marks the ops that follow as those that would stand before op `instead_of` of the backward
  /// pass, which left them.
  void left_over(std::uint32_t instead_of) { order_.left_over.push_back({instead_of, place().op}); }
  /// Marks what `write` writes as a product of a layer.
  template <class Write>
  void product(std::string block, std::vector<DependencyInfo::Product::Matrix> matrices,
               const Write& write) {
    const std::size_t index = order_.products.size();
    order_.products.push_back({std::move(block), std::move(matrices), place().op, 0});
    write();
    order_.products[index].end = place().op;
  }
  /// A value of a layer that its backward pass reads: of each micro-batch.
  TensorId value(const std::string& name, std::string what, std::int64_t rows, std::int64_t columns,
                 Format format) {
    const TensorId id = builder_.activation(name, rows, columns, format);
    order_.values.emplace(id, std::move(what));
    return id;
  }

  /// A temporary of the compute stream, one per name: layers use it one after the other.
  TensorId workspace(const std::string& name, std::int64_t rows, std::int64_t columns,
                     Format format);

  std::uint32_t begin_segment(std::string name, SegmentKind kind,
                              MicrobatchRole microbatches = MicrobatchRole::kAny) {
    return segment_ = builder_.begin_segment(std::move(name), kind, microbatches);
  }
  void end_segment();
  /// Between the op written last and the next one, after what is awaited so far.
  [[nodiscard]] DependencyInfo::Place place() const {
    return {static_cast<std::uint32_t>(order_.ops.size()),
            static_cast<std::uint32_t>(awaits_.size())};
  }
  void set_phase(Phase phase) { builder_.set_phase(phase); }
  ProgramBuilder& builder() { return builder_; }
  DependencyInfo& order() { return order_; }
  struct Written {
    Program program;
    DependencyInfo order;
  };
  Written finish() &&;

 private:
  void note(DependencyInfo::OfOp of);

  ProgramBuilder builder_;
  DependencyInfo order_;
  std::vector<AsyncHandle> awaits_;  ///< stated since the latest op
  std::uint32_t segment_ = 0;
};

}  // namespace stepcast::workloads
