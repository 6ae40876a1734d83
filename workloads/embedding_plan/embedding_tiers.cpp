#include "workloads/embedding_plan/embedding_tiers.h"

#include <algorithm>
#include <cmath>

#include "core/access/access.h"
#include "core/access/row_cache_model.h"
#include "core/graph/optimizer_state.h"
#include "core/graph/program.h"
#include "core/numbers.h"

namespace stepcast::workloads {
namespace {

/// Lookups that are drawn anew: repeats inside a session are not.
double drawn(const EmbeddingTable& table, double lookups) {
  return table.session ? lookups / dedup_factor(table.session->samples, table.session->keep)
                       : lookups;
}

bool fetched_ahead(const Job& job) { return job.parallel.dlrm_pipeline >= DlrmPipeline::kPrefetch; }

RowCacheModel model_of(const Job& job, const EmbeddingTable& table, const Access& law,
                       double capacity, double lookups, RowCachePolicy policy) {
  const double n = drawn(table, lookups);
  return {law, capacity, n, policy, fetched_ahead(job) ? n : 0};
}

}  // namespace

double tier_row_bytes(const Job& job, const EmbeddingTable& table, std::int64_t columns,
                      double element_bytes) {
  const double row = element_bytes > 0 ? real(columns) * element_bytes
                                       : format_bytes(job.row_format(table), 1, columns).base();
  return row + state_row_bytes(job.embedding_optimizer, columns);
}

double cached_row_bytes(const Job& job, const EmbeddingTable& table, std::int64_t columns) {
  return stepcast::cached_row_bytes(job.row_format(table), job.embedding_optimizer, columns);
}

CacheShape cache_shape(const Job& job, const EmbeddingTable& table, const Access& law,
                       std::int64_t rows, std::int64_t columns, double lookups, double cache_bytes,
                       RowCachePolicy policy) {
  CacheShape shape;
  shape.capacity = std::min(
      rows,
      static_cast<std::int64_t>(std::floor(cache_bytes / cached_row_bytes(job, table, columns))));
  const RowCacheModel model = model_of(job, table, law, real(shape.capacity), lookups, policy);
  const double most = model.most_rows();
  const double held = std::max(most, real(shape.capacity));
  shape.slots =
      std::min(rows, static_cast<std::int64_t>(std::ceil(1.05 * held + 8 * std::sqrt(most) + 64)));
  shape.expected = model.batch();
  shape.expected.lookups = lookups;
  const double row = tier_row_bytes(job, table, columns);
  shape.expected.fetched_bytes = shape.expected.fetched * row;
  shape.expected.written_bytes = shape.expected.written * row;
  return shape;
}

KeyedRows keyed_rows(const Job& job, const EmbeddingTable& table) {
  if (!table.keyed()) {
    return {};
  }
  const double lookups = real(job.batch.global) * table.pooling;
  const auto policy =
      table.remapped->kind == RowRemap::kLfu ? RowCachePolicy::kLfu : RowCachePolicy::kLru;
  const RowCacheModel model(*table.remapped->access, real(table.rows), drawn(table, lookups),
                            policy);
  KeyedRows k;
  k.admitted = model.batch().fetched * table.remapped->admitted;
  k.written = KeyedRows::kSector + k.admitted * tier_row_bytes(job, table, table.dim) / lookups;
  return k;
}

std::map<std::string, RowTraffic> expected_tier_traffic(const Job& job, const ExecutionGraph& graph,
                                                        std::int64_t first, std::int64_t steps,
                                                        double element_bytes) {
  std::map<std::string, RowTraffic> by_tier;
  for (const RankClass& ranks : graph.classes) {
    const Program& program = graph.programs[static_cast<std::size_t>(ranks.program)];
    for (const EmbeddingGroup& group : program.embeddings) {
      for (const EmbeddingShard& shard : group.shards) {
        if (!shard.cache) {
          continue;
        }
        const EmbeddingTable& table =
            job.workload.layered()->tables[static_cast<std::size_t>(shard.table)];
        const RowCacheModel model = model_of(job, table, *shard.access, real(shard.cache->capacity),
                                             shard.drawn, shard.cache->policy);
        RowTraffic mean;
        const std::int64_t count = first < 0 ? 1 : steps;
        for (std::int64_t s = 0; s < count; ++s) {
          mean += model.batch(first < 0 ? -1 : real(first + s));
        }
        mean *= real(static_cast<std::int64_t>(ranks.ranks.size())) / real(count);
        mean.lookups = shard.lookups * real(static_cast<std::int64_t>(ranks.ranks.size()));
        const double row = tier_row_bytes(job, table, shard.dim, element_bytes);
        mean.fetched_bytes = mean.fetched * row;
        mean.written_bytes = mean.written * row;
        by_tier[program.tiers.at(program.tensors[shard.weights].tier - std::size_t{1})] += mean;
      }
    }
  }
  return by_tier;
}

}  // namespace stepcast::workloads
