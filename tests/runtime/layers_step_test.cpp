// Models given as lists of layers train on the CPU: gradients are those of the loss, and every
// number of ranks trains the same model.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "runtime/data/dlrm_source.h"
#include "runtime/op_operands.h"
#include "studies/run/executable.h"
#include "tests/runtime/listed_models.h"
#include "tests/runtime/thread_ranks.h"
#include "workloads/build_graph.h"

using namespace stepcast;

namespace {

using runtime::test::kGlobal;
using runtime::test::listed_job;
using runtime::test::listed_models;

std::vector<runtime::HostBatch> batches_of(const ExecutionGraph& graph) {
  std::vector<runtime::HostBatch> batches(static_cast<std::size_t>(graph.ranks()));
  const std::int64_t each = kGlobal / graph.ranks();
  for (std::int64_t r = 0; r < graph.ranks(); ++r) {
    runtime::DlrmSource(graph.inputs, {r * each, each, kGlobal}, 7)
        .draw(0, batches[static_cast<std::size_t>(r)]);
  }
  return batches;
}

/// The models of all backends, and queries scored against items of all ranks: with corrections, and
/// with more items as negatives.
std::vector<std::string> models() {
  std::vector<std::string> all = listed_models();
  const auto towers = [](const std::string& loss) {
    return R"({"kind": "graph", "name": "w", "inputs": {"dense": [5]},
        "tables": [{"name": "a", "rows": 31, "dim": 8}, {"name": "b", "rows": 47, "dim": 8, "pooling": 3}], "ops": [
        {"op": "linear", "name": "bottom", "width": 8, "activation": "tanh"}, {"op": "tables", "name": "all"},
        {"op": "columns", "name": "user", "in": "all", "count": 16},
        {"op": "linear", "name": "query", "width": 6},
        {"op": "columns", "name": "thing", "in": "all", "first": 12, "count": 12},
        {"op": "linear", "name": "item", "width": 6}, )" +
           loss + "]}";
  };
  all.push_back(towers(R"({"op": "in_batch_softmax", "in": ["query", "item"]})"));
  all.push_back(
      towers(R"({"op": "linear", "width": 12}, {"op": "reshape", "name": "more", "shape": [2, 6]},
      {"op": "in_batch_softmax", "in": ["query", "item", "more"], "log_q": false})"));
  return all;
}

double perturbed_loss(const ExecutionGraph& graph, TensorId id, std::int64_t i, float by) {
  runtime::test::ThreadRanks ranks(graph);
  ranks.executor(0).tensor(id).data[i] += by;
  return ranks.step(0, batches_of(graph));
}

}  // namespace

TEST_CASE("gradients of listed layers are those of the loss", "[runtime][layers]") {
  const std::size_t model = GENERATE(0U, 1U, 2U, 3U, 4U, 5U);
  const Job job = listed_job(models()[model], 1);
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  std::size_t checked = 0;
  for (TensorId id = 0; id < program.tensors.size(); ++id) {
    const Tensor& t = program.tensors[id];
    if (t.pieces.empty()) {
      continue;
    }
    runtime::test::ThreadRanks ranks(graph);
    const runtime::cpu::Matrix weights = ranks.executor(0).tensor(id);
    const std::vector<float> before(weights.data, weights.data + weights.elements());
    ranks.step(0, batches_of(graph));
    const std::int64_t i = weights.elements() * 2 / 3;
    CAPTURE(job.workload.name, t.name, i);
    // w' = w - rate g; the gradient is one of the slopes to either side, which differ at kinks.
    const double rate = runtime::learning_rate(OptimizerKind::kSgd);
    const double analytic =
        static_cast<double>(before[static_cast<std::size_t>(i)] - weights.data[i]) / rate;
    constexpr float kStep = 1e-3F;
    const double here = perturbed_loss(graph, id, i, 0);
    const double right = (perturbed_loss(graph, id, i, kStep) - here) / double{kStep};
    const double left = (here - perturbed_loss(graph, id, i, -kStep)) / double{kStep};
    const double margin = 5e-4 + 0.01 * std::abs(analytic);
    CHECK(analytic > std::min(left, right) - margin);
    CHECK(analytic < std::max(left, right) + margin);
    ++checked;
  }
  CHECK(checked > (model < 4 ? 12 : 6));
}

TEST_CASE("ranks train listed layers as one rank does, and they learn", "[runtime][layers]") {
  const std::string model = models()[GENERATE(0U, 1U, 2U, 3U, 4U, 5U)];
  const auto curve = [&](std::int64_t devices) {
    const Job job = listed_job(model, devices);
    const ExecutionGraph graph = workloads::build_graph(job);
    runtime::test::ThreadRanks ranks(graph);
    std::vector<double> losses;
    for (int s = 0; s < 60; ++s) {
      losses.push_back(ranks.step(s, batches_of(graph)));
    }
    return losses;
  };
  const auto one = curve(1);
  const auto three = curve(3);
  for (std::size_t s = 0; s < 8; ++s) {
    CHECK(three[s] == Approx(one[s]).epsilon(1e-4));
  }
  CHECK(one.back() < one.front());
}

TEST_CASE("attention among listed layers runs on CUDA as cuDNN takes it", "[runtime][executable]") {
  const auto job = [](const std::string& model, const char* compute) {
    return listed_job(model, 1, compute);
  };
  const std::string narrow = listed_models()[1];
  const std::string taken = runtime::test::listed_with_attention();
  CHECK_NOTHROW(studies::require_executable(job(narrow, "fp32"), false));
  CHECK_NOTHROW(studies::require_executable(job(taken, "bf16"), true));
  CHECK_NOTHROW(studies::require_executable(job(listed_models().back(), "fp32"), true));
  for (const Job& rejected : {job(narrow, "bf16"), job(taken, "fp32")}) {
    CHECK_THROWS_WITH(studies::require_executable(rejected, true),
                      Catch::Contains("workload: running attention over whole samples") &&
                          Catch::Contains(" on CUDA") && Catch::Contains("(layer '") &&
                          Catch::Contains("give it lengths"));
  }
  const Job retrieval = job(models()[4], "fp32");
  CHECK_NOTHROW(studies::require_executable(retrieval, false));
  CHECK_THROWS_WITH(studies::require_executable(retrieval, true),
                    Catch::Contains("softmax over the items of all samples on CUDA"));
  Job unfused = job(taken, "bf16");
  unfused.flash_attention = false;
  CHECK_THROWS_WITH(studies::require_executable(unfused, false),
                    Catch::Contains("unfused attention") && Catch::Contains("(layer '"));
}
