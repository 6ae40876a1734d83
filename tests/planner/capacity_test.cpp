#include <catch2/catch.hpp>
#include <cmath>

#include "core/error.h"
#include "core/graph/memory_use.h"
#include "planner/embedding/embedding_planner.h"
#include "planner/embedding/embedding_prices.h"
#include "planner/embedding/ledger.h"
#include "planner/embedding/plan_space.h"
#include "planner/embedding/replan.h"
#include "tests/planner/plain_jobs.h"
#include "tests/workloads/dlrm_jobs.h"
#include "workloads/build_graph.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/plan_layout.h"

using namespace stepcast;
using namespace stepcast::planner;

namespace {

/// Tables far larger than a device's memory; `ddr` bytes of slower memory for each 4 ranks.
Job spilled_job(std::int64_t devices, std::int64_t tables, double ddr) {
  Job job = test::dlrm_job(devices, tables, 100000, 64, 2);  // 26 MB of state and weights each
  job.parallel.data = devices;
  job.system = plain_system(20e6, 4);
  job.system.tiers = {{"hbm", {}, {}, 1}, {"ddr", Bytes(ddr), GBps(20), 4}};
  return job;
}

}  // namespace

TEST_CASE("tables may be uneven over the ranks that share a slower tier", "[planner][ledger]") {
  // 6 machines' ranks, the last machine half full: units of 4, 4 and 2. The tables need 8 x 26 MB;
  // one of them whole on a rank is above the 27.5 MB / 4 of an even share.
  const std::int64_t devices = GENERATE(4, 8, 10);
  const Job job = spilled_job(devices, devices == 4 ? 4 : 8, 110e6);
  const models::CostModel model(job.system, job.calibration);
  const EmbeddingPlanning found = plan_embeddings(job, model);
  REQUIRE(found.best() != nullptr);
  for (const PlannedCandidate& c : found.candidates) {
    CHECK_FALSE(excess_of(job, c.plan, c.plan.ledger));
    std::vector<double> unit(3, 0.0);
    for (const LedgerLine& l : c.plan.ledger) {
      if (l.tier == "ddr") {
        CHECK(l.capacity == 110e6);
        unit.at(static_cast<std::size_t>(l.rank / 4)) += l.total();
      }
    }
    CHECK(*std::max_element(unit.begin(), unit.end()) <= 110e6);
  }
}

TEST_CASE("the ledger holds what pooled lists that repeat allocate", "[planner][ledger][dedup]") {
  // A sixth of the lists is distinct: rows of two machines pay too. Partial sums of every holder
  // arrive at once, which is more than without.
  const std::int64_t devices = GENERATE(1, 4, 8);
  Job job = test::dlrm_job(devices, 5, 3000, 64, 10);
  job.parallel.data = devices;
  job.system = plain_system(16e9, 4);
  for (EmbeddingTable& t : test::model_of(job).tables) {
    t.session = Session{16, 0.9};
  }
  job.embedding_dedup = true;
  for (const ShardingKind kind :
       {ShardingKind::kTableWise, ShardingKind::kColumnWise, ShardingKind::kRowWise,
        ShardingKind::kTableRowWise, ShardingKind::kDataParallel}) {
    CAPTURE(devices, static_cast<int>(kind));
    const EmbeddingPlan plan = workloads::make_embedding_plan(job, kind);
    job.embedding_plan = plan;
    for (const EmbeddingSlice& s : workloads::embedding_layout(job).slices) {
      CHECK(s.pools_lists_once());
    }
    const ExecutionGraph graph = workloads::build_graph(job);
    for (const LedgerLine& line : ledger_of(job, plan)) {
      CAPTURE(line.rank, line.tier);
      if (line.tier == "hbm") {
        CHECK(memory_use(graph.program_of(line.rank)).total().base() <= line.total());
      }
    }
  }
}

TEST_CASE("a plan that does not fit is an answer with its reason", "[planner][ledger]") {
  const Job job = spilled_job(8, 20, 110e6);  // 20 x 26 MB; two units of 110 MB and 8 x 20 MB
  const models::CostModel model(job.system, job.calibration);
  const EmbeddingPlanning found = plan_embeddings(job, model);
  CHECK(found.candidates.empty());
  REQUIRE(found.shortage);
  CHECK(found.shortage->missing() > 0);

  EmbeddingPlan one_rank;
  one_rank.devices = job.devices;
  for (const EmbeddingTable& t : job.workload.layered()->tables) {
    PlanShard s;
    s.rows = {0, t.rows};
    s.columns = {0, t.dim};
    s.tier = "ddr";
    s.groups = {{0}};
    one_rank.tables.push_back({t.name, false, {s}});
  }
  const auto excess = excess_of(job, one_rank, ledger_of(job, one_rank));
  REQUIRE(excess);
  CHECK(excess->tier == "ddr");
  CHECK(excess->fullest_rank == 0);
  CHECK(excess->capacity.base() == 110e6);
  // 100,000 rows of 64 fp32 columns and 4 bytes of row-wise state, twenty times.
  CHECK(excess->held.base() == 20 * 100000.0 * (64 * 4 + 4));
  CHECK(excess->largest_table == "t0");
}

