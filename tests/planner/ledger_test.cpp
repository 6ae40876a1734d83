// Bytes that a plan stores on each rank and tier, against recounts and against its graph.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

#include "core/graph/memory_use.h"
#include "core/graph/optimizer_state.h"
#include "core/job/layers.h"
#include "core/numbers.h"
#include "planner/embedding/embedding_planner.h"
#include "planner/embedding/ledger.h"
#include "planner/embedding/shard_bytes.h"
#include "tests/planner/plain_jobs.h"
#include "tests/planner/planned_ledger.h"
#include "tests/planner/random_jobs.h"
#include "tests/runtime/tiered_plans.h"
#include "tests/workloads/dlrm_jobs.h"
#include "workloads/build_graph.h"
#include "workloads/embedding_plan/plan.h"

using namespace stepcast;
using namespace stepcast::planner;

namespace {

/// Weights and optimizer state by (rank, tier), row by row count, from the plan's text alone.
std::map<std::pair<std::int32_t, std::string>, std::pair<double, double>> recount(
    const Job& job, const EmbeddingPlan& plan) {
  std::map<std::pair<std::int32_t, std::string>, std::pair<double, double>> held;
  for (const PlanTable& t : plan.tables) {
    for (const PlanShard& s : t.shards) {
      const std::int64_t rows = s.rows[1] - s.rows[0];
      const std::int64_t columns = s.columns[1] - s.columns[0];
      for (const auto& group : s.groups) {
        std::vector<std::int64_t> count(group.size(), 0);
        const auto n = static_cast<std::int64_t>(group.size());
        if (s.split == Split::kReplicate || n == 1) {
          std::fill(count.begin(), count.end(), rows);
        } else if (s.split == Split::kStripe) {
          for (std::int64_t i = 0; i < n; ++i) {
            count[static_cast<std::size_t>(i)] = rows / n + (i < rows % n ? 1 : 0);
          }
        } else {
          const std::int64_t block = (rows + n - 1) / n;
          std::int64_t left = rows;
          for (std::int64_t i = 0; i < n; ++i) {
            count[static_cast<std::size_t>(i)] = std::min(block, left);
            left -= count[static_cast<std::size_t>(i)];
          }
        }
        for (std::size_t i = 0; i < group.size(); ++i) {
          const double r = static_cast<double>(count[i]);
          const double state = job.embedding_optimizer == OptimizerKind::kSgd       ? 0
                               : job.embedding_optimizer == OptimizerKind::kAdam    ? 8.0 * columns
                               : job.embedding_optimizer == OptimizerKind::kAdagrad ? 4.0 * columns
                                                                                    : 4.0;
          auto& to = held[{group[i], s.tier}];
          to.first += r * static_cast<double>(columns) * 4;  // fp32
          to.second += r * state;
        }
      }
    }
  }
  return held;
}

}  // namespace

TEST_CASE("the ledger of 1,000 random tasks equals a recount and never exceeds a capacity",
          "[planner][ledger][property]") {
  std::mt19937 rng(2024);
  int feasible = 0;
  int infeasible = 0;
  PlannerOptions options;
  options.search.effort = planner::SearchEffort::kQuick;
  options.keep = 1;
  while (feasible < 1000) {
    const Job job = random_job(rng);
    const models::CostModel model(job.system, job.calibration);
    const EmbeddingPlanning found = plan_embeddings(job, model, options);
    if (found.candidates.empty()) {
      ++infeasible;
      REQUIRE(found.shortage.has_value());
      REQUIRE(infeasible < 1000);
      continue;
    }
    ++feasible;
    for (const PlannedCandidate& c : found.candidates) {
      const auto held = recount(job, c.plan);
      std::map<std::string, double> shared;
      for (const LedgerLine& l : c.plan.ledger) {
        const auto it = held.find({l.rank, l.tier});
        const auto expected = it == held.end() ? std::pair<double, double>{0, 0} : it->second;
        REQUIRE(l.weights == Approx(expected.first).margin(0.5));
        REQUIRE(l.optimizer == Approx(expected.second).margin(0.5));
        if (l.tier == "hbm") {
          REQUIRE(l.total() <= l.capacity);
        } else {
          shared[fmt::format("{}.{}", l.tier, l.rank / job.system.host.devices)] += l.total();
        }
      }
      for (const auto& [unit, bytes] : shared) {
        CAPTURE(unit);
        REQUIRE(bytes <= 1e9);
      }
    }
  }
  INFO(infeasible << " tasks had no plan");
  CHECK(feasible == 1000);
}

