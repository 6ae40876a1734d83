#include "simulator/reports/breakdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "core/error.h"

namespace stepcast::simulator {
namespace {

struct Interval {
  std::int64_t begin = 0, end = 0;
};

/// A set of intervals, asked at ascending times.
class Cover {
 public:
  void add(std::int64_t begin, std::int64_t end) {
    if (end > begin) {
      intervals_.push_back({begin, end});
    }
  }
  /// Sorts, and joins what overlaps or touches.
  void close() {
    std::sort(intervals_.begin(), intervals_.end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    std::size_t out = 0;
    for (const Interval& i : intervals_) {
      if (out > 0 && i.begin <= intervals_[out - 1].end) {
        intervals_[out - 1].end = std::max(intervals_[out - 1].end, i.end);
      } else {
        intervals_[out++] = i;
      }
    }
    intervals_.resize(out);
  }
  /// Is `time` inside? `until` falls to the next time at which the answer changes.
  bool covers(std::int64_t time, std::int64_t& until) {
    while (at_ < intervals_.size() && intervals_[at_].end <= time) {
      ++at_;
    }
    if (at_ == intervals_.size()) {
      return false;
    }
    const bool inside = intervals_[at_].begin <= time;
    until = std::min(until, inside ? intervals_[at_].end : intervals_[at_].begin);
    return inside;
  }

 private:
  std::vector<Interval> intervals_;
  std::size_t at_ = 0;
};

}  // namespace

Breakdown breakdown(const Program& program, const Timeline& timeline, std::int32_t rank,
                    const BreakdownOptions& options) {
  Cover compute;
  Cover transfer;
  Cover wait;
  Cover unissued;  // from the end of a gap's last op to the issue of the op that ends the gap
  Cover issuing;
  std::vector<const OpSpan*> starts;
  for (const OpSpan& span : timeline.ops()) {
    if (span.rank != rank) {
      continue;
    }
    starts.push_back(&span);
    if (is_collective(program.ops.at(span.ref.op).kind)) {
      wait.add(ticks(span.begin), ticks(span.ready));
      transfer.add(ticks(span.ready), ticks(span.end));
    } else {
      compute.add(ticks(span.begin), ticks(span.end));
    }
  }
  std::stable_sort(starts.begin(), starts.end(),
                   [](const OpSpan* a, const OpSpan* b) { return a->begin < b->begin; });
  std::int64_t reached = ticks(options.begin);
  for (const OpSpan* span : starts) {
    unissued.add(reached, std::min(ticks(span->issued), ticks(span->begin)));
    reached = std::max(reached, ticks(span->begin));
  }
  for (const HostSpan& span : timeline.hosts()) {
    const bool tail = ticks(span.begin) >= reached;  // issuing with nothing left to begin
    if (span.rank == rank && span.kind == HostSpan::Kind::kIssue) {
      if (options.shares_core || tail) {
        issuing.add(ticks(span.begin), ticks(span.end));
      } else if (ticks(span.end) > reached) {
        issuing.add(reached, ticks(span.end));
      }
    }
  }
  for (Cover* cover : {&compute, &transfer, &wait, &unissued, &issuing}) {
    cover->close();
  }
  Breakdown parts;
  parts.rank = rank;
  std::array<std::int64_t, 5> sums{};
  const std::int64_t end = ticks(options.end);
  std::int64_t time = ticks(options.begin);
  while (time < end) {
    std::int64_t until = end;
    if (time < ticks(options.rank_end)) {
      until = std::min(until, ticks(options.rank_end));
    }
    std::size_t part = 4;
    if (compute.covers(time, until)) {
      part = 0;
    } else if (transfer.covers(time, until)) {
      part = 1;
    } else if (wait.covers(time, until) || time >= ticks(options.rank_end)) {
      part = 2;
    } else if (unissued.covers(time, until) || issuing.covers(time, until)) {
      part = 3;
    }
    sums[part] += until - time;
    time = until;
  }
  parts.compute = SimTime{sums[0]};
  parts.exposed_communication = SimTime{sums[1]};
  parts.bubble = SimTime{sums[2]};
  parts.host = SimTime{sums[3]};
  parts.other = SimTime{sums[4]};
  STEPCAST_CHECK(ticks(parts.total()) == std::max<std::int64_t>(0, end - ticks(options.begin)),
                 "the breakdown sums to {}", ticks(parts.total()));
  return parts;
}

std::string text(const Breakdown& parts) {
  const double total = std::max(1.0, static_cast<double>(ticks(parts.total())));
  std::string out;
  const auto line = [&](const char* name, SimTime t) {
    out += fmt::format("{:<22} {:>12.3f} ms {:>6.1f} %\n", name, to_seconds(t) / milliseconds(1),
                       100 * static_cast<double>(ticks(t)) / total);
  };
  line("compute", parts.compute);
  line("exposed communication", parts.exposed_communication);
  line("bubble", parts.bubble);
  line("host", parts.host);
  line("other", parts.other);
  return out;
}

}  // namespace stepcast::simulator
