#include "planner/parallel/in_flight.h"

#include <algorithm>
#include <set>

#include "workloads/schedule.h"

namespace stepcast::planner {
namespace {

/// A moment of a stage's schedule: micro-batches in flight by chunk (the one at work included), and
/// the pass it is in.
struct FlightMoment {
  std::vector<std::int32_t> in_flight;
  std::int32_t chunk = 0;
  bool forward = true;
  auto operator<=>(const FlightMoment&) const = default;
};

bool covers(const FlightMoment& a, const FlightMoment& b) {
  return a.chunk == b.chunk && a.forward == b.forward &&
         std::equal(a.in_flight.begin(), a.in_flight.end(), b.in_flight.begin(),
                    std::greater_equal<>());
}

std::vector<FlightMoment> moments_of(ScheduleKind kind, const workloads::PipelineShape& shape,
                                     std::int32_t stage) {
  std::set<FlightMoment> all;
  FlightMoment now;
  now.in_flight.assign(static_cast<std::size_t>(shape.chunks), 0);
  for (const workloads::ScheduleStep& step : workloads::pipeline_schedule(kind, shape, stage)) {
    auto& count = now.in_flight[static_cast<std::size_t>(step.chunk)];
    now.chunk = step.chunk;
    now.forward = step.pass == workloads::Pass::kForward;
    count += now.forward ? 1 : 0;
    all.insert(now);
    count -= now.forward ? 0 : 1;
  }
  std::vector<FlightMoment> most;
  for (const FlightMoment& m : all) {
    const bool covered = std::any_of(all.begin(), all.end(), [&m](const FlightMoment& o) {
      return covers(o, m) && o.in_flight != m.in_flight;
    });
    if (!covered) {
      most.push_back(m);
    }
  }
  return most;
}

std::vector<double> sums_below(const std::vector<FlightMoment>& moments, std::int32_t chunks) {
  std::vector<double> below(moments.size(), 0.0);
  for (std::size_t c = 0; c < static_cast<std::size_t>(chunks); ++c) {
    for (const FlightMoment& m : moments) {
      below.push_back(below[below.size() - moments.size()] + m.in_flight[c]);
    }
  }
  return below;
}

}  // namespace

double InFlight::Most::bytes(const std::vector<double>& keeps, const std::vector<double>& during,
                             std::vector<double>& at_moment) const {
  const std::size_t moments = passes.size();
  at_moment.resize(moments);
  for (std::size_t m = 0; m < moments; ++m) {
    at_moment[m] = during[passes[m]];
  }
  double* const at = at_moment.data();
  for (std::size_t c = 0; c < keeps.size();) {
    const double keep = keeps[c];
    const double* from = below.data() + c * moments;
    while (c < keeps.size() && keeps[c] == keep) {
      ++c;
    }
    const double* to = below.data() + c * moments;
    for (std::size_t m = 0; m < moments; ++m) {
      at[m] += keep * (to[m] - from[m]);
    }
  }
  double most = 0;
  for (const double bytes : at_moment) {
    most = std::max(most, bytes);
  }
  return most;
}

const InFlight::Most& InFlight::most(ScheduleKind kind, std::int32_t stages, std::int32_t chunks,
                                     std::int64_t microbatches, std::int32_t stage) {
  // After three rounds of the pipeline a schedule other than GPipe repeats itself.
  const bool repeats = kind != ScheduleKind::kGpipe;
  const auto enough = static_cast<std::int32_t>(
      repeats ? std::min<std::int64_t>(microbatches, std::int64_t{3} * stages) : microbatches);
  const auto [it, fresh] = known_.try_emplace({kind, stages, chunks, enough, stage});
  if (fresh) {
    const auto moments = moments_of(kind, {stages, chunks, enough}, stage);
    for (const FlightMoment& m : moments) {
      it->second.passes.push_back(2 * static_cast<std::size_t>(m.chunk) + (m.forward ? 1 : 0));
    }
    it->second.below = sums_below(moments, chunks);
  }
  return it->second;
}

}  // namespace stepcast::planner
