#include "core/job_split.h"

#include <algorithm>

namespace stepcast {
namespace {

/// Bandwidth of the widest hop between the ranks of a context group.
double context_bandwidth(const Job& job) {
  const System& system = job.system;
  const std::int64_t span = job.parallel.mesh().stride(Axis::kContext) * job.parallel.context;
  std::size_t level = 0;
  while (level + 1 < system.fabric.size() && system.devices_in_level(level) < span) {
    ++level;
  }
  return system.fabric.empty() ? 0 : system.fabric[level].bandwidth.base();
}

}  // namespace

Bytes bucket_size(const Job& job, std::int64_t ranks) {
  constexpr std::int64_t kLeast = 40'000'000;
  constexpr std::int64_t kOfRank = 1'000'000;
  const std::int64_t said = job.parallel.bucket_elements;
  const std::int64_t elements = said < 0 ? std::max(kLeast, kOfRank * ranks) : said;
  return elements > 0 ? format_bytes(job.formats.gradient, 1, elements) : job.parallel.bucket;
}

std::int64_t shard_ranks(const Job& job) {
  const Parallel& p = job.parallel;
  if (p.zero == 0) {
    return 1;
  }
  if (p.zero_level.empty()) {
    return p.data * p.context;
  }
  const std::int64_t inside = job.system.devices_in(p.zero_level).value_or(1);
  const std::int64_t split = p.mesh().stride(Axis::kData);
  return inside / split * p.context;
}

ContextAlgorithm context_algorithm(const Job& job) {
  const Parallel& p = job.parallel;
  if (p.context_algorithm != ContextAlgorithm::kAuto) {
    return p.context_algorithm;
  }
  if (job.phase == JobPhase::kDecode) {
    return ContextAlgorithm::kPassQ;
  }
  const TransformerWorkload& m = *job.workload.transformer();
  const auto peak = job.system.device.peak_of(job.formats.compute);
  const double bandwidth = context_bandwidth(job);
  const auto tokens = static_cast<double>(job.batch.sequence);
  const double heads = static_cast<double>(m.kv_heads) / static_cast<double>(m.heads);
  const double bytes = bits_per_element(job.formats.compute) / 8;
  const bool hidden =
      peak && bandwidth > 0 &&
      tokens >= static_cast<double>(p.context) * peak->base() * heads * bytes / (2 * bandwidth);
  if (job.phase == JobPhase::kTrain) {
    return hidden ? ContextAlgorithm::kPassKv : ContextAlgorithm::kAllGather;
  }
  const bool smaller = tokens / (tokens + static_cast<double>(job.cached)) >= 2 * heads;
  return hidden || smaller ? ContextAlgorithm::kPassKv : ContextAlgorithm::kPassQ;
}

}  // namespace stepcast
