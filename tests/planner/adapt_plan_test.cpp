#include "planner/embedding/adapt_plan.h"
#include "core/access/row_order.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "planner/embedding/migration.h"
#include "planner/embedding/replan.h"
#include "tests/planner/zoo_jobs.h"
#include "tests/workloads/dlrm_jobs.h"
#include "workloads/embedding_plan/plan.h"

using namespace stepcast;
using namespace stepcast::planner;

namespace {

PlanTable table(const EmbeddingTable& of, ShardingKind kind, Split split,
                std::vector<std::vector<std::int32_t>> groups) {
  PlanTable t;
  t.name = of.name;
  PlanShard s;
  s.rows = {0, of.rows};
  s.columns = {0, of.dim};
  s.sharding = kind;
  s.split = split;
  s.groups = std::move(groups);
  t.shards = {s};
  return t;
}

std::vector<EmbeddingTable>& tables_of(Job& job) {
  return std::get<LayeredWorkload>(job.workload.model).tables;
}

/// Four tables of 1,000 rows of 16 on `devices`: whole, on all, a copy each, a copy a pair.
Job four_tables(std::int64_t devices) {
  Job job = test::dlrm_job(devices, 4, 1000, 16, 1);
  job.embedding_optimizer = OptimizerKind::kSgd;
  return job;
}

EmbeddingPlan plan_on_four(Job job) {
  const auto& t = tables_of(job);
  EmbeddingPlan plan;
  plan.devices = 4;
  plan.tables = {table(t[0], ShardingKind::kTableWise, Split::kBlock, {{3}}),
                 table(t[1], ShardingKind::kRowWise, Split::kStripe, {{0, 1, 2, 3}}),
                 table(t[2], ShardingKind::kDataParallel, Split::kReplicate, {{0, 1, 2, 3}}),
                 table(t[3], ShardingKind::kRowWise, Split::kStripe, {{0, 1}, {2, 3}})};
  return plan;
}

}  // namespace

