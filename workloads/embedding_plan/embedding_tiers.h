#pragma once
#include <map>
#include <string>

#include "core/graph/program_fwd.h"
#include "core/job/job.h"

namespace stepcast::workloads {

/// Bytes that move with one row of a slower tier: its columns, in `element_bytes` each where that
/// is > 0 (a backend without short formats), and its optimizer state.
double tier_row_bytes(const Job& job, const EmbeddingTable& table, std::int64_t columns,
                      double element_bytes = 0);

/// Bytes of device memory per row that a cache has room for: the row, its state, and the directory
/// that finds it (row, place in the order of use, hash entry).
double cached_row_bytes(const Job& job, const EmbeddingTable& table, std::int64_t columns);

/// Contents of a cache of `cache_bytes` in front of a shard in a slower tier, and what a step
/// moves. `law` is that of the shard's rows, `lookups` those of a step. `slots` is the expected
/// most rows at once (RowCacheModel::most_rows) with a margin of 5 %, eight standard deviations and
/// 64 rows. A pipeline that fetches during the step before (prefetch, fused) keeps that step's rows
/// as well. Repeats inside a session (EmbeddingTable::session) count once.
struct CacheShape {
  std::int64_t capacity = 0;
  std::int64_t slots = 0;
  RowTraffic expected;
};
CacheShape cache_shape(const Job& job, const EmbeddingTable& table, const Access& law,
                       std::int64_t rows, std::int64_t columns, double lookups, double cache_bytes,
                       RowCachePolicy policy = RowCachePolicy::kLru);

/// A table whose rows are found by keys (EmbeddingTable::keyed), as in hash tables on GPUs
/// (TorchRec's managed collisions, HierarchicalKV): each row has a key and a score, int64 both,
/// from which comes who leaves.
struct KeyedRows {
  static constexpr double kBytes = 16;   ///< of memory for each row
  static constexpr double kSector = 32;  ///< a key is read, a score is written
  double admitted = 0;                   ///< rows of a step that ids without one take
  double written = 0;  ///< bytes of a lookup: its score, rows and state begun anew
  [[nodiscard]] double moved() const { return kSector + written; }
};
KeyedRows keyed_rows(const Job& job, const EmbeddingTable& table);

/// By tier, one step of all ranks: mean over steps [first, first + steps) of a run that began with
/// empty caches; `first` < 0: the long run. `element_bytes` as in tier_row_bytes.
std::map<std::string, RowTraffic> expected_tier_traffic(const Job& job, const ExecutionGraph& graph,
                                                        std::int64_t first, std::int64_t steps,
                                                        double element_bytes = 0);

}  // namespace stepcast::workloads
