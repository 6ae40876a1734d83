// Replicas that are synchronised every k steps, against a reference written out here.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "runtime/op_operands.h"
#include "tests/runtime/small_dlrm.h"
#include "tests/runtime/tiered_plans.h"
#include "workloads/embedding_plan/plan.h"

using namespace stepcast;
using namespace stepcast::runtime::test;

namespace {

/// The rows of one table under one optimizer, in double precision.
struct PlainTable {
  std::int64_t dim = 0;
  std::vector<double> weight, sum, first, second;

  explicit PlainTable(const EmbeddingTable& t)
      : dim(t.dim),
        weight(static_cast<std::size_t>(t.rows * t.dim)),
        sum(weight.size()),
        first(weight.size()),
        second(weight.size()) {}

  /// One optimizer step on a row with the gradients summed so far, its `time`-th from 1.
  void update(OptimizerKind kind, std::int64_t row, std::int64_t time) {
    const auto settings = runtime::optimizer_settings(kind, time - 1);
    const double rate = static_cast<double>(settings.learning_rate);
    const double epsilon = static_cast<double>(settings.epsilon);
    const double b1 = static_cast<double>(settings.beta1);
    const double b2 = static_cast<double>(settings.beta2);
    const auto begin = static_cast<std::size_t>(row * dim);
    const auto end = begin + static_cast<std::size_t>(dim);
    double squares = 0;
    for (std::size_t i = begin; i < end; ++i) {
      squares += sum[i] * sum[i];
    }
    if (squares == 0) {
      return;  // rows that were not looked up keep their state
    }
    first[begin] += kind == OptimizerKind::kRowwiseAdagrad ? squares / static_cast<double>(dim) : 0;
    for (std::size_t i = begin; i < end; ++i) {
      const double g = sum[i];
      switch (kind) {
        case OptimizerKind::kSgd:
          weight[i] -= rate * g;
          break;
        case OptimizerKind::kRowwiseAdagrad:
          weight[i] -= rate * g / (std::sqrt(first[begin]) + epsilon);
          break;
        case OptimizerKind::kAdagrad:
          first[i] += g * g;
          weight[i] -= rate * g / (std::sqrt(first[i]) + epsilon);
          break;
        case OptimizerKind::kAdam: {
          first[i] = b1 * first[i] + (1 - b1) * g;
          second[i] = b2 * second[i] + (1 - b2) * g * g;
          const auto t = static_cast<double>(time);
          const double m = first[i] / (1 - std::pow(b1, t));
          const double v = second[i] / (1 - std::pow(b2, t));
          weight[i] -= rate * m / (std::sqrt(v) + epsilon);
          break;
        }
        case OptimizerKind::kMuon:
          FAIL("not drawn");
      }
      sum[i] = 0;
    }
  }
};

/// Tables after `steps` steps where the rows below `copied` take one optimizer step every
/// `interval` steps, with the sum of its gradients, and the others one in each. The gradients are
/// those that one rank finds; it keeps its tables as they are put there before each step.
std::vector<PlainTable> reference(Job job, OptimizerKind kind, int steps, std::int64_t interval,
                                  std::int64_t copied) {
  job.devices = 1;
  job.embedding_choice = "data_parallel";
  job.embedding_optimizer = OptimizerKind::kSgd;
  const ExecutionGraph graph = workloads::build_graph(job);
  ThreadRanks alone(graph);
  const auto& tables = job.workload.layered()->tables;
  const auto tensor = [&](const EmbeddingTable& t, const char* suffix) {
    return alone.executor(0).tensor(
        tensor_named(graph.programs.front(), "embedding." + t.name + ".0" + suffix));
  };
  std::vector<PlainTable> plain;
  for (const EmbeddingTable& t : tables) {
    PlainTable& p = plain.emplace_back(t);
    std::copy_n(tensor(t, "").data, p.weight.size(), p.weight.begin());
  }
  for (int s = 0; s < steps; ++s) {
    for (std::size_t t = 0; t < tables.size(); ++t) {
      std::transform(plain[t].weight.begin(), plain[t].weight.end(), tensor(tables[t], "").data,
                     [](double w) { return static_cast<float>(w); });
    }
    alone.step(s, batches_of(job, s));
    for (std::size_t t = 0; t < tables.size(); ++t) {
      const float* gradient = tensor(tables[t], ".gradient").data;
      for (std::size_t i = 0; i < plain[t].sum.size(); ++i) {
        plain[t].sum[i] += static_cast<double>(gradient[i]);
      }
      for (std::int64_t row = 0; row < tables[t].rows; ++row) {
        const std::int64_t k = row < copied ? interval : 1;
        if (s % k == k - 1) {
          plain[t].update(kind, row, s / k + 1);
        }
      }
    }
  }
  return plain;
}

constexpr std::int64_t kEverywhere = 10;  // rows [0, 10) on every rank
constexpr std::int64_t kCopied = 20;      // rows [10, 20) once in each pair of ranks

/// The other rows have one copy, striped over all ranks.
EmbeddingPlan three_tiers(const Job& job) {
  EmbeddingPlan plan = workloads::make_embedding_plan(job, "row_wise");
  for (PlanTable& t : plan.tables) {
    PlanShard s = t.shards.front();
    s.split = Split::kStripe;
    const std::int64_t rows = s.rows[1];
    t.shards.assign(3, s);
    t.shards[0].rows = {0, kEverywhere};
    t.shards[0].sharding = ShardingKind::kDataParallel;
    t.shards[0].split = Split::kReplicate;
    t.shards[1].rows = {kEverywhere, kCopied};
    t.shards[1].groups = rank_groups(job.devices, 2);
    t.shards[2].rows = {kCopied, rows};
  }
  return plan;
}

}  // namespace

