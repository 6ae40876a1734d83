#include "planner/embedding/replan.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <set>

#include "core/config/config.h"
#include "core/error.h"
#include "planner/embedding/embedding_planner.h"
#include "planner/embedding/ledger.h"
#include "planner/embedding/migration.h"
#include "tests/planner/zoo_jobs.h"
#include "tests/workloads/dlrm_jobs.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/plan_rules.h"

using namespace stepcast;
using namespace stepcast::planner;

namespace {

PlanShard shard(std::int64_t rows, std::array<std::int64_t, 2> columns, ShardingKind kind,
                Split split, std::vector<std::vector<std::int32_t>> groups) {
  PlanShard s;
  s.rows = {0, rows};
  s.columns = columns;
  s.sharding = kind;
  s.split = split;
  s.groups = std::move(groups);
  return s;
}

/// (row, column) of a table -> ranks that hold it, one element at a time.
std::set<std::int32_t> holders(const PlanTable& table, std::int64_t row, std::int64_t column) {
  std::set<std::int32_t> all;
  for (const PlanShard& s : table.shards) {
    if (row < s.rows[0] || row >= s.rows[1] || column < s.columns[0] || column >= s.columns[1]) {
      continue;
    }
    for (const auto& group : s.groups) {
      const auto n = static_cast<std::int64_t>(group.size());
      const std::int64_t block = (s.rows[1] - s.rows[0] + n - 1) / n;
      for (std::int64_t i = 0; i < n; ++i) {
        const bool here =
            n == 1 || s.split == Split::kReplicate ||
            ((s.split == Split::kStripe ? (row - s.rows[0]) % n : (row - s.rows[0]) / block) == i);
        if (here) {
          all.insert(group[static_cast<std::size_t>(i)]);
        }
      }
    }
  }
  return all;
}

PlanTable random_table(std::mt19937& rng, std::int64_t rows, std::int64_t dim) {
  const auto draw = [&rng](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
  };
  const auto split = draw(0, 1) == 0 ? Split::kBlock : Split::kStripe;
  const auto rank = [&] { return static_cast<std::int32_t>(draw(0, 3)); };
  PlanTable t;
  t.name = "t0";
  switch (draw(0, 5)) {
    case 5: {  // a hot range on every rank, the rest in stripes
      const std::int64_t hot = draw(1, rows);
      t.shards = {
          shard(hot, {0, dim}, ShardingKind::kDataParallel, Split::kReplicate, {{0, 1, 2, 3}})};
      if (hot < rows) {
        t.shards.push_back(shard(rows, {0, dim}, ShardingKind::kRowWise, split,
                                 draw(0, 1) == 0
                                     ? std::vector<std::vector<std::int32_t>>{{0, 1, 2, 3}}
                                     : std::vector<std::vector<std::int32_t>>{{0, 1}, {2, 3}}));
        t.shards.back().rows[0] = hot;
      }
      break;
    }
    case 0:
      t.shards = {shard(rows, {0, dim}, ShardingKind::kTableWise, Split::kBlock, {{rank()}})};
      break;
    case 1:
      t.shards = {shard(rows, {0, dim}, ShardingKind::kRowWise, split, {{0, 1, 2, 3}})};
      break;
    case 2:
      t.shards = {shard(rows, {0, dim}, ShardingKind::kTableRowWise, split,
                        draw(0, 1) == 0 ? std::vector<std::vector<std::int32_t>>{{0, 1}}
                                        : std::vector<std::vector<std::int32_t>>{{2, 3}})};
      break;
    case 3:
      t.shards = {
          shard(rows, {0, dim / 2}, ShardingKind::kColumnWise, Split::kBlock, {{rank()}}),
          shard(rows, {dim / 2, dim}, ShardingKind::kColumnWise, Split::kBlock, {{rank()}})};
      break;
    default:
      t.shards = {
          shard(rows, {0, dim}, ShardingKind::kDataParallel, Split::kReplicate, {{0, 1, 2, 3}})};
  }
  return t;
}

Job four_ranks(std::int64_t rows, std::int64_t dim) {
  Job job = test::dlrm_job(4, 1, rows, dim, 1);
  job.embedding_optimizer = OptimizerKind::kSgd;
  job.system.fabric = {{"inner", 2, GBps(100), microseconds(1), 1, false},
                       {"outer", 2, GBps(10), microseconds(1), 1, false}};
  return job;
}

EmbeddingPlan plan_of(PlanTable table) {
  EmbeddingPlan p;
  p.devices = 4;
  p.tables = {std::move(table)};
  return p;
}

}  // namespace

