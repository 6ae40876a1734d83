#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "core/access/access.h"
#include "tests/workloads/dlrm_jobs.h"
#include "workloads/embedding_plan/plan.h"

using namespace stepcast;
using namespace stepcast::test;

namespace {

const std::vector<std::string> kEveryPlan{
    "table_wise", "row_wise", "column_wise", "table_row_wise", "data_parallel", "tiered", "auto"};

/// Bytes an op of this rank sends to others in an all-to-all-v of all ranks.
double sent_to_others(const Program& program, const Op& op, std::int32_t rank) {
  double elements = 0;
  const auto to = program.exchange_of(op)->sent_by(static_cast<std::size_t>(rank));
  for (std::size_t peer = 0; peer < to.size(); ++peer) {
    elements += peer == static_cast<std::size_t>(rank) ? 0 : to[peer];
  }
  return elements * bits_per_element(op.format, 64) / 8;
}

double output_bytes(const ExecutionGraph& graph, std::int32_t rank) {
  const Program& program = graph.program_of(rank);
  return sent_to_others(program, op_named(program, "embedding.exchange.all_to_all"), rank);
}

}  // namespace

TEST_CASE("table-wise output all-to-all sends B T D b (W - 1) / W per device",
          "[workloads][dlrm]") {
  Job job = dlrm_job(4, 8, 1000, 64, 5);  // two tables a rank
  const ExecutionGraph graph = workloads::build_graph(job);
  for (std::int32_t r = 0; r < 4; ++r) {
    CHECK(output_bytes(graph, r) == 64.0 * 8 * 64 * 4 * 3 / 4);
    const Program& program = graph.program_of(r);
    // Gradients go back the same way; ids: 5 lookups per sample and table, 8 B each.
    CHECK(sent_to_others(program, op_named(program, "embedding.exchange.gradient.all_to_all"), r) ==
          64.0 * 8 * 64 * 4 * 3 / 4);
    CHECK(sent_to_others(program, op_named(program, "ids.all_to_all"), r) ==
          64.0 * 8 * 5 * 8 * 3 / 4);
    CHECK(sent_to_others(program, op_named(program, "lengths.all_to_all"), r) ==
          64.0 * 8 * 4 * 3 / 4);
  }
}

TEST_CASE("half-width formats halve the exchanges exactly", "[workloads][dlrm]") {
  Job job = dlrm_job(4, 8, 1000, 64, 5);
  const ExecutionGraph full = workloads::build_graph(job);
  job.formats.all_to_all_forward = Format::kFp16;
  job.formats.all_to_all_backward = Format::kBf16;
  const ExecutionGraph half = workloads::build_graph(job);
  for (const char* name :
       {"embedding.exchange.all_to_all", "embedding.exchange.gradient.all_to_all"}) {
    const Op& wide = op_named(full.program_of(0), name);
    const Op& narrow = op_named(half.program_of(0), name);
    CHECK(narrow.bytes_read.base() == wide.bytes_read.base() / 2);
    CHECK(sent_to_others(half.program_of(0), narrow, 0) ==
          sent_to_others(full.program_of(0), wide, 0) / 2);
  }
}

TEST_CASE("column-wise sends as many bytes as table-wise", "[workloads][dlrm]") {
  Job job = dlrm_job(4, 8, 1000, 64, 5);
  double table_wise = 0;
  double column_wise = 0;
  const ExecutionGraph tables = workloads::build_graph(job);
  job.embedding_choice = "column_wise";
  const ExecutionGraph columns = workloads::build_graph(job);
  for (std::int32_t r = 0; r < 4; ++r) {
    table_wise += output_bytes(tables, r);
    column_wise += output_bytes(columns, r);
  }
  CHECK(column_wise == table_wise);
  // Ids go to every holder of columns: two parts each.
  double ids = 0;
  for (std::int32_t r = 0; r < 4; ++r) {
    const Program& program = columns.program_of(r);
    for (const double e : program.exchange_of(op_named(program, "ids.all_to_all"))->send_elements) {
      ids += e;
    }
  }
  CHECK(ids == 2 * 256.0 * 8 * 5);
}

TEST_CASE("row-wise ranks hold W times the output of table-wise before reduction",
          "[workloads][dlrm]") {
  Job job = dlrm_job(4, 8, 1000, 64, 5);
  const double table_wise = static_cast<double>(
      op_named(workloads::build_graph(job).program_of(0), "embedding.exchange.all_to_all")
          .shape[0]);
  job.embedding_choice = "row_wise";
  const ExecutionGraph graph = workloads::build_graph(job);
  const Op& scatter = op_named(graph.program_of(0), "embedding.reduce.reduce_scatter");
  CHECK(static_cast<double>(scatter.shape[0]) == 4 * table_wise);
  CHECK(scatter.shape[0] == 256 * 8 * 64);  // B_global T D
  CHECK(op_named(graph.program_of(0), "embedding.reduce.gradient.all_gather").shape[0] ==
        scatter.shape[0]);
}

