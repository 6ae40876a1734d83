#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/job/job.h"

namespace stepcast {

/// Why a job cannot be split as it asks.
struct BrokenRule {
  std::string key;   ///< of the job, to blame: "parallel.tensor"
  std::string what;  ///< what was found, what it has to be, the nearest legal values
  /// Values of `key` that keep this rule, which `what` ends with as remedy_text; they may break
  /// others.
  std::vector<std::int64_t> values = {};
};
/// "; use 1, 2 or 4"; "" of none.
std::string remedy_text(const std::vector<std::int64_t>& values);

/// The first rule that a job breaks, nullopt for a legal one. Transformers: degrees divide what
/// they split, experts find ranks, context parallelism and inference have what they need,
/// micro-batches fill an interleaved pipeline, schedules go with recomputation and sharding, shards
/// lie inside their level of the fabric. All workloads: samples divide over replicas, and so many
/// micro-batches can be simulated.
///
/// The one list of them: the loader of jobs, the graph builder and the search all ask here, so a
/// plan is found if and only if a job may ask for it (tests/planner/plan_rules_test.cpp).
std::optional<BrokenRule> broken_rule(const Job& job);

/// ZeRO stage by which a plan's gradients are exchanged. Beside pipeline stages `zero` 2 adds them
/// up whole over all micro-batches and scatters them once, as 1 does: no framework sends a stage's
/// gradients after each of many small micro-batches.
inline int exchanged_zero(int zero, std::int64_t pipeline) {
  return zero == 2 && pipeline > 1 ? 1 : zero;
}
inline int exchanged_zero(const Parallel& p) { return exchanged_zero(p.zero, p.pipeline); }

/// Format of the copy of a weight that the optimizer updates; nullopt where it updates the weight
/// itself, which is in full precision or in the very format of `master`, or there is no `master`.
inline std::optional<Format> master_copy(const RoleFormats& formats, Format weight) {
  return full_precision(weight) || formats.master == weight ? std::nullopt : formats.master;
}

/// Machines (units of the innermost level of the fabric) that each group of ranks with different
/// experts lies in; nullopt where machines hold unlike parts of groups.
std::optional<std::int64_t> expert_machines(const Job& job);

/// Micro-batches of a replica that a step is simulated with: the report of a rank keeps every op it
/// executes, some 0.5 MB a micro-batch where one device holds a hundred layers.
constexpr std::int64_t kMostMicrobatches = 16384;

}  // namespace stepcast
