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

/// "1, 2 or 4".
std::string listed(const std::vector<std::int64_t>& values);
/// The divisors of n up to `limit`, at most eight, the largest kept.
std::string divisors(std::int64_t n, std::int64_t limit);
/// The multiples of `unit` on both sides of n, which is none: "8 or 16".
std::string around(std::int64_t n, std::int64_t unit);

}  // namespace stepcast::internal
