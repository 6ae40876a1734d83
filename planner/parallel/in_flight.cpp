#include "planner/parallel/in_flight.h"

#include <algorithm>
#include <numeric>
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

/// Of moments that differ only in the chunks that are alike, the one with most of them.
std::vector<FlightPeak> peaks_of(const std::vector<FlightMoment>& moments) {
  std::map<std::tuple<std::int32_t, bool, std::int32_t>, std::int32_t> most;
  for (const FlightMoment& m : moments) {
    const std::int32_t top = m.in_flight.back();
    const std::int32_t others =
        std::accumulate(m.in_flight.begin(), m.in_flight.end(), std::int32_t{0}) - top;
    std::int32_t& known = most[{m.chunk, m.forward, top}];
    known = std::max(known, others);
  }
  std::vector<FlightPeak> peaks;
  for (const auto& [key, others] : most) {
    peaks.push_back({others, std::get<2>(key), std::get<0>(key), std::get<1>(key)});
  }
  return peaks;
}

/// Counts of a chunk at all moments lie together.
std::vector<double> counts_of(const std::vector<FlightMoment>& moments, std::int32_t chunks) {
  std::vector<double> counts;
  for (std::size_t c = 0; c < static_cast<std::size_t>(chunks); ++c) {
    for (const FlightMoment& m : moments) {
      counts.push_back(m.in_flight[c]);
    }
  }
  return counts;
}

}  // namespace

double InFlight::Most::bytes(const std::vector<double>& keeps, const std::vector<double>& during,
                             std::vector<double>& at_moment) const {
  at_moment.clear();
  for (const FlightMoment& m : moments) {
    at_moment.push_back(during[2 * static_cast<std::size_t>(m.chunk) + (m.forward ? 1 : 0)]);
  }
  const double* of_chunk = counts.data();
  for (const double keep : keeps) {
    for (std::size_t m = 0; m < at_moment.size(); ++m) {
      at_moment[m] += keep * of_chunk[m];
    }
    of_chunk += at_moment.size();
  }
  return *std::max_element(at_moment.begin(), at_moment.end());
}

const InFlight::Most& InFlight::most(ScheduleKind kind, std::int32_t stages, std::int32_t chunks,
                                     std::int64_t microbatches, std::int32_t stage) {
  // After three rounds of the pipeline a schedule other than GPipe repeats itself.
  const bool repeats = kind != ScheduleKind::kGpipe;
  const auto enough = static_cast<std::int32_t>(
      repeats ? std::min<std::int64_t>(microbatches, std::int64_t{3} * stages) : microbatches);
  const auto [it, fresh] = known_.try_emplace({kind, stages, chunks, enough, stage});
  if (fresh) {
    it->second.moments = moments_of(kind, {stages, chunks, enough}, stage);
    it->second.peaks = peaks_of(it->second.moments);
    it->second.counts = counts_of(it->second.moments, chunks);
  }
  return it->second;
}

}  // namespace stepcast::planner
