#pragma once
#include <optional>
#include <string_view>

#include "core/job/job.h"
#include "core/job/job_rules.h"
#include "core/job/plan.h"

namespace stepcast::workloads {

/// The first rule that an embedding plan breaks for a job, nullopt for a legal one: the job's
/// tables in its order, shards that tile rows x columns exactly once, ranks in range, groups that
/// suit the kind of sharding, at most kMostGroupSizes sizes of groups. `key` is a place in the
/// plan: "tables[3].shards[0].groups". Loader, graph builder and searches ask here.
std::optional<BrokenRule> broken_rule(const Job& job, const EmbeddingPlan& plan);

/// Errors: InputError for a plan that breaks a rule. `where` begins the message, e.g. "plan.json:
/// tables[3].shards[0].groups".
void check_embedding_plan(const Job& job, const EmbeddingPlan& plan, std::string_view where);

}  // namespace stepcast::workloads
