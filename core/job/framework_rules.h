#pragma once
#include "core/job/job_rules.h"

namespace stepcast {

/// A training framework that is to run a plan.
enum class TrainingFramework : std::uint8_t { kMegatron, kNemo, kTorchtitan, kDeepspeed };
const char* name_of(TrainingFramework framework);  ///< "Megatron-LM"

/// The first thing of a legal transformer job that the framework has no way to say, or rejects;
/// nullopt where it can run it. No plan helps where `workload` or `optimizer` is named.
///   Megatron-LM  GeGLU, parallel blocks, sgd and adam alone; 1f1b, interleaved over equal chunks
///                of more than two stages unless messages overlap with compute; the first k layers
///                recomputed without interleaving; no shards inside a level; experts on several
///                tensor ranks with sequence parallelism, not in fp16; two parts of a sequence for
///                each context rank, no ring under a sliding window; ranks numbered in its two
///                orders
///   NeMo         as Megatron-LM, on whose core it stands
///   torchtitan   gated or Llama-style layers; tensor ranks with sequence parallelism; 1f1b, gpipe
///                and interleaved; replicated or fully sharded weights, replicated ones without
///                another kind of parallelism; recomputation of all layers alike; context
///                parallelism by gathering or passing keys and values
///   DeepSpeed    1f1b, not interleaved; ZeRO 2 and 3 without a pipeline; whole sequences on tensor
///                ranks, which go with ZeRO up to 2; context parallelism by exchanging heads;
///                recomputation of all layers alike
/// Sources: Megatron-LM, megatron/training/arguments.py (validate_args); torchtitan,
/// torchtitan/config/job_config.py and distributed/; DeepSpeed, deepspeed/runtime/pipe/engine.py,
/// deepspeed/runtime/engine.py and deepspeed/sequence/layer.py.
std::optional<BrokenRule> broken_rule(const Job& job, TrainingFramework framework);

}  // namespace stepcast