TEST_CASE("a plan's ledger covers what its graph allocates", "[planner][ledger][oracle]") {
  std::mt19937 rng(77);
  int checked = 0;
  for (int i = 0; i < 60; ++i) {
    CAPTURE(i);
    each_device_line(random_job(rng),
                     [&](const LedgerLine& l, const MemoryUse& use, const Program& program) {
                       CHECK(use.total().base() <= l.total());
                       // Rows of slower tiers stand in caches and among the buffers.
                       const double elsewhere = program.tiers.empty() ? 0 : l.cache + l.buffers;
                       CHECK(use.embeddings.base() <= l.weights + 1 + elsewhere);
                       ++checked;
                     });
  }
  CHECK(checked > 100);
}

TEST_CASE("what a plan's ledger stores on each rank is what its graph stores, to the byte",
          "[planner][ledger][property]") {
  std::mt19937 rng(31);
  int shards = 0;
  for (unsigned seed = 0; seed < 120; ++seed) {
    Job job = random_job(rng);
    job.system.tiers.push_back({"ssd", GB(10), GBps(1), 2});
    job.dense_optimizer = static_cast<OptimizerKind>(seed % 4);
    job.formats.gradient = seed % 2 == 0 ? Format::kFp32 : Format::kBf16;
    std::vector<std::int64_t> sizes;
    for (const std::int64_t size : {2, 4}) {
      if (size < job.devices) {
        sizes.push_back(size);
      }
    }
    EmbeddingPlan plan = sizes.empty() ? workloads::make_embedding_plan(job, "auto")
                                       : runtime::test::random_tiered_plan(job, seed, sizes);
    if (seed % 3 == 0) {
      runtime::test::move_to_slow_tiers(plan, seed);
    }
    job.embedding_plan = plan;
    const ExecutionGraph graph = workloads::build_graph(job);
    const double dense = real(parameter_count(layers_of(*job.workload.layered())));
    for (const LedgerLine& l : ledger_of(job, plan)) {
      const Program& program = graph.program_of(l.rank);
      std::set<TensorId> cached;
      for (const EmbeddingGroup& group : program.embeddings) {
        for (const EmbeddingShard& shard : group.shards) {
          ++shards;
          if (shard.cache) {
            cached.insert(shard.cache->rows);
            if (shard.has_state) {
              cached.insert(shard.cache->state);
            }
          }
        }
      }
      double weights = 0;
      double optimizer = 0;
      double gradients = 0;
      for (TensorId id = 0; id < program.tensors.size(); ++id) {
        const Tensor& t = program.tensors[id];
        const std::string tier = t.tier == 0 ? "hbm" : program.tiers.at(t.tier - std::size_t{1});
        if (t.is_view() || tier != l.tier || cached.contains(id)) {
          continue;
        }
        const double bytes = t.bytes().base();
        weights += t.role == TensorRole::kEmbedding ? bytes : 0;
        optimizer += t.role == TensorRole::kOptimizerState ? bytes : 0;
        gradients += t.role == TensorRole::kGradient ? bytes : 0;
      }
      if (l.tier == "hbm") {  // a parameter has one gradient and the optimizer's states, fp32
        optimizer -= dense * state_parameter_bytes(job.dense_optimizer);
        gradients -= dense * format_bytes(job.formats.gradient, 1, 1).base();
      }
      CAPTURE(seed, l.rank, l.tier);
      CHECK(l.weights == weights);
      CHECK(l.optimizer == optimizer);
      CHECK(l.gradients == gradients);
    }
  }
  CHECK(shards > 1000);
}

TEST_CASE("the ledger of any row ranges covers what their graph allocates",
          "[planner][ledger][tiers]") {
  const std::int64_t devices = GENERATE(4, 8);
  const std::vector<std::int64_t> sizes =
      devices == 8 ? std::vector<std::int64_t>{2, 4} : std::vector<std::int64_t>{2};
  Job job = test::dlrm_job(devices, 3, 5000, 16, 6);
  job.parallel.data = devices;
  job.system = plain_system(16e9, 2);
  auto& tables = test::model_of(job).tables;
  tables[1].mode = PoolingMode::kSequence;
  tables[2].mode = PoolingMode::kMean;
  for (EmbeddingTable& t : tables) {
    t.access = std::make_shared<Access>(Access::zipf(t.rows, 1.1));
  }
  for (unsigned seed = 0; seed < 60; ++seed) {
    const EmbeddingPlan plan = seed == 0   ? workloads::make_embedding_plan(job, "tiered")
                               : seed == 1 ? workloads::make_embedding_plan(job, "row_wise")
                                           : runtime::test::random_tiered_plan(job, seed, sizes);
    job.embedding_plan = plan;
    const ExecutionGraph graph = workloads::build_graph(job);
    for (const LedgerLine& l : ledger_of(job, plan)) {
      const MemoryUse use = memory_use(graph.program_of(l.rank));
      CAPTURE(seed, l.rank);
      CHECK(use.total().base() <= l.total());
      CHECK(use.embeddings.base() <= l.weights + 1);
    }
  }
}

