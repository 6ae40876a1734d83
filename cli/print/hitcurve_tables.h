#pragma once
#include <cstdint>
#include <vector>

#include "cli/print/data_table.h"
#include "core/access/access.h"
#include "core/access/id_sketch.h"
#include "core/access/stack_distance.h"

namespace stepcast::cli {

// Tables that `hitcurve` prints of one table's lookups.

/// Counts, shares of the hottest rows and the zipf law that fits best: of a recording (with its
/// distances), of a histogram, of a sketch. `bins` are those of `access`.
DataTable summary_table(const char* title, double lookups, const Access& access,
                        const std::vector<ReuseBin>& bins, const StackDistances* recorded);
DataTable sketch_summary(const IdSketch& sketch, const Access& access,
                         const std::vector<ReuseBin>& bins);

/// How often rows were looked up.
DataTable bins_table(const std::vector<ReuseBin>& bins, double lookups);
/// Hit rates of caches of 1, 2, 5, 10, ... rows; without the recorded order, of independent
/// lookups.
DataTable curve_table(const Access& access, double distinct, const StackDistances* recorded);
/// The rows looked up most, with the bounds of a sketch.
DataTable hot_table(const IdSketch& sketch);
/// Lists of ids that repeat: what `embedding.dedup` would spare pooled tables. One table, or none
/// where no bags are recorded.
std::vector<DataTable> lists_tables(const std::vector<std::int64_t>& ids,
                                    const std::vector<std::int64_t>& begins);

}  // namespace stepcast::cli
