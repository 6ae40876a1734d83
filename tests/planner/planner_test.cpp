#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "core/error.h"
#include "core/numbers.h"
#include "planner/baselines/baselines.h"
#include "planner/embedding/embedding_planner.h"
#include "planner/embedding/embedding_prices.h"
#include "planner/embedding/internal/plan_choice.h"
#include "planner/embedding/ledger.h"
#include "planner/embedding/migration.h"
#include "planner/embedding/plan_space.h"
#include "planner/embedding/search.h"
#include "tests/planner/many_tables.h"
#include "tests/planner/plain_jobs.h"
#include "tests/planner/random_jobs.h"
#include "tests/planner/zoo_jobs.h"
#include "tests/workloads/dlrm_jobs.h"
#include "workloads/build_graph.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/plan_hugectr.h"
#include "workloads/embedding_plan/row_shares.h"

using namespace stepcast;
using namespace stepcast::planner;

namespace {

/// All phases as one, so that the objective is the busiest rank.
PlacementProblem in_one_phase(PlacementProblem problem) {
  const auto merge = [](Load& load) {
    Load one{};
    one[kUpdate] = total(load);
    load = one;
  };
  for (PlacementTable& table : problem.tables) {
    for (PlacementOption& o : table.options) {
      merge(o.load);
      merge(o.everywhere);
      merge(o.skewed);
    }
  }
  return problem;
}

}  // namespace

TEST_CASE("plans that can be built are built, and beat or equal every baseline",
          "[planner][baselines]") {
  // Gates on the gap: what was reached, rounded up; they only tighten. The target is 1 % on all.
  struct Case {
    const char* workload;
    int devices;
    double gap;  // of the objective
  };
  for (const auto& [workload, devices, gap] :
       {Case{"mlperf-dlrm-v2", 8, 0.074}, Case{"mlperf-dlrm-v2", 16, 0.177}, Case{"rm1", 8, 0.001},
        Case{"rm2", 8, 0.001}, Case{"rm3", 8, 0.045}}) {
    Job job = zoo_job(workload, devices);
    const models::CostModel model(job.system, job.calibration);
    PlannerOptions whole_tables;
    whole_tables.row_tiers = whole_tables.slow_tiers = false;
    const EmbeddingPlanning found = plan_embeddings(job, model, whole_tables);
    const PlannedCandidate* best = found.best();
    REQUIRE(best != nullptr);
    CAPTURE(workload, devices, best->objective, found.bound, found.gap);
    CHECK(found.gap <= gap);
    const EmbeddingPrices prices(job, model);
    const PlanSpace all(job, prices, {.group_sizes = group_sizes(job)});
    CHECK(lower_bound(in_one_phase(all.problem())).value <= to_load(best->objective));
    CHECK(found.bound <= best->objective);
    CHECK(objective_of_plan(job, model, best->plan).value() ==
          Approx(best->objective).epsilon(1e-9));
    for (const Baseline& b : baselines()) {
      const BaselinePlan made = b.make(job);
      if (!made.plan) {
        continue;
      }
      const auto theirs = objective_of_plan(job, model, *made.plan);
      CAPTURE(b.name);
      if (theirs && !excess_of(job, *made.plan, ledger_of(job, *made.plan))) {
        CHECK(best->objective <= *theirs * (1 + 1e-9));
      }
    }
    job.embedding_plan = best->plan;
    CHECK_NOTHROW(workloads::build_graph(job));
  }
}

