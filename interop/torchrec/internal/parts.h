#pragma once
#include <algorithm>
#include <string>

#include "core/error.h"
#include "core/graph/embedding_placement.h"
#include "core/job/job.h"
#include "interop/embedding_tables/described_tables.h"

// Questions that reading and writing of TorchRec plans share.
namespace stepcast::interop::torchrec {

/// Rows that the fullest rank of a shard holds.
inline std::int64_t rows_of_rank(const PlanShard& s) {
  return RowSplit{.rows = s.rows[1] - s.rows[0],
                  .split = Split::kBlock,
                  .members = static_cast<std::int64_t>(s.groups.front().size())}
      .block();
}

/// The table of this name, which the workload has.
inline const EmbeddingTable& table_of(const LayeredWorkload& w, const std::string& name) {
  const auto it = std::find_if(w.tables.begin(), w.tables.end(),
                               [&](const EmbeddingTable& t) { return t.name == name; });
  STEPCAST_CHECK(it != w.tables.end(), "no table '{}'", name);
  return *it;
}

/// Tables, constraints and topology under the keys of docs/reference/table-files.md.
Described described_tables(const Value& v);

}  // namespace stepcast::interop::torchrec
