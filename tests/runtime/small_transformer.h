#pragma once
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "tests/runtime/thread_ranks.h"
#include "workloads/build_graph.h"

namespace stepcast::runtime::test {

constexpr std::int64_t kSequence = 8;
constexpr std::int64_t kGlobal = 8;

inline Job small_job(Activation activation, bool tied) {
  TransformerWorkload m;
  m.layers = 4;
  m.hidden = 32;
  m.heads = 4;
  m.kv_heads = activation == Activation::kGelu ? 4 : 2;
  m.head_dim = 8;
  m.ffn_hidden = 48;
  m.activation = activation;
  m.vocabulary = 64;
  m.tied_embeddings = tied;
  Job job;
  job.workload.name = "small";
  job.workload.model = m;
  job.batch = {kGlobal, 1, kSequence};
  job.formats.compute = Format::kFp32;
  job.system.host.devices = 2;
  job.parallel.bucket = Bytes(8192);  // several buckets per stage
  return job;
}

/// The whole global batch of a step: a token is followed by its successor three times in four.
inline std::vector<std::int32_t> global_tokens(std::int64_t step) {
  std::mt19937 random(static_cast<unsigned>(17 + step));
  std::vector<std::int32_t> tokens;
  for (std::int64_t sample = 0; sample < kGlobal; ++sample) {
    auto token = static_cast<std::int32_t>(random() % 64);
    for (std::int64_t i = 0; i <= kSequence; ++i) {
      tokens.push_back(token);
      token = random() % 4 == 0 ? static_cast<std::int32_t>(random() % 64) : (token * 5 + 3) % 64;
    }
  }
  return tokens;
}

inline std::vector<HostBatch> batches_of(const Job& job, const ExecutionGraph& graph,
                                         std::int64_t step) {
  const std::vector<std::int32_t> all = global_tokens(step);
  const std::int64_t each = kGlobal / job.parallel.data * (kSequence + 1);
  std::vector<HostBatch> batches(static_cast<std::size_t>(graph.ranks()));
  for (std::int32_t r = 0; r < graph.ranks(); ++r) {
    const std::int64_t first = graph.mesh.coordinate(r, Axis::kData) * each;
    batches[static_cast<std::size_t>(r)].tokens.assign(all.begin() + first,
                                                       all.begin() + first + each);
  }
  return batches;
}

inline std::vector<double> transformer_loss_curve(const Job& job, int steps) {
  const ExecutionGraph graph = workloads::build_graph(job);
  ThreadRanks ranks(graph);
  std::vector<double> losses;
  for (int s = 0; s < steps; ++s) {
    losses.push_back(ranks.step(s, batches_of(job, graph, s)));
  }
  return losses;
}

/// Compares the gradient of every parameter of a job on one rank with differences of the loss
/// along it. Returns how many parameters there were.
inline int check_gradients(const Job& job) {
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  ThreadRanks ranks(graph);
  cpu::Executor& rank = ranks.executor(0);
  const auto batches = batches_of(job, graph, 0);
  std::vector<std::pair<TensorId, std::vector<float>>> weights;  // whole buckets, as they were
  for (TensorId id = 0; id < program.tensors.size(); ++id) {
    if (program.tensors[id].role == TensorRole::kParameter && !program.tensors[id].is_view()) {
      const cpu::Matrix m = rank.tensor(id);
      weights.emplace_back(id, std::vector<float>(m.data, m.data + m.elements()));
    }
  }
  const auto restore = [&] {
    for (const auto& [id, values] : weights) {
      std::copy(values.begin(), values.end(), rank.tensor(id).data);
    }
  };
  int checked = 0;
  for (TensorId id = 0; id < program.tensors.size(); ++id) {
    const Tensor& t = program.tensors[id];
    if (t.role != TensorRole::kParameter || !t.is_view() || t.name.ends_with("shard")) {
      continue;
    }
    restore();
    ranks.step(0, batches);
    const cpu::Matrix g = rank.tensor(id + 1);  // declared side by side
    REQUIRE(program.tensors[id + 1].name == t.name + ".gradient");
    const std::vector<float> gradient(g.data, g.data + g.elements());
    double square = 0;
    for (const float v : gradient) {
      square += double{v} * v;
    }
    const double length = std::sqrt(square);
    // Along its own direction the loss grows by the gradient's length; fourth-order difference.
    const auto loss_at = [&](double along) {
      restore();
      float* w = rank.tensor(id).data;
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        w[i] += static_cast<float>(along * gradient[i] / length);
      }
      return ranks.step(0, batches);
    };
    INFO(t.name << ", length " << length);
    // Steps small beside the curvature, yet far above the rounding of a loss of 4 in fp32.
    const double e = std::min(0.04, 4e-3 / length);
    const double slope =
        (8 * (loss_at(e) - loss_at(-e)) - (loss_at(2 * e) - loss_at(-2 * e))) / (12 * e);
    CHECK(slope == Approx(length).epsilon(0.01).margin(2e-5));
    ++checked;
  }
  return checked;
}

}  // namespace stepcast::runtime::test
