#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/job/job_rules.h"

namespace stepcast::internal {

using Broken = std::optional<BrokenRule>;
using TransformerRule = Broken (*)(const Job&, const TransformerWorkload&);

/// Rules of what a rank holds and works on: tensor, context and expert parallelism.
std::span<const TransformerRule> split_rules();
/// In which order, what is kept and where: pipeline, recomputation, ZeRO.
std::span<const TransformerRule> schedule_rules();
/// Rules of what is trained and how: adapters, loss, lengths of documents, recomputed modules.
std::span<const TransformerRule> training_rules();

using Values = std::vector<std::int64_t>;
/// The rule with values of its key to use.
BrokenRule remedied(std::string key, const std::string& what, Values values);
/// "1, 2 or 4".
std::string listed(const Values& values);
/// The divisors of n up to `limit`, at most eight, the largest kept.
Values divisors(std::int64_t n, std::int64_t limit);
/// The multiples of `unit` on both sides of n, which is none: 8, 16.
Values around(std::int64_t n, std::int64_t unit);
/// Samples of a step that replicas, micro-batches and turns of chunks divide.
std::int64_t batch_unit(const Job& job);

}  // namespace stepcast::internal
