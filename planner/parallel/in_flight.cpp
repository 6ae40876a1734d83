#include "planner/parallel/in_flight.h"

#include <algorithm>
#include <set>

#include "workloads/schedule.h"

namespace stepcast::planner {
namespace {

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

}  // namespace

const std::vector<FlightMoment>& InFlight::moments(ScheduleKind kind, std::int32_t stages,
                                                   std::int32_t chunks, std::int64_t microbatches,
                                                   std::int32_t stage) {
  // After three rounds of the pipeline a schedule other than GPipe repeats itself.
  const bool repeats = kind != ScheduleKind::kGpipe;
  const auto enough = static_cast<std::int32_t>(
      repeats ? std::min<std::int64_t>(microbatches, std::int64_t{3} * stages) : microbatches);
  const auto [it, fresh] = known_.try_emplace({kind, stages, chunks, enough, stage});
  if (fresh) {
    it->second = moments_of(kind, {stages, chunks, enough}, stage);
  }
  return it->second;
}

}  // namespace stepcast::planner