TEST_CASE("replicas that wait k steps take one step with the sum of their gradients",
          "[runtime][dlrm][sync]") {
  const auto kind = GENERATE(OptimizerKind::kSgd, OptimizerKind::kRowwiseAdagrad,
                             OptimizerKind::kAdagrad, OptimizerKind::kAdam);
  const auto interval = GENERATE(std::int64_t{1}, std::int64_t{2}, std::int64_t{3});
  constexpr int kSteps = 7;  // with 2 and 3, gradients of the last step still wait
  Job job = small_job(InteractionKind::kCat, kind);
  const std::vector<PlainTable> before = reference(job, kind, 0, 1, 0);
  const std::vector<PlainTable> after = reference(job, kind, kSteps, interval, kCopied);
  job.devices = 4;
  job.sync_interval = interval;
  job.embedding_plan = three_tiers(job);
  const ExecutionGraph graph = workloads::build_graph(job);
  ThreadRanks ranks(graph);
  for (int s = 0; s < kSteps; ++s) {
    ranks.step(s, batches_of(job, s));
  }
  const auto& tables = job.workload.layered()->tables;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    for (std::int32_t rank = 0; rank < 4; ++rank) {
      const Program& program = graph.program_of(rank);
      const auto check = [&](const std::string& suffix, std::int64_t first, std::int64_t stride) {
        const auto held =
            ranks.executor(static_cast<std::size_t>(rank))
                .tensor(tensor_named(program, "embedding." + tables[t].name + ".0" + suffix));
        for (std::int64_t i = 0; i < held.elements(); ++i) {
          const auto at = static_cast<std::size_t>(
              (first + i / held.columns * stride) * held.columns + i % held.columns);
          const double change = after[t].weight[at] - before[t].weight[at];
          CAPTURE(t, rank, suffix, i, interval);
          REQUIRE(static_cast<double>(held.data[i]) - before[t].weight[at] ==
                  Approx(change).epsilon(2e-3).margin(2e-7));
        }
      };
      check("", 0, 1);
      check(".from_10", kEverywhere + rank % 2, 2);
      check(".from_20", kCopied + rank, 4);
    }
  }
}

TEST_CASE("with one step between synchronisations nothing waits", "[runtime][dlrm][sync]") {
  Job job = small_job(InteractionKind::kCat);
  job.devices = 4;
  job.embedding_plan = three_tiers(job);
  const auto waiting = [](const ExecutionGraph& graph) {
    std::int64_t ops = 0;
    for (const Program& p : graph.programs) {
      ops += std::count_if(p.ops.begin(), p.ops.end(),
                           [](const Op& op) { return (op.flags & op_flags::kEveryInterval) != 0; });
    }
    return ops;
  };
  const ExecutionGraph usual = workloads::build_graph(job);
  CHECK(waiting(usual) == 0);
  const std::vector<double> losses = loss_curve(job, 6);
  job.sync_interval = 1;
  CHECK(loss_curve(job, 6) == losses);
  // Five tables with two replicated ranges each: an optimizer op for each, their all-reduces in
  // buckets, and one that zeroes.
  job.sync_interval = 2;
  const ExecutionGraph seldom = workloads::build_graph(job);
  CHECK(waiting(seldom) > 10 * static_cast<std::int64_t>(seldom.programs.size()));
  CHECK(seldom.programs.front().ops.size() == usual.programs.front().ops.size() + 1);
  CHECK(loss_curve(job, 6) != losses);
}
