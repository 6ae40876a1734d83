#include <algorithm>
#include <array>
#include <string>

#include "core/lower.h"
#include "interop/megatron/option_table.h"

namespace stepcast::interop {
namespace {

struct Row {
  std::string_view name;  ///< ends in '*': all options that begin so
  OptionEffect effect = OptionEffect::kNone;
  std::string_view note{};
  std::string_view idle{};  ///< the value with which it is as if it were not given
};

constexpr OptionEffect kLeftOut = OptionEffect::kLeftOut;
constexpr OptionEffect kOtherStep = OptionEffect::kOtherStep;

/// The first row that fits counts.
constexpr auto kRows = std::to_array<Row>({
    // Another model, or another kind of step.
    {"bert-*", kOtherStep, "a BERT"},
    {"encoder-*", kOtherStep, "an encoder and a decoder (T5)"},
    {"decoder-num-layers", kOtherStep, "an encoder and a decoder (T5)"},
    {"decoder-seq-length", kOtherStep, "an encoder and a decoder (T5)"},
    {"is-hybrid-model"},
    {"hybrid-override-pattern"},
    {"hybrid-layer-pattern"},
    {"hybrid-*", kOtherStep, "a hybrid without the order of its layers"},
    {"mtp-hybrid-override-pattern", kLeftOut,
     "layers of multi-token prediction (as the last layer)"},
    {"experimental-attention-variant", kOtherStep, "layers of linear attention", "dsa"},
    {"dsa-*"},
    {"linear-*", kOtherStep, "layers of linear attention"},
    {"heterogeneous-layers-*", kOtherStep, "layers of different shapes"},
    {"perform-rl-step", kOtherStep, "a policy that also generates text"},
    {"export-kd-*", kOtherStep, "distillation: a student and its teacher"},
    {"vision-*", kOtherStep, "an encoder of pictures"},
    {"retro-*", kOtherStep, "a model that reads retrieved text"},

    // Costs something that a job has no key for.
    {"deterministic-mode", kLeftOut, "deterministic kernels (slower)"},
    {"no-gradient-accumulation-fusion", kLeftOut,
     "weight gradients summed up by kernels of their own (slower)"},
    {"no-masked-softmax-fusion", kLeftOut, "softmax by unfused kernels (slower)"},
    {"no-bias-*", kLeftOut, "biases and activations by unfused kernels (slower)"},
    {"no-rope-fusion", kLeftOut, "rotary positions by unfused kernels (slower)"},
    {"no-persist-layer-norm", kLeftOut, "norms by kernels that are not persistent (slower)"},
    {"use-transformer-engine-op-fuser", kLeftOut, "fused layers of Transformer Engine (faster)"},
    {"cuda-graph-*"},
    {"mtp-*"},
    {"qk-layernorm", kLeftOut, "norms of queries and keys (slightly slower)"},
    {"qk-l2-norm", kLeftOut, "norms of queries and keys (slightly slower)"},
    {"moe-shared-expert-gate", kLeftOut, "a gate on the shared experts (slightly slower)"},
    {"softmax-type", kLeftOut, "sinks of attention (slightly slower)", "vanilla"},
    {"first-last-layers-bf16", kLeftOut, "the first and last layers in bf16 (slower)"},
    {"num-layers-at-start-in-bf16", kLeftOut, "the first layers in bf16 (slower)"},
    {"num-layers-at-end-in-bf16", kLeftOut, "the last layers in bf16 (slower)"},
    {"te-precision-config-file", kLeftOut, "formats of single layers"},
    {"fp8-param-gather", kLeftOut, "parameters gathered in fp8 (half of the bytes)"},
    {"fp4-param-gather", kLeftOut, "parameters gathered in fp4 (a quarter of the bytes)"},
    {"reuse-grad-buf-for-mxfp8-param-ag", kLeftOut, "a gradient buffer used twice (less memory)"},
    {"use-precision-aware-optimizer", kLeftOut, "narrow optimizer states (less memory)"},
    {"main-grads-dtype", kLeftOut, "the format of the optimizer's gradients (less memory)", "fp32"},
    {"megatron-fsdp-main-params-dtype", kLeftOut, "the format of the optimizer's weights", "fp32"},
    {"megatron-fsdp-main-grads-dtype", kLeftOut, "the format of the optimizer's gradients", "fp32"},
    {"megatron-fsdp-grad-comm-dtype", kLeftOut, "the format in which gradients travel"},
    {"optimizer-offload-fraction", kLeftOut, "a part of the optimizer left on the device", "1.0"},
    {"overlap-cpu-optimizer-d2h-h2d"},
    {"cpu-offloading*", kLeftOut, "activations moved to the host (less memory, copies over PCIe)"},
    {"offload-modules", kLeftOut, "some modules alone offloaded (all are)"},
    {"delay-wgrad-compute", kLeftOut, "weight gradients computed later (hides exchanges)"},
    {"overlap-p2p-communication-warmup-flush", kLeftOut,
     "messages hidden while the pipeline fills and drains (faster)"},
    {"zero-bubble-pipeline-timers-*"},
    {"zero-bubble-adaptive-memory-limit-percentile"},
    {"enable-zb-runtime"},
    {"enable-optimizer-post-validation"},
    {"allow-padding-num-layers"},
    {"overlap-param-gather-with-optimizer-step", kLeftOut,
     "parameters gathered while the optimizer works (faster)"},
    {"num-distributed-optimizer-instances", kLeftOut,
     "several copies of the optimizer's shards (more memory, shorter gathers)", "1"},
    {"outer-dp-sharding-strategy"},
    {"hierarchical-context-parallel-sizes"},
    {"variable-seq-lengths", kLeftOut, "sequences of different lengths"},
    {"sft", kLeftOut, "packed sequences of different lengths (less attention)"},
    {"reset-attention-mask", kLeftOut, "attention inside documents only (less attention)"},

    // The step is the same.
    {"seed"},
    {"split"},
    {"save*"},
    {"load"},
    {"bf16"},
    {"clip-grad"},
    {"weight-decay*"},
    {"start-weight*"},
    {"end-weight*"},
    {"num-workers"},
    {"train-*"},
    {"valid-*"},
    {"test-*"},
    {"exit-*"},
    {"init-method-*"},
    {"use-cpu-initialization"},
    {"no-initialization"},
    {"norm-epsilon"},
    {"layernorm-epsilon"},
    {"normalization"},
    {"position-embedding-type"},
    {"use-rotary-position-embeddings"},
    {"use-rope-scaling"},
    {"rope-*"},
    {"rotary-*"},
    {"no-rope*"},
    {"mrope-*"},
    {"mscale*"},
    {"apply-layernorm-1p"},
    {"apply-query-key-layer-scaling"},
    {"apply-wd-to-qk-layernorm"},
    {"attention-softmax-in-fp32"},
    {"disable-bias-linear"},
    {"add-bias-linear"},
    {"add-qkv-bias"},
    {"max-position-embeddings"},
    {"vocab-file"},
    {"merge-file"},
    {"vocab-extra-ids"},
    {"tokenizer-*"},
    {"tiktoken-*"},
    {"no-use-tokenizer-model-from-checkpoint-args"},
    {"use-mcore-models"},
    {"use-legacy-models"},
    {"use-mup"},
    {"mup-*"},
    {"transformer-impl"},
    {"spec"},
    {"export-te-mcore-model"},
    {"use-flash-attn"},
    {"distributed-*"},
    {"disable-gloo-process-groups"},
    {"high-priority-stream-groups"},
    {"nccl-*"},
    {"use-nccl-ub"},
    {"local-rank"},
    {"master-addr"},
    {"master-port"},
    {"node-rank"},
    {"rdzv-*"},
    {"max-restarts"},
    {"manual-gc*"},
    {"mock-data"},
    {"data-args-path"},
    {"data-cache-path"},
    {"data-parallel-random-init"},
    {"data-path"},
    {"data-sharding"},
    {"per-split-data-args-path"},
    {"dataloader-*"},
    {"no-create-attention*"},
    {"create-attention-mask-in-dataloader"},
    {"no-mmap*"},
    {"override-opt*"},
    {"use-checkpoint*"},
    {"use-persistent-ckpt-worker"},
    {"use-dist-ckpt"},
    {"auto-detect-ckpt-format"},
    {"ckpt-*"},
    {"no-ckpt*"},
    {"dist-ckpt*"},
    {"non-persistent-*"},
    {"async-*"},
    {"finetune"},
    {"pretrained-checkpoint"},
    {"verify-integrity"},
    {"no-load-*"},
    {"no-save-*"},
    {"empty-unused-memory-level"},
    {"group-query-attention"},
    {"initial-loss-scale"},
    {"min-loss-scale"},
    {"loss-scale*"},
    {"hysteresis"},
    {"overlap-p2p-communication"},
    {"overlap-p2p-comm"},
    {"cross-entropy-*"},
    {"calculate-per-token-loss"},
    {"eod-mask-loss"},
    {"reset-position-ids"},
    {"moe-grouped-gemm"},
    {"moe-permute-fusion"},
    {"moe-use-legacy-grouped-gemm"},
    {"moe-deepep-num-sms"},
    {"moe-hybridep-num-sms"},
    {"moe-z-loss-coeff"},
    {"moe-aux-loss-coeff"},
    {"moe-input-jitter-eps"},
    {"moe-router-*"},
    {"moe-per-layer-logging"},
    {"moe-pad-experts-for-cuda-graph-inference"},
    {"use-fused-weighted-squared-relu"},
    {"no-async-tensor-model-parallel-allreduce"},
    {"fp8-amax-*"},
    {"fp8-margin"},
    {"fp8-interval"},
    {"fp4-recipe"},
    {"ddp-*"},
    {"te-rng-tracker"},
    {"enable-experimental"},
    {"enable-msc"},
    {"enable-ft-package"},
    {"enable-one-logger"},
    {"no-one-logger"},
    {"one-logger-*"},
    {"app-tag-*"},
    {"adam-*"},
    {"muon-*"},
    {"no-use-layer-wise-param-layout"},
    {"lr*"},
    {"min-lr"},
    {"decoupled-*"},
    {"log-*"},
    {"logging-level"},
    {"tensorboard-*"},
    {"wandb-*"},
    {"eval-*"},
    {"timing-*"},
    {"profile*"},
    {"use-pytorch-profiler"},
    {"nvtx-ranges"},
    {"record-memory-history"},
    {"memory-snapshot-path"},
    {"straggler-*"},
    {"log-straggler"},
    {"check-*"},
    {"no-check-*"},
    {"rerun-*"},
    {"error-injection-*"},
    {"result-rejected-tracker-filename"},
    {"max-tokens-to-oom"},
    {"inference-*"},
    {"rl-*"},
    {"grpo-*"},
    {"langrl-*"},
    {"refit-method"},
    {"tp-comm-overlap-*"},
    {"config-logger-dir"},
    {"kill-switch-file"},
});

bool fits(std::string_view name, std::string_view pattern) {
  return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1))
                                : name == pattern;
}

