// No plan steps under the bound that `plan` prints: not those it finds, not other planners', none
// drawn from its space at random.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <numeric>
#include <random>

#include "core/config/config.h"
#include "core/error.h"
#include "models/cost_model.h"
#include "planner/embedding/embedding_planner.h"
#include "planner/embedding/embedding_prices.h"
#include "planner/embedding/ledger.h"
#include "planner/embedding/plan_space.h"
#include "studies/plan/plan.h"
#include "studies/plan/plan_comparison.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/plan_rules.h"

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

const std::vector<std::string>& systems() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names;
    for (const auto& file :
         std::filesystem::directory_iterator(STEPCAST_SOURCE_DIR "/models/systems")) {
      if (file.path().extension() == ".json") {
        names.push_back(file.path().stem().string());
      }
    }
    std::sort(names.begin(), names.end());
    return names;
  }();
  return all;
}

EmbeddingTable drawn_table(Draw& draw, std::int64_t number, bool sequences, bool large) {
  EmbeddingTable table;
  table.name = "t" + std::to_string(number);
  table.rows = draw.of<std::int64_t>({50, 3000, 200'000, 10'000'000});
  if (large && draw.one_in(2)) {
    table.rows = draw.of<std::int64_t>({1'000'000, 40'000'000, 300'000'000});
  }
  table.dim = draw.of<std::int64_t>({16, 64, 128, 128, 512});
  table.pooling = draw.of<double>({1, 8, 40});
  if (sequences && draw.one_in(2)) {
    table.mode = PoolingMode::kSequence;
    table.pooling = draw.of<double>({1, 20, 300, 2000});
  } else if (draw.one_in(8)) {
    table.weighted = true;
  }
  table.access = std::make_shared<Access>(Access::zipf(
      table.rows, draw.of<double>({0, 0.8, 1.05, 1.6}), static_cast<unsigned>(number)));
  return table;
}

/// Several features look up the rows of some tables.
void draw_features(Draw& draw, Job& job) {
  for (EmbeddingTable& table : std::get<LayeredWorkload>(job.workload.model).tables) {
    if (draw.one_in(4)) {
      table.features.resize(static_cast<std::size_t>(draw.of<std::int64_t>({2, 3, 8})));
      for (TableFeature& feature : table.features) {
        feature.pooling = table.pooling / static_cast<double>(table.features.size());
      }
    }
  }
}

/// Constraints of a job on its plan: copies of a table, whole rows or columns, slower memory.
void draw_constraints(Draw& draw, Job& job) {
  for (const EmbeddingTable& table : job.workload.layered()->tables) {
    if (draw.one_in(3)) {
      TableConstraint c;
      c.table = table.name;
      if (draw.one_in(4)) {
        c.tiers = {"ddr"};
      } else {
        c.shardings = {draw.of<ShardingKind>({ShardingKind::kDataParallel, ShardingKind::kRowWise,
                                              ShardingKind::kTableWise,
                                              ShardingKind::kColumnWise})};
      }
      job.plan_constraints.push_back(std::move(c));
    }
  }
}

/// Any mixture of tables, machines, uneven ones among them, pipelines, overlaps, deduplication,
/// scarce memory and constraints.
Job drawn_job(Draw& draw) {
  const std::int64_t devices =
      draw.of<std::int64_t>({1, 2, 3, 4, 6, 8, 8, 12, 16, 16, 20, 24, 32, 64});
  const std::int64_t samples = draw.of<std::int64_t>({64, 512, 4096});
  Job job = config::load_job(
      config::text_source("{}", "test"),
      {"workload=dlrm-default", "system=" + draw.of<std::string>(systems()),
       "devices=" + std::to_string(devices), "batch.global=" + std::to_string(devices * samples),
       "optimizer.dense=sgd",
       "optimizer.embedding=" +
           draw.of<std::string>({"sgd", "rowwise_adagrad", "rowwise_adagrad", "adagrad", "adam"}),
       "parallel.dlrm_pipeline=" +
           draw.of<std::string>({"none", "none", "sparse_dist", "prefetch", "fused"})},
      {STEPCAST_SOURCE_DIR});
  auto& w = std::get<LayeredWorkload>(job.workload.model);
  w.interaction.kind = InteractionKind::kCat;
  w.tables.clear();
  const std::int64_t tables = 1 + draw.below(8);
  const bool sequences = draw.one_in(2);
  const bool large = draw.one_in(3);
  for (std::int64_t t = 0; t < tables; ++t) {
    w.tables.push_back(drawn_table(draw, t, sequences, large));
  }
  if (draw.one_in(3)) {
    Overlap& overlap = job.parallel.overlap;
    overlap.input_all_to_all = draw.one_in(2);
    overlap.output_all_to_all = draw.one_in(2);
    overlap.dense_all_reduce = draw.one_in(2);
  }
  job.embedding_dedup = draw.one_in(4);
  if (draw.one_in(4)) {
    job.system.device.memory = job.system.device.memory / draw.of<double>({4, 16});
  }
  if (draw.one_in(5)) {
    draw_constraints(draw, job);
  }
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

/// Every placement of a space so small.
constexpr double kFewPlans = 2.3;  // as a power of ten
void every_plan(const planner::PlacementProblem& problem, planner::Placement& made,
                const std::function<void(const planner::Placement&)>& use) {
  if (made.size() == problem.tables.size()) {
    return use(made);
  }
  const auto& options = problem.tables[made.size()].options;
  for (std::size_t o = 0; o < options.size(); ++o) {
    const std::int32_t groups = problem.ranks / options[o].group;
    std::vector<std::int32_t> order;
    for (std::int32_t g = 0; g < groups && groups > 1; ++g) {
      order.push_back(g);
    }
    std::vector<bool> taken(order.size(), false);
    std::fill_n(taken.begin(), std::min<std::size_t>(taken.size(), options[o].pieces), true);
    do {
      planner::Choice choice{static_cast<std::int32_t>(o), {}};
      for (std::size_t g = 0; g < order.size(); ++g) {
        if (taken[g]) {
          choice.groups.push_back(order[g]);
        }
      }
      made.push_back(std::move(choice));
      every_plan(problem, made, use);
      made.pop_back();
    } while (std::prev_permutation(taken.begin(), taken.end()));
  }
}

class Held {
 public:
  Held(unsigned seed, bool compare, int plans_each)
      : draw_(seed), compare_(compare), plans_each_(plans_each) {}

  /// Draws a job, plans it and holds plans against what is printed: plans found, other planners',
  /// all of a small space, else some drawn from it.
  void one_job() {
    job_ = drawn_job(draw_);
    if (compare_) {
      draw_features(draw_, job_);
    }
    const models::CostModel model(job_.system, job_.calibration);
    studies::PlanOptions options;
    options.effort = studies::PlanEffort::kQuick;
    options.compare = compare_;
    studies::PlanReport report;
    try {
      report = studies::plan(job_, options);
    } catch (const InputError&) {
      return;  // constraints that leave a table no place
    }
    if (report.plans.empty()) {
      return;
    }
    bound_ = report.plans.front().plan.lower_bound;
    REQUIRE(bound_ > 0);
    for (const studies::RankedPlan& p : report.plans) {
      hold(p.plan.predicted_step, p.planner);
    }
    if (compare_) {
      for (const studies::ComparedPlan& p : report.compared) {
        if (p.step && p.fits && job_.plan_constraints.empty()) {
          hold(*p.step, p.name);
          CAPTURE(p.name, *p.step);
          CHECK(report.plans.front().plan.predicted_step <= *p.step);
        }
      }
    } else {
      for (const studies::ProposedPlan& p : studies::proposed_plans(job_, model, options)) {
        if (p.plan && p.row.fits && job_.plan_constraints.empty()) {
          hold(studies::simulated_step(job_, model, *p.plan), p.row.name);
        }
      }
    }
    for (const bool tiers : {false, true}) {
      try {
        hold_drawn(model, tiers);
      } catch (const InputError&) {
        // Constraints that ask for slower memory leave a space without it nothing.
      }
    }
  }

  [[nodiscard]] std::size_t plans() const { return held_; }
  [[nodiscard]] std::string said() const {
    return fmt::format("{} x {} ({}), pipeline {}, overlaps {}{}{}, dedup {}, memory {}, {} rules",
                       job_.devices, job_.system.name, job_.batch.global,
                       static_cast<int>(job_.parallel.dlrm_pipeline),
                       job_.parallel.overlap.input_all_to_all ? "i" : "",
                       job_.parallel.overlap.output_all_to_all ? "o" : "",
                       job_.parallel.overlap.dense_all_reduce ? "d" : "", job_.embedding_dedup,
                       job_.system.device.memory.base(), job_.plan_constraints.size());
  }

 private:
  void hold(double step, const std::string& of) {
    CAPTURE(said(), of, step / bound_);
    CHECK(step >= bound_ * (1 - 1e-9));
    ++held_;
  }

  void hold_plan(const models::CostModel& model, const EmbeddingPlan& plan) {
    if (planner::excess_of(job_, plan, planner::ledger_of(job_, plan)) ||
        workloads::broken_rule(job_, plan)) {
      return;
    }
    try {
      hold(studies::simulated_step(job_, model, plan), "drawn");
    } catch (const InputError&) {
      // Some mixtures of groups have no graph.
    }
  }

  void hold_drawn(const models::CostModel& model, bool tiers) {
    const planner::EmbeddingPrices prices(job_, model);
    const planner::PlanSpace space(job_, prices,
                                   {.group_sizes = planner::group_sizes(job_),
                                    .row_tiers = tiers,
                                    .slow_tiers = tiers && draw_.one_in(3),
                                    .dedup = job_.embedding_dedup});
    if (space.problem().space_log10() < kFewPlans) {
      planner::Placement made;
      every_plan(space.problem(), made, [&](const planner::Placement& p) {
        hold_plan(model, space.plan(job_, p));
      });
      return;
    }
    for (int k = 0; k < plans_each_ / 2; ++k) {
      hold_plan(model, drawn_plan(draw_, job_, space));
    }
  }

  Draw draw_;
  bool compare_;
  int plans_each_;
  Job job_;
  double bound_ = 0;
  std::size_t held_ = 0;
};

/// Plans held against their bounds.
std::size_t hold(unsigned seed, std::size_t jobs, int plans_each) {
  Held held(seed, false, plans_each);
  for (std::size_t i = 0; i < jobs; ++i) {
    CAPTURE(seed, i);
    held.one_job();
  }
  return held.plans();
}

}  // namespace

// 10,000 plans in four parts, which run in parallel.
TEST_CASE("no simulated plan steps under the printed bound, 1", "[studies][plan][property]") {
  CHECK(hold(1, 24, 180) > 2500);
}
TEST_CASE("no simulated plan steps under the printed bound, 2", "[studies][plan][property]") {
  CHECK(hold(2, 24, 180) > 2500);
}
TEST_CASE("no simulated plan steps under the printed bound, 3", "[studies][plan][property]") {
  CHECK(hold(3, 24, 180) > 2500);
}
TEST_CASE("no simulated plan steps under the printed bound, 4", "[studies][plan][property]") {
  CHECK(hold(4, 24, 180) > 2500);
}

// Every 500th of the 20,000 jobs, and those whose bound was false once: one device that pools
// sequences itself has no exchange to pay for where they live in slower memory.
TEST_CASE("no plan of some jobs steps under its bound or is behind one compared",
          "[studies][plan][bound][property]") {
  std::vector<unsigned> seeds{81, 865, 1239};
  for (unsigned seed = 0; seed < 20'000; seed += 500) {
    seeds.push_back(seed);
  }
  for (const unsigned seed : seeds) {
    CAPTURE(seed);
    Held(1000 + seed, true, 8).one_job();
  }
}

constexpr unsigned kSection = 50;
TEST_CASE("no plan of 20,000 jobs steps under its bound or is behind one compared",
          "[.long][studies][plan][bound][property]") {
  const unsigned first = GENERATE(range(0U, 20'000U, kSection));
  DYNAMIC_SECTION("jobs from " << first << " on") {
    for (unsigned seed = first; seed < first + kSection; ++seed) {
      CAPTURE(seed);
      Held(1000 + seed, true, 8).one_job();
    }
  }
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

namespace {

void hold_job(const std::string& text, const std::vector<std::string>& settings) {
  const Job job = config::load_job(config::text_source(text, "test"), settings,
                                   {STEPCAST_SOURCE_DIR});
  studies::PlanOptions quick;
  quick.effort = studies::PlanEffort::kQuick;
  const studies::PlanReport report = studies::plan(job, quick);
  REQUIRE_FALSE(report.plans.empty());
  const EmbeddingPlan& best = report.plans.front().plan;
  CHECK(best.lower_bound > 0.5 * best.predicted_step);
  CHECK(best.predicted_step >= best.lower_bound * (1 - 1e-9));
}

}  // namespace

TEST_CASE("tables of many features step no faster than their bound",
          "[studies][plan][bound]") {
  hold_job("{}", {"workload=dlrm-v4", "system=mi355x-8", "devices=32"});
}
