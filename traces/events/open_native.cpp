#include "traces/events/open_native.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/graph/execution_order.h"
#include "traces/events/host_calls.h"
#include "traces/events/rank_builder.h"

namespace stepcast::traces {
namespace {

Nanoseconds nanoseconds_of(SimTime t) {
  // Towards earlier, also before zero: begin and end of neighbours stay equal.
  const std::int64_t ps = ticks(t);
  return Nanoseconds(ps >= 0 ? ps / 1000 : -((-ps + 999) / 1000));
}

EventCategory category_of(const Op& op) {
  if (is_collective(op.kind)) {
    return EventCategory::kCollective;
  }
  return op.kind == OpKind::kLoadBatch ? EventCategory::kMemcpy : EventCategory::kKernel;
}

class NativeRank {
 public:
  NativeRank(const GraphRun& trace, const RankTrace& rank, Names& names, const std::string& source)
      : trace_(trace),
        rank_(rank),
        program_(trace.graph.program_of(rank.rank)),
        records_(program_),
        names_(names),
        builder_(names, source),
        host_(builder_.host_lane(rank.rank, 0, "host")) {}

  RankRecording read() && {
    RankRecording& out = builder_.rank();
    out.rank = rank_.rank;
    out.world_size = trace_.graph.ranks();
    for (const Communicator& c : trace_.graph.communicators) {
      Group& g = out.groups[static_cast<std::size_t>(builder_.group(c.name))];
      const auto index = static_cast<std::int32_t>(&c - trace_.graph.communicators.data());
      g.ranks = trace_.graph.members(index, rank_.rank);
      g.size = static_cast<std::int32_t>(g.ranks.size());
    }
    for (const StepMark& s : rank_.steps) {
      range(fmt::format("ProfilerStep#{}", s.step), s.begin, s.end, EventCategory::kUserRange);
    }
    for (const HostSpan& s : rank_.host) {
      const bool issues = s.kind == HostSpan::Kind::kIssue;
      range(issues                                 ? "issue"
            : s.kind == HostSpan::Kind::kQueueFull ? kOwnQueueFull
                                                   : kOwnSynchronize,
            s.begin, s.end, issues ? EventCategory::kUserRange : EventCategory::kRuntimeCall);
    }
    std::vector<const OpSpan*> spans;
    for (const OpSpan& s : rank_.ops) {
      spans.push_back(&s);
    }
    std::stable_sort(spans.begin(), spans.end(), [](const OpSpan* a, const OpSpan* b) {
      return std::tie(a->step, a->ref) < std::tie(b->step, b->ref);
    });
    for (const OpSpan* s : spans) {
      op(*s);
    }
    return std::move(builder_).finish();
  }

 private:
  struct Record {
    std::int64_t correlation = 0;  ///< of the call; 0 none
    std::int32_t stream = 0;
  };

  void range(std::string_view name, SimTime begin, SimTime end, EventCategory category) {
    NewEvent e;
    e.begin = nanoseconds_of(begin);
    e.duration = nanoseconds_of(end) - e.begin;
    e.name = names_.intern(name);
    e.category = category;
    e.lane = host_;
    builder_.add(e);
  }

  std::int64_t call(std::string_view name, SimTime at) {
    NewEvent e;
    e.begin = nanoseconds_of(at);
    e.name = names_.intern(name);
    e.category = EventCategory::kRuntimeCall;
    e.lane = host_;
    e.correlation = ++correlation_;
    builder_.add(e);
    return correlation_;
  }

