#include "simulator/reports/breakdown.h"

#include <algorithm>

#include "core/error.h"
#include "core/graph/op_traits.h"

namespace stepcast::simulator {
namespace {

struct Interval {
  std::int64_t begin = 0, end = 0;
  std::uint32_t op = 0;
};

/// Intervals in order of their begins, asked at ascending times.
class Cover {
 public:
  void add(std::int64_t begin, std::int64_t end, std::uint32_t op = 0) {
    if (end > begin) {
      intervals_.push_back({begin, end, op});
    }
  }
  /// A stream runs its ops in order, so there is rarely anything to sort.
  void close() {
    const auto before = [](const Interval& a, const Interval& b) { return a.begin < b.begin; };
    if (!std::is_sorted(intervals_.begin(), intervals_.end(), before)) {
      std::stable_sort(intervals_.begin(), intervals_.end(), before);
    }
  }
  /// The interval that `time` is inside, or null. `until` falls to the next time at which the
  /// answer may change.
  const Interval* at(std::int64_t time, std::int64_t& until) {
    while (at_ < intervals_.size() && intervals_[at_].end <= time) {
      ++at_;
    }
    if (at_ == intervals_.size()) {
      return nullptr;
    }
    const bool inside = intervals_[at_].begin <= time;
    until = std::min(until, inside ? intervals_[at_].end : intervals_[at_].begin);
    return inside ? &intervals_[at_] : nullptr;
  }

 private:
  std::vector<Interval> intervals_;
  std::size_t at_ = 0;
};

/// One cover per stream.
using Covers = std::vector<Cover>;

const Interval* first_at(Covers& covers, std::int64_t time, std::int64_t& until) {
  for (Cover& cover : covers) {
    if (const Interval* found = cover.at(time, until)) {
      return found;
    }
  }
  return nullptr;
}

void add(SimTime& sum, std::int64_t more) { sum = SimTime{ticks(sum) + more}; }

/// State of a rank at a time, for every reason the breakdown knows.
struct Activity {
  Covers compute, transfer, wait;  // by stream
  Cover unissued;  // from the end of a gap's last op to the issue of the op that ends the gap
  Cover issuing;
  void close() {
    for (Covers* covers : {&compute, &transfer, &wait}) {
      for (Cover& cover : *covers) {
        cover.close();
      }
    }
    unissued.close();
    issuing.close();
  }
};

Activity activity_of(const Program& program, const Timeline& timeline, std::int32_t rank,
                     const BreakdownOptions& options) {
  const std::size_t streams = std::max<std::size_t>(1, program.streams.size());
  Activity activity{Covers(streams), Covers(streams), Covers(streams), {}, {}};
  struct Start {
    std::int64_t begin = 0, issued = 0;
  };
  std::vector<Start> starts;
  for (const OpSpan& span : timeline.ops()) {
    if (span.rank != rank) {
      continue;
    }
    starts.push_back({ticks(span.begin), ticks(span.issued)});
    const Op& op = program.ops.at(span.ref.op);
    const bool host_move = moves_between_tiers(op.kind) && op.as<TierAttributes>().group < 0;
    if (is_collective(op.kind) || host_move) {
      activity.wait.at(op.stream).add(ticks(span.begin), ticks(span.ready), span.ref.op);
      activity.transfer[op.stream].add(ticks(span.ready), ticks(span.end), span.ref.op);
    } else {
      activity.compute.at(op.stream).add(ticks(span.begin), ticks(span.end), span.ref.op);
    }
  }
  std::stable_sort(starts.begin(), starts.end(),
                   [](const Start& a, const Start& b) { return a.begin < b.begin; });
  std::int64_t reached = ticks(options.begin);
  for (const Start& start : starts) {
    activity.unissued.add(reached, std::min(start.issued, start.begin));
    reached = std::max(reached, start.begin);
  }
  for (const HostSpan& span : timeline.hosts()) {
    const bool tail = ticks(span.begin) >= reached;  // issuing with nothing left to begin
    if (span.rank == rank && span.kind == HostSpan::Kind::kIssue) {
      if (options.shares_core || tail) {
        activity.issuing.add(ticks(span.begin), ticks(span.end));
      } else if (ticks(span.end) > reached) {
        activity.issuing.add(reached, ticks(span.end));
      }
    }
  }
  activity.close();
  return activity;
}

}  // namespace

Breakdown breakdown(const Program& program, const Timeline& timeline, std::int32_t rank,
                    const BreakdownOptions& options) {
  Activity activity = activity_of(program, timeline, rank, options);
  Breakdown parts;
  parts.rank = rank;
  parts.by_op.resize(program.ops.size());
  for (const OpSpan& span : timeline.ops()) {
    parts.by_op[span.ref.op].executions +=
        span.rank == rank ? options.repetition.count(span.begin) : 0;
  }
  const Repetition& repetition = options.repetition;
  const std::int64_t end = ticks(options.end) - repetition.left_out();
  const std::int64_t rank_end = ticks(options.rank_end) - repetition.left_out();
  for (std::int64_t time = ticks(options.begin); time < end;) {
    std::int64_t until = end;
    for (const std::int64_t change : {rank_end, ticks(repetition.begin), ticks(repetition.end())}) {
      until = time < change ? std::min(until, change) : until;
    }
    // Each question may shorten `until`, so the tick is put down only when all were asked.
    SimTime* part = &parts.other;
    SimTime* share = nullptr;
    if (const Interval* i = first_at(activity.compute, time, until)) {
      part = &parts.compute;
      share = &parts.by_op[i->op].compute;
    } else if ((i = first_at(activity.transfer, time, until)) != nullptr) {
      part = &parts.exposed_communication;
      share = &parts.by_op[i->op].exposed_communication;
    } else if ((i = first_at(activity.wait, time, until)) != nullptr) {
      part = &parts.bubble;
      share = &parts.by_op[i->op].bubble;
    } else if (time >= rank_end) {
      part = &parts.bubble;
      share = &parts.done;
    } else if (activity.unissued.at(time, until) != nullptr ||
               activity.issuing.at(time, until) != nullptr) {
      part = &parts.host;
    }
    const std::int64_t all = (until - time) * repetition.count(SimTime{time});
    add(*part, all);
    if (share != nullptr) {
      add(*share, all);
    }
    time = until;
  }
  STEPCAST_CHECK(
      ticks(parts.total()) == std::max<std::int64_t>(0, ticks(options.end) - ticks(options.begin)),
      "the breakdown sums to {}", ticks(parts.total()));
  return parts;
}

}  // namespace stepcast::simulator