TEST_CASE("blocks of rows at any place are options, and so the plans that have them starts",
          "[planner]") {
  // Two tables take most lookups; HugeCTR's planner cuts their rows by doubling.
  Job job = zoo_job("rm2", 8);
  auto& tables = std::get<LayeredWorkload>(job.workload.model).tables;
  tables[0].pooling *= 60;
  tables[1].pooling *= 40;
  const models::CostModel model(job.system, job.calibration);
  const EmbeddingPlan cut = workloads::hugectr_plan(job, workloads::hugectr_rule(job));
  REQUIRE(cut.tables[0].shards.size() > 1);
  REQUIRE(cut.tables[0].shards[0].rows[1] < tables[0].rows);
  const auto theirs = objective_of_plan(job, model, cut);
  REQUIRE(theirs);

  // Plan as the space has it: another way to write the same one.
  const EmbeddingPrices prices(job, model);
  const PlanSpace space(job, prices, {.group_sizes = group_sizes(job), .proposed = {&cut}});
  const auto placement = internal::placement_of(job, space, cut);
  REQUIRE(placement);
  CHECK(load_seconds(objective_of(space.problem(), *placement)) == Approx(*theirs).epsilon(1e-12));
  const EmbeddingPlan again = space.plan(job, *placement);
  for (std::size_t t = 0; t < tables.size(); ++t) {
    CHECK(same_placement(again.tables[t], cut.tables[t]));
  }
  // Unequal blocks: the loads of all of them together are those of the whole table's lookups.
  const PlacementOption& o =
      space.problem().tables[0].options[static_cast<std::size_t>((*placement)[0].option)];
  CHECK(o.pieces == static_cast<std::int32_t>(cut.tables[0].shards.size()));
  CHECK(o.uneven_pieces());
  const auto whole = std::find_if(
      space.problem().tables[0].options.begin(), space.problem().tables[0].options.end(),
      [](const auto& other) { return other.pieces == 1 && other.group == 1; });
  const Femtoseconds blocks = o.pieces * o.load[kLookup] + o.sum_of_extras()[kLookup];
  CHECK(load_seconds(blocks) == Approx(load_seconds(whole->load[kLookup])).epsilon(0.1));

  PlannerOptions options;
  options.row_tiers = options.slow_tiers = false;
  options.proposed = {cut};
  const EmbeddingPlanning found = plan_embeddings(job, model, options);
  REQUIRE(found.best() != nullptr);
  CHECK(found.best()->objective <= *theirs * (1 + 1e-12));
  job.embedding_plan = found.best()->plan;
  CHECK_NOTHROW(workloads::build_graph(job));
}

TEST_CASE("many tables too are placed for the slowest rank of each phase", "[planner][property]") {
  const std::uint64_t seed = GENERATE(11, 12);
  const Job job = testing::many_tables(150, 16, zoo_job("rm1", 16).system, seed);
  const models::CostModel model(job.system, job.calibration);
  const EmbeddingPrices prices(job, model);
  const PlanSpace phased(job, prices, {.group_sizes = {8}});
  const PlacementProblem merged = in_one_phase(phased.problem());
  CHECK(phased.problem().phases().size() > 3);
  CHECK(merged.phases() == std::vector<std::size_t>{kUpdate});
  const SearchResult found = search(phased.problem());
  const SearchResult busiest = search(merged);
  REQUIRE(!found.best.empty());
  REQUIRE(!busiest.best.empty());
  // The same options in the same order, so a placement of one is a placement of the other.
  const auto& [objective, placement] = found.best.front();
  CHECK(objective == objective_of(phased.problem(), placement));
  CHECK(objective <= objective_of(phased.problem(), busiest.best.front().second));
  // No plan's busiest rank is loaded with more than the phases' slowest ranks together.
  CHECK(objective_of(merged, placement) <= objective);
  CHECK(busiest.bound.value <= objective);
  CHECK(found.bound.value <= objective);
}

TEST_CASE("row tiers cut the step of a skewed sequence workload and can be built",
          "[planner][row_tiers]") {
  Job job = sequence_job(64, 4, 2'000'000, 1.2, 1024, 8);
  const models::CostModel model(job.system, job.calibration);
  const EmbeddingPlanning found = plan_embeddings(job, model);
  REQUIRE(found.best() != nullptr);
  const PlannedCandidate& best = found.candidates.front();
  PlannerOptions whole_tables;
  whole_tables.row_tiers = whole_tables.slow_tiers = false;
  const EmbeddingPlanning whole = plan_embeddings(job, model, whole_tables);
  REQUIRE(whole.best() != nullptr);
  CHECK(best.objective < 0.8 * whole.best()->objective);
  CHECK(found.bound <= best.objective);
  job.embedding_plan = best.plan;
  CHECK_NOTHROW(workloads::build_graph(job));
  job.embedding_plan.reset();
  // Fewer synchronisations make copies cheaper; the plan says for how many steps it was made.
  Job seldom = job;
  seldom.sync_interval = 4;
  const EmbeddingPlanning stale = plan_embeddings(seldom, model);
  CHECK(stale.candidates.front().objective < best.objective);
  CHECK(stale.candidates.front().plan.sync_interval == 4);
  CHECK(best.plan.sync_interval == 0);
  // Shards tile the rows: replicated, per machine, one copy.
  for (const PlanTable& t : best.plan.tables) {
    std::int64_t next = 0;
    for (const PlanShard& s : t.shards) {
      CHECK(s.rows[0] == next);
      next = s.rows[1];
    }
    CHECK(next == 2'000'000);
  }
}

