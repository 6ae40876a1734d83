#include "simulator/issue_order.h"

#include <algorithm>

#include "core/error.h"

namespace stepcast::simulator {

namespace {

bool meets_in_sequence(Role role) {
  return role == Role::kSymmetric || role == Role::kRankwise || role == Role::kBroadcast;
}

/// What the calls need to know of a segment.
struct SegmentEdges {
  std::vector<std::int32_t> recorded;  // event by record number
  std::vector<std::int32_t> external;  // events waited for before the segment records them
};

SegmentEdges number_edges(IssueOrder& order, const Segment& segment) {
  const Program& program = *order.program;
  SegmentEdges edges;
  for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
    const Op& op = program.ops[o];
    order.first_wait[o] = static_cast<std::uint32_t>(order.waits.size());
    for (const std::int32_t event : program.waits_of(op)) {
      const auto last = std::find(edges.recorded.rbegin(), edges.recorded.rend(), event);
      if (last != edges.recorded.rend()) {
        order.waits.push_back(
            {false, static_cast<std::uint32_t>(edges.recorded.rend() - last - 1)});
      } else {
        order.waits.push_back({true, static_cast<std::uint32_t>(edges.external.size())});
        edges.external.push_back(event);
      }
    }
    if (op.record >= 0) {
      order.record[o] = static_cast<std::int32_t>(edges.recorded.size());
      edges.recorded.push_back(op.record);
    }
  }
  return edges;
}

void list_streams(IssueOrder& order) {
  const Program& program = *order.program;
  for (const Segment& segment : program.segments) {
    for (std::uint32_t stream = 0; stream < order.streams; ++stream) {
      order.first.push_back(static_cast<std::uint32_t>(order.list.size()));
      for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
        if (program.ops[o].stream == stream) {
          order.list.push_back(o);
        }
      }
      order.plain.resize(order.list.size(), 0);
      std::uint32_t run = 0;
      for (std::size_t i = order.list.size(); i > order.first.back(); --i) {
        const std::uint32_t o = order.list[i - 1];
        const Op& op = program.ops[o];
        const bool plain = order.role[o] == Role::kCompute && op.waits == 0 && op.record < 0;
        run = plain ? run + 1 : 0;
        order.plain[i - 1] = run;
      }
    }
  }
  order.first.push_back(static_cast<std::uint32_t>(order.list.size()));
}

}  // namespace

IssueOrder::IssueOrder(const Program& source, std::size_t communicator_count)
    : program(&source),
      streams(static_cast<std::uint32_t>(source.streams.size())),
      communicators(static_cast<std::uint32_t>(communicator_count)),
      stream_ops(source.streams.size(), 0),
      role(source.ops.size(), Role::kCompute),
      stream(source.ops.size(), 0),
      record(source.ops.size(), -1),
      sequence(source.ops.size(), 0),
      first_wait(source.ops.size(), 0),
      collectives(communicator_count) {
  STEPCAST_CHECK(streams >= 1 && streams <= 64, "a program has {} streams, 1 to 64 are possible",
                 streams);
  for (std::size_t o = 0; o < source.ops.size(); ++o) {
    const Op& op = source.ops[o];
    STEPCAST_CHECK(op.stream < streams, "op '{}' is on stream {} of {}", source.name(op), op.stream,
                   streams);
    STEPCAST_CHECK(op.communicator < static_cast<std::int32_t>(communicator_count),
                   "op '{}' names communicator {} of {}", source.name(op), op.communicator,
                   communicator_count);
    stream[o] = op.stream;
    role[o] = op.communicator < 0 ? Role::kCompute : traits_of(op.kind).role;
    host_waits = host_waits || (op.flags & op_flags::kHostWaits) != 0;
  }
  std::vector<SegmentEdges> edges;
  std::vector<std::vector<std::uint32_t>> talk;  // by segment: collectives in issue order
  for (const Segment& segment : source.segments) {
    edges.push_back(number_edges(*this, segment));
    auto& ops_here = talk.emplace_back();
    std::vector<std::uint32_t> counts(communicators, 0);
    for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
      if (meets_in_sequence(role[o])) {
        sequence[o] = counts[static_cast<std::size_t>(source.ops[o].communicator)]++;
        ops_here.push_back(o);
      }
    }
  }
  list_streams(*this);

  std::vector<std::int32_t> latest(static_cast<std::size_t>(source.events), -1);
  for (const Call& call : source.calls) {
    const Segment& segment = source.segments.at(call.segment);
    first_op.push_back(ops);
    first_record.push_back(records);
    first_external.push_back(static_cast<std::uint32_t>(external_records.size()));
    for (const auto& row : collectives) {
      first_sequence.push_back(static_cast<std::uint32_t>(row.size()));
    }
    for (const std::int32_t event : edges[call.segment].external) {
      external_records.push_back(latest.at(static_cast<std::size_t>(event)));
    }
    for (const std::int32_t event : edges[call.segment].recorded) {
      latest.at(static_cast<std::size_t>(event)) = static_cast<std::int32_t>(records++);
    }
    for (const std::uint32_t o : talk[call.segment]) {
      collectives[static_cast<std::size_t>(source.ops[o].communicator)].push_back(o);
    }
    for (std::uint32_t s = 0; s < streams; ++s) {
      const std::size_t row = std::size_t{call.segment} * streams + s;
      stream_ops[s] += first[row + 1] - first[row];
    }
    ops += segment.op_count;
  }
  first_op.push_back(ops);
}

}  // namespace stepcast::simulator