struct Tokenizer {
  std::string_view word;  ///< in its name, in small letters
  long entries;
};
/// The first whose word is in the name counts.
constexpr auto kTokenizers = std::to_array<Tokenizer>({
    {"nemotron_2_256k", 256'000},          // nvidia/Nemotron-4-340B-Base
    {"gpt4o_nc_sd.500000.128k", 131'072},  // nvidia/Mistral-NeMo-Minitron-8B-Base
    {"nemo-minitron", 131'072},
    {"mistral-nemo", 131'072},
    {"deepseek-v3", 129'280},
    {"deepseek-v2", 102'400},
    {"llama-4", 202'048},
    {"llama-3", 128'256},
    {"llama3", 128'256},
    {"llama-2", 32'000},
    {"llama2", 32'000},
    {"mixtral-8x22b", 32'768},
    {"mixtral", 32'000},
    {"mistral-7b-v0.1", 32'000},
    {"qwen3", 151'936},
    {"qwen2", 151'936},
    {"gpt-oss", 201'088},
    {"gemma", 256'000},
    {"gpt2bpe", 50'257},
    {"gpt2", 50'257},
    {"openai-community/gpt2", 50'257},
});

}  // namespace

std::optional<MegatronOption> megatron_option(std::string_view name, std::string_view value) {
  const auto* row =
      std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return fits(name, r.name); });
  return row == kRows.end() ? std::nullopt
         : row->idle.empty() || row->idle != value
             ? std::optional(MegatronOption{row->effect, row->note})
             : std::optional(MegatronOption{});
}

std::vector<std::string_view> megatron_option_names() {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) {
    if (!row.name.ends_with('*')) {
      names.push_back(row.name);
    }
  }
  return names;
}

std::optional<long> tokenizer_size(std::string_view type, std::string_view model, bool files) {
  const std::string name = lower(std::string(type) + " " + std::string(model));
  for (const Tokenizer& t : kTokenizers) {
    if (name.find(t.word) != std::string::npos) {
      return t.entries;
    }
  }
  return type.empty() && files ? tokenizer_size("gpt2bpe", "", false) : std::nullopt;
}

}  // namespace stepcast::interop
