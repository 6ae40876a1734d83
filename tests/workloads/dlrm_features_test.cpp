// Tables that serve several features, rows stored in a format of one table, lookups with weights.
#include <catch2/catch.hpp>

#include "core/graph/memory_use.h"
#include "core/graph/step_traffic.h"
#include "core/job/layers.h"
#include "tests/workloads/dlrm_jobs.h"
#include "workloads/embedding_plan/plan.h"

using namespace stepcast;
using namespace stepcast::test;

namespace {

/// Two tables of three features each, 5 lookups a feature.
Job shared_job(std::int64_t devices, const std::string& plan, PoolingMode mode) {
  Job job = dlrm_job(devices, 2, 1000, 32, 15);
  for (EmbeddingTable& t : model_of(job).tables) {
    t.mode = mode;
    t.features.assign(3, {"", 5});
  }
  job.embedding_choice = plan;
  return job;
}

/// The same with a table for each feature.
Job apart_job(std::int64_t devices, const std::string& plan, PoolingMode mode) {
  Job job = dlrm_job(devices, 6, 1000, 32, 5);
  for (EmbeddingTable& t : model_of(job).tables) {
    t.mode = mode;
  }
  job.embedding_choice = plan;
  return job;
}

/// Ops that do not depend on how many tables are replicated.
std::vector<const Op*> but_replicas(const Program& program) {
  std::vector<const Op*> ops;
  for (const Op& op : program.ops) {
    if (op.phase != Phase::kGradientSync && op.kind != OpKind::kFill &&
        op.kind != OpKind::kOptimizer) {
      ops.push_back(&op);
    }
  }
  return ops;
}

double weights_of(const ExecutionGraph& graph) {
  return memory_use(graph.program_of(0)).embeddings.base();
}

}  // namespace

TEST_CASE("features that share a table travel as if each had one, and its rows are held once",
          "[workloads][dlrm][features]") {
  const std::string plan = GENERATE("row_wise", "table_row_wise", "data_parallel");
  const auto mode = GENERATE(PoolingMode::kSum, PoolingMode::kMean, PoolingMode::kSequence);
  // With 4 devices in a machine and 4 in all, table_row_wise is over all ranks too.
  const std::int64_t devices = 4;
  CAPTURE(plan, static_cast<int>(mode));
  const ExecutionGraph shared = workloads::build_graph(shared_job(devices, plan, mode));
  const ExecutionGraph apart = workloads::build_graph(apart_job(devices, plan, mode));
  // Three features, three tables of the same rows: a third of the weights.
  CHECK(3 * weights_of(shared) == weights_of(apart));
  const Program& one = shared.program_of(0);
  const Program& three = apart.program_of(0);
  const std::vector<const Op*> of_one = but_replicas(one);
  const std::vector<const Op*> of_three = but_replicas(three);
  REQUIRE(of_one.size() == of_three.size());
  std::size_t collectives = 0;
  for (std::size_t i = 0; i < of_one.size(); ++i) {
    const Op& a = *of_one[i];
    const Op& b = *of_three[i];
    CAPTURE(one.name(a), three.name(b));
    CHECK(a.kind == b.kind);
    if (a.kind == OpKind::kAllToAllV || a.kind == OpKind::kReduceScatter ||
        a.kind == OpKind::kAllGather) {
      CHECK(a.shape[0] == b.shape[0]);
      ++collectives;
    }
    // Rows, bags and columns of lookups; columns side by side before the interaction.
    if (a.kind == OpKind::kEmbeddingForward || a.kind == OpKind::kCopyColumns ||
        a.kind == OpKind::kSequencePoolForward || a.kind == OpKind::kLoadBatch) {
      CHECK(a.shape == b.shape);
      CHECK(a.bytes_read.base() == Approx(b.bytes_read.base()));
      CHECK(a.bytes_written.base() == Approx(b.bytes_written.base()));
    }
    if (a.kind == OpKind::kCopyColumns) {  // every column is written once
      const auto& blocks =
          one.column_copies[static_cast<std::size_t>(a.as<ColumnAttributes>().blocks)];
      std::int64_t columns = 0;
      for (const ColumnBlock& block : blocks) {
        columns += block.columns;
      }
      CHECK(columns == 6 * 32 + 32);
    }
  }
  CHECK(collectives >= (plan == "data_parallel" ? 0U : 4U));  // lengths, ids, rows, gradients
}

TEST_CASE("dot and the stack count every feature", "[workloads][dlrm][features]") {
  Job shared = shared_job(2, "table_wise", PoolingMode::kSum);
  Job apart = apart_job(2, "table_wise", PoolingMode::kSum);
  for (Job* job : {&shared, &apart}) {
    model_of(*job).interaction.kind = InteractionKind::kDot;
  }
  // 7 vectors of 32: 21 products, whoever they come from.
  const LayerList list = layers_of(*shared.workload.layered());
  const auto dot = std::find_if(list.layers.begin(), list.layers.end(),
                                [](const Layer& l) { return l.kind == LayerKind::kDot; });
  REQUIRE(dot != list.layers.end());
  CHECK(forward_flops(list, *dot) == 21 * 2 * 32);
  CHECK(forward_flops(list) == forward_flops(layers_of(*apart.workload.layered())));
}

TEST_CASE("rows are stored in the format of their table", "[workloads][dlrm][features]") {
  Job job = dlrm_job(1, 3, 1000, 64, 4);
  model_of(job).tables[1].format = Format::kFp16;
  model_of(job).tables[2].format = Format::kInt8Row;
  const ExecutionGraph graph = workloads::build_graph(job);
  // 64 columns: 256 B in fp32, 128 B in fp16, 64 B and a scale and a bias of 4 B each in int8_row.
  CHECK(weights_of(graph) == 1000.0 * (256 + 128 + 72));
  const Op& lookup = op_named(graph.programs.front(), "embedding.local.forward");
  // 64 samples x 4 lookups x 3 tables: a row, an id of 8 B; a length of 4 B a bag.
  CHECK(lookup.bytes_read.base() == 64 * 4 * (256.0 + 128 + 72) + 64 * 12 * 8.0 + 64 * 3 * 4.0);
}

TEST_CASE("weights travel with the ids of their tables", "[workloads][dlrm][features]") {
  Job job = dlrm_job(4, 8, 1000, 64, 5);
  job.embedding_choice = "row_wise";
  const ExecutionGraph plain = workloads::build_graph(job);
  for (std::size_t t = 0; t < 4; ++t) {
    model_of(job).tables[t].weighted = true;
  }
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.program_of(0);
  const Op& ids = op_named(program, "ids.all_to_all");
  const Op& weights = op_named(program, "weights.all_to_all");
  CHECK(weights.format == Format::kFp32);
  CHECK(2 * weights.shape[0] == ids.shape[0]);  // half of the tables
  CHECK(weights.traffic == TrafficKind::kIds);
  // 64 samples x 5 lookups x 4 tables of 4 B more than without.
  CHECK(op_named(program, "load_batch").shape[0] -
            op_named(plain.program_of(0), "load_batch").shape[0] ==
        64 * 5 * 4 * 4);
  for (const Op& op : plain.program_of(0).ops) {
    CHECK(plain.program_of(0).name(op) != "weights.all_to_all");
  }
}
