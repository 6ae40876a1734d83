#include "planner/parallel/in_flight.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "workloads/schedule/schedule.h"

namespace stepcast::planner {
namespace {

/// A moment of a stage's schedule: micro-batches in flight by what they keep (the one at work
/// included), and the pass it is in.
struct FlightMoment {
  std::vector<std::int32_t> in_flight;
  std::size_t pass = 0;
  bool operator<(const FlightMoment& o) const {
    return std::tie(in_flight, pass) < std::tie(o.in_flight, o.pass);
  }
};

bool covers(const FlightMoment& a, const FlightMoment& b) {
  return a.pass == b.pass && std::equal(a.in_flight.begin(), a.in_flight.end(), b.in_flight.begin(),
                                        std::greater_equal<>());
}

/// Bytes that a pass adds before it begins and takes away when it ends, by what is kept.
struct FlightChange {
  std::vector<std::size_t> adds, takes;
};

FlightChange change_of(const workloads::ScheduleStep& step, bool splits) {
  using workloads::Pass;
  const auto chunk = static_cast<std::size_t>(step.chunk);
  if (!splits) {
    return step.pass == Pass::kForward ? FlightChange{{chunk}, {}} : FlightChange{{}, {chunk}};
  }
  const std::size_t first = 3 * chunk;
  return step.pass == Pass::kForward    ? FlightChange{{first, first + 1}, {}}
         : step.pass == Pass::kBackward ? FlightChange{{first + 2}, {first}}
                                        : FlightChange{{}, {first + 1, first + 2}};
}

std::vector<FlightMoment> moments_of(ScheduleKind kind, const workloads::PipelineShape& shape,
                                     std::int32_t stage,
                                     const std::vector<workloads::ScheduleStep>& schedule) {
  const bool splits = splits_weights(kind);
  std::set<FlightMoment> all;
  FlightMoment now;
  const std::size_t passes = splits ? 3 : 2;
  const bool v = traits_of(kind).placement == ChunkPlacement::kV && shape.chunks > 1;
  const std::size_t kept = (splits ? 3 : 1) * static_cast<std::size_t>(shape.chunks);
  now.in_flight.assign(kept + (v ? 1 : 0), 0);
  // In a V the chunks of the last stage are next to each other.
  const auto waits = [&](const workloads::ScheduleStep& step, std::int32_t from) {
    return v && stage + 1 == shape.stages && step.pass != workloads::Pass::kWeights &&
           (step.chunk == from) == (step.pass == workloads::Pass::kForward);
  };
  for (const workloads::ScheduleStep& step : schedule) {
    const FlightChange change = change_of(step, splits);
    now.pass = passes * static_cast<std::size_t>(step.chunk) +
               (step.pass == workloads::Pass::kWeights   ? 2
                : step.pass == workloads::Pass::kForward ? 1
                                                         : 0);
    for (const std::size_t i : change.adds) {
      ++now.in_flight[i];
    }
    now.in_flight.back() -= waits(step, 1) ? 1 : 0;
    all.insert(now);
    now.in_flight.back() += waits(step, 0) ? 1 : 0;
    for (const std::size_t i : change.takes) {
      --now.in_flight[i];
    }
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

std::vector<double> sums_below(const std::vector<FlightMoment>& moments) {
  std::vector<double> below(moments.size(), 0.0);
  for (std::size_t c = 0; c < moments.front().in_flight.size(); ++c) {
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
  double* const at = at_moment.data();
  std::size_t first = 0;  // chunks in a row from the first that keep the same
  while (first < keeps.size() && keeps[first] == keeps[0]) {
    ++first;
  }
  const double* const of_first = below.data() + first * moments;
  for (std::size_t m = 0; m < moments; ++m) {
    at[m] = during[passes[m]] + keeps[0] * of_first[m];
  }
  for (std::size_t c = first; c < keeps.size();) {
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
  // Two at a time: a maximum waits for the one before it.
  double even = 0;
  double odd = 0;
  std::size_t m = 0;
  for (; m + 1 < moments; m += 2) {
    even = std::max(even, at[m]);
    odd = std::max(odd, at[m + 1]);
  }
  return std::max({even, odd, m < moments ? at[m] : 0.0});
}

const InFlight::Most& InFlight::most(ScheduleKind kind, std::int32_t stages, std::int32_t chunks,
                                     std::int64_t microbatches, std::int32_t stage) {
  // After three rounds of the pipeline a schedule repeats itself but for one of forwards first.
  const bool repeats = traits_of(kind).ahead > 0;
  const auto enough = static_cast<std::int32_t>(
      repeats ? std::min<std::int64_t>(microbatches, std::int64_t{3} * stages) : microbatches);
  const workloads::PipelineShape shape{stages, chunks, enough};
  const auto [it, fresh] = known_.try_emplace({kind, stages, chunks, enough, stage});
  const auto make = [&](Most& most, std::int32_t of, const auto& schedule) {
    const auto moments = moments_of(kind, shape, of, schedule);
    for (const FlightMoment& m : moments) {
      most.passes.push_back(m.pass);
    }
    most.below = sums_below(moments);
  };
  if (fresh && traits_of(kind).placement == ChunkPlacement::kV) {  // all will be asked for
    const auto schedules = workloads::pipeline_schedules(kind, shape);
    for (std::int32_t s = 0; s < stages; ++s) {
      make(known_[{kind, stages, chunks, enough, s}], s, schedules[static_cast<std::size_t>(s)]);
    }
  } else if (fresh) {
    make(it->second, stage, workloads::pipeline_schedule(kind, shape, stage));
  }
  return it->second;
}

}  // namespace stepcast::planner
