// No plan steps under the bound that `plan` prints: not those it finds, not other planners', none
// drawn from its space at random.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "core/config/config.h"
#include "core/error.h"
#include "models/cost_model.h"
#include "planner/embedding/embedding_planner.h"
#include "planner/embedding/embedding_prices.h"
#include "planner/embedding/plan_space.h"
#include "studies/plan/plan.h"
#include "studies/plan/plan_comparison.h"
#include "workloads/embedding_plan/plan.h"

using namespace stepcast;

namespace {

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n));
  }
  bool one_in(std::int64_t n) { return below(n) == 0; }
  template <typename T>
  T of(const std::vector<T>& from) {
    return from[static_cast<std::size_t>(below(static_cast<std::int64_t>(from.size())))];
  }
  std::mt19937& engine() { return random_; }

 private:
  std::mt19937 random_;
};

/// Any mixture of tables, machines, pipelines, overlaps and deduplication.
Job drawn_job(Draw& draw) {
  const std::int64_t devices = draw.of<std::int64_t>({2, 4, 8, 16, 24});
  Job job = config::load_job(
      config::text_source("{}", "test"),
      {"workload=dlrm-default",
       "system=" +
           draw.of<std::string>({"dgx-h100", "dgx-a100-80gb", "gb200-nvl72", "dgx-v100-32gb"}),
       "devices=" + std::to_string(devices),
       "batch.global=" + std::to_string(devices * draw.of<std::int64_t>({64, 512, 4096})),
       "parallel.dlrm_pipeline=" +
           draw.of<std::string>({"none", "none", "sparse_dist", "prefetch", "fused"})},
      {STEPCAST_SOURCE_DIR});
  auto& w = std::get<LayeredWorkload>(job.workload.model);
  w.interaction.kind = InteractionKind::kCat;
  w.tables.clear();
  const std::int64_t tables = 1 + draw.below(8);
  const bool sequences = draw.one_in(2);
  for (std::int64_t t = 0; t < tables; ++t) {
    EmbeddingTable table;
    table.name = "t" + std::to_string(t);
    table.rows = draw.of<std::int64_t>({50, 3000, 200'000, 10'000'000});
    table.dim = draw.of<std::int64_t>({16, 64, 128});
    table.pooling = draw.of<double>({1, 8, 40});
    table.mode = sequences && draw.one_in(2) ? PoolingMode::kSequence : PoolingMode::kSum;
    table.access = std::make_shared<Access>(
        Access::zipf(table.rows, draw.of<double>({0, 0.8, 1.05, 1.6}), static_cast<unsigned>(t)));
    w.tables.push_back(std::move(table));
  }
  if (draw.one_in(3)) {
    Overlap& overlap = job.parallel.overlap;
    overlap.input_all_to_all = draw.one_in(2);
    overlap.output_all_to_all = draw.one_in(2);
    overlap.dense_all_reduce = draw.one_in(2);
  }
  job.embedding_dedup = draw.one_in(4);
  return job;
}

EmbeddingPlan drawn_plan(Draw& draw, const Job& job, const planner::PlanSpace& space) {
  const planner::PlacementProblem& problem = space.problem();
  planner::Placement placement;
  const bool alike = draw.one_in(3);  // one kind for all tables, as far as they have it
  const std::int64_t kind = draw.below(16);
  for (const planner::PlacementTable& table : problem.tables) {
    const auto options = static_cast<std::int64_t>(table.options.size());
    const std::int64_t o = alike ? kind % options : draw.below(options);
    const planner::PlacementOption& option = table.options[static_cast<std::size_t>(o)];
    planner::Choice choice{static_cast<std::int32_t>(o), {}};
    if (option.group != problem.ranks) {
      choice.groups.resize(static_cast<std::size_t>(problem.ranks / option.group));
      std::iota(choice.groups.begin(), choice.groups.end(), 0);
      std::shuffle(choice.groups.begin(), choice.groups.end(), draw.engine());
      choice.groups.resize(static_cast<std::size_t>(option.pieces));
    }
    placement.push_back(std::move(choice));
  }
  return space.plan(job, placement);
}

/// Plans held against their bounds.
std::size_t hold(unsigned seed, std::size_t jobs, int plans_each) {
  Draw draw(seed);
  std::size_t held = 0;
  for (std::size_t i = 0; i < jobs; ++i) {
    const Job job = drawn_job(draw);
    const models::CostModel model(job.system, job.calibration);
    studies::PlanOptions options;
    options.effort = studies::PlanEffort::kQuick;
    options.compare = false;
    const studies::PlanReport report = studies::plan(job, options);
    if (report.plans.empty()) {
      continue;
    }
    const double bound = report.plans.front().plan.lower_bound;
    CAPTURE(seed, i, job.devices, job.system.name, static_cast<int>(job.parallel.dlrm_pipeline),
            job.parallel.overlap.input_all_to_all, job.parallel.overlap.output_all_to_all,
            job.parallel.overlap.dense_all_reduce, job.embedding_dedup);
    REQUIRE(bound > 0);
    const auto hold_step = [&](double step, const std::string& of) {
      CAPTURE(of);
      CHECK(step >= bound * (1 - 1e-9));
      ++held;
    };
    for (const studies::RankedPlan& p : report.plans) {
      hold_step(p.plan.predicted_step, p.planner);
    }
    for (const studies::ProposedPlan& p : studies::proposed_plans(job, model, options)) {
      if (p.plan) {
        hold_step(studies::simulated_step(job, model, *p.plan), p.row.name);
      }
    }
    const planner::EmbeddingPrices prices(job, model);
    for (const bool tiers : {false, true}) {
      const planner::PlanSpace space(job, prices,
                                     {.group_sizes = planner::group_sizes(job),
                                      .row_tiers = tiers,
                                      .dedup = job.embedding_dedup});
      for (int k = 0; k < plans_each / 2; ++k) {
        const EmbeddingPlan plan = drawn_plan(draw, job, space);
        try {
          hold_step(studies::simulated_step(job, model, plan), "drawn");
        } catch (const InputError&) {
          // Some mixtures of groups have no graph.
        }
      }
    }
  }
  return held;
}

}  // namespace

// 10,000 plans in four parts, which run in parallel.
TEST_CASE("no simulated plan steps under the printed bound, 1", "[studies][plan][property]") {
  CHECK(hold(1, 16, 160) > 2500);
}
TEST_CASE("no simulated plan steps under the printed bound, 2", "[studies][plan][property]") {
  CHECK(hold(2, 16, 160) > 2500);
}
TEST_CASE("no simulated plan steps under the printed bound, 3", "[studies][plan][property]") {
  CHECK(hold(3, 16, 160) > 2500);
}
TEST_CASE("no simulated plan steps under the printed bound, 4", "[studies][plan][property]") {
  CHECK(hold(4, 16, 160) > 2500);
}

namespace {

/// Changes: where another effort, another seed, a comparison or a clock that cuts the search finds
/// another plan, the bound is the same; how often it was another plan, and how often the clock cut
/// it.
struct Changes {
  int plans = 0, cut = 0;
};
void hold_alone(const Job& job, Changes& changes) {
  using studies::PlanEffort;
  studies::PlanOptions quick;
  quick.effort = PlanEffort::kQuick;
  const studies::PlanReport report = studies::plan(job, quick);
  if (report.plans.empty()) {
    return;
  }
  studies::PlanOptions normal;
  normal.seed = 7;
  studies::PlanOptions compared = quick;
  compared.seed = 3;
  compared.compare = true;
  double seconds = 0;
  studies::PlanOptions timed;  // its time is over after the first few looks at the clock
  timed.time_limit = 1;
  timed.clock = [&seconds] { return seconds += 0.3; };
  for (const studies::PlanOptions& other : {normal, compared, timed}) {
    const studies::PlanReport again = studies::plan(job, other);
    CAPTURE(job.devices, job.system.name, job.system.device.memory.base(), other.seed);
    REQUIRE_FALSE(again.plans.empty());
    CHECK(again.plans.front().plan.lower_bound == report.plans.front().plan.lower_bound);
    changes.plans += again.plans.front().objective != report.plans.front().objective ? 1 : 0;
    changes.cut += again.cut ? 1 : 0;
  }
}

}  // namespace

TEST_CASE("the bound of the step depends on the job alone, not on what a search found",
          "[studies][plan][bound][property]") {
  Draw draw(23);
  Changes changes;
  for (int i = 0; i < 4; ++i) {
    hold_alone(drawn_job(draw), changes);
  }
  CHECK(changes.plans > 0);
  CHECK(changes.cut > 0);
}

TEST_CASE("the bound of the step is one where slower memory may be searched or not",
          "[studies][plan][bound][property]") {
  // Memory from too little for the tables to just enough: whether a search finds a plan without
  // the slower tier, and how full that is, depends on its effort and seed.
  Draw draw(29);
  Changes changes;
  int spilled = 0;
  for (int i = 0; i < 3; ++i) {
    Job job = drawn_job(draw);
    job.system.tiers = {{"hbm", {}, {}, 1}, {"ddr", Bytes(1e12), GBps(20), 4}};
    const models::CostModel model(job.system, job.calibration);
    const planner::EmbeddingPrices prices(job, model);
    const planner::PlanSpace space(job, prices, {});
    const double free = static_cast<double>(space.problem().tiers.front().capacity.front());
    double least = 0;  // bytes a rank, of the smallest options
    for (const planner::PlacementTable& table : space.problem().tables) {
      double smallest = free;
      for (const planner::PlacementOption& o : table.options) {
        smallest = std::min(smallest, static_cast<double>(o.pieces) * o.group /
                                              static_cast<double>(job.devices) *
                                              static_cast<double>(o.bytes[0]) +
                                          static_cast<double>(o.bytes_everywhere[0]));
      }
      least += smallest;
    }
    const double others = job.system.device.memory.base() - free;
    for (const double share : {0.98, 1.03, 1.15}) {
      job.system.device.memory = Bytes(others + share * least);
      hold_alone(job, changes);
      studies::PlanOptions quick;
      quick.effort = studies::PlanEffort::kQuick;
      const studies::PlanReport found = studies::plan(job, quick);
      spilled +=
          !found.plans.empty() &&
                  std::any_of(found.plans.begin(), found.plans.end(),
                              [](const studies::RankedPlan& p) {
                                return std::any_of(p.plan.tables.begin(), p.plan.tables.end(),
                                                   [](const PlanTable& t) {
                                                     return t.shards.front().tier != "hbm";
                                                   });
                              })
              ? 1
              : 0;
    }
  }
  CHECK(changes.plans > 0);
  CHECK(spilled > 0);
  CHECK(spilled < 9);
}
