#include "workloads/schedule/schedule.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "core/error.h"

using namespace stepcast;
using namespace stepcast::workloads;

namespace {

struct Case {
  ScheduleKind kind;
  PipelineShape shape;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::int32_t p : {1, 2, 3, 4, 8}) {
    for (const std::int32_t m : {1, 2, 5, 8, 24}) {
      all.push_back({ScheduleKind::kGpipe, {p, 1, m}});
      all.push_back({ScheduleKind::kOneFOneB, {p, 1, m}});
      for (const std::int32_t v : {2, 3}) {
        if (p > 1 && m % p == 0) {
          all.push_back({ScheduleKind::kGpipe, {p, v, m}});
          all.push_back({ScheduleKind::kOneFOneB, {p, v, m}});
        }
        // Turns longer than the pipeline, the last one shorter or not.
        for (const std::int32_t turn : {p + 1, 2 * p}) {
          if (p > 1 && (m % turn == 0 || m % turn >= p)) {
            all.push_back({ScheduleKind::kOneFOneB, {p, v, m, turn}});
          }
        }
      }
    }
  }
  return all;
}

/// Ends of all passes, by virtual stage and micro-batch, and of the stages.
struct Run {
  std::map<std::tuple<Pass, std::int64_t, std::int32_t>, std::int64_t> ends;
  std::vector<std::int64_t> stages;
  [[nodiscard]] std::int64_t makespan() const {
    return *std::max_element(stages.begin(), stages.end());
  }
};

/// Every stage works through its list; a pass of `times` (forward, backward, weights) waits for the
/// one before it along the layers. Stages that wait for each other for ever end the run.
Run run(ScheduleKind kind, const PipelineShape& shape, const std::array<std::int64_t, 3>& times) {
  const VirtualStages v{shape.stages, shape.chunks,
                        kind == ScheduleKind::kZbV ? ChunkPlacement::kV : ChunkPlacement::kRound};
  std::vector<std::vector<ScheduleStep>> lists;
  for (std::int32_t i = 0; i < shape.stages; ++i) {
    lists.push_back(pipeline_schedule(kind, shape, i));
  }
  Run r;
  r.stages.assign(lists.size(), 0);
  std::vector<std::size_t> at(lists.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < lists.size(); ++i) {
      for (; at[i] < lists[i].size(); ++at[i], moved = true) {
        const ScheduleStep s = lists[i][at[i]];
        const std::int64_t own = v.at(static_cast<std::int64_t>(i), s.chunk);
        const bool last = own + 1 == v.count();
        std::optional<std::tuple<Pass, std::int64_t, std::int32_t>> needs;
        if (s.pass == Pass::kForward && own > 0) {
          needs = {Pass::kForward, own - 1, s.microbatch};
        } else if (s.pass == Pass::kBackward) {
          needs = {last ? Pass::kForward : Pass::kBackward, last ? own : own + 1, s.microbatch};
        } else if (s.pass == Pass::kWeights) {
          needs = {Pass::kBackward, own, s.microbatch};
        }
        if (needs) {
          const auto found = r.ends.find(*needs);
          if (found == r.ends.end()) {
            break;
          }
          r.stages[i] = std::max(r.stages[i], found->second);
        }
        r.stages[i] += times[s.pass == Pass::kForward ? 0U : s.pass == Pass::kBackward ? 1U : 2U];
        r.ends[{s.pass, own, s.microbatch}] = r.stages[i];
      }
    }
  }
  const int passes = splits_weights(kind) ? 3 : 2;
  CHECK(r.ends.size() == static_cast<std::size_t>(passes * v.count() * shape.microbatches));
  return r;
}

}  // namespace

TEST_CASE("each micro-batch passes each chunk once forward, then once backward, in order",
          "[workloads][schedule]") {
  for (const Case& c : cases()) {
    for (std::int32_t stage = 0; stage < c.shape.stages; ++stage) {
      const auto steps = pipeline_schedule(c.kind, c.shape, stage);
      REQUIRE(steps.size() == static_cast<std::size_t>(2 * c.shape.chunks * c.shape.microbatches));
      std::set<ScheduleStep> seen;
      std::map<std::pair<Pass, std::int32_t>, std::int32_t> next;
      for (const ScheduleStep& s : steps) {
        REQUIRE(seen.insert(s).second);
        REQUIRE(s.microbatch ==
                next[{s.pass, s.chunk}]++);  // so messages of a chunk match first-in first-out
        if (s.pass == Pass::kBackward) {
          REQUIRE(seen.count({Pass::kForward, s.chunk, s.microbatch}) == 1);
        }
      }
    }
  }
}

TEST_CASE("activations in flight are those of the schedule's name", "[workloads][schedule]") {
  for (const Case& c : cases()) {
    const std::int64_t p = c.shape.stages;
    const std::int64_t v = c.shape.chunks;
    const std::int64_t m = c.shape.microbatches;
    for (std::int64_t i = 0; i < p; ++i) {
      const auto most =
          most_in_flight(pipeline_schedule(c.kind, c.shape, static_cast<std::int32_t>(i)));
      if (c.kind == ScheduleKind::kGpipe) {
        CHECK(most == m * v);
      } else if (v == 1) {
        CHECK(most == std::min(m, p - i));
      } else {  // in chunks; / v gives micro-batch equivalents of the stage
        const std::int64_t turn = c.shape.turn > 0 ? c.shape.turn : p;
        CHECK(most == std::min(m * v, (v - 1) * turn + 2 * (p - i) - 1));
      }
    }
  }
}