TEST_CASE("table-row-wise reduces in the node and crosses nodes once per sample",
          "[workloads][dlrm]") {
  Job job = dlrm_job(8, 8, 1000, 64, 5);  // nodes of 4, so two nodes, four tables each
  job.embedding_choice = "table_row_wise";
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.program_of(5);
  CHECK(op_named(program, "embedding.node_reduce.reduce_scatter").shape[0] == 512 * 4 * 64);
  const Op& across = op_named(program, "embedding.node_reduce.all_to_all");
  CHECK(across.shape[0] == 512 / 4 * 4 * 64);
  CHECK(graph.members(across.communicator, 5) == std::vector<std::int32_t>{1, 5});
  CHECK(graph.members(op_named(program, "embedding.node_reduce.reduce_scatter").communicator, 5) ==
        std::vector<std::int32_t>{4, 5, 6, 7});
}

TEST_CASE("exchanges conserve bytes: what is sent is what arrives", "[workloads][dlrm][property]") {
  const std::string plan = GENERATE_COPY(from_range(kEveryPlan));
  const auto devices = GENERATE(2, 8);
  CAPTURE(plan, devices);
  const Job job = mixed_job(devices, plan);
  const ExecutionGraph graph = workloads::build_graph(job);
  int exchanges = 0;
  for (const Op* first : ops_of_kind(graph.program_of(0), OpKind::kAllToAllV)) {
    const std::string name = graph.program_of(0).name(*first);
    CAPTURE(name);
    for (std::int32_t r = 0; r < graph.ranks(); ++r) {
      const Program& program = graph.program_of(r);
      const Op& op = op_named(program, name);
      const auto members = graph.members(op.communicator, r);
      const auto own =
          static_cast<std::size_t>(std::find(members.begin(), members.end(), r) - members.begin());
      const auto sent = program.exchange_of(op)->sent_by(own);
      REQUIRE(sent.size() == members.size());
      double row = 0;
      double column = 0;
      for (std::size_t p = 0; p < members.size(); ++p) {
        row += sent[p];
        const Program& peer = graph.program_of(members[p]);
        column += peer.exchange_of(op_named(peer, name))->sent_by(p)[own];
      }
      // Expected sizes are rounded to whole elements once.
      CHECK(row == Approx(static_cast<double>(op.shape[0])).margin(0.51));
      CHECK(row == Approx(static_cast<double>(program.tensors[program.inputs(op)[0]].elements()))
                       .margin(0.51));
      CHECK(column ==
            Approx(static_cast<double>(program.tensors[program.outputs(op)[0]].elements()))
                .margin(0.51));
      ++exchanges;
    }
  }
  CHECK((exchanges > 0) == (plan != "data_parallel"));
}

TEST_CASE("members of a communicator call the same collectives in the same order",
          "[workloads][dlrm][property]") {
  const std::string plan = GENERATE_COPY(from_range(kEveryPlan));
  const auto devices = GENERATE(2, 8);
  const bool overlap = GENERATE(false, true);
  CAPTURE(plan, devices, overlap);
  Job job = mixed_job(devices, plan);
  job.parallel.overlap.input_all_to_all = job.parallel.overlap.output_all_to_all =
      job.parallel.overlap.dense_all_reduce = overlap;
  job.parallel.bucket = Bytes(4096);
  const ExecutionGraph graph = workloads::build_graph(job);
  std::map<std::pair<std::size_t, std::vector<std::int32_t>>, std::vector<std::string>> sequences;
  std::size_t calls = 0;
  for (std::int32_t r = 0; r < graph.ranks(); ++r) {
    const Program& program = graph.program_of(r);
    for (std::size_t c = 0; c < graph.communicators.size(); ++c) {
      std::vector<std::string> mine;
      std::set<int> streams;
      for (const Op& op : program.ops) {
        if (op.communicator == static_cast<std::int32_t>(c)) {
          CHECK(is_collective(op.kind));
          mine.push_back(fmt::format("{} {} {}", name_of(op.kind), program.name(op),
                                     op.kind == OpKind::kAllToAllV ? 0 : op.shape[0]));
          streams.insert(op.stream);
          ++calls;
        }
      }
      CHECK(streams.size() <= 1);  // two streams would race for the order
      const auto [it, fresh] =
          sequences.try_emplace({c, graph.members(static_cast<std::int32_t>(c), r)}, mine);
      CHECK(it->second == mine);
    }
  }
  CHECK(calls > 0);
}

