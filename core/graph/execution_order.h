#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/graph/op_traits.h"
#include "core/graph/program.h"

namespace stepcast {

/// The rule of events, for whoever issues the ops of a program one after another: a wait refers to
/// the latest record of its event issued before it. `Value` is what is kept of a record: its
/// number, its time. Nothing else resolves waits.
///
///   latest.for_each_wait(op, [&](std::int32_t event, const Value& record) { ... });
///   latest.issue(op, value);
template <class Value>
class LatestRecords {
 public:
  /// `none`: what a wait finds where no record of its event was issued before.
  explicit LatestRecords(const Program& program, const Value& none = {})
      : program_(&program), latest_(static_cast<std::size_t>(program.events), none) {}

  [[nodiscard]] const Value& of(std::int32_t event) const {
    return latest_[static_cast<std::size_t>(event)];
  }
  template <class Visit>
  void for_each_wait(const Op& op, const Visit& visit) const {
    for (const std::int32_t event : program_->waits_of(op)) {
      visit(event, of(event));
    }
  }
  void record(std::int32_t event, const Value& value) {
    latest_[static_cast<std::size_t>(event)] = value;
  }
  /// The op's own record, where it makes one.
  void issue(const Op& op, const Value& value) {
    if (op.record >= 0) {
      record(op.record, value);
    }
  }

 private:
  const Program* program_;
  std::vector<Value> latest_;
};

/// The static part of executing a Program: what each stream runs, in order; which record each wait
/// refers to; which collectives of different ranks meet. Records of the step are numbered from 0 in
/// order of issue, and so are the collectives of each communicator.
///
/// Made once per program, in O(templates + calls * (records + waits + communicators) per segment),
/// whatever the ops cost. It holds templates and calls, no executed ops; `unrolled` lists those.
/// The program must outlive it.
/// Errors: InternalError where an op is on none of 1 to 64 streams, or on none of `communicators`.
/// Tests: tests/planner/drawn_schedules_test.cpp.
class ExecutionOrder {
 public:
  ExecutionOrder(const Program& program, std::size_t communicators);

  [[nodiscard]] const Program& program() const { return *program_; }
  [[nodiscard]] std::uint32_t streams() const { return streams_; }
  [[nodiscard]] std::uint64_t ops() const { return first_op_.back(); }  ///< executed in the step
  [[nodiscard]] std::uint32_t records() const { return records_; }      ///< made in the step
  /// Executed ops by stream.
  [[nodiscard]] const std::vector<std::uint64_t>& stream_ops() const { return stream_ops_; }
  /// Whether the host thread waits for some op's events (op_flags::kHostWaits).
  [[nodiscard]] bool host_waits() const { return host_waits_; }

  // Facts of an op template.
  /// A collective without a communicator computes.
  [[nodiscard]] OpRole role(std::size_t op) const { return role_[op]; }
  [[nodiscard]] std::uint8_t stream(std::size_t op) const { return stream_[op]; }

  /// Ops that a call issues to a stream: entries [first, last) of one list of op templates, which
  /// all calls of a segment share.
  struct Row {
    std::uint32_t first = 0, last = 0;
  };
  [[nodiscard]] Row row(std::uint32_t call, std::uint32_t stream) const {
    const std::size_t at = std::size_t{program_->calls[call].segment} * streams_ + stream;
    return {first_[at], first_[at + 1]};
  }
  /// All entries: op templates by segment and stream.
  [[nodiscard]] const std::vector<std::uint32_t>& entries() const { return list_; }
  /// How many entries of the row from this one on only compute: no wait, record or collective.
  [[nodiscard]] std::uint32_t plain_from(std::size_t entry) const { return plain_[entry]; }

  // Facts of an executed op.
  /// Its number in the step, in order of issue.
  [[nodiscard]] std::uint64_t number(std::uint32_t call, std::uint32_t op) const {
    return first_op_[call] + (op - program_->segments[program_->calls[call].segment].first_op);
  }
  /// The number of the record it makes; -1 none.
  [[nodiscard]] std::int32_t record(std::uint32_t call, std::uint32_t op) const {
    return record_[op] < 0 ? -1 : static_cast<std::int32_t>(first_record_[call]) + record_[op];
  }
  /// Record that a wait refers to: of the same call by its place in the segment or, if
  /// `external`, one of an earlier call.
  struct Wait {
    bool external = false;
    std::uint32_t index = 0;
  };
  [[nodiscard]] std::span<const Wait> waits(std::uint32_t op) const {
    return {waits_.data() + first_wait_[op], program_->ops[op].waits};
  }
  /// The number of the record that a wait of the call refers to. -1: none was issued before it in
  /// the step; it refers to the step before, which has ended.
  [[nodiscard]] std::int32_t awaited(std::uint32_t call, Wait wait) const {
    return wait.external ? external_records_[first_external_[call] + wait.index]
                         : static_cast<std::int32_t>(first_record_[call] + wait.index);
  }
  /// Valid: collectives, but for sends and receives. Its number among those of its communicator:
  /// members of a group meet in the collectives of equal numbers.
  [[nodiscard]] std::uint32_t sequence(std::uint32_t call, std::uint32_t op) const {
    return first_sequence_[std::size_t{call} * collectives_.size() +
                           static_cast<std::size_t>(program_->ops[op].communicator)] +
           sequence_[op];
  }
  /// Op templates of the collectives of a communicator, by that number.
  [[nodiscard]] const std::vector<std::uint32_t>& collectives(std::size_t communicator) const {
    return collectives_[communicator];
  }

 private:
  struct SegmentEdges;
  struct Place;
  [[nodiscard]] SegmentEdges number_edges(const Segment& segment, LatestRecords<Place>& latest);
  void list_streams();
  void follow_calls(const std::vector<SegmentEdges>& edges);

  const Program* program_;
  std::uint32_t streams_;
  std::uint32_t records_ = 0;
  std::vector<std::uint64_t> stream_ops_;
  bool host_waits_ = false;

  // By op template.
  std::vector<OpRole> role_;
  std::vector<std::uint8_t> stream_;
  std::vector<std::int32_t> record_;     // number among its segment's records, -1 none
  std::vector<std::uint32_t> sequence_;  // among its segment's collectives of the communicator
  std::vector<std::uint32_t> first_wait_;
  std::vector<Wait> waits_;

  // By segment and stream, CSR: row = segment * streams + stream.
  std::vector<std::uint32_t> first_;
  std::vector<std::uint32_t> list_;
  std::vector<std::uint32_t> plain_;

  // By call.
  std::vector<std::uint64_t> first_op_;  // executed ops issued before the call
  std::vector<std::uint32_t> first_record_;
  std::vector<std::uint32_t> first_external_;   // into external_records_
  std::vector<std::int32_t> external_records_;  // numbers, -1 none
  std::vector<std::uint32_t> first_sequence_;   // [call * communicators + communicator]

  std::vector<std::vector<std::uint32_t>> collectives_;
};

/// One op of the step in order of issue.
struct Issue {
  const Op* op = nullptr;
  OpRef ref;
  std::int32_t microbatch = 0;
  std::uint32_t first_wait = 0;  ///< into IssueList::awaited, one entry per wait of the op
  std::uint32_t record = 0;      ///< number of the record it makes, from 1; 0 none
};

/// All ops of one step, calls unrolled: what a runtime executes. Numbers of records are those of
/// the ExecutionOrder plus 1; `awaited` is 0 where no record was issued before in the step.
struct IssueList {
  std::vector<Issue> issues;
  std::vector<std::uint32_t> awaited;
};
IssueList unrolled(const ExecutionOrder& order);

}  // namespace stepcast