TEST_CASE("a plan reached from one in use has room for its communicators",
          "[planner][ledger][replan]") {
  // 6 tables of 26 MB on 8 ranks; every communicator beyond the first takes 50 MB that no search
  // sees. With enough for a plan from scratch there is one from the plan in use as well.
  Job job = test::dlrm_job(8, 6, 100000, 64, 2);
  job.parallel.data = 8;
  int found_both = 0;
  for (double memory = 80e6; memory < 320e6; memory += 20e6) {
    job.system = plain_system(memory, 4);
    job.system.device.fitted["memory"].constants["communicator"] = 50e6;
    const models::CostModel model(job.system, job.calibration);
    PlannerOptions quick;
    quick.row_tiers = quick.slow_tiers = false;
    const EmbeddingPlanning scratch = plan_embeddings(job, model, quick);
    ReplanOptions options;
    options.row_tiers = false;
    const ReplanFront front =
        replan_front(job, model, workloads::make_embedding_plan(job, "row_wise"), options);
    REQUIRE_FALSE(front.points.empty());
    for (std::size_t i = 1; i < front.points.size(); ++i) {
      CHECK_FALSE(excess_of(job, front.points[i].plan, front.points[i].plan.ledger));
      CHECK(front.points[i].bytes > front.points[i - 1].bytes);
      CHECK(front.points[i].time < front.points[i - 1].time);
    }
    if (const PlannedCandidate* best = scratch.best()) {
      CAPTURE(memory, best->objective);
      CHECK(front.points.back().time <= best->objective * 1.1);
      ++found_both;
    }
  }
  CHECK(found_both >= 6);
}

TEST_CASE("ids that arrive ahead load links while the dense model computes", "[planner][prices]") {
  Job job = test::dlrm_job(4, 3, 5000, 16, 6);
  job.parallel.data = 4;
  job.system = plain_system(16e9, 2);
  const bool ahead = GENERATE(false, true);
  job.parallel.dlrm_pipeline = ahead ? DlrmPipeline::kSparseDist : DlrmPipeline::kNone;
  const models::CostModel model(job.system, job.calibration);
  const EmbeddingPrices prices(job, model);
  const PlanSpace space(job, prices, {.group_sizes = {2}, .row_tiers = true});
  Femtoseconds arrival = 0;
  Femtoseconds lookup = 0;
  for (const PlacementTable& table : space.problem().tables) {
    for (const PlacementOption& o : table.options) {
      arrival += o.load[kArrival] + o.everywhere[kArrival];
      lookup += o.load[kLookup] + o.load[kGroupLookup];
    }
  }
  CHECK(arrival > 0);
  CHECK(space.problem().arrival_overlaps.has_value() == ahead);
  if (ahead) {
    CHECK(*space.problem().arrival_overlaps == to_load(prices.dense_step().compute));
    // Row-wise on all ranks, where every phase is known from one option.
    const PlacementOption& rows = space.problem().tables[0].options[1];
    PlacementProblem one = space.problem();
    one.tables = {{"t", {rows}}};
    PlacementOption& only = one.tables[0].options[0];
    only.routes = 0;
    only.skew = {};
    const Femtoseconds chain = total(rows.load) - rows.load[kArrival];
    const Femtoseconds half = rows.load[kGroupExchange] / 2;
    const auto step = [&](Femtoseconds arrives, Femtoseconds dense) {
      only.load[kArrival] = arrives;
      one.arrival_overlaps = dense;
      return objective_of(one, {{0, {}}});
    };
    const Femtoseconds lookups = rows.load[kGroupLookup];
    REQUIRE(half > 10);
    // Free while rows are looked up; then exchanges take longer by what arrives during them, up to
    // their own length; free again during the dense kernels.
    CHECK(step(lookups, 0) == chain);
    CHECK(step(lookups + 10, 0) == chain + 10);
    CHECK(step(lookups + half + 1000, 1000) == chain + half);
    CHECK(step(lookups + half + 1010, 1000) == chain + half + 10);
    // And what is left at the end is waited for: arrival and exchanges one after the other, less
    // the dense kernels.
    const Femtoseconds all = 10 * chain;
    CHECK(step(all, 1000) == all + rows.load[kGroupExchange] - 1000);
    // Rows of one of four ranks leave it while ids enter it; a fourth as many enter it from all
    // ranks. Their gradients come as the ids do.
    only.group = 1;
    one.returning = 0.5;
    const auto held = [&](Femtoseconds arrives, Femtoseconds dense) {
      only.load[kArrival] = arrives;
      one.arrival_overlaps = dense;
      return objective_of(one, {{0, {0}}});
    };
    const Femtoseconds entering = rows.load[kGroupExchange] / 4 / 2;
    CHECK(held(lookups + half - entering, 0) == chain);
    CHECK(held(lookups + half + 1000, 1000) == chain + entering);
    CHECK(held(all, 1000) == all + half + entering - 1000);
  }
  CHECK((space.problem().fixed.front() == 0) == ahead);  // the start of the exchange of ids
  CHECK(lookup > 0);
}

TEST_CASE("a load that no plan can mend is an error of the input", "[planner][load]") {
  CHECK(to_load(1e-6) == 1'000'000'000);  // femtoseconds
  for (const double seconds : {4571.4, 1e12, -1.0, std::nan("")}) {
    CHECK_THROWS_AS(to_load(seconds), InputError);
  }
}
