#pragma once
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"

namespace stepcast::planner {

/// Whole tables on single ranks. `order` lists the tables in the order they are placed; each goes
/// to the rank of least summed cost that still has room (most room where none has).
EmbeddingPlan place_whole_tables(const Job& job, const std::vector<std::size_t>& order,
                                 const std::vector<double>& cost);

}  // namespace stepcast::planner
