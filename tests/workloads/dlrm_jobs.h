#pragma once
#include <fmt/format.h>

#include "core/access/access.h"
#include "core/job/job.h"
#include "workloads/dlrm/dlrm.h"

namespace stepcast::test {

/// `count` equal tables and a small dense part; interaction cat, fp32.
inline Job dlrm_job(std::int64_t devices, std::int64_t count, std::int64_t rows, std::int64_t dim,
                    double pooling) {
  LayeredWorkload w;
  w.dense_features = 13;
  w.bottom_mlp = {32, dim};
  w.top_mlp = {16, 1};
  w.interaction.kind = InteractionKind::kCat;
  for (std::int64_t t = 0; t < count; ++t) {
    EmbeddingTable table;
    table.name = fmt::format("t{}", t);
    table.rows = rows;
    table.dim = dim;
    table.pooling = pooling;
    table.access = std::make_shared<Access>(Access::zipf(rows, 1.05));
    w.tables.push_back(table);
  }
  Job job;
  job.workload.name = "test";
  job.workload.model = w;
  job.system.name = "test";
  job.system.host.devices = 4;
  job.devices = devices;
  job.batch.global = 64 * devices;
  job.formats.compute = Format::kFp32;
  job.embedding_choice = "table_wise";
  return job;
}

inline LayeredWorkload& model_of(Job& job) { return std::get<LayeredWorkload>(job.workload.model); }

/// Tables of every mode and several sizes, some smaller than the local batch.
inline Job mixed_job(std::int64_t devices, std::string plan) {
  Job job = dlrm_job(devices, 9, 1000, 16, 3);
  for (std::size_t t = 0; t < model_of(job).tables.size(); ++t) {
    EmbeddingTable& table = model_of(job).tables[t];
    table.rows = std::vector<std::int64_t>{7, 40, 1001, 50000, 333, 8000, 12345, 63, 2048}[t];
    table.dim = t % 3 == 0 ? 32 : 16;
    table.pooling = 1 + 0.75 * static_cast<double>(t);
    table.mode = std::vector<PoolingMode>{PoolingMode::kSum, PoolingMode::kMean,
                                          PoolingMode::kSequence}[t % 3];
    table.access = std::make_shared<Access>(Access::zipf(table.rows, 0.9));
  }
  job.embedding_choice = std::move(plan);
  return job;
}

inline std::vector<const Op*> ops_of_kind(const Program& program, OpKind kind) {
  std::vector<const Op*> found;
  for (const Op& op : program.ops) {
    if (op.kind == kind) {
      found.push_back(&op);
    }
  }
  return found;
}

inline const Op& op_named(const Program& program, std::string_view name) {
  for (const Op& op : program.ops) {
    if (program.name(op) == name) {
      return op;
    }
  }
  throw std::runtime_error(fmt::format("no op '{}'", name));
}

}  // namespace stepcast::test
