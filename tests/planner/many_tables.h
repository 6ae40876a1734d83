#pragma once
#include <cmath>
#include <random>

#include "core/access/access.h"
#include "core/job/job.h"

namespace stepcast::planner::testing {

/// A synthetic task of many tables, documented in docs/accuracy/embedding-plans.md: rows
/// log-uniform in 1e3 .. 3e7, dims 32, 64 or 128, mean pooling log-normal and scaled so that 856
/// tables see the 13,535 lookups a sample of the published 2021 index batches, Zipf 0.8 .. 1.2.
/// `distinct` access laws are drawn and shared among tables.
inline Job many_tables(std::int64_t tables, std::int64_t devices, const System& system,
                       std::uint64_t seed = 1) {
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  std::normal_distribution<double> normal(0, 1);
  LayeredWorkload w;
  w.dense_features = 13;
  w.bottom_mlp = {512, 256, 128};
  w.top_mlp = {1024, 512, 1};
  w.interaction.kind = InteractionKind::kCat;
  double lookups = 0;
  for (std::int64_t t = 0; t < tables; ++t) {
    EmbeddingTable table;
    table.name = "t" + std::to_string(t);
    table.rows = static_cast<std::int64_t>(std::pow(10, 3 + 4.477 * unit(rng)));
    table.dim = std::int64_t{32} << (rng() % 3);
    table.pooling = std::exp(1.2 * normal(rng));
    table.access = std::make_shared<Access>(
        Access::zipf(table.rows, 0.8 + 0.1 * static_cast<double>(rng() % 5)));
    lookups += table.pooling;
    w.tables.push_back(std::move(table));
  }
  const double scale = 13535.0 * static_cast<double>(tables) / 856 / lookups;
  for (EmbeddingTable& t : w.tables) {
    t.pooling *= scale;
  }
  Job job;
  job.workload.name = "many-tables";
  job.workload.model = std::move(w);
  job.system = system;
  job.devices = devices;
  job.parallel.data = devices;
  job.batch.global = std::max<std::int64_t>(65536, devices * 32);
  return job;
}

}  // namespace stepcast::planner::testing
