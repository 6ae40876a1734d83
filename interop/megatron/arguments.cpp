#include "interop/megatron/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "core/job/layer_split.h"
#include "core/job_split.h"

namespace stepcast::interop {
namespace {

/// 0 or 1 for each layer as Megatron-LM's lists say it, "([0]*3+[1]*11)"; "" where all are 1.
template <class Is>
std::string layer_sum(const TransformerWorkload& m, const Is& is) {
  std::string text;
  for (std::int64_t i = 0; i < m.layers;) {
    const std::int64_t first = i;
    while (i < m.layers && is(i) == is(first)) {
      ++i;
    }
    if (first == 0 && i == m.layers && is(0)) {
      return "";
    }
    text += fmt::format("{}[{}]*{}", first == 0 ? "" : "+", is(first) ? 1 : 0, i - first);
  }
  return "(" + text + ")";
}

void add_model(const Job& job, std::vector<std::string>& a) {
  expect_written(job.workload);
  const TransformerWorkload& m = *job.workload.transformer();
  const auto number = [&a](const char* name, std::int64_t v) {
    a.push_back(fmt::format("--{} {}", name, v));
  };
  number("num-layers", m.layers);
  number("hidden-size", m.hidden);
  number("ffn-hidden-size", m.ffn_hidden);
  number("num-attention-heads", m.heads);
  if (m.mla) {
    a.emplace_back("--multi-latent-attention");
    if (m.mla->q_rank > 0) {
      number("q-lora-rank", m.mla->q_rank);
    }
    number("kv-lora-rank", m.mla->kv_rank);
    number("qk-pos-emb-head-dim", m.mla->rope_dim);
    number("qk-head-dim", m.mla->nope_dim);
    number("v-head-dim", m.mla->v_dim);
    if (m.sparse) {
      a.emplace_back("--experimental-attention-variant dsa");
      number("dsa-indexer-n-heads", m.sparse->index_heads);
      number("dsa-indexer-head-dim", m.sparse->index_head_dim);
      number("dsa-indexer-topk", m.sparse->top_k);
    }
  } else if (m.kv_heads != m.heads) {
    a.emplace_back("--group-query-attention");
    number("num-query-groups", m.kv_heads);
  }
  if (!m.mla && m.head_dim * m.heads != m.hidden) {
    number("kv-channels", m.head_dim);
  }
  if (m.moe) {
    number("num-experts", m.moe->experts);
    number("moe-router-topk", m.moe->per_token);
    number("moe-ffn-hidden-size", m.moe->ffn_hidden);
    if (m.moe->latent > 0) {
      number("moe-latent-size", m.moe->latent);
    }
    if (m.moe->groups > 1) {
      number("moe-router-num-groups", m.moe->groups);
      number("moe-router-group-topk", m.moe->groups_per_token);
    }
    if (m.moe->shared > 0) {
      number("moe-shared-expert-intermediate-size", m.moe->shared * m.moe->ffn_hidden);
    }
    const std::string experts = layer_sum(m, [&](std::int64_t i) { return m.has_experts(i); });
    if (!experts.empty()) {
      a.push_back(fmt::format("--moe-layer-freq \"{}\"", experts));
    }
    if (job.formats.compute != Format::kFp32 && job.formats.compute != Format::kTf32) {
      a.emplace_back("--moe-grouped-gemm");  // its own default: one expert after another
    }
    if (m.moe->capacity_factor > 0) {
      a.push_back(fmt::format("--moe-expert-capacity-factor {}", m.moe->capacity_factor));
    }
  }
  number("vocab-size", m.vocabulary);
  if (m.vocabulary % (128 * job.parallel.tensor) != 0) {  // Megatron-LM would pad to that
    number("make-vocab-size-divisible-by", 1);
  }
  number("seq-length", job.batch.sequence);
  number("max-position-embeddings", job.batch.sequence);
  if (m.window > 0) {
    a.push_back(fmt::format("--window-size {},0", m.window - 1));
    if (m.full_attention_every > 0) {
      number("window-attn-skip-freq", m.full_attention_every);
    } else if (const std::string windows =
                   layer_sum(m, [&](std::int64_t i) { return m.window_of(i) > 0; });
               !windows.empty()) {
      a.push_back(fmt::format("--window-attn-skip-freq \"{}\"", windows));
    }
  }
  if (m.activation == Activation::kSwiGlu) {
    a.emplace_back("--swiglu");
  } else if (m.activation == Activation::kSquaredRelu) {
    a.emplace_back("--squared-relu");
  }
  if (m.llama_style()) {
    a.emplace_back("--normalization RMSNorm");
    a.emplace_back("--position-embedding-type rope");
    a.emplace_back("--disable-bias-linear");
  }
  if (m.output_gate) {
    a.emplace_back("--attention-output-gate");
  }
  if (m.predictions > 0) {
    number("mtp-num-layers", m.predictions);
  }
  if (!m.tied_embeddings) {
    a.emplace_back("--untie-embeddings-and-output-weights");
  }
  if (!m.dropout) {  // its own default: a tenth of each
    a.emplace_back("--attention-dropout 0.0");
    a.emplace_back("--hidden-dropout 0.0");
  }
}

void add_details(const ModelDetails& d, MegatronArguments& out) {
  auto& a = out.arguments;
  out.knows_model = true;
  if (d.rotary_base) {
    a.push_back(fmt::format("--rotary-base {:.0f}", *d.rotary_base));
  }
  if (d.rotary_share && *d.rotary_share < 1) {
    a.push_back(fmt::format("--rotary-percent {}", *d.rotary_share));
  }
  if (d.rope_scaling == "llama3" && d.rope_factor) {
    a.emplace_back("--use-rope-scaling");
    a.push_back(fmt::format("--rope-scaling-factor {}", *d.rope_factor));
  } else if (!d.rope_scaling.empty()) {
    out.remarks.push_back(fmt::format("rope_scaling: {} is not written", d.rope_scaling));
  }
  if (d.norm_epsilon) {
    a.push_back(fmt::format("--norm-epsilon {}", *d.norm_epsilon));
  }
  if (d.qk_norms) {
    a.emplace_back("--qk-layernorm");
  }
  if (d.qkv_biases) {
    a.emplace_back("--add-qkv-bias");
  }
}

void add_recompute(const Job& job, MegatronArguments& out) {
  auto& a = out.arguments;
  const Recompute& r = job.parallel.recompute;
  switch (r.kind) {
    case RecomputeKind::kNone:
      break;
    case RecomputeKind::kSelective:
      a.emplace_back("--recompute-granularity selective");
      if (r.modules != RecomputeModules{}) {
        a.push_back(fmt::format("--recompute-modules {}", fmt::join(names_of(r.modules), " ")));
      }
      break;
    case RecomputeKind::kFull:
      a.emplace_back("--recompute-granularity full");
      a.emplace_back("--recompute-method uniform");
      a.emplace_back("--recompute-num-layers 1");
      break;
    case RecomputeKind::kFirstLayers:
      a.emplace_back("--recompute-granularity full");
      a.emplace_back("--recompute-method block");
      a.push_back(fmt::format("--recompute-num-layers {}", r.layers));
      if (job.parallel.virtual_stages > 1) {
        out.remarks.push_back(fmt::format(
            "recompute: the first {} layers of a whole stage; Megatron-LM counts them in every "
            "virtual stage",
            r.layers));
      }
      break;
  }
}

/// Streams that Megatron-LM runs kernels on start in the order of their launches with one
/// connection, which its tensor and context parallelism rely on; FSDP's gathers need several.
/// Blackwell and later take either. validate_args, megatron/training/arguments.py.
void add_environment(const Job& job, MegatronArguments& out) {
  const Parallel& p = job.parallel;
  if (p.zero >= 2) {
    out.environment.emplace_back("unset CUDA_DEVICE_MAX_CONNECTIONS");
  } else if (p.tensor > 1 || p.context > 1) {
    out.environment.emplace_back("export CUDA_DEVICE_MAX_CONNECTIONS=1");
  }
}

void add_pipeline_split(const Job& job, MegatronArguments& out) {
  const MegatronSplit split = megatron_split(job);
  if (!split.layout.empty()) {
    out.arguments.push_back(fmt::format("--pipeline-model-parallel-layout \"{}\"", split.layout));
    return;
  }
  if (job.parallel.virtual_stages > 1) {
    out.arguments.push_back(
        fmt::format("--num-virtual-stages-per-pipeline-rank {}", job.parallel.virtual_stages));
  }
  if (split.embedding) {
    out.arguments.emplace_back("--account-for-embedding-in-pipeline-split");
  }
  if (split.head) {
    out.arguments.emplace_back("--account-for-loss-in-pipeline-split");
  }
}

void number(std::vector<std::string>& arguments, const char* name, std::int64_t v) {
  arguments.push_back(fmt::format("--{} {}", name, v));
}

void add_degrees(const Job& job, MegatronArguments& out) {
  auto& a = out.arguments;
  const Parallel& p = job.parallel;
  number(a, "tensor-model-parallel-size", p.tensor);
  number(a, "pipeline-model-parallel-size", p.pipeline);
  if (p.context > 1) {
    number(a, "context-parallel-size", p.context);
    const ContextAlgorithm algorithm = context_algorithm(job);
    a.push_back(
        fmt::format("--cp-comm-type {}", algorithm == ContextAlgorithm::kAllGather  ? "all_gather"
                                         : algorithm == ContextAlgorithm::kAllToAll ? "a2a"
                                                                                    : "p2p"));
  }
  if (p.expert > 1) {
    number(a, "expert-model-parallel-size", p.expert);
  }
  if (p.pipeline > 1 && p.data > 1 && p.order != kPipelineOutside) {
    if (p.order == kUsualOrder) {
      a.emplace_back("--use-tp-pp-dp-mapping");
    } else {
      out.remarks.emplace_back("order: Megatron-LM numbers ranks tensor, context, data, pipeline");
    }
  }
  if (p.sequence_parallel && p.tensor > 1) {
    a.emplace_back("--sequence-parallel");
  }
}

void add_pipeline(const Job& job, MegatronArguments& out) {
  auto& a = out.arguments;
  const Parallel& p = job.parallel;
  if (p.pipeline > 1) {
    add_pipeline_split(job, out);
  }
  if (p.chunk_microbatches > 0) {
    number(a, "microbatch-group-size-per-virtual-pipeline-stage", p.chunk_microbatches);
  }
  if (p.virtual_stages > 1 && !p.overlap.pipeline) {
    a.emplace_back("--no-overlap-p2p-communication");
  }
  if (p.pipeline > 1 && p.schedule == ScheduleKind::kGpipe) {
    out.remarks.emplace_back(
        "schedule: Megatron-LM has no gpipe; it runs 1f1b, which is no slower");
  }
  if (const auto* model = job.workload.transformer(); model != nullptr && model->chunked) {
    out.remarks.push_back(
        "workload.chunked: Megatron-LM has no chunks; windows of as many tokens are slower");
  }
  if (p.pipeline > 1 && splits_weights(p.schedule)) {
    out.remarks.push_back(
        fmt::format("schedule: Megatron-LM has no {}; it runs 1f1b, whose bubble is longer",
                    name_of(p.schedule)));
  }
}

void add_expert_exchange(const Job& job, MegatronArguments& out) {
  auto& a = out.arguments;
  const Parallel& p = job.parallel;
  if (p.expert > 1 && p.expert_dispatch == ExpertDispatch::kPerMachine) {
    a.emplace_back("--moe-token-dispatcher-type flex");
    const bool hybrid = p.dispatcher == ExpertDispatcher::kHybridEp;
    a.push_back(fmt::format("--moe-flex-dispatcher-backend {}", hybrid ? "hybridep" : "deepep"));
    if (hybrid && p.fused_permutation) {
      a.emplace_back("--moe-permute-fusion");
    }
  } else if (job.workload.transformer()->moe) {  // its own default: allgather
    a.emplace_back("--moe-token-dispatcher-type alltoall");
  }
  if (p.expert > 1 && job.formats.expert_dispatch) {
    out.remarks.push_back(fmt::format("formats.expert_dispatch: no argument for tokens sent in {}",
                                      name_of(*job.formats.expert_dispatch)));
  }
  if (p.expert > 1 && p.expert_tensor > 0) {
    number(a, "expert-tensor-parallel-size", p.expert_tensor);
  }
}

void add_sharding(const Job& job, MegatronArguments& out) {
  auto& a = out.arguments;
  const Parallel& p = job.parallel;
  if (p.zero > 0 && !p.zero_level.empty()) {
    out.remarks.push_back(fmt::format(
        "zero: shards lie inside {}; in Megatron-LM --num-distributed-optimizer-instances says "
        "how many copies of them there are",
        p.zero_level));
  }
  if (p.zero == 1) {
    a.emplace_back("--use-distributed-optimizer");
  } else if (p.zero >= 2) {
    a.emplace_back("--use-distributed-optimizer");
    a.emplace_back("--use-megatron-fsdp");
    a.push_back(fmt::format("--data-parallel-sharding-strategy {}",
                            p.zero == 2 ? "optim_grads" : "optim_grads_params"));
    a.emplace_back("--ckpt-format fsdp_dtensor");
  }
  if (const auto elements = said_bucket(job)) {
    number(a, "ddp-bucket-size", *elements);
  }
}

void add_overlap(const Job& job, MegatronArguments& out) {
  auto& a = out.arguments;
  const Parallel& p = job.parallel;
  if (p.overlap.data) {
    a.emplace_back("--overlap-grad-reduce");
    if (p.zero > 0 && (p.overlap.parameters || p.zero == 3)) {
      a.emplace_back("--overlap-param-gather");
    }
  }
  if (p.overlap.expert && p.expert > 1) {
    const bool shares = job.workload.transformer()->moe->shared > 0;
    if (p.overlap.expert_batch) {
      a.emplace_back("--overlap-moe-expert-parallel-comm");
    } else if (p.expert_chunks > 1) {
      a.emplace_back("--overlap-moe-expert-parallel-comm");
      out.remarks.emplace_back(
          "expert_chunks: Megatron-LM overlaps exchanges with another micro-batch, not in parts");
    } else if (shares) {
      a.emplace_back("--moe-shared-expert-overlap");
    }
  }
  if (p.overlap.tensor && p.sequence_parallel) {
    a.emplace_back("--tp-comm-overlap");
    if (!p.overlap.tensor_products) {
      a.emplace_back("--disable-tp-comm-overlap-ag");
      a.emplace_back("--disable-tp-comm-overlap-rs");
    }
  }
}

void add_formats(const Job& job, MegatronArguments& out) {
  auto& a = out.arguments;
  switch (job.formats.compute) {
    case Format::kBf16:
      a.emplace_back("--bf16");
      break;
    case Format::kFp16:
      a.emplace_back("--fp16");
      break;
    case Format::kFp8:
      a.emplace_back("--bf16");
      a.emplace_back("--fp8-format hybrid");
      break;
    case Format::kMxfp8:
      a.emplace_back("--bf16");
      a.emplace_back("--fp8-format e4m3");
      a.emplace_back("--fp8-recipe mxfp8");
      break;
    case Format::kNvfp4:
      a.emplace_back("--bf16");
      a.emplace_back("--fp4-format e2m1");
      break;
    case Format::kFp32:
    case Format::kTf32:
      break;
    default:
      a.emplace_back("--bf16");
      out.remarks.push_back(fmt::format("formats.compute: no argument for {}; bf16 in its place",
                                        name_of(job.formats.compute)));
  }
  if (job.system.framework.fp8_attention) {
    a.emplace_back("--fp8-dot-product-attention");
  }
  if (job.formats.gradient == Format::kFp32 && job.formats.compute != Format::kFp32) {
    a.emplace_back("--accumulate-allreduce-grads-in-fp32");
  }
  if (job.formats.gradient == Format::kBf16) {
    a.emplace_back("--grad-reduce-in-bf16");
  }
  if (job.dense_optimizer == OptimizerKind::kSgd) {
    a.emplace_back("--optimizer sgd");
    a.emplace_back("--sgd-momentum 0");
  } else if (job.orthogonalises()) {
    a.emplace_back("--optimizer muon");
    a.push_back(fmt::format("--muon-tp-mode {}", name_of(job.muon.shards)));
    if (job.muon.iterations != Muon{}.iterations) {
      a.push_back(fmt::format("--muon-num-ns-steps {}", job.muon.iterations));
    }
  } else if (job.dense_optimizer != OptimizerKind::kAdam) {
    out.remarks.push_back(
        fmt::format("optimizer: Megatron-LM has no {}", name_of(job.dense_optimizer)));
  }
  if (job.graphs != Graphs::kNone) {
    a.emplace_back("--cuda-graph-impl local");
    if (job.graphs == Graphs::kFull) {
      a.emplace_back("--cuda-graph-scope full_iteration");
    }
  }
  // FlashAttention 2 has neither heads of two widths nor narrow products.
  const bool any = job.workload.transformer()->mla || job.system.framework.fp8_attention;
  a.push_back(fmt::format("--attention-backend {}", !job.flash_attention ? "unfused"
                                                    : any                ? "auto"
                                                                         : "flash"));
}

}  // namespace

void expect_written(const Workload& workload) {
  const auto& pattern = workload.transformer()->pattern;
  const auto whole = [](const BlockKind& kind) {
    return kind.attends() && kind.feed_forward != FeedForwardKind::kNone;
  };
  if (!std::all_of(pattern.begin(), pattern.end(), whole)) {
    throw InputError("workload",
                     fmt::format("{} has layers of one block or with a state, which stepcast reads "
                                 "from arguments of Megatron-LM but does not write",
                                 workload.name));
  }
}

std::optional<std::int64_t> said_bucket(const Job& job) {
  const Parallel& p = job.parallel;
  if (p.bucket_elements > 0) {
    return p.bucket_elements;
  }
  const double bytes = bits_per_element(job.formats.gradient) / 8;
  return p.bucket == Parallel{}.bucket
             ? std::nullopt
             : std::optional(static_cast<std::int64_t>(p.bucket.base() / bytes));
}

MegatronSplit megatron_split(const Job& job) {
  const Parallel& p = job.parallel;
  const std::int64_t layers = job.workload.transformer()->layers;
  const std::int64_t chunks = p.pipeline * p.virtual_stages;
  const std::vector<LayerRange> ranges = split_layers(layers, chunks, p.pipeline_split);
  const auto dealt_as = [&](const PipelineSplit& other) {
    const std::vector<LayerRange> theirs = split_layers(layers, chunks, other);
    return (layers + other.embedding + other.head) % chunks == 0 &&
           std::equal(ranges.begin(), ranges.end(), theirs.begin(),
                      [](const LayerRange& a, const LayerRange& b) { return a.count == b.count; });
  };
  for (const auto& [embedding, head] : {std::pair{0, 0}, {1, 0}, {0, 1}, {1, 1}}) {
    if (dealt_as({embedding, head, {}})) {
      return {.embedding = embedding > 0, .head = head > 0, .layout = {}};
    }
  }
  MegatronSplit split{.embedding = false, .head = false, .layout = "E"};
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    split.layout += i == 0 ? "" : "|";
    split.layout += ranges[i].count > 1   ? fmt::format("t*{}", ranges[i].count)
                    : ranges[i].count > 0 ? "t"
                                          : "";
  }
  split.layout +=
      std::string(static_cast<std::size_t>(job.workload.transformer()->predictions), 'm') + "L";
  return split;
}

