#include "core/job/job_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/job/internal/rules.h"
#include "core/job/limits.h"

namespace stepcast {
namespace internal {

std::string listed(const std::vector<std::int64_t>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == values.size() ? " or " : ", ", values[i]);
  }
  return text;
}

std::string divisors(std::int64_t n, std::int64_t limit) {
  std::vector<std::int64_t> all;
  for (std::int64_t d = 1; d <= std::min(n, limit); ++d) {
    if (n % d == 0) {
      all.push_back(d);
    }
  }
  if (all.size() > 8) {
    all.erase(all.begin() + 1, all.end() - 7);
  }
  return listed(all);
}

std::string around(std::int64_t n, std::int64_t unit) {
  const std::int64_t down = n / unit * unit;
  return down > 0 ? fmt::format("{} or {}", down, down + unit) : fmt::format("{}", unit);
}

namespace {

Broken batch(const Job& job) {
  const std::int64_t unit = job.parallel.data * job.batch.micro;
  if (job.batch.global % unit != 0) {
    return BrokenRule{
        "batch.global",
        fmt::format("{} is not divisible by data * micro = {} * {} = {}; use {}", job.batch.global,
                    job.parallel.data, job.batch.micro, unit, around(job.batch.global, unit))};
  }
  if (job.microbatches() > kMostMicrobatches) {
    return BrokenRule{
        "batch.global",
        fmt::format("{} makes {} micro-batches of each replica, of which at most {} can be "
                    "simulated; use batch.global = {} at most (each further micro-batch only adds "
                    "the same time again), or a larger batch.micro",
                    job.batch.global, job.microbatches(), kMostMicrobatches,
                    kMostMicrobatches * unit)};
  }
  return std::nullopt;
}

Broken first_of(std::span<const TransformerRule> rules, const Job& job,
                const TransformerWorkload& w) {
  for (const TransformerRule rule : rules) {
    if (Broken broken = rule(job, w)) {
      return broken;
    }
  }
  return std::nullopt;
}

}  // namespace
}  // namespace internal

std::optional<BrokenRule> broken_rule(const Job& job) {
  const TransformerWorkload* w = job.workload.transformer();
  internal::Broken broken;
  if (w != nullptr) {
    broken = internal::first_of(internal::split_rules(), job, *w);
  }
  if (!broken) {
    broken = internal::batch(job);
  }
  if (!broken && w != nullptr) {
    broken = internal::first_of(internal::schedule_rules(), job, *w);
  }
  if (!broken && w != nullptr) {
    broken = internal::first_of(internal::training_rules(), job, *w);
  }
  return broken;
}

}  // namespace stepcast