TEST_CASE("deduplicated ids make exchanges of whole tables cheaper by what travels",
          "[planner][dedup]") {
  Job job = sequence_job(16, 4, 200'000, 1.1, 2048, 8);
  const models::CostModel model(job.system, job.calibration);
  const EmbeddingPlan plan = workloads::make_embedding_plan(job, ShardingKind::kRowWise);
  const double without = objective_of_plan(job, model, plan).value();
  job.embedding_dedup = true;
  const double with = objective_of_plan(job, model, plan).value();
  // U(n) / n of a rank's lookups travel with deduplicated ids, a hot row once from each rank, so
  // evenly; without, the rank with the hottest rows is asked for `most` times the even share. What
  // does not grow with the lookups of a rank (launches, pooling what arrived) keeps the ratio
  // above.
  const double lookups = 2048 * 20;
  const double share = Access::zipf(200'000, 1.1).unique(lookups).value / lookups;
  CHECK(share < 0.5);
  const Access law = Access::zipf(200'000, 1.1);
  const workloads::RowShares shares(&law,
                                    {.rows = 200'000,
                                     .table_rows = 200'000,
                                     .split = plan.tables[0].shards[0].split,
                                     .members = 16},
                                    workloads::hottest_rows(&law));
  const double most = 16 * shares.most();  // times the even share
  CHECK(most > 1.5);
  CHECK(with / without > share / most);
  CHECK(with / without < 0.5 * share);
}

TEST_CASE("lists that repeat are paid once, where that pays", "[planner][dedup]") {
  // Pooled tables whose lists are kept in three of four samples: 1 / (1 - 15/16 3/4) = 3.37 times
  // fewer lists.
  Job job = sequence_job(16, 4, 200'000, 1.1, 2048, 8);
  for (EmbeddingTable& t : std::get<LayeredWorkload>(job.workload.model).tables) {
    t.mode = PoolingMode::kSum;
    t.session = Session{16, 0.75};
  }
  const models::CostModel model(job.system, job.calibration);
  const auto objective = [&](ShardingKind kind, bool dedup) {
    Job with = job;
    with.embedding_dedup = dedup;
    const EmbeddingPlan plan = workloads::make_embedding_plan(with, kind);
    return objective_of_plan(with, model, plan).value();
  };
  const double whole =
      objective(ShardingKind::kTableWise, true) / objective(ShardingKind::kTableWise, false);
  CHECK(whole > 1 / dedup_factor(16, 0.75));  // lengths travel as before, copies are made
  CHECK(whole < 0.6);
  // Rows over two machines of eight: partial sums would leave each machine eight times.
  CHECK(objective(ShardingKind::kRowWise, true) == objective(ShardingKind::kRowWise, false));
  job.embedding_dedup = true;
  const EmbeddingPlanning found = plan_embeddings(job, model);
  REQUIRE(found.best() != nullptr);
  job.embedding_plan = found.best()->plan;
  CHECK_NOTHROW(workloads::build_graph(job));
}

TEST_CASE("jobs that cannot be planned say where", "[planner][errors]") {
  using Catch::Matchers::Contains;
  const auto rejection = [](const Job& job) -> std::string {
    const models::CostModel model(job.system, job.calibration);
    try {
      (void)plan_embeddings(job, model);
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  std::mt19937 rng(5);
  Job job = random_job(rng);
  job.devices = 8;
  job.batch.global = 20;
  CHECK_THAT(rejection(job), Contains("batch.global") && Contains("20 samples"));
  job.batch.global = 64;
  job.system.device.memory = Bytes(0);
  CHECK_THAT(rejection(job), Contains("system.device.memory"));
  test::model_of(job).tables.clear();
  CHECK_THAT(rejection(job), Contains("no embedding tables"));
}
