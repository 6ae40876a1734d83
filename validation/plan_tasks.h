#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"
#include "core/system.h"
#include "studies/run/runtime_cases.h"

namespace stepcast::validation {

/// The fabric that tasks of `validate plans` run on unless another is given: nodes of two ranks,
/// slow enough that exchanges are half of a step and latencies are well above the precision of a
/// sleep.
System two_rank_nodes(std::int64_t ranks);

/// A small DLRM whose step takes some 5 to 40 ms on 4 ranks of such a fabric: 6 to 14 tables of
/// 200 to 60,000 rows, dims 8 to 96, pooling 1 to 24, popularity uniform to zipf 1.1. The draw
/// knows nothing of costs.
Job draw_plan_task(const System& system, std::int64_t ranks, studies::Draw& draw);

/// A way to shard a task's tables.
struct PlanCandidate {
  std::string name;               ///< how it was made
  std::vector<std::string> also;  ///< other ways that came to the same plan
  EmbeddingPlan plan;
  [[nodiscard]] bool called(std::string_view way) const;
};

/// Distinct candidates for a job: the planner's best; greedy whole tables by five measures and
/// round robin; every table row-wise, column-wise, table-row-wise; mixes that replicate tables up
/// to a number of rows and place, cut or split the rest; random whole tables and random mixes.
/// Plans that differ by an exchange of equal nodes, or of equal places in all nodes, are one. The
/// cost model is asked by the planner only.
std::vector<PlanCandidate> candidate_plans(const Job& job, std::uint64_t seed);

/// Candidates for calibration: whole tables, row-wise, data-parallel and mixes of them; never
/// column-wise or table-row-wise.
EmbeddingPlan calibration_plan(const Job& job, std::int64_t i, studies::Draw& draw);

/// Bytes as the only measure of a plan: over ranks the largest of lookups forward and update (three
/// passes over the rows) plus what it sends and receives in exchanges and the synchronisation of
/// replicas, each byte alike.
double bytes_of_plan(const Job& job, const EmbeddingPlan& plan);

/// Kinds of sharding in use, in order: "table_wise data_parallel".
std::string kinds_of(const EmbeddingPlan& plan);

}  // namespace stepcast::validation
