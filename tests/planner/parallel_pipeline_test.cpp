// Pipeline time: closed forms of equal stages, and the bound against the walk on random ones.
#include "planner/parallel/pipeline_time.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <random>

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

TEST_CASE("the bound never exceeds the walk, at any stage", "[planner][parallel][pipeline]") {
  const bool apart = GENERATE(false, true);  // weight gradients in passes of their own
  const ScheduleKind kind = apart ? ScheduleKind::kZbH1 : ScheduleKind::kOneFOneB;
  std::mt19937 rng(apart ? 4 : 3);
  const auto draw = [&rng](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(rng);
  };
  double looseness = 0;
  for (int i = 0; i < 400; ++i) {
    const int p = draw(apart ? 1 : 2, 6);
    const int v = apart ? 1 : draw(1, 3);
    const int m = v == 1 ? draw(1, 30) : p * draw(1, 6);
    PipelinePasses passes = equal(p, v, m, 1, 2);
    for (std::size_t at = 0; at < passes.forward.size(); ++at) {
      const double layers = draw(2, 3);
      passes.forward[at] = layers + 0.1 * draw(0, 5);
      passes.backward[at] = (apart ? draw(2, 4) : 2 * layers) + 0.1 * draw(0, 5);
      if (apart) {
        passes.weights.push_back(draw(1, 4) + 0.1 * draw(0, 5));
      }
    }
    std::vector<double> bound;
    std::vector<double> ends;
    pipeline_bound(kind, passes, bound);
    ScheduleTimeline().ends(kind, passes, ends);
    for (std::size_t s = 0; s < ends.size(); ++s) {
      INFO("p " << p << " v " << v << " m " << m << " stage " << s);
      CHECK(bound[s] <= ends[s] * (1 + 1e-9));
    }
    looseness = std::max(looseness, latest(ends) / latest(bound) - 1);
  }
  CHECK(looseness < 0.35);  // uneven chunks of interleaved pipelines; else it decides
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
