#include "planner/parallel/rank_timeline.h"

#include <algorithm>

#include "core/graph/op.h"
#include "core/graph/op_traits.h"

namespace stepcast::planner {

RankTimeline::RankTimeline(const Program& program, std::span<const double> op_seconds,
                           double dispatch, double slowdown, CostBasis clock)
    : program_(program),
      seconds_(op_seconds),
      dispatch_(dispatch),
      slowdown_(clock == CostBasis::kLowerBound ? 1 : slowdown),
      least_(clock == CostBasis::kLowerBound),
      clock_(std::max<std::size_t>(program.streams.size(), 1), 0.0),
      records_(program),
      follows_(clock_.size(), 0),
      reached_(static_cast<std::size_t>(Phase::kCount), -1.0) {}

void RankTimeline::run(const Segment& segment, std::span<double> by_layer) {
  const auto spend = [&](std::int16_t layer, double seconds) {
    const auto at = static_cast<std::size_t>(layer + 1);
    by_layer[at < by_layer.size() ? at : 0] += seconds;
  };
  for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
    const Op& op = program_.ops[o];
    double& clock = clock_[op.stream];
    double& reached = reached_[static_cast<std::size_t>(op.phase)];
    reached = reached < 0 ? clock : reached;
    double begin = clock;
    char& follows = follows_[op.stream];
    follows = op.stream == 0 ? 1 : follows;
    std::int16_t awaited = kNoLayer;
    records_.for_each_wait(op, [&](std::int32_t, const Record& record) {
      awaited = record.time > begin ? record.layer : awaited;
      begin = std::max(begin, record.time);
      follows = record.follows ? 1 : follows;
    });
    const double before = clock;
    const double started = begin;
    const bool earlier = least_ && follows == 0;
    const OpRole role = traits_of(op.kind).role;
    begin += earlier ? 0 : dispatch_;
    if (earlier) {
      clock = begin;
    } else if (role == OpRole::kCompute) {
      clock = computed(begin, seconds_[o]);
    } else if (role == OpRole::kSend || role == OpRole::kReceive) {
      clock = begin;
    } else {
      clock = begin + seconds_[o];
      if (op.stream != 0 && slowdown_ > 1) {
        in_flight_.push_back({begin, clock});
      }
    }
    if (op.stream == 0 && !by_layer.empty()) {
      spend(awaited, started - before);
      spend(op.layer, clock - started);
    }
    records_.issue(op, {clock, follows != 0, op.layer});
  }
}

/// End of a compute op: `slowdown` times slower while a transfer is in flight. Transfers that
/// start later are issued later, and wait for this op.
double RankTimeline::computed(double begin, double work) {
  std::erase_if(in_flight_, [begin](const Transfer& t) { return t.end <= begin; });
  double at = begin;
  double left = work;
  while (left > 0 && !in_flight_.empty()) {
    double next = at;  // end of the stretch at one speed
    bool slowed = false;
    bool known = false;
    for (const Transfer& t : in_flight_) {
      const bool now = t.begin <= at && t.end > at;
      slowed = slowed || now;
    }
    for (const Transfer& t : in_flight_) {
      const double edge = slowed ? t.end : t.begin;
      const bool counts = slowed ? t.begin <= at && t.end > at : t.begin > at;
      if (counts && (!known || edge < next)) {
        next = edge;
        known = true;
      }
    }
    if (!known) {
      break;
    }
    const double rate = slowed ? 1 / slowdown_ : 1.0;
    if (left <= (next - at) * rate) {
      return at + left / rate;
    }
    left -= (next - at) * rate;
    at = next;
  }
  return at + left;
}

double RankTimeline::drained() const { return *std::max_element(clock_.begin(), clock_.end()); }

}  // namespace stepcast::planner
