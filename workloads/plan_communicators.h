#pragma once
#include <vector>

#include "core/job.h"
#include "core/plan.h"
#include "workloads/embedding_plan_layout.h"

namespace stepcast::workloads {

/// The kind of route of a plan's shard, at level 0. `shares`: list_shares of the table.
EmbeddingRoute route_of(const PlanShard& s, const EmbeddingTable& t, const Job& job,
                        const ListShares& shares);

/// How many ranks each communicator joins that a rank talks on in a step of the job's DLRM under a
/// plan: what its graph uses, known without building it.
std::vector<std::size_t> plan_communicators(const Job& job, const EmbeddingPlan& plan);

}  // namespace stepcast::workloads
