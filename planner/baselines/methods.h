#pragma once
#include "planner/baselines/baselines.h"

namespace stepcast::planner {

// Whole tables, largest cost first, each to the rank with least (greedy.cpp). Costs: dim; rows *
// dim; dim * pooling; dim * pooling * log10(rows); bytes over bandwidth.
BaselinePlan random_plan(const Job& job, const models::CostModel& model, std::uint64_t seed);
BaselinePlan round_robin_plan(const Job& job, const models::CostModel& model, std::uint64_t seed);
BaselinePlan dim_greedy_plan(const Job& job, const models::CostModel& model, std::uint64_t seed);
BaselinePlan size_greedy_plan(const Job& job, const models::CostModel& model, std::uint64_t seed);
BaselinePlan lookup_greedy_plan(const Job& job, const models::CostModel& model, std::uint64_t seed);
BaselinePlan size_lookup_greedy_plan(const Job& job, const models::CostModel& model,
                                     std::uint64_t seed);
BaselinePlan bytes_only_plan(const Job& job, const models::CostModel& model, std::uint64_t seed);
/// Every table's rows over all ranks.
BaselinePlan flat_row_wise_plan(const Job& job, const models::CostModel& model, std::uint64_t seed);

/// TorchRec's greedy and dynamic-programming proposers under its own cost formulas (torchrec.h).
BaselinePlan torchrec_greedy_plan(const Job& job, const models::CostModel& model,
                                  std::uint64_t seed);
BaselinePlan torchrec_dp_plan(const Job& job, const models::CostModel& model, std::uint64_t seed);
BaselinePlan hugectr_plan(const Job& job, const models::CostModel& model, std::uint64_t seed);

}  // namespace stepcast::planner
