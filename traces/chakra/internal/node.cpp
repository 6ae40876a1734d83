#include "traces/chakra/internal/node.h"

#include <array>
#include <utility>

#include "core/error.h"
#include "traces/events/host_calls.h"

namespace stepcast::traces::internal {
namespace {

/// By number: all-reduce, reduce, all-gather, gather, scatter, broadcast, all-to-all,
/// reduce-scatter, reduce-scatter-block, barrier. We have no reduce, gather and scatter.
constexpr std::array<OpKind, 10> kCommTypes{
    OpKind::kAllReduce,     OpKind::kCount,     OpKind::kAllGather, OpKind::kCount,
    OpKind::kCount,         OpKind::kBroadcast, OpKind::kAllToAll,  OpKind::kReduceScatter,
    OpKind::kReduceScatter, OpKind::kBarrier};

std::int32_t small(std::int64_t value) {
  return std::in_range<std::int32_t>(value) ? static_cast<std::int32_t>(value) : -1;
}

bool communicates(NodeType type) {
  return type == NodeType::kSend || type == NodeType::kReceive || type == NodeType::kCollective;
}

EventCategory category_of(const ChakraNode& n) {
  if (n.category && *n.category >= 0 &&
      *n.category < static_cast<std::int64_t>(EventCategory::kCount)) {
    return static_cast<EventCategory>(*n.category);
  }
  if (n.on_cpu.value_or(false)) {
    return EventCategory::kCpuOp;
  }
  switch (n.type) {
    case NodeType::kMemoryLoad:
    case NodeType::kMemoryStore:
      return EventCategory::kMemcpy;
    case NodeType::kCompute:
      return n.name.starts_with("Memcpy")   ? EventCategory::kMemcpy
             : n.name.starts_with("Memset") ? EventCategory::kMemset
                                            : EventCategory::kKernel;
    case NodeType::kSend:
    case NodeType::kReceive:
    case NodeType::kCollective:
      return EventCategory::kCollective;
    case NodeType::kInvalid:
    case NodeType::kMetadata:
      break;
  }
  return EventCategory::kHostOther;
}

}  // namespace

OpKind kind_of_comm_type(std::int64_t comm_type) {
  return comm_type >= 0 && comm_type < static_cast<std::int64_t>(kCommTypes.size())
             ? kCommTypes[static_cast<std::size_t>(comm_type)]
             : OpKind::kCount;
}

std::int64_t comm_type_of(OpKind kind) {
  const OpKind plain = kind == OpKind::kAllToAllV ? OpKind::kAllToAll : kind;
  for (std::size_t i = 0; i < kCommTypes.size(); ++i) {
    if (kCommTypes[i] == plain && plain != OpKind::kCount) {
      return static_cast<std::int64_t>(i);
    }
  }
  return -1;
}

ChakraRank::ChakraRank(const std::string& source, Names& names)
    : names_(names), builder_(names, source) {
  builder_.rank().rank = -1;
  builder_.rank().timing = Timing::kDurations;
}

std::uint16_t ChakraRank::lane(const ChakraNode& n) {
  if (!on_device(category_of(n))) {
    return builder_.host_lane(n.process, n.thread.value_or(0), n.lane_name);
  }
  // Generated graphs name no stream: compute and communication are resources of their own there.
  const std::int64_t stream = n.stream.value_or(n.thread.value_or(communicates(n.type) ? 1 : 0));
  return builder_.stream_lane(small(n.device), small(n.context), small(stream));
}

std::int32_t ChakraRank::collective(const ChakraNode& n) {
  CollectiveInfo info;
  info.kind = n.type == NodeType::kSend      ? OpKind::kSend
              : n.type == NodeType::kReceive ? OpKind::kRecv
                                             : kind_of_comm_type(n.comm_type);
  if (info.kind == OpKind::kCount) {
    info.kind = collective_kind_of(n.name).value_or(OpKind::kCount);
  }
  info.bytes = n.comm_bytes;
  info.peer = small(n.peer);
  info.group = n.group.empty() ? -1 : builder_.group(n.group);
  builder_.rank().collectives.push_back(std::move(info));
  return static_cast<std::int32_t>(builder_.rank().collectives.size() - 1);
}

void ChakraRank::node(const ChakraNode& n) {
  ++nodes_;
  RankRecording& rank = builder_.rank();
  constexpr std::int64_t kLongest = std::int64_t{1} << 50;  // us: 35 years
  if (n.duration_us < 0 || n.duration_us > kLongest || n.begin_us.value_or(0) < 0 ||
      n.begin_us.value_or(0) > 4 * kLongest) {
    rank.oddities.add(ParseWarning::kNegativeDuration, [&] {
      return fmt::format("{}: node {} lasts {} us", rank.source, n.id, n.duration_us);
    });
    return;
  }
  NewEvent e;
  e.category = category_of(n);
  e.name = names_.intern(n.name);
  e.lane = lane(n);
  e.begin = std::chrono::microseconds(n.begin_us.value_or(0));
  e.duration = std::chrono::microseconds(n.duration_us);
  if (n.begin_ns && n.duration_ns && *n.duration_ns >= 0 &&
      *n.duration_ns<kLongest&& * n.begin_ns> - kLongest * 2048 && *n.begin_ns < kLongest * 2048) {
    e.begin = Nanoseconds(*n.begin_ns);
    e.duration = Nanoseconds(*n.duration_ns);
  }
  // Our own timelines: ids and edges were made for the file, and are implied by the rest.
  const bool own = n.begin_ns.has_value();
  e.external = own ? n.external.value_or(-1) : n.id;
  e.correlation = n.correlation.value_or(0);
  all_begin_ = all_begin_ && n.begin_us.has_value();
  if (e.category == EventCategory::kCollective) {
    e.detail = collective(n);
  } else if (n.bytes >= 0 &&
             (e.category == EventCategory::kMemcpy || e.category == EventCategory::kMemset)) {
    rank.copies.push_back({n.bytes, small(n.peer)});
    e.detail = static_cast<std::int32_t>(rank.copies.size() - 1);
  } else if (e.category == EventCategory::kCpuOp ||
             (e.category == EventCategory::kUserRange && !n.shapes.empty())) {
    const auto text = [this](const std::string& t) {
      return t.empty() ? kNoName : names_.intern(t);
    };
    OpInfo op{.shapes = text(n.shapes),
              .types = text(n.types),
              .inputs = text(n.values),
              .sequence = n.sequence,
              .record_function = n.record_function,
              .forward_thread = n.forward_thread};
    if (communicates(n.type) && n.comm_bytes >= 0) {
      op.collective = collective(n);
    }
    rank.ops.push_back(op);
    e.detail = static_cast<std::int32_t>(rank.ops.size() - 1);
  }
  const EventId added = builder_.add(e);
  if (own) {
    return;
  }
  if (!n.fields.empty()) {
    rank.node_fields[n.id] += n.fields;
  }
  for (const std::int64_t on : n.control) {
    builder_.depends(added, on, Dependencies::Kind::kControl);
  }
  for (const std::int64_t on : n.data) {
    builder_.depends(added, on, Dependencies::Kind::kData);
  }
}

RankRecording ChakraRank::finish() && {
  RankRecording& rank = builder_.rank();
  rank.records["node"] = nodes_;
  if (all_begin_ && nodes_ > 0) {
    rank.timing = Timing::kTimeline;
  }
  return std::move(builder_).finish();
}

}  // namespace stepcast::traces::internal
