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
  const VirtualStages v{shape.stages, shape.chunks, traits_of(kind).placement};
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

namespace {

/// Chunks in flight in a V of p stages at most, arXiv 2405.15362 (table of V-Min, V-Half, V-ZB, in
/// micro-batches: (p + 4) / 3, (p + 2) / 2, p) and 2412.19437 (PP + 1 of PP / 2 stages), and the
/// longest bubble in passes of one chunk: 2 p / 3 and p / 2 of 1F1B's share are 4 p and 3 p.
struct VClaim {
  ScheduleKind kind;
  std::int64_t in_flight, bubble;
};
std::vector<VClaim> v_claims(std::int64_t p) {
  return {{ScheduleKind::kZbV, 2 * p, p - 1},
          {ScheduleKind::kDualPipeV, 2 * p + 1, p - 1},
          {ScheduleKind::kVHalf, 2 * ((p + 2) / 2), 3 * p},
          {ScheduleKind::kVMin, 2 * ((p + 4) / 3), 4 * p}};
}

}  // namespace

TEST_CASE("schedules of a V keep and idle what their papers say", "[workloads][schedule]") {
  for (std::int32_t p = 2; p <= 16; ++p) {
    for (const VClaim& claim : v_claims(p)) {
      for (std::int32_t m = 1; m <= 64; m += m < 2 * p ? 1 : 7) {
        CAPTURE(name_of(claim.kind), p, m);
        const PipelineShape shape{p, 2, m};
        const std::int64_t longest = run(claim.kind, shape, {1, 1, 1}).makespan();
        // The last stage begins p - 1 slots late and has 6 m passes; one micro-batch goes 4 p ways.
        CHECK(longest >= std::max(6 * m + p - 1, 4 * p));
        CHECK(longest <= 6 * m + (m < p ? 4 * p : claim.bubble));
        std::int64_t most = 0;
        for (std::int32_t i = 0; i < p; ++i) {
          const auto steps = pipeline_schedule(claim.kind, shape, i);
          REQUIRE(steps.size() == static_cast<std::size_t>(6 * m));
          most = std::max(most, most_in_flight(steps));
          std::map<std::pair<Pass, std::int32_t>, std::int32_t> next;
          for (const ScheduleStep& s : steps) {
            REQUIRE(s.microbatch == next[{s.pass, s.chunk}]++);
          }
        }
        CHECK(most <= std::min(claim.in_flight, std::int64_t{2} * m));
        if (m >= 2 * p) {
          CHECK(most == claim.in_flight);
        }
      }
    }
  }
}

TEST_CASE("with more than three rounds a V goes on as it did", "[workloads][schedule]") {
  for (const std::int32_t p : {2, 3, 6}) {
    for (const VClaim& claim : v_claims(p)) {
      CAPTURE(name_of(claim.kind), p);
      const auto makespan = [&](std::int32_t m) {
        return run(claim.kind, {p, 2, m}, {10, 12, 7}).makespan();
      };
      // A round each, of p micro-batches that are all alike.
      CHECK(makespan(6 * p) - makespan(5 * p) == makespan(8 * p) - makespan(7 * p));
      CHECK(makespan(4 * p) - makespan(3 * p) <= makespan(3 * p) - makespan(2 * p) + 10);
    }
  }
}

TEST_CASE("DualPipeV runs a forward beside the backward of another micro-batch",
          "[workloads][schedule]") {
  for (const std::int32_t p : {2, 3, 8}) {
    const std::int32_t m = 5 * p;
    for (std::int32_t i = 0; i < p; ++i) {
      CAPTURE(p, i);
      const auto steps = pipeline_schedule(ScheduleKind::kDualPipeV, {p, 2, m}, i);
      std::int64_t pairs = 0;
      for (std::size_t n = 1; n < steps.size(); ++n) {
        const ScheduleStep& s = steps[n];
        pairs += steps[n - 1].pass == Pass::kForward && s.pass == Pass::kBackward &&
                         s.chunk != steps[n - 1].chunk && s.microbatch != steps[n - 1].microbatch
                     ? 1
                     : 0;
      }
      // The authors' order leaves 2 (p - i - 1) + i + 1 + p - i - 1 forwards alone that fill the
      // pipeline, and i + 1 of chunk 1.
      CHECK(pairs >= 2 * m - 3 * p + i + 1);
    }
  }
}

TEST_CASE("ZB-H2 idles for nothing after its first forward, with nearly twice the memory",
          "[workloads][schedule]") {
  for (const std::int32_t p : {1, 2, 3, 4, 8}) {
    for (const std::int32_t m : {1, p, 2 * p, 24}) {
      CAPTURE(p, m);
      const PipelineShape shape{p, 1, m};
      const Run r = run(ScheduleKind::kZbH2, shape, {1, 1, 1});
      for (std::int64_t i = 0; i < p; ++i) {
        const auto steps =
            pipeline_schedule(ScheduleKind::kZbH2, shape, static_cast<std::int32_t>(i));
        CHECK(most_in_flight(steps) == std::min(m, 2 * p - 1));
        if (m >= 2 * p - 1) {  // stage i begins i slots late and never waits again
          CHECK(r.stages[static_cast<std::size_t>(i)] == 3 * m + i);
        }
      }
      if (m >= 2 * p - 1) {
        // m (F + B + W) + (p - 1) (F + B - 2 W), arXiv 2401.10241, table 1, on the first stage.
        CHECK(run(ScheduleKind::kZbH2, shape, {10, 11, 9}).stages[0] == 30 * m + 3 * (p - 1));
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
