#pragma once
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "tests/planner/plain_jobs.h"
#include "tests/workloads/dlrm_jobs.h"

namespace stepcast::planner {

/// One to a dozen tables of any sizes and poolings on up to 16 devices.
inline Job random_job(std::mt19937& rng) {
  const auto draw = [&rng](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
  };
  const std::int64_t devices = std::int64_t{1} << draw(0, 4);
  Job job = test::dlrm_job(devices, draw(1, 12), 100, 16, 1);
  job.system =
      plain_system(static_cast<double>(draw(4, 60)) * 1e6, std::min<std::int64_t>(4, devices));
  job.parallel.data = devices;
  job.batch.global = devices * 16 * draw(1, 4);
  job.embedding_optimizer = std::vector<OptimizerKind>{
      OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kRowwiseAdagrad,
      OptimizerKind::kAdagrad}[static_cast<std::size_t>(draw(0, 3))];
  for (EmbeddingTable& t : test::model_of(job).tables) {
    t.rows = static_cast<std::int64_t>(std::pow(10.0, static_cast<double>(draw(5, 50)) / 10));
    t.dim = 4 << draw(0, 5);
    t.pooling = static_cast<double>(draw(1, 40)) / 2;
    t.mode = std::vector<PoolingMode>{PoolingMode::kSum, PoolingMode::kMean,
                                      PoolingMode::kSequence}[static_cast<std::size_t>(draw(0, 2))];
    t.access = std::make_shared<Access>(Access::zipf(t.rows, 1.05));
  }
  return job;
}

}  // namespace stepcast::planner
