#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/job/job.h"

namespace stepcast {

/// Gradients of a bucket, in bytes, where so many ranks hold the same parameters:
/// Parallel::bucket_elements, as Megatron-LM's max(40 million, 1 million * ranks) where that is
/// negative, else Parallel::bucket.
/// Source: Megatron-LM, distributed_data_parallel.py.
Bytes bucket_size(const Job& job, std::int64_t ranks);

/// Ranks over which ZeRO shards: all replicas, or those inside one unit of a level of the fabric.
std::int64_t shard_ranks(const Job& job);

/// Algorithms that context-parallel attention may use, the plainest first: what the job says, or
/// where it says `auto` every one that no rule of core/job/job_rules.h forbids; no ring under a
/// sliding window in training, which no framework has.
std::vector<ContextAlgorithm> context_algorithms(Job job);
std::string_view name_of(ContextAlgorithm algorithm);  ///< as a job says it
/// The first of them. Which of several is fastest only prices can say: studies (settled) and the
/// search of plans (LayerCostProbe) put it into the job.
ContextAlgorithm context_algorithm(const Job& job);

}  // namespace stepcast