MegatronArguments megatron_arguments(const Job& job) {
  STEPCAST_CHECK(job.workload.transformer() != nullptr, "'{}' is no transformer",
                 job.workload.name);
  MegatronArguments out;
  const std::int64_t each = std::min(job.devices, job.system.host.devices);
  if (job.devices % each == 0) {
    out.nodes = job.devices / each;
    out.devices_per_node = each;
  }
  add_environment(job, out);
  out.system = job.system.name;
  add_degrees(job, out);
  add_pipeline(job, out);
  add_expert_exchange(job, out);
  add_sharding(job, out);
  add_overlap(job, out);
  out.arguments.push_back(fmt::format("--micro-batch-size {}", job.batch.micro));
  out.arguments.push_back(fmt::format("--global-batch-size {}", job.batch.global));
  add_recompute(job, out);
  add_model(job, out.arguments);
  if (const auto& details = job.workload.transformer()->details) {
    add_details(*details, out);
  }
  add_formats(job, out);
  return out;
}

std::string text_of(const MegatronArguments& megatron) {
  std::string text = "#!/usr/bin/env bash\n";
  if (megatron.nodes > 0) {
    // Whole machines: one task alone would be given one core and a share of the memory.
    text += fmt::format(
        "#SBATCH --nodes={} --ntasks-per-node=1 --gpus-per-node={} --exclusive --mem=0\n",
        megatron.nodes, megatron.devices_per_node);
  }
  if (!megatron.system.empty()) {
    text += fmt::format("{}{}\n", kSystemComment, megatron.system);
  }
  text += "# Data, tokenizer, learning rate and checkpoints follow as arguments of this script";
  text += megatron.knows_model
              ? ".\n"
              : ";\n# so do --rotary-base, --norm-epsilon, --qk-layernorm, --add-qkv-bias of your "
                "model.\n";
  for (const std::string& remark : megatron.remarks) {
    text += "# " + remark + "\n";
  }
  for (const std::string& command : megatron.environment) {
    text += command + "\n";
  }
  text += "arguments=(\n";
  for (const std::string& argument : megatron.arguments) {
    text += "  " + argument + "\n";
  }
  text += ")\n";
  if (megatron.nodes > 0) {
    // Under Slurm one launcher on each machine, which meet at the first.
    text +=
        "if [[ -n \"${SLURM_JOB_NODELIST:-}\" ]]; then\n"
        "  export MASTER_ADDR=\"$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\"\n"
        "fi\n";
    text += fmt::format(
        "${{SLURM_JOB_ID:+srun}} torchrun --nnodes {} --nproc-per-node {} --rdzv-backend c10d "
        "--rdzv-endpoint \"${{MASTER_ADDR:-localhost}}:29500\" ",
        megatron.nodes, megatron.devices_per_node);
  }
  return text + "pretrain_gpt.py \"${arguments[@]}\" \"$@\"\n";
}

}  // namespace stepcast::interop
