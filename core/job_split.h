#pragma once
#include <cstdint>

#include "core/job/job.h"

namespace stepcast {

/// Gradients of a bucket, in bytes, where so many ranks hold the same parameters:
/// Parallel::bucket_elements, as Megatron-LM's max(40 million, 1 million * ranks) where that is
/// negative, else Parallel::bucket.
/// Source: Megatron-LM, distributed_data_parallel.py.
Bytes bucket_size(const Job& job, std::int64_t ranks);

/// Ranks over which ZeRO shards: all replicas, or those inside one unit of a level of the fabric.
std::int64_t shard_ranks(const Job& job);

/// The algorithm of context-parallel attention, `auto` resolved. With T new and P cached tokens on
/// N ranks, passing keys and values is hidden under compute when
///   T >= N C N_KV e / (2 N_H BW)
/// (C peak FLOP/s and BW bandwidth per rank, e bytes); it also moves less than passing queries when
/// T / (T + P) >= 2 N_KV / N_H. Training: pass_kv where hidden, else all_gather (as many bytes, one
/// start). Prefill: pass_kv where either holds, else pass_q. Decode: pass_q.
/// Source: Yang et al., arXiv 2411.01783.
ContextAlgorithm context_algorithm(const Job& job);

}  // namespace stepcast