TEST_CASE("bytes to move equal a count of every element", "[planner][migration][oracle]") {
  std::mt19937 rng(11);
  for (int i = 0; i < 300; ++i) {
    const std::int64_t rows = std::uniform_int_distribution<std::int64_t>(1, 40)(rng);
    const Job job = four_ranks(rows, 8);
    const PlanTable from = random_table(rng, rows, 8);
    const PlanTable to = random_table(rng, rows, 8);
    std::vector<std::int64_t> received(4, 0);
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < 8; ++column) {
        const std::set<std::int32_t> had = holders(from, row, column);
        REQUIRE(!had.empty());
        for (const std::int32_t r : holders(to, row, column)) {
          received[static_cast<std::size_t>(r)] += had.count(r) == 0 ? 4 : 0;  // fp32, no state
        }
      }
    }
    const Migration m = migration_between(job, plan_of(from), plan_of(to));
    CAPTURE(i, rows);
    REQUIRE(m.received == received);
    REQUIRE(m.bytes == std::accumulate(received.begin(), received.end(), std::int64_t{0}));
    REQUIRE(std::accumulate(m.sent.begin(), m.sent.end(), std::int64_t{0}) == m.bytes);
    std::int64_t by_level = 0;
    for (const auto& [level, bytes] : m.levels) {
      by_level += bytes;
    }
    REQUIRE(by_level == m.bytes);
  }
}

