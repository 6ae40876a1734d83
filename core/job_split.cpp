#include "core/job_split.h"

#include <algorithm>

#include "core/job/job_rules.h"

namespace stepcast {

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

std::vector<ContextAlgorithm> context_algorithms(Job job) {
  ContextAlgorithm& algorithm = job.parallel.context_algorithm;
  if (algorithm != ContextAlgorithm::kAuto) {
    return {algorithm};
  }
  std::vector<ContextAlgorithm> legal;
  for (const ContextAlgorithm a : {ContextAlgorithm::kAllGather, ContextAlgorithm::kPassKv,
                                   ContextAlgorithm::kAllToAll, ContextAlgorithm::kPassQ}) {
    algorithm = a;
    const bool unknown = a == ContextAlgorithm::kPassKv && job.phase == JobPhase::kTrain &&
                         job.workload.transformer()->window > 0;
    const auto broken = broken_rule(job);
    if (!unknown && (!broken || broken->key != "parallel.context_algorithm")) {
      legal.push_back(a);
    }
  }
  return legal;
}

std::string_view name_of(ContextAlgorithm algorithm) {
  switch (algorithm) {
    case ContextAlgorithm::kAllGather:
      return "all_gather";
    case ContextAlgorithm::kPassKv:
      return "pass_kv";
    case ContextAlgorithm::kPassQ:
      return "pass_q";
    case ContextAlgorithm::kAllToAll:
      return "all_to_all";
    case ContextAlgorithm::kAuto:
      break;
  }
  return "auto";
}

ContextAlgorithm context_algorithm(const Job& job) {
  const ContextAlgorithm said = job.parallel.context_algorithm;
  return said != ContextAlgorithm::kAuto  ? said
         : job.phase == JobPhase::kDecode ? ContextAlgorithm::kPassQ
                                          : ContextAlgorithm::kAllGather;
}

}  // namespace stepcast
