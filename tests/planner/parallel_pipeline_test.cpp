// Pipeline time: closed forms of equal stages, and the bound against the walk on random ones.
#include "planner/parallel/pipeline_time.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

namespace stepcast::planner {
namespace {

PipelinePasses equal(std::int32_t p, std::int32_t v, std::int64_t m, double f, double b) {
  PipelinePasses passes{p, v, m, {}, {}, {}};
  passes.forward.assign(static_cast<std::size_t>(p * v), f);
  passes.backward.assign(static_cast<std::size_t>(p * v), b);
  return passes;
}

double latest(const std::vector<double>& ends) {
  return *std::max_element(ends.begin(), ends.end());
}

TEST_CASE("equal stages: the published pipeline formulas", "[planner][parallel][pipeline]") {
  // (m + p - 1)(f + b), and m v (f + b) + (p - 1)(f + b) with v chunks; arXiv 2104.04473, 2.2.
  for (const auto& [p, v, m] :
       {std::tuple{1, 1, 7}, {4, 1, 8}, {4, 1, 3}, {8, 1, 100}, {4, 3, 8}, {2, 5, 64}}) {
    const PipelinePasses passes = equal(p, v, m, 2, 3);
    const double expected = 5.0 * (double(m) * v + p - 1);
    std::vector<double> ends;
    pipeline_bound(ScheduleKind::kOneFOneB, passes, ends);
    CHECK(latest(ends) == Approx(expected));
    ScheduleTimeline().ends(ScheduleKind::kOneFOneB, passes, ends);
    CHECK(latest(ends) == Approx(expected));
    if (v == 1) {
      pipeline_bound(ScheduleKind::kGpipe, passes, ends);
      CHECK(latest(ends) == Approx(expected));
    }
  }
}

TEST_CASE("zb-h1 on equal stages: the published bubble", "[planner][parallel][pipeline]") {
  // m (F + B + W) + (p - 1) (F + B - W) for W <= B and m >= p; arXiv 2401.10241, section 3.
  for (const auto& [p, m] : {std::pair{4, 8}, {4, 4}, {8, 100}, {2, 9}}) {
    PipelinePasses passes = equal(p, 1, m, 2, 3);
    passes.weights.assign(static_cast<std::size_t>(p), 1.5);
    std::vector<double> ends;
    ScheduleTimeline().ends(ScheduleKind::kZbH1, passes, ends);
    CHECK(latest(ends) == Approx(6.5 * m + (p - 1) * 3.5));
    pipeline_bound(ScheduleKind::kZbH1, passes, ends);
    CHECK(latest(ends) == Approx(6.5 * m + (p - 1) * 3.5));
  }
}

/// Every stage works through its list, and a pass waits for the one before it along the layers.
std::vector<double> plain_walk(ScheduleKind kind, const PipelinePasses& p) {
  using workloads::Pass;
  const VirtualStages order{p.stages, p.chunks, traits_of(kind).placement};
  const auto m = static_cast<std::int32_t>(p.microbatches);
  std::map<std::tuple<Pass, std::int64_t, std::int32_t>, double> done;
  std::vector<double> ends(static_cast<std::size_t>(p.stages), 0.0);
  std::vector<std::vector<workloads::ScheduleStep>> lists;
  for (std::int32_t s = 0; s < p.stages; ++s) {
    lists.push_back(workloads::pipeline_schedule(kind, {p.stages, p.chunks, m}, s));
    std::reverse(lists.back().begin(), lists.back().end());
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (std::int32_t s = 0; s < p.stages; ++s) {
      auto& list = lists[static_cast<std::size_t>(s)];
      for (; !list.empty(); list.pop_back(), moved = true) {
        const auto [pass, chunk, microbatch] = list.back();
        const std::int64_t own = order.at(s, chunk);
        const std::int64_t before = own + (pass == Pass::kForward ? -1 : 1);
        const bool needs = pass != Pass::kWeights && before >= 0 && before < order.count();
        const auto known = done.find({pass, before, microbatch});
        if (needs && known == done.end()) {
          break;
        }
        double& end = ends[static_cast<std::size_t>(s)];
        end = std::max(end, needs ? known->second : 0) + (pass == Pass::kForward ? p.forward
                                                          : pass == Pass::kBackward
                                                              ? p.backward
                                                              : p.weights)[p.at(s, chunk)];
        done[{pass, own, microbatch}] = end;
      }
    }
  }
  return ends;
}

/// A pipeline of a schedule, with random passes.
PipelinePasses random_passes(const ScheduleTraits& schedule, std::mt19937& rng) {
  const auto draw = [&rng](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(rng);
  };
  const bool apart = schedule.splits_weights;
  const bool turns = schedule.placement == ChunkPlacement::kV;
  const int p = draw(apart && !turns ? 1 : 2, 6);
  const int v = turns ? 2 : schedule.most_chunks == 1 ? 1 : draw(1, 3);
  const int m = v == 1 || turns ? draw(1, 30) : p * draw(1, 6);
  PipelinePasses passes = equal(p, v, m, 1, 2);
  for (std::size_t at = 0; at < passes.forward.size(); ++at) {
    const double layers = draw(2, 3);
    passes.forward[at] = layers + 0.1 * draw(0, 5);
    passes.backward[at] = (apart ? draw(2, 4) : 2 * layers) + 0.1 * draw(0, 5);
    if (apart) {
      passes.weights.push_back(draw(1, 4) + 0.1 * draw(0, 5));
    }
  }
  return passes;
}

TEST_CASE("the walk is that of every pass after the other", "[planner][parallel][pipeline]") {
  const ScheduleTraits& schedule = GENERATE(from_range(kSchedules));
  std::mt19937 rng(7);
  double error = 0;
  for (int i = 0; i < 200; ++i) {
    const PipelinePasses passes = random_passes(schedule, rng);
    std::vector<double> ends;
    ScheduleTimeline().ends(schedule.kind, passes, ends);
    const double expected = latest(plain_walk(schedule.kind, passes));
    CAPTURE(schedule.name, passes.stages, passes.chunks, passes.microbatches);
    if (passes.microbatches <= 5 * passes.stages) {
      CHECK(latest(ends) == Approx(expected));
    }
    error = std::max(error, std::abs(latest(ends) / expected - 1));
  }
  CHECK(error < 0.01);  // rounds that are skipped
}

TEST_CASE("the bound never exceeds the walk, at any stage", "[planner][parallel][pipeline]") {
  const ScheduleTraits& schedule = GENERATE(from_range(kSchedules));
  const ScheduleKind kind = schedule.kind;
  std::mt19937 rng(schedule.splits_weights ? 4 : 3);
  double looseness = 0;
  for (int i = 0; i < 400; ++i) {
    const PipelinePasses passes = random_passes(schedule, rng);
    std::vector<double> bound;
    std::vector<double> ends;
    pipeline_bound(kind, passes, bound);
    ScheduleTimeline().ends(kind, passes, ends);
    for (std::size_t s = 0; s < ends.size(); ++s) {
      CAPTURE(schedule.name, passes.stages, passes.chunks, passes.microbatches, s);
      CHECK(bound[s] <= ends[s] * (1 + 1e-9));
    }
    looseness = std::max(looseness, latest(ends) / latest(bound) - 1);
  }
  // Uneven chunks of interleaved pipelines, and a V that waits for memory; else it decides.
  CHECK(looseness < (schedule.placement == ChunkPlacement::kV ? 1.2 : 0.35));
}

TEST_CASE("rounds that are skipped add what the last one added", "[planner][parallel][pipeline]") {
  PipelinePasses passes = equal(4, 2, 40, 1, 2);
  passes.forward[3] = 1.7;  // a slow stage
  passes.backward[5] = 2.9;
  std::vector<double> ends40;
  std::vector<double> ends44;
  std::vector<double> ends400;
  ScheduleTimeline walk;
  walk.ends(ScheduleKind::kOneFOneB, passes, ends40);
  passes.microbatches = 44;
  walk.ends(ScheduleKind::kOneFOneB, passes, ends44);
  passes.microbatches = 400;
  walk.ends(ScheduleKind::kOneFOneB, passes, ends400);
  CHECK(ends400[0] == Approx(ends40[0] + 90 * (ends44[0] - ends40[0])));
}

}  // namespace
}  // namespace stepcast::planner
