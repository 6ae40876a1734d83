#include <fmt/format.h>

#include <array>

#include "core/job/internal/rules.h"
#include "core/job/layer_split.h"
#include "core/job/tier_units.h"

// Rules of what is trained and how: adapters, loss, lengths of documents, modules that are
// recomputed.
namespace stepcast::internal {
namespace {

Broken adapters(const Job& job, const TransformerWorkload& w) {
  if (!job.lora) {
    return !job.formats.frozen
               ? std::nullopt
               : Broken(BrokenRule{"formats.frozen",
                                   "found a format of weights that are not trained, but all are; "
                                   "leave it out, or give lora"});
  }
  const Lora& l = *job.lora;
  if (job.phase != JobPhase::kTrain) {
    return BrokenRule{"lora", "found adapters, but nothing is trained; use phase train"};
  }
  if (splits_weights(job.parallel.schedule)) {
    return BrokenRule{"lora", fmt::format("{} makes the weight gradients of whole layers later, of "
                                          "which adapters leave few; use schedule 1f1b",
                                          name_of(job.parallel.schedule))};
  }
  if (w.mla || w.parallel_block) {
    return BrokenRule{"lora", fmt::format("adapters of {} are not modelled; leave lora out",
                                          w.mla ? "latent attention" : "parallel blocks")};
  }
  if (w.moe && (l.fc1 || l.fc2)) {
    return BrokenRule{"lora.targets",
                      "adapters of experts are not modelled; use qkv and projection"};
  }
  if (!l.qkv && !l.projection && !l.fc1 && !l.fc2) {
    return BrokenRule{"lora.targets", "found none; name some of qkv, projection, fc1 and fc2"};
  }
  const std::int64_t chunks = job.parallel.pipeline * job.parallel.virtual_stages;
  if (chunks > 1 &&
      split_layers(w.layers, chunks, job.parallel.pipeline_split).front().count == 0) {
    return BrokenRule{"parallel.pipeline_split",
                      "leaves the embedding alone in its chunk, where nothing is trained but "
                      "adapters; give the first chunk a layer"};
  }
  return std::nullopt;
}

Broken loss(const Job& job, const TransformerWorkload&) {
  const std::int64_t chunks = job.loss.chunks;
  const std::int64_t tokens = job.batch.micro * job.batch.sequence / job.parallel.context;
  if (chunks == 1) {
    return std::nullopt;
  }
  if (tokens % chunks != 0) {
    return remedied(
        "loss.chunks",
        fmt::format("{} do not divide the {} tokens of a micro-batch on a rank", chunks, tokens),
        divisors(tokens, chunks));
  }
  if (job.phase != JobPhase::kTrain) {
    return BrokenRule{"loss.chunks", "inference has no loss; use 1"};
  }
  if (splits_weights(job.parallel.schedule)) {
    return BrokenRule{"loss.chunks",
                      fmt::format("a loss in parts makes the head's weight gradient in the "
                                  "forward pass, {} later; use 1, or schedule 1f1b",
                                  name_of(job.parallel.schedule))};
  }
  if (job.loss.kind == LossKind::kEager) {
    return BrokenRule{"loss.kind",
                      "eager kernels work on all logits; use copied, compiled or "
                      "fused with chunks"};
  }
  return std::nullopt;
}

Broken lengths(const Job& job, const TransformerWorkload& w) {
  if (!job.sequence_lengths) {
    return std::nullopt;
  }
  const SequenceLengths& s = *job.sequence_lengths;
  if (job.phase != JobPhase::kTrain) {
    return BrokenRule{"sequence_lengths", "apply to training; use phase train"};
  }
  if (!s.packed || !s.attend_within) {
    return std::nullopt;
  }
  if (job.parallel.context > 1) {
    return BrokenRule{"sequence_lengths.attention",
                      "documents that context ranks share parts of are not modelled; use "
                      "\"sequence\", or parallel.context 1"};
  }
  if (!job.flash_attention) {
    return BrokenRule{"sequence_lengths.attention",
                      "unfused attention makes the scores of whole sequences; use \"sequence\", or "
                      "attention flash"};
  }
  if (w.window > 0) {
    return BrokenRule{"sequence_lengths.attention",
                      "windows inside documents are not modelled; use \"sequence\""};
  }
  return std::nullopt;
}

Broken modules(const Job& job, const TransformerWorkload& w) {
  const Recompute& r = job.parallel.recompute;
  if (r.kind != RecomputeKind::kSelective || r.modules == RecomputeModules{}) {
    return std::nullopt;
  }
  const char* key = "parallel.recompute.modules";
  if (r.modules.expert_activation && !w.moe) {
    return BrokenRule{key, "found moe_act, but there are no experts; leave it out"};
  }
  if (r.modules.latent_up && !w.mla) {
    return BrokenRule{key, "found mla_up_proj, but attention is not latent; leave it out"};
  }
  if ((r.modules.norms || r.modules.feed_forward) && w.parallel_block) {
    return BrokenRule{key, "modules of parallel blocks cannot be chosen one by one; use core_attn"};
  }
  if (job.system.framework.selective_per_op) {
    return BrokenRule{key, "the stack recomputes op by op; use selective"};
  }
  return std::nullopt;
}

Broken kept_values(const Job& job, const TransformerWorkload&) {
  const bool trains = job.phase == JobPhase::kTrain;
  if (job.formats.cache && trains) {
    return BrokenRule{"formats.cache",
                      "found a format of kept keys and values, but training keeps none; leave it "
                      "out, or use phase prefill or decode"};
  }
  const bool per_op = job.system.framework.selective_per_op &&
                      job.parallel.recompute.kind == RecomputeKind::kSelective;
  if (job.formats.activation && (!trains || per_op)) {
    return BrokenRule{"formats.activation",
                      trains ? "found a format of what is kept, but the framework recomputes op by "
                               "op; leave it out"
                             : "found a format of what training keeps, but nothing is trained; "
                               "leave it out"};
  }
  return std::nullopt;
}

Broken offload(const Job& job, const TransformerWorkload&) {
  const Offload& o = job.offload;
  if (o == Offload{}) {
    return std::nullopt;
  }
  if (job.phase != JobPhase::kTrain) {
    return BrokenRule{"offload", "is not modelled of inference; leave it out"};
  }
  const auto host = tier_named(job.system, kHostTier);
  if (!host || host->bandwidth <= BytesPerSecond{}) {
    return BrokenRule{"offload",
                      fmt::format("system {} says no memory of its hosts; add {{\"name\": \"{}\", "
                                  "\"capacity\": .., \"bandwidth\": .., \"shared_by\": ..}} to "
                                  "system.tiers, or leave it out",
                                  job.system.name, kHostTier)};
  }
  if (o.activations && splits_weights(job.parallel.schedule)) {
    return BrokenRule{"offload.activations",
                      fmt::format("{} reads activations twice, its weight gradients later; use "
                                  "schedule 1f1b",
                                  name_of(job.parallel.schedule))};
  }
  if (o.parameters && (job.parallel.zero != 3 || !job.parallel.zero_reshard || !o.optimizer)) {
    return BrokenRule{"offload.parameters",
                      "are the shards of zero 3 that the host updates; use parallel.zero 3, which "
                      "frees weights after use, and offload.optimizer"};
  }
  return std::nullopt;
}

/// Whole matrices: Megatron-LM's layer-wise optimizer spreads them over data ranks, no part of one.
Broken muon(const Job& job, const TransformerWorkload&) {
  if (!job.orthogonalises() || job.phase != JobPhase::kTrain) {
    return std::nullopt;
  }
  if (exchanged_zero(job.parallel) >= 2) {
    return BrokenRule{
        "parallel.zero",
        fmt::format("found {}, but muon works on whole matrices, which zero 1 spreads "
                    "over data ranks; use 0 or 1",
                    job.parallel.zero)};
  }
  if (job.offload.optimizer) {
    return BrokenRule{"offload.optimizer",
                      "muon's products are modelled on the device; leave it out"};
  }
  return std::nullopt;
}

constexpr std::array<TransformerRule, 7> kTrainingRules{adapters,    loss,    lengths, modules,
                                                        kept_values, offload, muon};

}  // namespace

std::span<const TransformerRule> training_rules() { return kTrainingRules; }

}  // namespace stepcast::internal

namespace stepcast {

std::string_view name_of(MuonShards shards) {
  constexpr std::array<std::string_view, 4> kNames{"duplicated", "distributed", "blockwise",
                                                   "layer_sharded"};
  return kNames.at(static_cast<std::size_t>(shards));
}

}  // namespace stepcast
