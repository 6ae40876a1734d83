#pragma once
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "runtime/host_batch.h"
#include "tests/runtime/thread_ranks.h"
#include "workloads/build_graph.h"

namespace stepcast::runtime::test {

constexpr std::int64_t kGlobal = 16;

/// Five tables of every pooling mode; row counts that do not divide over ranks.
inline Job small_job(InteractionKind interaction,
                     OptimizerKind embedding_optimizer = OptimizerKind::kSgd) {
  LayeredWorkload w;
  w.dense_features = 5;
  w.bottom_mlp = {12, 8};
  w.top_mlp = {16, 1};
  w.interaction = {interaction, 2, 4};
  const std::vector<PoolingMode> modes{PoolingMode::kSum, PoolingMode::kMean,
                                       PoolingMode::kSequence, PoolingMode::kSum,
                                       PoolingMode::kMean};
  for (std::size_t t = 0; t < modes.size(); ++t) {
    EmbeddingTable table;
    table.name = "t" + std::to_string(t);
    table.rows = 31 + 10 * static_cast<std::int64_t>(t);
    table.dim = interaction == InteractionKind::kDot || t % 2 == 0 ? 8 : 16;
    table.pooling = 2.5;
    table.mode = modes[t];
    w.tables.push_back(table);
  }
  Job job;
  job.workload.name = "small";
  job.workload.model = w;
  job.system.host.devices = 2;
  job.batch.global = kGlobal;
  job.formats.compute = Format::kFp32;
  job.dense_optimizer = OptimizerKind::kSgd;
  job.embedding_optimizer = embedding_optimizer;
  job.parallel.bucket = Bytes(1024);  // several buckets
  return job;
}

/// Samples [first, first + count) of a step's global batch: a pure function of the step. Bags have
/// 0 to 5 lookups, those of the sample before where a session keeps them.
inline HostBatch batch_of(const Job& job, std::int64_t step, std::int64_t first,
                          std::int64_t count) {
  const LayeredWorkload& w = *job.workload.layered();
  HostBatch batch;
  batch.lookups.resize(w.tables.size());
  batch.offsets.assign(w.tables.size(), {0});
  std::vector<std::vector<std::int64_t>> lists(w.tables.size());
  for (std::int64_t i = 0; i < kGlobal; ++i) {
    std::mt19937 random(static_cast<unsigned>(1000 * step + i));
    const bool mine = i >= first && i < first + count;
    double logit = 0;
    for (std::int64_t f = 0; f < w.dense_features; ++f) {
      const float x = static_cast<float>(random() % 2000) / 1000.0F - 1.0F;
      logit += x;
      if (mine) {
        batch.dense.push_back(x);
      }
    }
    for (std::size_t t = 0; t < w.tables.size(); ++t) {
      const auto& session = w.tables[t].session;
      if (!session || i % std::llround(session->samples) == 0 ||
          static_cast<double>(random() % 100) >= 100 * session->keep) {
        lists[t].resize(random() % 6);
        for (std::int64_t& row : lists[t]) {
          row = static_cast<std::int64_t>(
              random() % 7 == 0 ? 0 : random() % static_cast<unsigned>(w.tables[t].rows));
        }
      }
      for (const std::int64_t row : lists[t]) {
        logit += row % 2 == 0 ? 0.3 : -0.3;
      }
      if (mine) {
        batch.lookups[t].insert(batch.lookups[t].end(), lists[t].begin(), lists[t].end());
        batch.offsets[t].push_back(static_cast<std::int64_t>(batch.lookups[t].size()));
      }
    }
    if (mine) {
      batch.labels.push_back(logit > 0 ? 1.0F : 0.0F);
    }
  }
  return batch;
}

inline std::vector<HostBatch> batches_of(const Job& job, std::int64_t step) {
  std::vector<HostBatch> batches;
  const std::int64_t each = kGlobal / job.devices;
  for (std::int64_t r = 0; r < job.devices; ++r) {
    batches.push_back(batch_of(job, step, r * each, each));
  }
  return batches;
}

inline std::vector<double> loss_curve(const Job& job, int steps) {
  const ExecutionGraph graph = workloads::build_graph(job);
  ThreadRanks ranks(graph);
  std::vector<double> losses;
  const bool pipelined = job.parallel.dlrm_pipeline != DlrmPipeline::kNone;
  if (pipelined) {
    ranks.fill_pipeline(batches_of(job, 0));
  }
  for (int s = 0; s < steps; ++s) {
    const auto next = batches_of(job, s + 1);
    losses.push_back(ranks.step(s, batches_of(job, s), pipelined ? &next : nullptr));
  }
  return losses;
}

/// A tensor of a program by its name.
inline TensorId tensor_named(const Program& program, const std::string& name) {
  for (TensorId id = 0; id < program.tensors.size(); ++id) {
    if (program.tensors[id].name == name) {
      return id;
    }
  }
  throw std::runtime_error("no tensor " + name);
}

}  // namespace stepcast::runtime::test