TEST_CASE("ranks with equal work share a program and still hold different rows",
          "[workloads][dlrm]") {
  Job job = dlrm_job(8, 6, 1003, 32, 2);  // blocks of 126 rows, the last 121
  for (EmbeddingTable& table : model_of(job).tables) {
    table.access = std::make_shared<Access>(Access::uniform(table.rows));
  }
  job.embedding_choice = "row_wise";
  const ExecutionGraph graph = workloads::build_graph(job);
  REQUIRE(graph.classes.size() == 2);
  CHECK(graph.classes[0].ranks.size() == 7);
  std::vector<int> held(1003, 0);
  double lookups = 0;
  for (std::int32_t r = 0; r < 8; ++r) {
    const Program& program = graph.program_of(r);
    const EmbeddingShard& shard = program.embeddings.front().shards.front();
    const Tensor& weights = program.tensors[shard.weights];
    REQUIRE(weights.pieces.size() == 1);
    const ParameterPiece& piece = weights.pieces.front();
    lookups += shard.lookups;
    for (std::int64_t i = 0; i < weights.rows; ++i) {
      ++held.at(
          static_cast<std::size_t>(piece.row + r * piece.row_per_rank + i * piece.row_stride));
    }
  }
  CHECK(held == std::vector<int>(1003, 1));
  CHECK(lookups == Approx(512.0 * 2));
  job.embedding_choice = "data_parallel";
  CHECK(workloads::build_graph(job).classes.size() == 1);
  job.embedding_choice = "table_wise";
  CHECK(workloads::build_graph(job).classes.size() == 7);  // six ranks with a table, two without
}

TEST_CASE("dense gradients are all-reduced in buckets, each element once", "[workloads][dlrm]") {
  Job job = dlrm_job(4, 8, 1000, 64, 5);
  // Parameters: 13*32+32, 32*64+64, (9*64)*16+16, 16*1+1 = 448 + 2112 + 9232 + 17.
  const std::int64_t parameters = 448 + 2112 + 9232 + 17;
  for (const double bucket : {1.0, 8192.0, 1e9}) {
    job.parallel.bucket = Bytes(bucket);
    const ExecutionGraph graph = workloads::build_graph(job);
    const auto reductions = ops_of_kind(graph.program_of(0), OpKind::kAllReduce);
    std::int64_t elements = 0;
    for (const Op* op : reductions) {
      elements += op->shape[0];
    }
    CHECK(elements == parameters);
    // Backward order: top.1 (68 B), top.0 (36,928 B) close the first 8 KiB bucket; bottom.1 (8448
    // B) the second; bottom.0 is left.
    CHECK(reductions.size() == (bucket == 1.0 ? 8U : bucket == 8192.0 ? 3U : 1U));
  }
}

TEST_CASE("parameters fill their bucket, each at a multiple of the power of two in its size",
          "[workloads][dlrm]") {
  // 17 numbers of the last layer complete first; all others have a multiple of 16.
  const Program program = workloads::build_graph(dlrm_job(4, 8, 1000, 64, 5)).program_of(0);
  std::map<std::int32_t, std::map<std::int64_t, std::int64_t>> sizes;  // by bucket and offset
  for (const Tensor& t : program.tensors) {
    const Tensor* bucket =
        t.is_view() ? &program.tensors[static_cast<std::size_t>(t.view_of)] : nullptr;
    if (bucket != nullptr && bucket->name.starts_with("bucket.")) {
      INFO(t.name);
      const std::int64_t pack = std::min<std::int64_t>(64, t.elements() & -t.elements());
      CHECK(t.view_offset % pack == 0);
      sizes[t.view_of][t.view_offset] = t.elements();
    }
  }
  CHECK(sizes.size() == 2);  // gradients, weights
  for (const auto& [bucket, parts] : sizes) {
    CHECK(parts.size() == 8);
    std::int64_t end = 0;
    for (const auto& [offset, elements] : parts) {
      CHECK(offset == end);
      end = offset + elements;
    }
    CHECK(end == program.tensors[static_cast<std::size_t>(bucket)].elements());
  }
}

TEST_CASE("few ranks: hot rows are looked up where they are", "[workloads][dlrm]") {
  const auto split = GENERATE(Split::kBlock, Split::kStripe);
  Job job = dlrm_job(2, 1, 400, 16, 2);  // 400 rows: fewer than are placed one by one
  const Access access = Access::zipf(400, 1.2);
  model_of(job).tables[0].access = std::make_shared<Access>(access);
  job.embedding_plan = workloads::make_embedding_plan(job, ShardingKind::kRowWise);
  job.embedding_plan->tables[0].shards[0].split = split;
  std::array<double, 2> share{};
  for (std::int64_t k = 0; k < 400; ++k) {
    const std::int64_t row = access.row_of_rank(k);
    share[static_cast<std::size_t>(split == Split::kBlock ? row / 200 : row % 2)] +=
        access.probability(static_cast<double>(k));
  }
  REQUIRE(share[0] + share[1] == Approx(1));
  CHECK(std::abs(share[0] - share[1]) > 0.1);  // the hottest row alone has a fifth of the lookups
  const ExecutionGraph graph = workloads::build_graph(job);
  for (std::int32_t r = 0; r < 2; ++r) {
    CHECK(graph.program_of(r).embeddings.front().shards.front().lookups ==
          Approx(128 * 2 * share[static_cast<std::size_t>(r)]).epsilon(1e-6));
  }
}
