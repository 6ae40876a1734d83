#include "workloads/schedule/schedule.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

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

/// Ends of all steps when every stage works through its list and waits for what it needs: the
/// neighbour's pass before. Forward takes 1, backward 2. Empty when stages wait for each other for
/// ever.
std::map<std::tuple<Pass, std::int64_t, std::int32_t>, std::int64_t> run(const Case& c) {
  const auto& [stages, chunks, microbatches, turn] = c.shape;
  const std::int64_t last = std::int64_t{stages} * chunks - 1;
  std::vector<std::vector<ScheduleStep>> lists;
  for (std::int32_t i = 0; i < stages; ++i) {
    lists.push_back(pipeline_schedule(c.kind, c.shape, i));
  }
  std::map<std::tuple<Pass, std::int64_t, std::int32_t>, std::int64_t> end;
  std::vector<std::size_t> at(lists.size(), 0);
  std::vector<std::int64_t> free_at(lists.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < lists.size(); ++i) {
      while (at[i] < lists[i].size()) {
        const ScheduleStep s = lists[i][at[i]];
        const std::int64_t stage = std::int64_t{s.chunk} * stages + static_cast<std::int64_t>(i);
        std::int64_t ready = free_at[i];
        std::optional<std::tuple<Pass, std::int64_t, std::int32_t>> needs;
        if (s.pass == Pass::kForward && stage > 0) {
          needs = {Pass::kForward, stage - 1, s.microbatch};
        } else if (s.pass == Pass::kBackward) {
          needs = {stage == last ? Pass::kForward : Pass::kBackward,
                   stage == last ? stage : stage + 1, s.microbatch};
        }
        if (needs) {
          const auto found = end.find(*needs);
          if (found == end.end()) {
            break;
          }
          ready = std::max(ready, found->second);
        }
        free_at[i] = ready + (s.pass == Pass::kForward ? 1 : 2);
        end[{s.pass, stage, s.microbatch}] = free_at[i];
        ++at[i];
        moved = true;
      }
    }
  }
  for (std::size_t i = 0; i < lists.size(); ++i) {
    if (at[i] != lists[i].size()) {
      return {};
    }
  }
  return end;
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
    const auto ends = run(c);
    REQUIRE(ends.size() ==
            static_cast<std::size_t>(2 * c.shape.stages * c.shape.chunks * c.shape.microbatches));
    std::int64_t makespan = 0;
    for (const auto& [step, end] : ends) {
      makespan = std::max(makespan, end);
    }
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

/// Time of all stages of a ZB-H1 pipeline whose passes take these times.
std::int64_t zero_bubble_makespan(const PipelineShape& shape, std::int64_t forward,
                                  std::int64_t backward, std::int64_t weights) {
  std::vector<std::vector<ScheduleStep>> lists;
  for (std::int32_t i = 0; i < shape.stages; ++i) {
    lists.push_back(pipeline_schedule(ScheduleKind::kZbH1, shape, i));
  }
  std::map<std::tuple<Pass, std::int32_t, std::int32_t>, std::int64_t> end;
  std::vector<std::size_t> at(lists.size(), 0);
  std::vector<std::int64_t> free_at(lists.size(), 0);
  std::int64_t latest = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (std::int32_t i = 0; i < shape.stages; ++i) {
      const auto stage = static_cast<std::size_t>(i);
      for (; at[stage] < lists[stage].size(); ++at[stage], moved = true) {
        const ScheduleStep s = lists[stage][at[stage]];
        std::int64_t ready = free_at[stage];
        if (s.pass == Pass::kForward ? i > 0 : s.pass == Pass::kBackward && i + 1 < shape.stages) {
          const auto needs =
              end.find({s.pass, s.pass == Pass::kForward ? i - 1 : i + 1, s.microbatch});
          if (needs == end.end()) {
            break;
          }
          ready = std::max(ready, needs->second);
        }
        free_at[stage] = ready + (s.pass == Pass::kForward    ? forward
                                  : s.pass == Pass::kBackward ? backward
                                                              : weights);
        end[{s.pass, i, s.microbatch}] = free_at[stage];
        latest = std::max(latest, free_at[stage]);
      }
    }
  }
  CHECK(end.size() == static_cast<std::size_t>(3 * shape.stages * shape.microbatches));
  return latest;
}

}  // namespace

namespace {

/// When each stage of a V of two chunks ends, its passes taking one slot each; every pass waits for
/// the one before it along the layers.
std::vector<std::int64_t> v_ends(const PipelineShape& shape) {
  const VirtualStages v{shape.stages, 2, ChunkPlacement::kV};
  std::vector<std::vector<ScheduleStep>> lists;
  for (std::int32_t i = 0; i < shape.stages; ++i) {
    lists.push_back(pipeline_schedule(ScheduleKind::kZbV, shape, i));
  }
  std::map<std::tuple<Pass, std::int64_t, std::int32_t>, std::int64_t> end;
  std::vector<std::size_t> at(lists.size(), 0);
  std::vector<std::int64_t> free_at(lists.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < lists.size(); ++i) {
      for (; at[i] < lists[i].size(); ++at[i], moved = true) {
        const ScheduleStep s = lists[i][at[i]];
        const std::int64_t own = v.at(static_cast<std::int64_t>(i), s.chunk);
        std::int64_t ready = free_at[i];
        const bool waits = s.pass == Pass::kForward    ? own > 0
                           : s.pass == Pass::kBackward ? own + 1 < v.count()
                                                       : false;
        if (waits) {
          const auto needs =
              end.find({s.pass, s.pass == Pass::kForward ? own - 1 : own + 1, s.microbatch});
          if (needs == end.end()) {
            break;
          }
          ready = std::max(ready, needs->second);
        }
        end[{s.pass, own, s.microbatch}] = free_at[i] = ready + 1;
      }
    }
  }
  CHECK(end.size() == static_cast<std::size_t>(3 * v.count() * shape.microbatches));
  return free_at;
}

}  // namespace

TEST_CASE("ZB-V idles for one chunk's pass a stage and keeps what 1F1B keeps",
          "[workloads][schedule]") {
  for (const std::int32_t p : {2, 4, 8, 16}) {
    for (const std::int32_t m : {1, p, 2 * p, 4 * p + 1}) {
      CAPTURE(p, m);
      const PipelineShape shape{p, 2, m};
      const std::vector<std::int64_t> ends = v_ends(shape);
      const std::int64_t longest = *std::max_element(ends.begin(), ends.end());
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
      std::int64_t plain = 0;
      for (const auto& [step, end] : run({ScheduleKind::kOneFOneB, {p, 1, m}})) {
        plain = std::max(plain, end);
      }
      CHECK(zero <= static_cast<double>(plain));
      const double share = 1 - 3 * m / zero;
      CHECK(share <= before);
      before = share;
    }
  }
}
