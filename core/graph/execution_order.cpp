#include "core/graph/execution_order.h"

#include "core/error.h"

namespace stepcast {
namespace {

bool meets_in_sequence(OpRole role) {
  return role == OpRole::kSymmetric || role == OpRole::kRankwise || role == OpRole::kBroadcast;
}

}  // namespace

/// A record by its place in a segment.
struct ExecutionOrder::Place {
  const Segment* segment = nullptr;
  std::uint32_t index = 0;
};

/// Facts of a segment that its calls need.
struct ExecutionOrder::SegmentEdges {
  std::vector<std::int32_t> recorded;  // event by record number
  std::vector<std::int32_t> external;  // events waited for before the segment records them
  std::vector<std::uint32_t> meeting;  // collectives in issue order
};

ExecutionOrder::SegmentEdges ExecutionOrder::number_edges(const Segment& segment,
                                                          LatestRecords<Place>& latest) {
  SegmentEdges edges;
  std::vector<std::uint32_t> counts(collectives_.size(), 0);
  for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
    const Op& op = program_->ops[o];
    first_wait_[o] = static_cast<std::uint32_t>(waits_.size());
    latest.for_each_wait(op, [&](std::int32_t event, const Place& place) {
      if (place.segment == &segment) {
        waits_.push_back({false, place.index});
      } else {
        waits_.push_back({true, static_cast<std::uint32_t>(edges.external.size())});
        edges.external.push_back(event);
      }
    });
    if (op.record >= 0) {
      const auto index = static_cast<std::uint32_t>(edges.recorded.size());
      record_[o] = static_cast<std::int32_t>(index);
      latest.issue(op, {&segment, index});
      edges.recorded.push_back(op.record);
    }
    if (meets_in_sequence(role_[o])) {
      sequence_[o] = counts[static_cast<std::size_t>(op.communicator)]++;
      edges.meeting.push_back(o);
    }
  }
  return edges;
}

void ExecutionOrder::list_streams() {
  for (const Segment& segment : program_->segments) {
    for (std::uint32_t stream = 0; stream < streams_; ++stream) {
      first_.push_back(static_cast<std::uint32_t>(list_.size()));
      for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
        if (stream_[o] == stream) {
          list_.push_back(o);
        }
      }
      plain_.resize(list_.size(), 0);
      std::uint32_t run = 0;
      for (std::size_t i = list_.size(); i > first_.back(); --i) {
        const std::uint32_t o = list_[i - 1];
        const Op& op = program_->ops[o];
        const bool plain = role_[o] == OpRole::kCompute && op.waits == 0 && op.record < 0;
        run = plain ? run + 1 : 0;
        plain_[i - 1] = run;
      }
    }
  }
  first_.push_back(static_cast<std::uint32_t>(list_.size()));
}

void ExecutionOrder::follow_calls(const std::vector<SegmentEdges>& edges) {
  LatestRecords<std::int32_t> latest(*program_, -1);
  std::uint64_t ops = 0;
  for (const Call& call : program_->calls) {
    const SegmentEdges& own = edges.at(call.segment);
    first_op_.push_back(ops);
    first_record_.push_back(records_);
    first_external_.push_back(static_cast<std::uint32_t>(external_records_.size()));
    for (const auto& row : collectives_) {
      first_sequence_.push_back(static_cast<std::uint32_t>(row.size()));
    }
    for (const std::int32_t event : own.external) {
      external_records_.push_back(latest.of(event));
    }
    for (const std::int32_t event : own.recorded) {
      latest.record(event, static_cast<std::int32_t>(records_++));
    }
    for (const std::uint32_t o : own.meeting) {
      collectives_[static_cast<std::size_t>(program_->ops[o].communicator)].push_back(o);
    }
    for (std::uint32_t s = 0; s < streams_; ++s) {
      const std::size_t row = std::size_t{call.segment} * streams_ + s;
      stream_ops_[s] += first_[row + 1] - first_[row];
    }
    ops += program_->segments[call.segment].op_count;
  }
  first_op_.push_back(ops);
}

ExecutionOrder::ExecutionOrder(const Program& program, std::size_t communicators)
    : program_(&program),
      streams_(static_cast<std::uint32_t>(program.streams.size())),
      stream_ops_(program.streams.size(), 0),
      role_(program.ops.size(), OpRole::kCompute),
      stream_(program.ops.size(), 0),
      record_(program.ops.size(), -1),
      sequence_(program.ops.size(), 0),
      first_wait_(program.ops.size(), 0),
      collectives_(communicators) {
  STEPCAST_CHECK(streams_ >= 1 && streams_ <= 64, "a program has {} streams, 1 to 64 are possible",
                 streams_);
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    const Op& op = program.ops[o];
    STEPCAST_CHECK(op.stream < streams_, "op '{}' is on stream {} of {}", program.name(op),
                   op.stream, streams_);
    STEPCAST_CHECK(op.communicator < static_cast<std::int32_t>(communicators),
                   "op '{}' names communicator {} of {}", program.name(op), op.communicator,
                   communicators);
    stream_[o] = op.stream;
    role_[o] = op.communicator < 0 ? OpRole::kCompute : traits_of(op.kind).role;
    host_waits_ = host_waits_ || (op.flags & op_flags::kHostWaits) != 0;
  }
  std::vector<SegmentEdges> edges;
  LatestRecords<Place> latest(program);
  for (const Segment& segment : program.segments) {
    edges.push_back(number_edges(segment, latest));
  }
  list_streams();
  follow_calls(edges);
}

IssueList unrolled(const ExecutionOrder& order) {
  const Program& program = order.program();
  IssueList list;
  list.issues.reserve(order.ops());
  for (std::uint32_t c = 0; c < program.calls.size(); ++c) {
    const Call& call = program.calls[c];
    const Segment& segment = program.segments[call.segment];
    for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
      list.issues.push_back({&program.ops[o],
                             {c, o},
                             call.microbatch,
                             static_cast<std::uint32_t>(list.awaited.size()),
                             static_cast<std::uint32_t>(order.record(c, o) + 1)});
      for (const ExecutionOrder::Wait wait : order.waits(o)) {
        list.awaited.push_back(static_cast<std::uint32_t>(order.awaited(c, wait) + 1));
      }
    }
  }
  return list;
}

}  // namespace stepcast
