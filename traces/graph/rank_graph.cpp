#include "traces/graph/internal/issued_step.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/error.h"
#include "core/graph/program_builder.h"

namespace stepcast::traces {
namespace {

constexpr std::int64_t kTicksPerNanosecond = 1000;

class Writer {
 public:
  Writer(const Recording& recording, const RankRecording& rank, const HostOrder& order,
         IssuedStep step)
      : recording_(recording),
        rank_(rank),
        e_(rank.events),
        order_(order),
        step_(std::move(step)) {}

  RankGraph write() && {
    std::map<std::size_t, std::string> streams;  // by lane
    std::vector<std::string> names;
    for (const IssuedNode& n : step_.nodes) {
      if (n.lane != kCallsLane && streams.count(n.lane) == 0) {
        const Lane& lane = rank_.lanes[n.lane];
        streams[n.lane] = fmt::format("device {} stream {}", lane.device, lane.stream);
        names.push_back(streams[n.lane]);
      }
    }
    if (names.size() > 63) {
      throw InputError(rank_.source, fmt::format("uses {} streams in a step; up to 63 are possible",
                                                 names.size()));
    }
    names.emplace_back("calls");
    Program begun;
    begun.streams = std::move(names);
    begun.ops.reserve(step_.nodes.size());
    ProgramBuilder b(std::move(begun));
    std::vector<std::int32_t> event_of(step_.nodes.size(), -1);
    for (const std::uint32_t w : step_.waits) {
      event_of[w] = event_of[w] < 0 ? b.event() : event_of[w];
    }
    RankGraph graph;
    MeasuredRank& m = graph.measured;
    for (auto* by_op : {&m.part_of, &m.unshaped_of}) {
      by_op->reserve(step_.nodes.size());
    }
    m.spans.reserve(step_.nodes.size());
    Seen seen;
    const auto segment = b.begin_segment("step");
    for (std::size_t i = 0; i < step_.nodes.size(); ++i) {
      add_op(b, i, streams, event_of, graph, seen);
    }
    b.end_segment();
    b.call(segment);
    graph.program = std::move(b).finish();
    m.duration = std::move(step_.duration);
    m.issue = std::move(step_.issue);
    m.latency = std::move(step_.latency);
    m.delay = std::move(step_.delay);
    for (auto* by_op : {&m.duration, &m.issue, &m.latency, &m.delay}) {
      for (std::int64_t& time : *by_op) {
        time *= kTicksPerNanosecond;
      }
    }
    m.dispatch = order_.dispatch_gap().count() * kTicksPerNanosecond;
    m.begin = 0;
    m.end = (step_.ends.back() - step_.begin).count() * kTicksPerNanosecond;
    for (std::size_t s = 0; s < step_.marks.size(); ++s) {
      m.step_marks.push_back({static_cast<std::uint32_t>(step_.marks[s]),
                              (step_.ends[s] - step_.begin).count() * kTicksPerNanosecond});
    }
    m.carried = static_cast<std::uint32_t>(step_.carried.size());
    m.stripped = step_.stripped * kTicksPerNanosecond;
    m.world = rank_.world_size;
    return graph;
  }

 private:
  struct Seen {
    std::map<EventId, std::int32_t> first_of;  ///< op, by the operator's call; of calls that go on
    std::size_t most = 1000;                   ///< of them, before those that ended are dropped
    std::map<const OperatorWork*, std::int32_t> tables;
    /// Index into MeasuredRank::unshaped, by name and traffic.
    std::map<std::pair<NameId, const std::optional<OperatorTraffic>*>, std::int32_t> unshaped;
  };

