#pragma once
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"
#include "workloads/embedding_plan/plan_layout.h"

namespace stepcast::workloads {

/// The kind of route of a plan's shard, at level 0. `shares`: list_shares of the table.
EmbeddingRoute route_of(const PlanShard& s, const EmbeddingTable& t, const Job& job,
                        const ListShares& shares);

/// Whether a table that a rank holds whole pools distinct lists of its samples once: where their
/// rows and a copy for each sample are less than nine tenths of the rows of all lists.
bool pays_to_pool_locally(const ListShares& shares, const EmbeddingTable& table);

/// How many ranks each communicator joins that a rank talks on in a step of the job's DLRM under a
/// plan: what its graph uses, known without building it.
std::vector<std::size_t> plan_communicators(const Job& job, const EmbeddingPlan& plan);

}  // namespace stepcast::workloads
