#include <catch2/catch.hpp>
#include <numeric>

#include "core/access/access.h"
#include "core/error.h"
#include "tests/workloads/dlrm_jobs.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/plan_layout.h"
#include "workloads/embedding_plan/plan_rules.h"
#include "workloads/embedding_plan/plan_summary.h"

using namespace stepcast;
using namespace stepcast::test;
using workloads::make_embedding_plan;

TEST_CASE("named plans tile every table", "[workloads][plan][property]") {
  const std::string choice = GENERATE("table_wise", "row_wise", "column_wise", "table_row_wise",
                                      "data_parallel", "auto", "tiered");
  const auto devices = GENERATE(1, 2, 6, 8, 128);
  CAPTURE(choice, devices);
  const Job job = mixed_job(devices, choice);
  const EmbeddingPlan plan = make_embedding_plan(job, choice);
  CHECK_NOTHROW(workloads::check_embedding_plan(job, plan, "plan"));
  CHECK(plan.devices == devices);
  // Element by element, counted through the rows each rank holds.
  const EmbeddingPlacement layout = workloads::embedding_layout(job);
  std::vector<double> elements(plan.tables.size(), 0.0);
  for (std::int32_t r = 0; r < devices; ++r) {
    for (const std::int32_t id : layout.held[static_cast<std::size_t>(r)]) {
      const auto& slice = layout.slices[static_cast<std::size_t>(id)];
      const double copies = slice.split == Split::kReplicate
                                ? static_cast<double>(slice.ranks.size())
                                : static_cast<double>(slice.copies);
      elements[static_cast<std::size_t>(slice.table)] +=
          static_cast<double>(held_rows(slice, r).rows * slice.dim) / copies;
    }
  }
  for (std::size_t t = 0; t < elements.size(); ++t) {
    const EmbeddingTable& table = job.workload.layered()->tables[t];
    CHECK(elements[t] == Approx(static_cast<double>(table.rows * table.dim)));
  }
}

TEST_CASE("stripes and blocks hold each row once", "[workloads][plan]") {
  EmbeddingSlice slice;
  slice.rows = slice.table_rows = 10;
  slice.ranks = {4, 5, 6, 7};
  const auto rows_of = [&slice](std::int32_t rank) {
    const HeldRows h = held_rows(slice, rank);
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < h.rows; ++i) {
      rows.push_back(h.first + i * h.stride);
    }
    return rows;
  };
  slice.split = Split::kBlock;  // ceil(10 / 4) = 3
  CHECK(rows_of(4) == std::vector<std::int64_t>{0, 1, 2});
  CHECK(rows_of(7) == std::vector<std::int64_t>{9});
  slice.split = Split::kStripe;
  CHECK(rows_of(4) == std::vector<std::int64_t>{0, 4, 8});
  CHECK(rows_of(7) == std::vector<std::int64_t>{3, 7});
  slice.split = Split::kBlock;
  slice.rows = slice.table_rows = 3;  // the last rank is empty
  CHECK(rows_of(7).empty());
}

TEST_CASE("table-wise puts the costliest tables on the least loaded ranks", "[workloads][plan]") {
  // Equal rows and dims, pooling 8 7 6 5 4: greedy gives {8, 5} {7, 6} then 4 goes to the lighter;
  // ties to the lower rank.
  Job job = dlrm_job(2, 5, 1000, 16, 1);
  for (std::size_t t = 0; t < 5; ++t) {
    model_of(job).tables[t].pooling = 8.0 - static_cast<double>(t);
  }
  const EmbeddingPlan plan = make_embedding_plan(job, ShardingKind::kTableWise);
  std::vector<std::int32_t> ranks;
  for (const PlanTable& t : plan.tables) {
    ranks.push_back(t.shards.front().groups.front().front());
  }
  CHECK(ranks == std::vector<std::int32_t>{0, 1, 1, 0, 0});
}