  void add_op(ProgramBuilder& b, std::size_t i, const std::map<std::size_t, std::string>& streams,
              const std::vector<std::int32_t>& event_of, RankGraph& graph, Seen& seen) const {
    const IssuedNode& n = step_.nodes[i];
    const bool carried = step_.carried.contains(i);
    const bool work = n.lane != kCallsLane && !carried;
    const KernelKinds::Kind told = work ? order_.operators().kind_of(n.event) : KernelKinds::Kind{};
    const bool collective = told.kind == KernelKind::kCommunication;
    const std::string name(n.event == kNoEvent ? "host"
                           : carried           ? "carried over"
                                               : recording_.names.view(e_.name[n.event]));
    OpKind kind = op_kind_of(told.kind, name);
    if (collective) {
      CollectiveNode node = describe(n.event);
      node.op = i;
      // Least is promised of communication that nothing describes: parts of any size, and every
      // rank ends by itself.
      kind = node.kind != OpKind::kCount         ? node.kind
             : told.collective != OpKind::kCount ? told.collective
                                                 : OpKind::kAllToAllV;
      graph.collectives.push_back(std::move(node));
    }
    const OperatorJoin::Joined joined =
        work && !collective ? order_.operators().of(n.event) : OperatorJoin::Joined{};
    std::int32_t tables = -1;
    if (joined.work != nullptr && joined.work->tables) {
      const auto [known, fresh] = seen.tables.try_emplace(joined.work, -1);
      tables = known->second = fresh ? b.embedding_group(*joined.work->tables) : known->second;
    }
    auto op = b.op(kind, name, {0});
    op.on(n.lane == kCallsLane ? std::string_view("calls") : std::string_view(streams.at(n.lane)));
    op.records(event_of[i]);
    if (work) {
      op.phase(order_.phases().of(n.event));
    }
    if (kind == OpKind::kRecorded) {
      op.attributes(RecordedAttributes{told.kind});
    }
    if (n.host_waits) {
      op.flags(op_flags::kHostWaits);
    }
    std::int32_t part = -1, unshaped = -1;
    if (joined.work != nullptr) {
      adopt(op.op(), joined.work->op, tables);
      if (seen.first_of.size() > seen.most) {
        std::erase_if(seen.first_of, [&](const auto& f) { return e_.end(f.first) < n.issued; });
        seen.most = 1000 + 2 * seen.first_of.size();
      }
      part = seen.first_of.try_emplace(joined.call, static_cast<std::int32_t>(i)).first->second;
    } else if (collective) {
      describe_size(op.op(), n.event);
    } else if (work) {
      const NameId by = e_.name[joined.call == kNoEvent ? n.event : joined.call];
      const auto& traffic = order_.operators().traffic_of(n.event);
      auto& known = graph.measured.unshaped;
      const auto [at, fresh] =
          seen.unshaped.try_emplace({by, &traffic}, static_cast<std::int32_t>(known.size()));
      if (fresh) {
        known.push_back({std::string(recording_.names.view(by)), traffic});
      }
      unshaped = at->second;
    }
    graph.measured.part_of.push_back(part);
    graph.measured.unshaped_of.push_back(unshaped);
    for (const std::uint32_t w : step_.waits_of(i)) {
      op.waits(event_of[w]);
    }
    MeasuredRank& m = graph.measured;
    if (work) {
      const auto at = [this](Nanoseconds t) {
        return SimTime{(t - step_.begin).count() * kTicksPerNanosecond};
      };
      m.spans.push_back({.rank = rank_.rank,
                         .step = 0,
                         .ref = {0, static_cast<std::uint32_t>(i)},
                         .issued = at(handed_over(n)),
                         .begin = at(e_.begin[n.event]),
                         .ready = at(e_.begin[n.event]),
                         .end = at(e_.end(n.event)),
                         .bytes = bytes_of(n.event)});
    }
  }

  /// Once the launching call has returned, or its work has begun: a call that loads code first is
  /// the host's time.
  [[nodiscard]] Nanoseconds handed_over(const IssuedNode& n) const {
    const EventId call = e_.link[n.event];
    return call == kNoEvent ? e_.begin[n.event]
                            : std::max(n.issued, std::min(e_.end(call), e_.begin[n.event]));
  }

  /// The op of a kernel whose shape nothing tells; what the name says of its direction counts.
  static OpKind op_kind_of(KernelKind kind, std::string_view name) {
    const auto has = [name](std::string_view part) {
      return name.find(part) != std::string_view::npos;
    };
    const bool backward = has("bwd") || has("backward") || has("Backward") || has("grad");
    switch (kind) {
      case KernelKind::kGemm:
        return OpKind::kGemm;
      case KernelKind::kAttention:
        return backward ? OpKind::kAttentionBackward : OpKind::kAttentionForward;
      case KernelKind::kEmbedding:
        return backward ? OpKind::kEmbeddingBackward : OpKind::kEmbeddingForward;
      default:
        return OpKind::kRecorded;
    }
  }

  /// Takes over what an op does into a program of its own names and tables.
  static void adopt(Op& op, const Op& from, std::int32_t tables) {
    op.kind = from.kind;
    op.format = from.format;
    op.flags |= from.flags;
    op.attributes = from.attributes;
    if (auto* lookup = std::get_if<EmbeddingAttributes>(&op.attributes)) {
      lookup->group = tables;
    }
    op.shape = from.shape;
    op.flops = from.flops;
    op.bytes_read = from.bytes_read;
    op.bytes_written = from.bytes_written;
  }

  /// Elements of a collective as 32-bit words: its bytes are what costs.
  void describe_size(Op& op, EventId event) const {
    const double bytes = bytes_of(event);
    if (is_collective(op.kind) && bytes > 0) {
      op.shape[0] = std::llround(bytes / 4);
      fill_work(op);
    }
  }

  /// For a collective, where the trace says.
  [[nodiscard]] double bytes_of(EventId event) const {
    if (e_.category[event] != EventCategory::kCollective || e_.detail[event] == kNoDetail) {
      return 0;
    }
    const CollectiveInfo& info = rank_.collectives[static_cast<std::size_t>(e_.detail[event])];
    return static_cast<double>(std::max<std::int64_t>(0, info.bytes));
  }

  [[nodiscard]] CollectiveNode describe(EventId event) const {
    CollectiveNode node;
    if (e_.category[event] != EventCategory::kCollective || e_.detail[event] == kNoDetail) {
      return node;
    }
    const CollectiveInfo& info = rank_.collectives[static_cast<std::size_t>(e_.detail[event])];
    node.kind = info.kind;
    if (info.group >= 0) {
      const Group& group = rank_.groups[static_cast<std::size_t>(info.group)];
      node.members = group.ranks;
      node.group = group.name;
      if (node.members.empty() && group.size == rank_.world_size) {
        node.members.resize(static_cast<std::size_t>(group.size));
        std::iota(node.members.begin(), node.members.end(), 0);
      }
    }
    return node;
  }

  const Recording& recording_;
  const RankRecording& rank_;
  const Events& e_;
  const HostOrder& order_;
  IssuedStep step_;
};

}  // namespace

RankGraph rank_graph_of(const Recording& recording, const RankRecording& rank,
                        const HostOrder& order, IssuedStep step) {
  return Writer(recording, rank, order, std::move(step)).write();
}

}  // namespace stepcast::traces