TEST_CASE("the ledger of rows in slower tiers covers what their graph allocates, by tier",
          "[planner][ledger][tiers]") {
  Job job = test::dlrm_job(4, 3, 5000, 16, 6);
  job.parallel.data = 4;
  job.system = plain_system(16e9, 2);
  job.system.tiers.push_back({"ssd", GB(10), GBps(1), 2});
  auto& tables = test::model_of(job).tables;
  tables[1].mode = PoolingMode::kSequence;
  tables[2].mode = PoolingMode::kMean;
  for (EmbeddingTable& t : tables) {
    t.access = std::make_shared<Access>(Access::zipf(t.rows, 1.1));
  }
  int in_tiers = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    EmbeddingPlan plan = seed % 2 == 0 ? workloads::make_embedding_plan(job, "row_wise")
                                       : runtime::test::random_tiered_plan(job, seed);
    runtime::test::move_to_slow_tiers(plan, seed);
    job.embedding_plan = plan;
    job.parallel.dlrm_pipeline = static_cast<DlrmPipeline>(seed % 4);
    const ExecutionGraph graph = workloads::build_graph(job);
    for (const LedgerLine& l : ledger_of(job, plan)) {
      const Program& program = graph.program_of(l.rank);
      CAPTURE(seed, l.rank, l.tier);
      if (l.tier == "hbm") {
        CHECK(memory_use(program).total().base() <= l.total());
        continue;
      }
      double stored = 0;
      for (const Tensor& t : program.tensors) {
        stored += t.tier > 0 && program.tiers.at(t.tier - std::size_t{1}) == l.tier
                      ? t.bytes().base()
                      : 0;
      }
      CHECK(stored == Approx(l.weights + l.optimizer));
      in_tiers += stored > 0 ? 1 : 0;
    }
  }
  CHECK(in_tiers > 50);
}

TEST_CASE("counters of a cache that counts lookups are in the host's memory", "[planner][ledger]") {
  Job job = test::dlrm_job(4, 1, 5002, 16, 6);
  job.parallel.data = 4;
  job.system = plain_system(16e9, 2);
  job.system.tiers.push_back({"ssd", GB(10), GBps(1), 2});
  EmbeddingPlan plan = workloads::make_embedding_plan(job, "row_wise");
  PlanShard& shard = plan.tables[0].shards[0];
  shard.tier = "ssd";
  shard.cache_bytes = 10'000;
  const auto in_ddr = [&](RowCachePolicy policy) {
    shard.cache_policy = policy;
    std::vector<double> bytes;
    for (const LedgerLine& l : ledger_of(job, plan)) {
      if (l.tier == "ddr") {
        bytes.push_back(l.total());
      }
    }
    return bytes;
  };
  CHECK(in_ddr(RowCachePolicy::kLru).empty());
  // Blocks of 1,251 rows, the last of 1,249; 4 bytes a row.
  CHECK(in_ddr(RowCachePolicy::kLfu) == std::vector<double>{5004, 5004, 5004, 4996});
}

TEST_CASE("rows in order of popularity that are split over ranks have a remap table on each",
          "[planner][ledger]") {
  // One shard of 5,002 rows, blocks of which lie on 4 ranks: ids are looked up before they travel.
  Job job = test::dlrm_job(4, 1, 5002, 16, 6);
  job.parallel.data = 4;
  job.system = plain_system(16e9, 2);
  const auto remap_of = [&](const char* kind) {
    EmbeddingPlan plan = workloads::make_embedding_plan(job, kind);
    plan.tables[0].frequency_order = true;
    return ledger_of(job, plan).front().remap;
  };
  CHECK(remap_of("row_wise") == 4 * 5002);
  CHECK(remap_of("table_wise") == 0);
}

TEST_CASE("a stack's single optimizer launch keeps a full copy of narrow dense parameters",
          "[planner][ledger]") {
  Job job = test::dlrm_job(4, 1, 5002, 16, 6);
  job.parallel.data = 4;
  job.system = plain_system(16e9, 2);
  job.formats.compute = Format::kFp16;
  const double parameters = real(parameter_count(layers_of(*job.workload.layered())));
  const double plain = dense_bytes(job);
  job.system.framework.fused_optimizer = true;
  CHECK(dense_bytes(job) == Approx(plain + 4 * parameters));
  job.embedding_plan = workloads::make_embedding_plan(job, "table_wise");
  const ExecutionGraph graph = workloads::build_graph(job);
  double states = 0;
  for (const Tensor& t : graph.program_of(0).tensors) {
    states += t.role == TensorRole::kOptimizerState && !t.is_view() && t.rows != 5002
                  ? t.bytes().base()
                  : 0;
  }
  CHECK(states == Approx(parameters * (state_parameter_bytes(job.dense_optimizer) + 4)));
  job.formats.compute = Format::kFp32;
  const double wide = dense_bytes(job);
  job.system.framework = {};
  CHECK(dense_bytes(job) == wide);
}