TEST_CASE("no pipeline waits for itself, and its bubble is the ideal one",
          "[workloads][schedule]") {
  for (const Case& c : cases()) {
    INFO("p " << c.shape.stages << " v " << c.shape.chunks << " m " << c.shape.microbatches);
    const std::int64_t makespan = run(c.kind, c.shape, {1, 2, 0}).makespan();
    const std::int64_t v = c.shape.chunks;
    const std::int64_t m = c.shape.microbatches;
    if (v == 1 || (c.kind == ScheduleKind::kOneFOneB && c.shape.turn == 0)) {
      // Work of a stage is m v (1 + 2); the bubble is p - 1 passes of one chunk: a fraction (p - 1)
      // / (v m) of it.
      CHECK(makespan == 3 * (m * v + c.shape.stages - 1));
    }
  }
}

TEST_CASE("an interleaved pipeline names the batch that does not fit it", "[workloads][schedule]") {
  CHECK_THROWS_AS(pipeline_schedule(ScheduleKind::kOneFOneB, {4, 2, 6}, 0), InputError);
  CHECK_THROWS_WITH(pipeline_schedule(ScheduleKind::kOneFOneB, {4, 2, 6}, 0),
                    Catch::StartsWith("parallel.virtual_stages: ") && Catch::Contains("(6)"));
  // 5 micro-batches in turns of 5; of 7 two are left, fewer than the stages.
  CHECK_NOTHROW(pipeline_schedule(ScheduleKind::kOneFOneB, {4, 2, 5, 5}, 0));
  CHECK_THROWS_AS(pipeline_schedule(ScheduleKind::kOneFOneB, {4, 2, 7, 5}, 0), InputError);
}

namespace {

std::int64_t zero_bubble_makespan(const PipelineShape& shape, std::int64_t forward,
                                  std::int64_t backward, std::int64_t weights) {
  return run(ScheduleKind::kZbH1, shape, {forward, backward, weights}).makespan();
}

}  // namespace

TEST_CASE("ZB-V idles for one chunk's pass a stage and keeps what 1F1B keeps",
          "[workloads][schedule]") {
  for (const std::int32_t p : {2, 4, 8, 16}) {
    for (const std::int32_t m : {1, p, 2 * p, 4 * p + 1}) {
      CAPTURE(p, m);
      const PipelineShape shape{p, 2, m};
      const std::int64_t longest = run(ScheduleKind::kZbV, shape, {1, 1, 1}).makespan();
      // The last stage begins p - 1 slots late and has 6 m passes; 1F1B would idle 6 (p - 1) slots.
      CHECK(longest >= 6 * m + p - 1);
      if (m >= 2 * p) {
        CHECK(longest == 6 * m + p - 1);
      }
      for (std::int32_t i = 0; i < p; ++i) {
        const auto steps = pipeline_schedule(ScheduleKind::kZbV, shape, i);
        CHECK(most_in_flight(steps) <= 2 * p);
        std::map<std::pair<Pass, std::int32_t>, std::int32_t> next;
        for (const ScheduleStep& s : steps) {
          CHECK(s.microbatch == next[{s.pass, s.chunk}]++);
        }
      }
    }
  }
}

TEST_CASE("ZB-H1 has the bubble of its paper and the memory of 1F1B's first stage",
          "[workloads][schedule]") {
  for (const std::int32_t p : {1, 2, 3, 4, 8}) {
    for (const std::int32_t m : {p, 2 * p + 1, 24}) {
      const PipelineShape shape{p, 1, m};
      CAPTURE(p, m);
      // m (F + B + W) + (p - 1) (F + B - W), arXiv 2401.10241, table 1.
      CHECK(zero_bubble_makespan(shape, 1, 1, 1) == 3 * m + (p - 1));
      CHECK(zero_bubble_makespan(shape, 10, 11, 8) == 29 * m + 13 * (p - 1));
      for (std::int32_t i = 0; i < p; ++i) {
        const auto steps = pipeline_schedule(ScheduleKind::kZbH1, shape, i);
        CHECK(most_in_flight(steps) == std::min(m, p));
        std::map<Pass, std::int32_t> next;
        for (const ScheduleStep& s : steps) {
          CHECK(s.microbatch == next[s.pass]++);
          CHECK(next[Pass::kForward] >= next[Pass::kBackward]);
          CHECK(next[Pass::kBackward] >= next[Pass::kWeights]);
        }
        CHECK(next[Pass::kWeights] == m);
      }
    }
  }
}

TEST_CASE("ZB-H1 is never slower than 1F1B, and more micro-batches never raise a bubble's share",
          "[workloads][schedule][property]") {
  for (const std::int32_t p : {2, 3, 8}) {
    double before = 1;
    for (std::int32_t m = 1; m <= 40; ++m) {
      CAPTURE(p, m);
      const auto zero = static_cast<double>(zero_bubble_makespan({p, 1, m}, 1, 1, 1));
      const auto plain = run(ScheduleKind::kOneFOneB, {p, 1, m}, {1, 2, 0}).makespan();
      CHECK(zero <= static_cast<double>(plain));
      const double share = 1 - 3 * m / zero;
      CHECK(share <= before);
      before = share;
    }
  }
}