TEST_CASE("table-wise respects memory before balance", "[workloads][plan]") {
  Job job = dlrm_job(2, 3, 1000, 16, 1);
  model_of(job).tables[0].pooling = 100;  // costly
  job.embedding_optimizer = OptimizerKind::kSgd;
  // A table has 64,000 B, usable memory 0.85 * 100,000 B = 85,000 B: one table a rank, the third
  // fits nowhere and goes to the rank with most room, the first of equals.
  job.system.device.memory = Bytes(100'000);
  const EmbeddingPlan plan = make_embedding_plan(job, ShardingKind::kTableWise);
  CHECK(plan.tables[0].shards.front().groups.front().front() == 0);
  CHECK(plan.tables[1].shards.front().groups.front().front() == 1);
  CHECK(plan.tables[2].shards.front().groups.front().front() == 0);
  job.system.device.memory = Bytes(200'000);  // two fit: balance decides
  CHECK(make_embedding_plan(job, ShardingKind::kTableWise)
            .tables[2]
            .shards.front()
            .groups.front()
            .front() == 1);
}

TEST_CASE("column-wise cuts into equal parts on distinct ranks", "[workloads][plan]") {
  const Job job = dlrm_job(8, 2, 1000, 64, 1);
  // Two tables over eight ranks: a fair share is a quarter of a table, so four parts of 16 columns.
  for (const PlanTable& t : make_embedding_plan(job, ShardingKind::kColumnWise).tables) {
    REQUIRE(t.shards.size() == 4);
    std::vector<std::int32_t> ranks;
    for (const PlanShard& s : t.shards) {
      CHECK(s.columns[1] - s.columns[0] == 16);
      ranks.push_back(s.groups.front().front());
    }
    std::sort(ranks.begin(), ranks.end());
    CHECK(std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end());
  }
}

TEST_CASE("table-row-wise uses whole nodes, or equal parts of them", "[workloads][plan]") {
  Job job = dlrm_job(8, 2, 1000, 16, 1);  // machines of 4
  CHECK(workloads::node_size(job) == 4);
  const EmbeddingPlan plan = make_embedding_plan(job, ShardingKind::kTableRowWise);
  CHECK(plan.tables[0].shards.front().groups ==
        std::vector<std::vector<std::int32_t>>{{0, 1, 2, 3}});
  CHECK(plan.tables[1].shards.front().groups ==
        std::vector<std::vector<std::int32_t>>{{4, 5, 6, 7}});
  job.devices = 2;
  CHECK(workloads::node_size(job) == 2);
  job.devices = 6;  // one and a half machines: parts of 2
  CHECK(workloads::node_size(job) == 2);
}

TEST_CASE("auto: tiny tables everywhere, dominant ones by row, the rest by table",
          "[workloads][plan]") {
  Job job = dlrm_job(4, 10, 100'000, 16, 2);
  model_of(job).tables[3].rows = 64;      // the local batch
  model_of(job).tables[5].pooling = 200;  // most of the cost
  const EmbeddingPlan plan = make_embedding_plan(job, "auto");
  CHECK(plan.tables[3].shards.front().sharding == ShardingKind::kDataParallel);
  CHECK(plan.tables[5].shards.front().sharding == ShardingKind::kRowWise);
  CHECK(plan.tables[0].shards.front().sharding == ShardingKind::kTableWise);
  CHECK_THROWS_WITH(make_embedding_plan(job, "tabel_wise"), Catch::Contains("embedding.plan") &&
                                                                Catch::Contains("tabel_wise") &&
                                                                Catch::Contains("table_wise"));
}

TEST_CASE("tiered: a copy in every unit of which there are fewer than lookups of the row",
          "[workloads][plan]") {
  Job job = dlrm_job(8, 1, 10'000, 16, 4);
  EmbeddingTable& t = model_of(job).tables[0];
  t.access = std::make_shared<const Access>(Access::zipf(t.rows, 1.0, 1));
  job.system.host.devices = 2;
  job.system.fabric = {{"machine", 2, GBps(100), microseconds(1), 1, false},
                       {"rack", 2, GBps(10), microseconds(1), 1, false},
                       {"network", 2, GBps(1), microseconds(1), 1, false}};
  CHECK(workloads::nested_units(job) == std::vector<std::int64_t>{2, 4});
  const PlanTable plan = make_embedding_plan(job, "tiered").tables[0];
  REQUIRE(plan.shards.size() == 4);
  const double lookups = static_cast<double>(job.batch.global) * t.pooling;
  const auto expected = [&](std::int64_t row) {
    return lookups * t.access->probability(static_cast<double>(row));
  };
  const std::array<double, 4> copies{8, 4, 2, 0};  // ranks, machines, racks
  for (std::size_t i = 0; i < 4; ++i) {
    const auto [first, end] = plan.shards[i].rows;
    CAPTURE(i, first, end);
    CHECK(expected(end - 1) > copies[i]);
    if (i < 3) {
      CHECK(expected(end) <= copies[i]);
      CHECK(plan.shards[i].groups.front().size() == (i == 0 ? 8 : std::size_t{1} << i));
    }
  }
}

TEST_CASE("a plan in words: how many tables are placed in which way", "[workloads][plan]") {
  Job job = dlrm_job(4, 10, 100'000, 16, 2);
  model_of(job).tables[3].rows = 64;
  model_of(job).tables[5].pooling = 200;
  job.embedding_choice = "auto";
  CHECK(workloads::planned_by_rule(job));
  CHECK(workloads::plan_line(job, make_embedding_plan(job, "auto")) ==
        "auto: 8 tables table_wise on one rank each; 1 table data_parallel on every rank; "
        "1 table row_wise over all 4 ranks");
  EmbeddingPlan tiers = make_embedding_plan(job, "row_wise");
  PlanTable& t = tiers.tables[0];
  const PlanShard rest = t.shards.front();
  t.shards.assign(3, rest);
  t.shards[0].rows = {0, 10};
  t.shards[0].groups = {{0}, {1}, {2}, {3}};
  t.shards[1].rows = {10, 100};
  t.shards[1].groups = {{0, 1}, {2, 3}};
  t.shards[2].rows = {100, 100'000};
  job.embedding_plan = tiers;
  job.embedding_choice = "new.json";
  CHECK_FALSE(workloads::planned_by_rule(job));
  CHECK(
      workloads::plan_line(job, tiers) ==
      "new.json: 9 tables row_wise over all 4 ranks; 1 table row ranges on every rank, then a copy "
      "for every 2 ranks, then one copy");
}

TEST_CASE("tables pool repeated lists once by one rule", "[workloads][plan][dedup]") {
  // On two machines of four: the first two of three tables, 32 of 40 columns, keep 15/16 3/4 of
  // their lists, so 0.8 0.297 + 0.2 are left.
  Job job = dlrm_job(8, 3, 100'000, 16, 4);
  model_of(job).tables[0].session = Session{16, 0.75};
  model_of(job).tables[1].session = Session{16, 0.75};
  model_of(job).tables[2].dim = 8;
  job.embedding_dedup = true;
  const auto routes = [&](const char* choice) {
    job.embedding_choice = choice;
    std::vector<std::pair<EmbeddingRoute, bool>> all;
    for (const EmbeddingSlice& s : workloads::embedding_layout(job).slices) {
      all.emplace_back(s.route, s.pools_lists_once());
    }
    return all;
  };
  using Routes = std::vector<std::pair<EmbeddingRoute, bool>>;
  const std::pair once(EmbeddingRoute::kSequence, true);
  CHECK(routes("table_wise") == Routes{once, once, once});
  // 0.297 of the lists from each of a machine's four ranks are more than their sums.
  const std::pair all(EmbeddingRoute::kReduce, false);
  CHECK(routes("row_wise") == Routes{all, all, all});
  model_of(job).tables[0].session = Session{32, 0.9};  // 0.128 of them are not
  CHECK(routes("row_wise") == Routes{once, all, all});
  // Four rows a list on average, or 4 0.128 and a copy; 4 0.297 and a copy; all and a copy.
  const EmbeddingRoute here = EmbeddingRoute::kReplicated;
  CHECK(routes("data_parallel") == Routes{{here, true}, {here, true}, {here, false}});
  model_of(job).tables[0].session.reset();
  model_of(job).tables[1].session = Session{16, 0.1};  // 0.4 0.906 + 0.6 of the lists are left
  const std::pair exchanged(EmbeddingRoute::kExchange, false);
  CHECK(routes("table_wise") == Routes{exchanged, exchanged, exchanged});
}

TEST_CASE("plans that do not fit are refused with their place", "[workloads][plan]") {
  const Job job = dlrm_job(4, 4, 1000, 64, 1);
  const EmbeddingPlan good = make_embedding_plan(job, ShardingKind::kTableWise);
  const auto rejection = [&job](const EmbeddingPlan& plan) -> std::string {
    try {
      workloads::check_embedding_plan(job, plan, "plan.json");
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  using Catch::Contains;
  using Catch::StartsWith;
  EmbeddingPlan plan = good;
  plan.tables[3].shards.front().columns = {0, 32};  // a gap
  CHECK_THAT(rejection(plan), StartsWith("plan.json: tables[3].shards") &&
                                  Contains("tile rows x columns exactly once"));
  plan.tables[3].shards.push_back(plan.tables[3].shards.front());
  CHECK_THAT(rejection(plan),
             StartsWith("plan.json: tables[3].shards") && Contains("shards 0 and 1 overlap"));
  plan = good;
  plan.tables[2].shards.front().rows[1] = 1001;
  CHECK_THAT(rejection(plan),
             StartsWith("plan.json: tables[2].shards[0].rows") && Contains("1000 rows"));
  plan = good;
  plan.tables[1].shards.front().groups = {{4}};
  CHECK_THAT(rejection(plan),
             StartsWith("plan.json: tables[1].shards[0].groups") && Contains("rank 4"));
  plan.tables[1].shards.front().groups = {};
  CHECK_THAT(rejection(plan), Contains("tables[1].shards[0].groups"));
  plan = good;
  plan.tables[1].shards.front().sharding = ShardingKind::kRowWise;
  CHECK_THAT(rejection(plan), Contains("row_wise needs one group with all ranks"));
  plan = good;
  plan = workloads::make_embedding_plan(job, "data_parallel");
  plan.tables[0].shards.front().tier = "ddr";
  CHECK_THAT(rejection(plan), Contains("tables[0].shards[0].tier") && Contains("several copies"));
  plan = good;
  plan.tables.pop_back();
  CHECK_THAT(rejection(plan), StartsWith("plan.json: tables") && Contains("3 tables"));
  plan = good;
  std::swap(plan.tables[0], plan.tables[1]);
  CHECK_THAT(rejection(plan), StartsWith("plan.json: tables[0].name"));
  plan = good;
  plan.devices = 8;
  CHECK_THAT(rejection(plan), StartsWith("plan.json: devices"));
}
