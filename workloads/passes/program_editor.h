#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "workloads/op_writer.h"

namespace stepcast::workloads {

/// Writes a program once more, with ops between those that it had. An op that is inserted stands as
/// if the builder had written it there: it takes what is awaited at its place.
///
///   ProgramEditor edit(program, order, ProgramEditor::Tables::kKept);
///   for (const Segment& s : edit.program().segments) {
///     edit.begin_segment(s, s.name, s.microbatches);
///     edit.keep_to(place);
///     edit.writer().compute(...);
///     edit.end_segment();
///   }
///   edit.finish(program, order);  // after the calls
class ProgramEditor {
 public:
  /// Names and tensors: as they are, or declared anew, names by their first use.
  enum class Tables : std::uint8_t { kSaved, kAnew };

  /// Takes both: they are as they were again, with the changes, after `finish`.
  ProgramEditor(Program& program, DependencyInfo& order, Tables tables);

  /// Ops, segments and calls as they were; with tables anew tensors too, each until it is kept.
  [[nodiscard]] Program& program() { return was_; }
  [[nodiscard]] const Program& program() const { return was_; }
  [[nodiscard]] const DependencyInfo& order() const { return order_; }
  OpWriter& writer() { return writer_; }

  /// With tables anew: the program's tensor `was` is `now`, which has been declared.
  void replace_tensor(TensorId was, TensorId now) { now_[was] = now; }
  /// Declares all tensors that have not been replaced, in their order.
  void keep_tensors();

  /// Begins to write a segment, once more where it was written already.
  std::uint32_t begin_segment(const Segment& was, std::string name, MicrobatchRole microbatches);
  /// Before its first op: none of its ops awaits these transfers, its next call awaits all of them.
  void await_in_next_call(const std::vector<AsyncHandle>& transfers);
  /// Writes its ops before a place, and states what is awaited before it.
  void keep_to(DependencyInfo::Place place);
  /// Leaves out its next op, which awaits nothing.
  void leave_out();
  /// Writes an op that was left out here.
  void bring(std::uint32_t op) { write_op(op); }
  /// Writes the rest of its ops.
  void keep_rest() { keep_to({end_, 0}); }
  /// After its last op.
  void end_segment();
  void finish(Program& program, DependencyInfo& order);

 private:
  void write_op(std::uint32_t op);
  void await_to(std::uint32_t awaits);
  [[nodiscard]] AsyncHandle transfer_now(AsyncHandle was) const {
    return was < 0 ? was : transfers_[static_cast<std::size_t>(was)];
  }
  [[nodiscard]] DependencyInfo::Place place_now(const DependencyInfo::Place& was) const;
  [[nodiscard]] std::uint32_t end_now(std::uint32_t was) const;
  void carry_marks();

  static constexpr TensorId kNotKept = static_cast<TensorId>(-1);

  Program was_;
  DependencyInfo order_;
  std::vector<TensorId> now_;  ///< by tensor
  OpWriter writer_;
  std::vector<std::uint32_t> names_;    ///< by name; empty: as they were
  std::vector<AsyncHandle> transfers_;  ///< by transfer: the latest of its copies
  std::vector<bool> later_;             ///< by transfer: awaited in the segment's next call
  std::vector<std::pair<std::uint32_t, AsyncHandle>> early_;  ///< where they are named
  struct Now {
    std::uint32_t op = 0;
    std::int32_t more_awaits = 0;  ///< than it had
  };
  std::vector<Now> ops_;  ///< by op: the latest of its copies
  DependencyInfo::Place at_;
  std::uint32_t first_ = 0, end_ = 0;  ///< ops of the segment
  std::vector<TensorId> operands_;
};

}  // namespace stepcast::workloads
