#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/graph/embedding_placement.h"
#include "core/job/job.h"
#include "core/job/plan.h"
#include "core/job/tier_units.h"

namespace stepcast::planner {

/// How many ranks each communicator joins that a rank uses in a step under a placement.
std::vector<std::size_t> communicator_sizes(const EmbeddingPlacement& placement, bool towers);

/// The byte ledger of a plan: one line per rank and tier in use, computed from the placement that
/// its graph has (never from what a search believed). The plan must obey the rules
/// (workloads/embedding_plan/plan_rules.h). Weights, optimizer state, gradients of replicas,
/// caches, remap tables of frequency order (4 bytes a row, 8 beyond 2^32 rows, on each rank), and
/// buffers of inputs, outputs and synchronisation; `dense` is the dense model and all libraries
/// take. Lines of a shared tier hold each rank's own part; `capacity` is that of the ranks' unit.
std::vector<LedgerLine> ledger_of(const Job& job, const EmbeddingPlan& plan);

/// The unit of a tier that lacks most: the sum of its ranks' lines; nullopt where all fit.
struct LedgerExcess : TierExcess {
  std::string tier;
  std::string largest_table;  ///< with most bytes there
};
std::optional<LedgerExcess> excess_of(const Job& job, const EmbeddingPlan& plan,
                                      const std::vector<LedgerLine>& ledger);

}  // namespace stepcast::planner
