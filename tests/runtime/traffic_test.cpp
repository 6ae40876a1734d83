#include <catch2/catch.hpp>
#include <numeric>

#include "core/access/access.h"
#include "core/graph/collective_schedule.h"
#include "core/graph/step_traffic.h"
#include "runtime/data/batch_source.h"
#include "tests/runtime/thread_ranks.h"
#include "tests/runtime/tiered_plans.h"
#include "workloads/build_graph.h"
#include "workloads/embedding_plan/plan.h"

using namespace stepcast;

namespace {

constexpr std::size_t kNetwork = 1;  // level between nodes

/// Two nodes of two devices.
System two_nodes() {
  System s;
  s.name = "two-nodes";
  s.fabric = {{"node", 2, GBps(10), microseconds(50), 1, false},
              {"network", 2, GBps(1), microseconds(50), 1, false}};
  s.host.devices = 2;
  return s;
}

/// Skewed tables, pooled by sum and mean, and unpooled; fractional pooling too.
Job skewed_job(std::int64_t global) {
  LayeredWorkload w;
  w.dense_features = 4;
  w.bottom_mlp = {16};
  w.top_mlp = {16, 1};
  w.interaction.kind = InteractionKind::kCat;
  const std::vector<PoolingMode> modes{PoolingMode::kSequence, PoolingMode::kSum,
                                       PoolingMode::kMean, PoolingMode::kSequence};
  for (std::size_t t = 0; t < modes.size(); ++t) {
    EmbeddingTable table;
    table.name = "t" + std::to_string(t);
    table.rows = 3000 + 511 * static_cast<std::int64_t>(t);
    table.dim = t % 2 == 0 ? 8 : 16;
    table.pooling = t == 3 ? 6.5 : 10;
    table.mode = modes[t];
    table.access = std::make_shared<const Access>(Access::zipf(table.rows, 1.1, t));
    w.tables.push_back(table);
  }
  Job job;
  job.workload = {"skewed", w, {}};
  job.system = two_nodes();
  job.devices = job.parallel.data = 4;
  job.batch.global = global;
  job.formats.compute = Format::kFp32;
  job.dense_optimizer = OptimizerKind::kSgd;
  return job;
}

StepTraffic counted(const Job& job, const ExecutionGraph& graph, const LinkLevels& levels,
                    int steps) {
  runtime::test::ThreadRanks ranks(graph, &levels);
  std::vector<std::unique_ptr<runtime::BatchSource>> sources;
  std::vector<runtime::HostBatch> batches(static_cast<std::size_t>(job.devices));
  for (std::int32_t r = 0; r < static_cast<std::int32_t>(job.devices); ++r) {
    sources.push_back(runtime::make_batch_source(graph.inputs, graph.mesh, r, 1, ""));
  }
  for (int s = 0; s < steps; ++s) {
    for (std::size_t r = 0; r < batches.size(); ++r) {
      sources[r]->draw(s, batches[r]);
    }
    ranks.step(s, batches);
  }
  StepTraffic sum(levels);
  for (std::size_t r = 0; r < batches.size(); ++r) {
    const std::vector<double> sent = ranks.executor(r).sent();
    for (std::size_t i = 0; i < sent.size(); ++i) {
      sum.bytes[i / levels.count()][i % levels.count()] += sent[i] / steps;
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("bytes of rings and pairs by level", "[traffic]") {
  const LinkLevels levels(two_nodes());
  const std::vector<std::int32_t> all{0, 1, 2, 3};
  // A ring of four sends three quarters, in two channels: one leaves the node by each device.
  CHECK(sent_shares(RingUse::kReduceScatter, levels, all, 0) == std::vector<double>{0.375, 0.375});
  // All-reduce: half inside, half of the own half across, and the same way back.
  CHECK(sent_shares(RingUse::kAllReduce, levels, all, 0) == std::vector<double>{1, 0.5});
  const std::vector<std::int32_t> apart{1, 3};
  CHECK(sent_shares(RingUse::kAllReduce, levels, apart, 1) == std::vector<double>{0, 1});
  std::vector<double> sent(2, 0.0);
  add_pair_bytes(levels, all, 2, std::vector<double>{1, 20, 300, 4000}, sent);
  CHECK(sent == std::vector<double>{4000, 21});
}

TEST_CASE("the runtime sends what the graph of a random tiered plan expects", "[traffic][tiers]") {
  // 8,192 bags of ten lookups a table: a range with a share p of them varies by
  // sqrt((1 - p) / (81,920 p)) a step, 1 % for the smallest share that is a tenth of the bytes.
  const LinkLevels levels(two_nodes());
  Job job = skewed_job(8192);
  for (unsigned seed = 0; seed < 16; ++seed) {
    CAPTURE(seed);
    job.embedding_plan = runtime::test::random_tiered_plan(job, seed);
    const ExecutionGraph graph = workloads::build_graph(job);
    const StepTraffic expected = expected_traffic(graph, levels);
    const StepTraffic real = counted(job, graph, levels, 2);
    for (std::size_t level = 0; level < levels.count(); ++level) {
      double expected_sum = 0;
      double real_sum = 0;
      for (std::size_t k = 0; k < kTrafficKinds; ++k) {
        const auto kind = static_cast<TrafficKind>(k);
        CAPTURE(level, name_of(kind));
        CHECK(real.at(kind, level) == Approx(expected.at(kind, level)).epsilon(0.02));
        expected_sum += expected.at(kind, level);
        real_sum += real.at(kind, level);
      }
      CHECK(real_sum > 0);
      CHECK(real_sum == Approx(expected_sum).epsilon(0.02));
    }
  }
}

TEST_CASE("bytes of copies in groups of several sizes, by level", "[traffic][tiers]") {
  // Two racks of two machines of two devices: three levels to tell apart.
  Job job = skewed_job(8192);
  job.system.fabric = {{"machine", 2, GBps(10), microseconds(50), 1, false},
                       {"rack", 2, GBps(2), microseconds(50), 1, false},
                       {"network", 2, GBps(1), microseconds(50), 1, false}};
  job.devices = job.parallel.data = 8;
  const LinkLevels levels(job.system);
  REQUIRE(levels.count() == 3);
  for (unsigned seed = 0; seed < 6; ++seed) {
    job.embedding_plan = seed == 0 ? runtime::test::nested_plan(job, {1, 2, 4, 8})
                                   : runtime::test::random_tiered_plan(job, 20 + seed, {2, 4});
    const ExecutionGraph graph = workloads::build_graph(job);
    const StepTraffic expected = expected_traffic(graph, levels);
    const StepTraffic real = counted(job, graph, levels, 2);
    for (std::size_t level = 0; level < levels.count(); ++level) {
      for (std::size_t k = 0; k < kTrafficKinds; ++k) {
        const auto kind = static_cast<TrafficKind>(k);
        CAPTURE(seed, level, name_of(kind));
        CHECK(real.at(kind, level) == Approx(expected.at(kind, level)).epsilon(0.02));
      }
    }
  }
}

TEST_CASE("replicas that wait k steps send a k-th of the bytes", "[traffic][tiers][sync]") {
  const LinkLevels levels(two_nodes());
  Job job = skewed_job(512);
  job.embedding_choice = "tiered";
  const StepTraffic each = expected_traffic(workloads::build_graph(job), levels);
  job.sync_interval = 3;
  const ExecutionGraph graph = workloads::build_graph(job);
  const StepTraffic expected = expected_traffic(graph, levels);
  const StepTraffic real = counted(job, graph, levels, 6);  // two synchronisations
  for (std::size_t level = 0; level < levels.count(); ++level) {
    CAPTURE(level);
    const double sync = each.at(TrafficKind::kReplicaSync, level);
    CHECK(sync > 0);
    CHECK(expected.at(TrafficKind::kReplicaSync, level) == Approx(sync / 3).epsilon(1e-12));
    CHECK(real.at(TrafficKind::kReplicaSync, level) == Approx(sync / 3).epsilon(1e-9));
    CHECK(real.at(TrafficKind::kDenseSync, level) ==
          Approx(each.at(TrafficKind::kDenseSync, level)).epsilon(1e-9));
  }
}

TEST_CASE("deduplicated ids travel as often as the access law says, repeats inside sessions too",
          "[traffic][dedup]") {
  const LinkLevels levels(two_nodes());
  Job job = skewed_job(8192);
  const double keep = GENERATE(0.0, 0.6);
  auto& tables = std::get<LayeredWorkload>(job.workload.model).tables;
  for (EmbeddingTable& t : tables) {
    t.session = Session{8, keep};
  }
  for (unsigned seed = 0; seed < 6; ++seed) {
    CAPTURE(seed, keep);
    job.embedding_plan = seed == 0 ? workloads::make_embedding_plan(job, "row_wise")
                                   : runtime::test::random_tiered_plan(job, seed);
    job.embedding_dedup = false;
    const StepTraffic plain = expected_traffic(workloads::build_graph(job), levels);
    job.embedding_dedup = true;
    const ExecutionGraph graph = workloads::build_graph(job);
    const StepTraffic expected = expected_traffic(graph, levels);
    const StepTraffic real = counted(job, graph, levels, 2);
    for (const TrafficKind kind :
         {TrafficKind::kIds, TrafficKind::kOutputs, TrafficKind::kGradients}) {
      CAPTURE(name_of(kind));
      CHECK(real.total(kind) == Approx(expected.total(kind)).epsilon(0.03));
      CHECK(expected.total(kind) <= plain.total(kind));
    }
    if (seed == 0) {  // unpooled tables row by row: most of the rows were sent several times
      CHECK(expected.total(TrafficKind::kOutputs) < 0.6 * plain.total(TrafficKind::kOutputs));
    }
  }
}

TEST_CASE("lists that are pooled once travel as often as they are distinct", "[traffic][dedup]") {
  const LinkLevels levels(two_nodes());
  Job job = skewed_job(8192);
  auto& tables = std::get<LayeredWorkload>(job.workload.model).tables;
  tables = {tables[1], tables[2], tables[1], tables[2]};
  tables[2].rows = 40;  // lists are alike by chance too
  tables[2].access = std::make_shared<const Access>(Access::zipf(40, 1.2, 5));
  tables[2].pooling = 2;
  tables[3].pooling = 1.5;
  for (EmbeddingTable& t : tables) {
    t.session = Session{8, 0.8};
  }
  for (const char* plan : {"table_wise", "column_wise", "row_wise", "table_row_wise"}) {
    CAPTURE(plan);
    job.embedding_choice = plan;
    job.embedding_dedup = false;
    const StepTraffic plain = expected_traffic(workloads::build_graph(job), levels);
    job.embedding_dedup = true;
    const ExecutionGraph graph = workloads::build_graph(job);
    const StepTraffic expected = expected_traffic(graph, levels);
    const StepTraffic real = counted(job, graph, levels, 4);
    for (const TrafficKind kind :
         {TrafficKind::kIds, TrafficKind::kOutputs, TrafficKind::kGradients}) {
      CAPTURE(name_of(kind));
      CHECK(real.total(kind) == Approx(expected.total(kind)).epsilon(0.02));
      CHECK(expected.total(kind) < plain.total(kind));
    }
    // From the bags of whole tables what dedup_factor leaves, and less of those alike by chance.
    const double left = 1 / dedup_factor(8, 0.8);
    CHECK(expected.total(TrafficKind::kOutputs) <=
          1.001 * left * plain.total(TrafficKind::kOutputs));
    CHECK(expected.at(TrafficKind::kOutputs, kNetwork) < plain.at(TrafficKind::kOutputs, kNetwork));
  }
}

TEST_CASE("the tiered plan spares the network most of the all-to-all of a skewed sequence table",
          "[traffic][tiers]") {
  const LinkLevels levels(two_nodes());
  Job job = skewed_job(4096);
  auto& tables = std::get<LayeredWorkload>(job.workload.model).tables;
  tables.resize(1);
  tables[0].rows = 20'000;
  tables[0].access = std::make_shared<const Access>(Access::zipf(20'000, 1.1, 1));
  const auto with = [&](const std::string& plan) {
    job.embedding_choice = plan;
    return counted(job, workloads::build_graph(job), levels, 1);
  };
  const StepTraffic flat = with("row_wise");
  const StepTraffic tiered = with("tiered");
  CHECK(flat.total(TrafficKind::kReplicaSync) == 0);
  // Lookups of rows with one copy: expected from the law and the thresholds alone.
  const double lookups = 40'960;
  std::int64_t cut = 0;
  while (tables[0].access->probability(static_cast<double>(cut)) * lookups > 2) {
    ++cut;
  }
  const double left = 1 - tables[0].access->cdf(static_cast<double>(cut)).value;
  CHECK(tiered.at(TrafficKind::kOutputs, kNetwork) ==
        Approx(left * flat.at(TrafficKind::kOutputs, kNetwork)).epsilon(0.05));
  CHECK(tiered.total(TrafficKind::kReplicaSync) > 0);
  // Net of what the copies cost, the network still carries less.
  CHECK(tiered.exchanged(kNetwork) + tiered.at(TrafficKind::kReplicaSync, kNetwork) <
        0.8 * flat.exchanged(kNetwork));
}

namespace {

/// Traffic that a rank's all-to-alls send to other ranks and receive from them, by the graph.
runtime::test::PairTraffic expected_of_rank(const ExecutionGraph& graph, std::int32_t rank) {
  const auto bytes_between = [&](const Program& from, const std::string& name, std::int32_t sender,
                                 std::int32_t receiver) {
    double bytes = 0;
    for (const Op& op : from.ops) {
      if (op.kind == OpKind::kAllToAllV && from.name(op) == name) {
        const std::vector<std::int32_t> members = graph.members(op.communicator, sender);
        const auto position = [&](std::int32_t r) {
          return static_cast<std::size_t>(std::find(members.begin(), members.end(), r) -
                                          members.begin());
        };
        bytes += from.exchange_of(op)->sent_by(position(sender))[position(receiver)] *
                 bits_per_element(op.format, 1) / 8;
      }
    }
    return bytes;
  };
  runtime::test::PairTraffic sum;
  const Program& own = graph.program_of(rank);
  for (const Op& op : own.ops) {
    if (op.kind != OpKind::kAllToAllV) {
      continue;
    }
    for (const std::int32_t peer : graph.members(op.communicator, rank)) {
      if (peer != rank) {
        sum.sent += bytes_between(own, own.name(op), rank, peer);
        sum.received += bytes_between(graph.program_of(peer), own.name(op), peer, rank);
      }
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("every rank sends and receives what the graph expects of it, however skewed",
          "[traffic][skew]") {
  // 768 bags a rank in each of 3 steps, ten lookups each, over 24 ranks: a rank with a share p of a
  // table's 552,960 lookups counts them to sqrt(1 / (552,960 p)), 0.9 % of an even share. Beyond
  // that ranks stand in classes 2 % wide.
  const auto [devices, exponent] =
      GENERATE(std::pair{8, 1.05}, std::pair{24, 0.0}, std::pair{24, 0.6}, std::pair{24, 1.05},
               std::pair{24, 2.0});
  const std::string plan = GENERATE("row_wise", "table_row_wise", "column_wise", "tiered");
  CAPTURE(devices, exponent, plan);
  Job job = skewed_job(768 * devices);
  job.system.fabric[0].size = 4;
  job.system.fabric[1].size = 8;
  job.system.host.devices = 4;
  job.devices = job.parallel.data = devices;
  for (EmbeddingTable& t : std::get<LayeredWorkload>(job.workload.model).tables) {
    t.access = std::make_shared<const Access>(Access::zipf(t.rows, exponent, 5));
  }
  job.embedding_choice = plan;
  const ExecutionGraph graph = workloads::build_graph(job);
  runtime::test::ThreadRanks ranks(graph);
  std::vector<std::unique_ptr<runtime::BatchSource>> sources;
  std::vector<runtime::HostBatch> batches(static_cast<std::size_t>(devices));
  for (std::int32_t r = 0; r < devices; ++r) {
    sources.push_back(runtime::make_batch_source(graph.inputs, graph.mesh, r, 1, ""));
  }
  constexpr int kSteps = 3;
  for (int s = 0; s < kSteps; ++s) {
    for (std::size_t r = 0; r < batches.size(); ++r) {
      sources[r]->draw(s, batches[r]);
    }
    ranks.step(s, batches);
  }
  double busiest_expected = 0;
  double busiest_real = 0;
  for (std::int32_t r = 0; r < devices; ++r) {
    const runtime::test::PairTraffic expected = expected_of_rank(graph, r);
    const runtime::test::PairTraffic& real = ranks.traffic(static_cast<std::size_t>(r));
    CAPTURE(r);
    CHECK(real.sent / kSteps == Approx(expected.sent).epsilon(0.05));
    CHECK(real.received / kSteps == Approx(expected.received).epsilon(0.05));
    busiest_expected = std::max(busiest_expected, expected.sent);
    busiest_real = std::max(busiest_real, real.sent / kSteps);
  }
  CHECK(busiest_real == Approx(busiest_expected).epsilon(0.03));
}