TEST_CASE("a plan is carried over to fewer devices and to more", "[planner][adapt]") {
  const EmbeddingPlan four = plan_on_four(four_tables(4));
  const Job on_two = four_tables(2);
  const AdaptedPlan two = adapted_plan(on_two, four);
  using Groups = std::vector<std::vector<std::int32_t>>;
  // Rank 3 is gone, and both left hold as much: half of table 1 and a copy of 2 and 3's half.
  CHECK(two.plan.tables[0].shards[0].groups == Groups{{0}});
  CHECK(two.plan.tables[1].shards[0].groups == Groups{{0, 1}});
  CHECK(two.plan.tables[2].shards[0].groups == Groups{{0, 1}});
  CHECK(two.plan.tables[3].shards[0].groups == Groups{{0, 1}});
  CHECK(two.added.empty());
  CHECK(two.removed.empty());
  CHECK(two.moved.size() == 4);
  // Bytes: table 0 comes whole, 1,000 rows x 16 x 4 bytes = 64,000, from rank 3. Table 1 was row
  // mod 4 and is row mod 2: rank 0 has rows 0 mod 4 and needs 0 mod 2, half of its 32,000 bytes; so
  // does rank 1. Copies are there. In table 3 ranks 0 and 1 had row mod 2 of the first copy.
  const Migration m = migration_between(on_two, four, two.plan);
  CHECK(m.bytes == 64'000 + 2 * 16'000);
  CHECK(m.sent.size() == 4);  // ranks that go away send too
  CHECK(m.sent[3] >= 64'000);
  CHECK(m.received[3] == 0);

  const AdaptedPlan eight = adapted_plan(four_tables(8), four);
  CHECK(eight.plan.tables[0].shards[0].groups == Groups{{3}});
  CHECK(eight.plan.tables[1].shards[0].groups.front().size() == 8);
  CHECK(eight.plan.tables[2].shards[0].groups.front().size() == 8);
  CHECK(eight.plan.tables[3].shards[0].groups == Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(std::find(eight.moved.begin(), eight.moved.end(), four.tables[0].name) ==
        eight.moved.end());
}

TEST_CASE("tables that are new or gone leave the others where they are", "[planner][adapt]") {
  Job job = four_tables(4);
  const EmbeddingPlan before = plan_on_four(job);
  auto& tables = tables_of(job);
  const std::string gone = tables[1].name;
  tables.erase(tables.begin() + 1);
  tables.push_back(tables.front());
  tables.back().name = "new";
  tables[1].rows = 500;  // fewer rows: they begin anew
  tables[1].access = std::make_shared<Access>(Access::uniform(500));
  const AdaptedPlan adapted = adapted_plan(job, before);
  CHECK(adapted.added == std::vector<std::string>{tables[1].name, "new"});
  CHECK(adapted.removed == std::vector<std::string>{gone});
  CHECK(adapted.moved.empty());
  CHECK(adapted.plan.tables[0].shards[0].groups == before.tables[0].shards[0].groups);
  CHECK(adapted.plan.tables[2].shards[0].groups == before.tables[3].shards[0].groups);
  CHECK(migration_between(job, before, adapted.plan).bytes == 0);
}

TEST_CASE("tables that grow keep their rows where they are", "[planner][adapt]") {
  Job job = four_tables(4);
  EmbeddingPlan before = plan_on_four(job);
  // Table 3: 100 hot rows on all ranks, the others in blocks of 225.
  PlanTable& tiered = before.tables[3];
  tiered.frequency_order = true;
  tiered.order = std::make_shared<const RowOrder>(RowOrder::listed(1000, {7, 3}));
  tiered.shards = {before.tables[2].shards[0], tiered.shards[0]};
  tiered.shards[0].rows = {0, 100};
  tiered.shards[1].rows = {100, 1000};
  tiered.shards[1].split = Split::kBlock;
  tiered.shards[1].groups = {{0, 1, 2, 3}};
  for (EmbeddingTable& t : tables_of(job)) {
    t.rows = 1300;
    t.access = std::make_shared<Access>(Access::uniform(1300));
  }
  const AdaptedPlan adapted = adapted_plan(job, before);
  CHECK(adapted.added.empty());
  CHECK(adapted.grown.size() == 4);
  CHECK(adapted.moved.empty());
  for (std::size_t t = 0; t < 4; ++t) {
    CHECK(placed_rows(adapted.plan.tables[t]) == 1300);
    CHECK(adapted.plan.tables[t].shards[0].groups == before.tables[t].shards[0].groups);
  }
  CHECK(adapted.plan.tables[3].shards[0].rows == std::array<std::int64_t, 2>{0, 100});
  CHECK(*adapted.plan.tables[3].order == RowOrder::listed(1300, {7, 3}));
  // Whole tables, copies and stripes move nothing. Blocks of 225 from row 100 become blocks of 300:
  // rank 0 gets 325 to 400 from rank 1, rank 1 gets 550 to 700, rank 2 775 to 1,000 and rank 3,
  // whose rows are all new but 1,000 to 1,300, nothing: 75 + 150 + 225 rows of 16 x 4 bytes.
  const Migration m = migration_between(job, before, adapted.plan);
  REQUIRE(m.tables.size() == 1);
  CHECK(m.tables[0].name == tables_of(job)[3].name);
  CHECK(m.bytes == (75 + 150 + 225) * 64);
  CHECK(m.received[3] == 0);
  CHECK(m.sent[1] == 75 * 64);
  CHECK(m.sent[3] == 225 * 64);

  // In another order each of the 1,000 rows may have been anywhere, and no more than they can move.
  EmbeddingPlan other = adapted.plan;
  other.tables[3].frequency_order = false;
  other.tables[3].order = nullptr;
  other.tables[3].shards = adapted.plan.tables[0].shards;  // all on rank 3
  CHECK(migration_between(job, before, other).bytes == (1000 - 100 - 225) * 64);
  CHECK(migration_between(job, adapted.plan, adapted.plan).bytes == 0);
}

TEST_CASE("the front around a plan that was carried over counts what carrying moves",
          "[planner][adapt][replan]") {
  Job job = zoo_job("mlperf-dlrm-v2", 8);
  const EmbeddingPlan sixteen =
      workloads::make_embedding_plan(zoo_job("mlperf-dlrm-v2", 16), std::string_view("table_wise"));
  const models::CostModel model(job.system, job.calibration);
  const AdaptedPlan adapted = adapted_plan(job, sixteen);
  ReplanOptions options;
  options.held = &sixteen;
  const ReplanFront front = replan_front(job, model, adapted.plan, options);
  REQUIRE(front.points.size() > 1);
  CHECK(front.points.front().home);
  const std::int64_t least = migration_between(job, sixteen, adapted.plan).bytes;
  CHECK(least > 0);
  CHECK(front.points.front().bytes == least);
  for (const ReplanPoint& p : front.points) {
    CHECK(p.bytes >= least);
    CHECK(migration_between(job, sixteen, p.plan).bytes <= p.bytes);
  }
  CHECK(front.points.back().time < front.points.front().time);
}

TEST_CASE("the objective of a plan whose hot rows went cold is that of the lookups of now",
          "[planner][adapt][replan]") {
  Job job = zoo_job("mlperf-dlrm-v2", 8);
  auto& tables = tables_of(job);
  tables.resize(1);
  tables[0].rows = 1'000'000;
  tables[0].pooling = 50;
  tables[0].mode = PoolingMode::kSequence;
  tables[0].access = std::make_shared<Access>(Access::zipf(1'000'000, 1.2, 1));
  const models::CostModel model(job.system, job.calibration);
  const EmbeddingPlan plan = workloads::make_embedding_plan(job, std::string_view("tiered"));
  REQUIRE(plan.tables[0].shards.size() > 1);
  const ReplanFront fresh = replan_front(job, model, plan);
  tables[0].access = std::make_shared<Access>(Access::zipf(1'000'000, 1.2, 2));
  const ReplanFront stale = replan_front(job, model, plan);
  CHECK(stale.kept.empty());
  // The replicated rows take next to nothing now, so that lookups that were local travel.
  CHECK(stale.points.front().objective > 1.5 * fresh.points.front().objective);
  REQUIRE(stale.points.size() > 1);
  CHECK(stale.points.back().objective < 1.1 * fresh.points.front().objective);
  REQUIRE(stale.points.back().plan.tables[0].order);
  CHECK(*stale.points.back().plan.tables[0].order == RowOrder::seeded(1'000'000, 2));
  CHECK(*stale.points.front().plan.tables[0].order == RowOrder::seeded(1'000'000, 1));
  // To put other rows into the same ranges moves them.
  CHECK(stale.points.back().bytes > 0);
}
