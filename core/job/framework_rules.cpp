#include "core/job/framework_rules.h"

#include <fmt/format.h>

namespace stepcast {
namespace {

using Broken = std::optional<BrokenRule>;

/// Layers that the files of no framework say as stepcast writes them.
Broken broken_by_all(const TransformerWorkload& w) {
  if (!w.compressed && w.residual_streams == 1) {
    return std::nullopt;
  }
  return BrokenRule{w.compressed ? "workload.compressed" : "workload.residual_streams",
                    "stepcast does not write such layers for this framework; start it by its own "
                    "recipe of the model"};
}

Broken broken_by_megatron(const Job& job, const TransformerWorkload& w) {
  const Parallel& p = job.parallel;
  if (Broken broken = broken_by_all(w)) {
    return broken;
  }
  if (w.activation == Activation::kGeGlu) {
    return BrokenRule{"workload.activation",
                      "Megatron-LM has no argument for geglu; use swiglu, gelu or squared_relu"};
  }
  if (w.parallel_block) {
    return BrokenRule{"workload.parallel_block",
                      "Megatron-LM has no argument for blocks side by side; use false"};
  }
  if (job.dense_optimizer == OptimizerKind::kAdagrad) {
    return BrokenRule{"optimizer", "Megatron-LM has adam, sgd and muon; use one of them"};
  }
  if (p.pipeline > 1 && p.schedule != ScheduleKind::kOneFOneB) {
    return BrokenRule{"parallel.schedule", "Megatron-LM runs 1f1b; use that"};
  }
  if (p.overlap.expert_batch && p.expert > 1 && p.pipeline > 1 && p.virtual_stages == 1) {
    return BrokenRule{"parallel.virtual_stages",
                      "Megatron-LM overlaps exchanges with another micro-batch only in interleaved "
                      "pipelines; use 2 or more, or overlap.expert true"};
  }
  const std::int64_t chunks = p.pipeline * p.virtual_stages;
  const PipelineSplit& split = p.pipeline_split;
  if (split.layers.empty() && p.pipeline > 1 &&
      (w.layers + split.embedding + split.head) % chunks != 0) {
    return BrokenRule{
        p.virtual_stages > 1 ? "parallel.virtual_stages" : "parallel.pipeline",
        fmt::format("{} layers over {} chunks are not equal, nor with embedding or head as layers, "
                    "as Megatron-LM deals them out unless they are drawn; use a divisor of the "
                    "layers, or list those of each chunk in parallel.pipeline_split",
                    w.layers, chunks)};
  }
  if (p.virtual_stages > 1 && p.pipeline == 2 && !p.overlap.pipeline) {
    return BrokenRule{"parallel.virtual_stages",
                      "Megatron-LM interleaves two stages only with overlapped messages; use "
                      "1, or overlap.pipeline"};
  }
  if (p.virtual_stages > 1 && p.recompute.kind == RecomputeKind::kFirstLayers) {
    return BrokenRule{"parallel.recompute",
                      "Megatron-LM counts the first layers in every virtual stage, not in a stage; "
                      "use virtual_stages 1, full or selective"};
  }
  if (p.zero > 0 && !p.zero_level.empty()) {
    return BrokenRule{"parallel.zero.level",
                      fmt::format("Megatron-LM counts copies of the shards, it has no levels of a "
                                  "fabric; use zero {} without a level",
                                  p.zero)};
  }
  if (w.moe && job.formats.compute == Format::kFp16) {
    return BrokenRule{"formats.compute",
                      "Megatron-LM trains experts in bf16 and fp8, not in fp16; use bf16"};
  }
  if (p.context > 1 && job.batch.sequence % (2 * p.context) != 0) {
    return BrokenRule{
        "parallel.context",
        fmt::format("Megatron-LM cuts a sequence into two parts for each of {} context "
                    "ranks, and {} tokens are no multiple of {}; use another size",
                    p.context, job.batch.sequence, 2 * p.context)};
  }
  if (p.context > 1 && w.window > 0 && p.context_algorithm == ContextAlgorithm::kPassKv) {
    return BrokenRule{"parallel.context_algorithm",
                      "Megatron-LM passes no keys and values around under a sliding window; use "
                      "all_gather or all_to_all"};
  }
  if (w.moe && p.expert > 1 && p.tensor > 1 && !p.sequence_parallel) {
    return BrokenRule{"parallel.sequence_parallel",
                      "Megatron-LM splits experts over tensor ranks with sequence parallelism "
                      "only; use true"};
  }
  if (p.pipeline > 1 && p.data > 1 && p.order != kUsualOrder && p.order != kPipelineOutside) {
    return BrokenRule{"parallel.order",
                      "Megatron-LM numbers ranks tensor, context, data, pipeline or tensor, "
                      "context, pipeline, data; use one of these"};
  }
  return std::nullopt;
}

Broken broken_by_torchtitan(const Job& job, const TransformerWorkload& w) {
  const Parallel& p = job.parallel;
  if (Broken broken = broken_by_all(w)) {
    return broken;
  }
  if (!w.llama_style()) {
    return BrokenRule{"workload.activation",
                      "torchtitan trains models of Llama's kind, without biases; use swiglu"};
  }
  if (p.tensor > 1 && !p.sequence_parallel) {
    return BrokenRule{"parallel.sequence_parallel",
                      "torchtitan's tensor ranks split the sequence between blocks; use true"};
  }
  if (job.orthogonalises()) {
    return BrokenRule{"optimizer", "torchtitan has no muon; use adam"};
  }
  if (p.pipeline > 1 && splits_weights(p.schedule)) {
    return BrokenRule{"parallel.schedule",
                      fmt::format("{} splits backward passes, which PyTorch does not do in the "
                                  "compiled layers of torchtitan; use 1f1b or gpipe",
                                  name_of(p.schedule))};
  }
  const bool replicated = p.zero == 0 && p.data * p.context > 1;
  if (replicated && p.tensor * p.pipeline * p.context > 1) {
    return BrokenRule{"parallel.zero",
                      "torchtitan replicates weights where nothing else is split; use 3"};
  }
  if ((p.zero == 1 || p.zero == 2) && p.data * p.context > 1) {
    return BrokenRule{"parallel.zero", fmt::format("found {}: torchtitan shards weights, gradients "
                                                   "and optimizer, or nothing; use 3 or 0",
                                                   p.zero)};
  }
  const bool listed =
      p.recompute.kind == RecomputeKind::kSelective && p.recompute.modules != RecomputeModules{};
  if (p.recompute.kind == RecomputeKind::kFirstLayers || listed) {
    return BrokenRule{"parallel.recompute",
                      "torchtitan recomputes all layers alike; use none, selective or full"};
  }
  const std::int64_t lent = p.context * (p.expert_split().tensor == 1 ? p.tensor : 1);
  if (p.expert > 1 && (p.zero != 3 || !p.zero_level.empty() || p.expert % lent != 0)) {
    return BrokenRule{
        "parallel.expert",
        fmt::format("torchtitan spreads experts over ranks that shard weights, context "
                    "ranks first; use zero 3 without a level, and a multiple of {}",
                    lent)};
  }
  if (job.batch.sequence % (p.tensor * (p.context > 1 ? 2 * p.context : 1)) != 0) {
    return BrokenRule{
        "batch.sequence",
        fmt::format("torchtitan cuts a sequence into two parts for each context rank "
                    "and one for each tensor rank, and {} tokens are no multiple; use "
                    "another length",
                    job.batch.sequence)};
  }
  if (p.context > 1 && p.context_algorithm == ContextAlgorithm::kAllToAll) {
    return BrokenRule{"parallel.context_algorithm",
                      "torchtitan gathers keys and values or passes them around; use all_gather or "
                      "ring"};
  }
  return std::nullopt;
}

Broken broken_by_deepspeed(const Job& job) {
  const Parallel& p = job.parallel;
  if (p.pipeline > 1 && p.zero > 1) {
    return BrokenRule{"parallel.zero", fmt::format("found {}: DeepSpeed's pipeline shards the "
                                                   "optimizer at most; use 0 or 1",
                                                   p.zero)};
  }
  if (p.pipeline > 1 && p.schedule != ScheduleKind::kOneFOneB) {
    return BrokenRule{"parallel.schedule", "DeepSpeed runs 1f1b; use that"};
  }
  if (p.virtual_stages > 1) {
    return BrokenRule{"parallel.virtual_stages", "DeepSpeed does not interleave stages; use 1"};
  }
  if (p.tensor > 1 && p.zero == 3) {
    return BrokenRule{"parallel.zero", "DeepSpeed's tensor ranks go with ZeRO up to 2; use 2"};
  }
  if (p.sequence_parallel) {
    return BrokenRule{"parallel.sequence_parallel",
                      "DeepSpeed's tensor ranks hold whole sequences; use false"};
  }
  if (p.context > 1 && p.context_algorithm != ContextAlgorithm::kAllToAll) {
    return BrokenRule{"parallel.context_algorithm",
                      "DeepSpeed exchanges sequence parts for heads; use all_to_all"};
  }
  if (p.recompute.kind == RecomputeKind::kFirstLayers) {
    return BrokenRule{"parallel.recompute",
                      "DeepSpeed recomputes all layers alike; use none, selective or full"};
  }
  return std::nullopt;
}

}  // namespace

const char* name_of(TrainingFramework framework) {
  switch (framework) {
    case TrainingFramework::kMegatron:
      return "Megatron-LM";
    case TrainingFramework::kNemo:
      return "NeMo";
    case TrainingFramework::kTorchtitan:
      return "torchtitan";
    case TrainingFramework::kDeepspeed:
      break;
  }
  return "DeepSpeed";
}

std::optional<BrokenRule> broken_rule(const Job& job, TrainingFramework framework) {
  const TransformerWorkload* w = job.workload.transformer();
  if (w == nullptr) {
    return BrokenRule{"workload", fmt::format("{} trains transformers", name_of(framework))};
  }
  switch (framework) {
    case TrainingFramework::kMegatron:
    case TrainingFramework::kNemo:
      return broken_by_megatron(job, *w);
    case TrainingFramework::kTorchtitan:
      return broken_by_torchtitan(job, *w);
    case TrainingFramework::kDeepspeed:
      break;
  }
  return broken_by_deepspeed(job);
}

}  // namespace stepcast