TEST_CASE("rows come from the nearest copy, with their optimizer state", "[planner][migration]") {
  Job job = four_ranks(1000, 16);
  job.embedding_optimizer = OptimizerKind::kRowwiseAdagrad;
  const auto whole = [](std::int32_t rank) {
    PlanTable t;
    t.name = "t0";
    t.shards = {shard(1000, {0, 16}, ShardingKind::kTableWise, Split::kBlock, {{rank}})};
    return t;
  };
  // 1000 rows x (16 x 4 B + 4 B of state) = 68,000 B.
  const Migration near = migration_between(job, plan_of(whole(0)), plan_of(whole(1)));
  CHECK(near.bytes == 68'000);
  CHECK(near.levels == std::vector<std::pair<std::string, std::int64_t>>{{"inner", 68'000}});
  CHECK(near.seconds == Approx(68e3 / 100e9));
  const Migration far = migration_between(job, plan_of(whole(0)), plan_of(whole(2)));
  CHECK(far.levels == std::vector<std::pair<std::string, std::int64_t>>{{"outer", 68'000}});
  CHECK(far.sent == std::vector<std::int64_t>{68'000, 0, 0, 0});
  CHECK(far.received == std::vector<std::int64_t>{0, 0, 68'000, 0});
  // Dropping copies moves nothing; making them comes from the nearest copy of two.
  PlanTable copies;
  copies.name = "t0";
  copies.shards = {
      shard(1000, {0, 16}, ShardingKind::kDataParallel, Split::kReplicate, {{0, 1, 2, 3}})};
  CHECK(migration_between(job, plan_of(copies), plan_of(whole(3))).bytes == 0);
  PlanTable two = whole(0);
  two.shards.front().groups = {{0}, {2}};
  const Migration spread = migration_between(job, plan_of(two), plan_of(copies));
  CHECK(spread.levels == std::vector<std::pair<std::string, std::int64_t>>{{"inner", 136'000}});
  // In another order of rows only what must coincide counts as being there already: with half of
  // the rows on either side that is nothing, with all of them everything.
  PlanTable ordered = whole(0);
  ordered.frequency_order = true;
  CHECK(migration_between(job, plan_of(whole(0)), plan_of(ordered)).bytes == 0);
  PlanTable halves = ordered;
  halves.shards.front() =
      shard(1000, {0, 16}, ShardingKind::kTableRowWise, Split::kBlock, {{0, 1}});
  PlanTable same = halves;
  same.frequency_order = false;
  CHECK(migration_between(job, plan_of(halves), plan_of(same)).bytes == 68'000);
  CHECK_THROWS_AS(migration_between(job, plan_of(whole(0)), EmbeddingPlan{}), InputError);
}

TEST_CASE("the front around a plan begins with the plan and gains by every byte",
          "[planner][replan][property]") {
  Job job = zoo_job("mlperf-dlrm-v2", 16);
  const models::CostModel model(job.system, job.calibration);
  for (const char* start : {"table_wise", "column_wise", "auto"}) {
    CAPTURE(start);
    job.embedding_choice = start;
    const EmbeddingPlan from = workloads::make_embedding_plan(job, std::string_view(start));
    const ReplanFront front = replan_front(job, model, from);
    REQUIRE(front.points.size() > 2);
    CHECK(front.points.size() <= ReplanOptions{}.points);
    CHECK(front.points.front().bytes == 0);
    CHECK(migration_between(job, from, front.points.front().plan).bytes == 0);
    CHECK(front.points.front().objective ==
          Approx(objective_of_plan(job, model, from).value()).epsilon(1e-12));
    double before = 1e9;
    std::int64_t moved = -1;
    for (const ReplanPoint& p : front.points) {
      CHECK(p.time < before);
      CHECK(p.bytes > moved);
      before = p.time;
      moved = p.bytes;
      CHECK(p.objective >= front.bound * (1 - 1e-12));
      // The budget holds for the finished plan, counted from its text.
      CHECK(migration_between(job, from, p.plan).bytes <= p.bytes);
      // A change that moves nothing counts as one byte.
      const auto tables = static_cast<std::int64_t>(from.tables.size());
      CHECK(migration_between(job, from, p.plan).bytes >= p.bytes - tables);
      CHECK(!excess_of(job, p.plan, p.plan.ledger));
      job.embedding_plan = p.plan;
      CHECK_NOTHROW(workloads::check_embedding_plan(job, p.plan, "plan"));
      job.embedding_plan.reset();
    }
    // With no limit it ends near a search from scratch.
    PlannerOptions alone;
    alone.row_tiers = false;
    const EmbeddingPlanning best = plan_embeddings(job, model, alone);
    CHECK(front.points.back().objective <= best.best()->objective * 1.03);
    const ReplanFront again = replan_front(job, model, from);
    REQUIRE(again.points.size() == front.points.size());
    for (std::size_t i = 0; i < again.points.size(); ++i) {
      CHECK(again.points[i].bytes == front.points[i].bytes);
      CHECK(config::plan_to_json(again.points[i].plan) ==
            config::plan_to_json(front.points[i].plan));
    }
  }
}

TEST_CASE("a plan with row tiers is re-planned too", "[planner][replan][row_tiers]") {
  Job job = test::dlrm_job(16, 4, 2'000'000, 64, 20);
  job.system = zoo_job("rm2", 16).system;
  job.batch.global *= 8;  // rows that travel cost more than starts of kernels of copies
  for (EmbeddingTable& t : test::model_of(job).tables) {
    t.mode = PoolingMode::kSequence;
    t.access = std::make_shared<Access>(Access::zipf(t.rows, 1.2));
  }
  const models::CostModel model(job.system, job.calibration);
  const EmbeddingPlan from = workloads::make_embedding_plan(job, std::string_view("row_wise"));
  const ReplanFront tiers = replan_front(job, model, from);
  ReplanOptions whole;
  whole.row_tiers = false;
  CHECK(tiers.points.back().time < replan_front(job, model, from, whole).points.back().time);
  const EmbeddingPlan& best = tiers.points.back().plan;
  CHECK(best.tables[0].frequency_order);
  // From there on the same tiers are home.
  const ReplanFront again = replan_front(job, model, best);
  CHECK(again.kept.empty());
  CHECK(again.points.front().objective == Approx(tiers.points.back().objective).epsilon(1e-12));
}

TEST_CASE("tables in a form of their own stay where they are", "[planner][replan]") {
  Job job = zoo_job("mlperf-dlrm-v2", 8);
  const models::CostModel model(job.system, job.calibration);
  EmbeddingPlan from = workloads::make_embedding_plan(job, std::string_view("table_wise"));
  // 32 and 96 columns: the search only knows equal parts.
  PlanShard rest = from.tables[1].shards.front();
  from.tables[1].shards.front().columns = {0, 32};
  rest.columns = {32, 128};
  from.tables[1].shards.push_back(rest);
  const ReplanFront front = replan_front(job, model, from);
  CHECK(front.kept == std::vector<std::string>{from.tables[1].name});
  for (const ReplanPoint& p : front.points) {
    REQUIRE(p.plan.tables[1].shards.size() == 2);
    CHECK(p.plan.tables[1].shards[1].columns == rest.columns);
  }
}