  void op(const OpSpan& span) {
    const Op& op = program_.ops[span.ref.op];
    const auto stream = static_cast<std::int32_t>(op.stream);
    NewEvent e;
    e.lane = builder_.stream_lane(rank_.rank, -1, stream);
    records_.for_each_wait(op, [&](std::int32_t event, const Record& record) {
      if (record.correlation != 0) {
        wait(span, stream, event, record, e.lane);
      }
    });
    e.correlation = call(kOwnLaunch, span.issued);
    e.begin = nanoseconds_of(span.begin);
    e.duration = nanoseconds_of(span.end) - e.begin;
    e.name = names_.intern(program_.name(op));
    e.category = category_of(op);
    e.external = static_cast<std::int64_t>(span.ref.call) << 32 | span.ref.op;
    if (e.category == EventCategory::kCollective) {
      e.detail = collective(op);
    }
    builder_.add(e);
    if (op.record >= 0) {
      records_.record(op.record, {call(kOwnRecord, span.issued), stream});
    }
  }

  void wait(const OpSpan& span, std::int32_t stream, std::int32_t event, const Record& record,
            std::uint16_t lane) {
    NewEvent e;
    e.correlation = call(kOwnStreamWait, span.issued);
    e.begin = nanoseconds_of(span.issued);
    e.name = names_.intern("Stream Wait Event");
    e.category = EventCategory::kSync;
    e.lane = lane;
    auto& syncs = builder_.rank().syncs;
    e.detail = static_cast<std::int32_t>(syncs.size());
    syncs.push_back(
        {SyncInfo::Kind::kStreamWait, stream, record.stream, event, record.correlation});
    builder_.add(e);
  }

  std::int32_t collective(const Op& op) {
    CollectiveInfo info;
    info.kind = op.kind;
    info.name = names_.intern(name_of(op.kind));
    info.group = op.communicator;
    info.elements_in = op.kind == OpKind::kBarrier ? 0 : op.shape[0];
    info.dtype = names_.intern(name_of(op.format));
    info.bytes = static_cast<std::int64_t>(format_bytes(op.format, 1, info.elements_in).base());
    if (op.peer >= 0 && op.communicator >= 0) {
      const auto members = trace_.graph.members(op.communicator, rank_.rank);
      info.peer = static_cast<std::size_t>(op.peer) < members.size()
                      ? members[static_cast<std::size_t>(op.peer)]
                      : -1;
    }
    auto& table = builder_.rank().collectives;
    table.push_back(std::move(info));
    return static_cast<std::int32_t>(table.size() - 1);
  }

  const GraphRun& trace_;
  const RankTrace& rank_;
  const Program& program_;
  LatestRecords<Record> records_;
  Names& names_;
  RankBuilder builder_;
  std::uint16_t host_;
  std::int64_t correlation_ = 0;
};

}  // namespace

Recording recording_of(GraphRun trace, const std::string& source) {
  Recording recording;
  recording.format = "native";
  recording.producer = trace.producer;
  recording.job = trace.job;
  for (const RankTrace& rank : trace.ranks) {
    RankRecording& to = recording.ranks.emplace_back();
    to.rank = rank.rank;
    to.world_size = trace.graph.ranks();
    to.source = fmt::format("{}/rank-{}.csv", source, rank.rank);
    to.records = {{"op", rank.ops.size()}, {"host", rank.host.size()}, {"step", rank.steps.size()}};
    if (rank.dropped > 0) {
      to.oddities.add(
          ParseWarning::kDropped,
          [&] { return fmt::format("{}: records beyond the recorder's buffers", to.source); },
          rank.dropped);
    }
  }
  recording.own = std::make_shared<const GraphRun>(std::move(trace));
  return recording;
}

Recording events_of(Recording recording) {
  if (recording.own == nullptr) {
    return recording;
  }
  const std::shared_ptr<const GraphRun> own = std::move(recording.own);
  recording.own = nullptr;
  for (std::size_t r = 0; r < own->ranks.size(); ++r) {
    RankRecording told =
        NativeRank(*own, own->ranks[r], recording.names, recording.ranks[r].source).read();
    told.oddities = std::move(recording.ranks[r].oddities);
    told.records = std::move(recording.ranks[r].records);
    recording.ranks[r] = std::move(told);
  }
  return recording;
}

}  // namespace stepcast::traces
