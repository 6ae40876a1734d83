#include "core/job/job_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/job/internal/rules.h"

namespace stepcast {
namespace internal {

std::string listed(const Values& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == values.size() ? " or " : ", ", values[i]);
  }
  return text;
}

BrokenRule remedied(std::string key, const std::string& what, Values values) {
  const std::string remedy = remedy_text(values);
  return {std::move(key), what + remedy, std::move(values)};
}

Values divisors(std::int64_t n, std::int64_t limit) {
  Values all;
  for (std::int64_t d = 1; d <= std::min(n, limit); ++d) {
    if (n % d == 0) {
      all.push_back(d);
    }
  }
  if (all.size() > 8) {
    all.erase(all.begin() + 1, all.end() - 7);
  }
  return all;
}

Values around(std::int64_t n, std::int64_t unit) {
  const std::int64_t down = n / unit * unit;
  return down > 0 ? Values{down, down + unit} : Values{unit};
}

std::int64_t batch_unit(const Job& job) {
  const Parallel& p = job.parallel;
  const bool turns =
      p.virtual_stages > 1 && traits_of(p.schedule).placement == ChunkPlacement::kRound;
  return p.data * job.batch.micro * (turns ? p.turn_of_chunk() : 1);
}

namespace {

Broken batch(const Job& job) {
  const std::int64_t unit = job.parallel.data * job.batch.micro;
  if (job.batch.global % unit != 0) {
    return remedied("batch.global",
                    fmt::format("{} is not divisible by data * micro = {} * {} = {}",
                                job.batch.global, job.parallel.data, job.batch.micro, unit),
                    around(job.batch.global, batch_unit(job)));
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

std::string remedy_text(const std::vector<std::int64_t>& values) {
  return values.empty() ? std::string() : "; use " + internal::listed(values);
}

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
