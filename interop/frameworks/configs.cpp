#include "interop/frameworks/configs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "core/job/layer_split.h"
#include "core/job_split.h"
#include "interop/frameworks/torchtitan_flavors.h"
#include "interop/megatron/arguments.h"

namespace stepcast::interop {
namespace {

const TransformerWorkload& model_of(const Job& job) {
  STEPCAST_CHECK(job.workload.transformer() != nullptr, "'{}' is no transformer",
                 job.workload.name);
  return *job.workload.transformer();
}

struct Machines {
  std::int64_t count, devices;
};
Machines machines_of(const Job& job) {
  const std::int64_t each = std::min(job.devices, job.system.host.devices);
  return {(job.devices + each - 1) / each, each};
}

/// Replicas that share one set of shards; context ranks, which share it too, are counted apart.
std::int64_t sharded_over(const Job& job) {
  return job.parallel.zero == 0 ? 1 : shard_ranks(job) / job.parallel.context;
}

const char* yes(bool flag) { return flag ? "true" : "false"; }

/// Lines of YAML, indented by two spaces a level.
class Yaml {
 public:
  void line(int depth, const std::string& text) {
    text_ += std::string(static_cast<std::size_t>(2 * depth), ' ') + text + "\n";
  }
  void entry(int depth, const char* key, const auto& value) {
    line(depth, fmt::format("{}: {}", key, value));
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// The modules of every pipeline chunk, as torchtitan's names in brackets.
std::vector<std::string> module_parts(const Job& job) {
  const Parallel& p = job.parallel;
  std::vector<std::string> parts;
  const auto ranges =
      split_layers(model_of(job).layers, p.pipeline * p.virtual_stages, p.pipeline_split);
  for (const LayerRange& range : ranges) {
    std::vector<std::string> modules;
    if (parts.empty()) {
      modules.emplace_back("\"tok_embeddings\"");
    }
    for (std::int64_t layer = range.first; layer < range.first + range.count; ++layer) {
      modules.push_back(fmt::format("\"layers.{}\"", layer));
    }
    if (parts.size() + 1 == ranges.size()) {
      modules.emplace_back("\"norm\", \"output\"");
    }
    parts.push_back(fmt::format("[{}]", fmt::join(modules, ", ")));
  }
  return parts;
}

/// The section [model] of a torchtitan file; a model that is not registered is named by its own
/// name, with its widths for the flavor to add.
void add_titan_model(const Job& job, std::string& t) {
  const TransformerWorkload& m = model_of(job);
  const std::int64_t ffn = m.moe ? m.moe->ffn_hidden : m.ffn_hidden;
  const std::int64_t experts = m.moe ? m.moe->experts : 0;
  const auto* known =
      std::find_if(kTitanFlavors.begin(), kTitanFlavors.end(), [&](const TitanFlavor& f) {
        return f.layers == m.layers && f.hidden == m.hidden && f.ffn == ffn &&
               f.experts == experts && f.vocabulary == m.vocabulary;
      });
  const bool found = known != kTitanFlavors.end();
  const char* family = m.mla ? "deepseek_v3" : m.moe ? "qwen3" : "llama3";
  const auto said = [](const char* name, const std::optional<double>& value) {
    return value ? fmt::format(", {} {}", name, *value) : "";
  };
  if (!found) {
    t += fmt::format(
        "# flavor to add to torchtitan/models/{}/__init__.py: dim {}, n_layers {}, n_heads {}, "
        "n_kv_heads {}, head_dim {}, feed-forward {}, {}vocab_size {}{}\n",
        family, m.hidden, m.layers, m.heads, m.kv_heads, m.head_dim, ffn,
        m.moe ? fmt::format("experts {}, ", experts) : "", m.vocabulary,
        m.details ? fmt::format("{}{}{}", said("rope_theta", m.details->rotary_base),
                                said("norm_eps", m.details->norm_epsilon),
                                m.details->qk_norms ? ", qk_norm true" : "")
                  : "");
  }
  t += "[model]\n";
  t += fmt::format("name = \"{}\"\n", found ? known->model : family);
  t += fmt::format("flavor = \"{}\"\n", found ? known->flavor : job.workload.name);
}

/// The section [parallelism] of a torchtitan file.
void add_titan_parallelism(const Job& job, std::string& t) {
  const Parallel& p = job.parallel;
  const std::int64_t shards = sharded_over(job);
  const auto line = [&t](const std::string& text) { t += text + "\n"; };
  line("\n[parallelism]");
  line(fmt::format("data_parallel_replicate_degree = {}", p.data / shards));
  line(fmt::format("data_parallel_shard_degree = {}", shards));
  line(fmt::format("fsdp_reshard_after_forward = \"{}\"", p.zero_reshard ? "always" : "never"));
  line(fmt::format("tensor_parallel_degree = {}", p.tensor));
  line(fmt::format("enable_async_tensor_parallel = {}",
                   yes(p.overlap.tensor && p.overlap.tensor_products)));
  line(fmt::format("context_parallel_degree = {}", p.context));
  if (p.context > 1) {
    const bool gathers = context_algorithm(job) == ContextAlgorithm::kAllGather;
    line(
        fmt::format("context_parallel_rotate_method = \"{}\"", gathers ? "allgather" : "alltoall"));
  }
  line(fmt::format("expert_parallel_degree = {}", p.expert));
  if (p.expert > 1) {
    line(fmt::format("expert_tensor_parallel_degree = {}", p.expert_split().tensor));
  }
  line(fmt::format("pipeline_parallel_degree = {}", p.pipeline));
  if (p.pipeline > 1) {
    const char* schedule = p.schedule == ScheduleKind::kGpipe ? "GPipe"
                           : p.virtual_stages > 1             ? "Interleaved1F1B"
                                                              : "1F1B";
    line(fmt::format("pipeline_parallel_schedule = \"{}\"", schedule));
    line(fmt::format("pipeline_parallel_microbatch_size = {}", job.batch.micro));
    line(fmt::format("module_fqns_per_model_part = [{}]", fmt::join(module_parts(job), ", ")));
  }
}

/// The section "model" of a NeMo recipe.
void add_nemo_model(const Job& job, Yaml& y) {
  const TransformerWorkload& m = model_of(job);
  const Parallel& p = job.parallel;
  y.line(0, "model:");
  y.line(1, "config:");
  y.entry(2, "num_layers", m.layers);
  y.entry(2, "hidden_size", m.hidden);
  y.entry(2, "ffn_hidden_size", m.ffn_hidden);
  y.entry(2, "num_attention_heads", m.heads);
  if (!m.mla) {
    y.entry(2, "num_query_groups", m.kv_heads);
    y.entry(2, "kv_channels", m.head_dim);
  }
  if (m.moe) {
    y.entry(2, "num_moe_experts", m.moe->experts);
    y.entry(2, "moe_router_topk", m.moe->per_token);
    y.entry(2, "moe_ffn_hidden_size", m.moe->ffn_hidden);
    if (m.moe->latent > 0) {
      y.entry(2, "moe_latent_size", m.moe->latent);
    }
    y.entry(2, "moe_grouped_gemm", "true");
    y.entry(2, "moe_token_dispatcher_type",
            p.expert_dispatch == ExpertDispatch::kPerMachine ? "flex" : "alltoall");
  }
  y.entry(2, "tp_comm_overlap", yes(p.overlap.tensor && p.sequence_parallel));
  const Recompute& r = p.recompute;
  y.entry(2, "recompute_granularity",
          r.kind == RecomputeKind::kNone        ? "null"
          : r.kind == RecomputeKind::kSelective ? "selective"
                                                : "full");
  if (r.kind == RecomputeKind::kSelective && r.modules != RecomputeModules{}) {
    y.entry(2, "recompute_modules", fmt::format("[{}]", fmt::join(names_of(r.modules), ", ")));
  }
  if (r.kind == RecomputeKind::kFull || r.kind == RecomputeKind::kFirstLayers) {
    const bool all = r.kind == RecomputeKind::kFull;
    y.entry(2, "recompute_method", all ? "uniform" : "block");
    y.entry(2, "recompute_num_layers", all ? 1 : r.layers);
  }
}

}  // namespace

std::string torchtitan_config(const Job& job) {
  const Parallel& p = job.parallel;
  const Machines machines = machines_of(job);
  std::string t;
  const auto line = [&t](const std::string& text) { t += text + "\n"; };
  line(fmt::format(
      "# torchrun --nnodes {} --nproc-per-node {}{} -m torchtitan.train "
      "--job.config_file=FILE",
      machines.count, machines.devices,
      machines.count > 1 ? " --rdzv-backend c10d --rdzv-endpoint FIRST_HOST:29500" : ""));
  if (job.formats.gradient != Format::kFp32) {
    line("# formats.gradient: torchtitan reduces gradients in float32");
  }
  if (job.system.framework.fp8_attention) {
    line("# formats.attention: torchtitan has no attention in fp8");
  }
  if (job.orthogonalises()) {
    line("# optimizer: torchtitan has no muon");
  }
  add_titan_model(job, t);
  if (job.formats.compute == Format::kFp8) {
    line("converters = [\"float8\"]");
  } else if (job.formats.compute == Format::kMxfp8) {
    line("converters = [\"mx\"]");
  }
  line("\n[training]");
  // A pipeline cuts the local batch into micro-batches; otherwise gradients are accumulated.
  const std::int64_t local =
      p.pipeline > 1 ? job.batch.micro * job.microbatches() : job.batch.micro;
  line(fmt::format("local_batch_size = {}", local));
  line(fmt::format("global_batch_size = {}", job.batch.global));
  line(fmt::format("seq_len = {}", job.batch.sequence));
  line(fmt::format("mixed_precision_param = \"{}\"",
                   full_precision(job.formats.compute) ? "float32" : "bfloat16"));
  add_titan_parallelism(job, t);
  line("\n[compile]");  // asynchronous tensor parallelism is a pass of the compiler
  line("enable = true");
  if (job.loss.kind == LossKind::kEager) {
    line("components = [\"model\"]");  // its default: the loss too
  }
  line("\n[activation_checkpoint]");
  const char* mode = p.recompute.kind == RecomputeKind::kNone        ? "none"
                     : p.recompute.kind == RecomputeKind::kSelective ? "selective"
                                                                     : "full";
  line(fmt::format("mode = \"{}\"", mode));
  if (p.recompute.kind == RecomputeKind::kSelective) {
    line("selective_ac_option = \"op\"");
  }
  return t;
}

std::string deepspeed_config(const Job& job) {
  (void)model_of(job);
  const Parallel& p = job.parallel;
  const Machines machines = machines_of(job);
  std::vector<std::string> keys;
  const auto entry = [&keys](const char* key, const auto& value) {
    keys.push_back(fmt::format("  \"{}\": {}", key, value));
  };
  std::vector<std::string> left;
  entry("train_batch_size", job.batch.global);
  entry("train_micro_batch_size_per_gpu", job.batch.micro);
  entry("gradient_accumulation_steps", job.microbatches());
  const bool wide = full_precision(job.formats.compute);
  if (job.orthogonalises()) {
    entry("optimizer", "{\"type\": \"Muon\"}");
  }
  if (!wide) {
    entry(job.formats.compute == Format::kFp16 ? "fp16" : "bf16", "{\"enabled\": true}");
  }
  std::string zero =
      fmt::format("\"stage\": {}, \"overlap_comm\": {}", p.zero, yes(p.overlap.data));
  if (const auto elements = said_bucket(job)) {
    zero += fmt::format(", \"reduce_bucket_size\": {}", *elements);
  }
  if (p.zero == 3 && !p.zero_level.empty()) {
    // ZeRO++ keeps a second copy of weights inside; gradients and optimizer stay sharded over all.
    zero += fmt::format(", \"zero_hpz_partition_size\": {}", sharded_over(job));
    left.emplace_back("shards inside a level: of weights alone (zero_hpz_partition_size)");
  }
  entry("zero_optimization", "{" + zero + "}");
  // By default gradients travel in the format of the weights.
  if (full_precision(job.formats.gradient) != wide) {
    entry("communication_data_type", fmt::format("\"{}\"", name_of(job.formats.gradient)));
  }
  if (p.tensor > 1) {
    entry("tensor_parallel", fmt::format("{{\"autotp_size\": {}}}", p.tensor));
  }
  if (p.context > 1) {
    entry("sequence_parallel_size", p.context);
  }
  if (p.zero == 3 && !p.zero_reshard) {
    left.emplace_back("weights stay gathered between the passes: DeepSpeed frees them");
  }
  if (p.pipeline > 1) {
    left.push_back(fmt::format("pipeline: PipelineModule(num_stages={})", p.pipeline));
  }
  if (p.expert > 1) {
    left.push_back(fmt::format("experts: MoE(ep_size={})", p.expert));
  }
  if (p.recompute.kind != RecomputeKind::kNone) {
    left.emplace_back("recomputation: gradient checkpointing of the model");
  }
  for (std::string& text : left) {
    text = "\"" + text + "\"";
  }
  entry("stepcast", fmt::format("{{\"launch\": \"deepspeed --num_nodes {} --num_gpus {} TRAIN.py "
                                "--deepspeed_config FILE\", \"in_the_program\": [{}]}}",
                                machines.count, machines.devices, fmt::join(left, ", ")));
  return fmt::format("{{\n{}\n}}\n", fmt::join(keys, ",\n"));
}

std::string nemo_config(const Job& job) {
  const Parallel& p = job.parallel;
  const Machines machines = machines_of(job);
  Yaml y;
  y.line(0, "# nemo llm pretrain --factory RECIPE --yaml FILE");
  y.line(0, "trainer:");
  y.entry(1, "num_nodes", machines.count);
  y.entry(1, "devices", machines.devices);
  y.line(1, "strategy:");
  y.entry(2, "tensor_model_parallel_size", p.tensor);
  y.entry(2, "pipeline_model_parallel_size", p.pipeline);
  if (p.pipeline > 1) {
    y.entry(2, "pipeline_dtype",
            full_precision(job.formats.compute)    ? "torch.float32"
            : job.formats.compute == Format::kFp16 ? "torch.float16"
                                                   : "torch.bfloat16");
  }
  y.entry(2, "virtual_pipeline_model_parallel_size",
          p.virtual_stages > 1 ? fmt::format("{}", p.virtual_stages) : "null");
  if (p.chunk_microbatches > 0) {
    y.entry(2, "microbatch_group_size_per_vp_stage", p.chunk_microbatches);
  }
  const MegatronSplit split = megatron_split(job);
  if (!split.layout.empty()) {
    y.entry(2, "pipeline_model_parallel_layout", fmt::format("\"{}\"", split.layout));
  } else if (split.embedding || split.head) {
    y.entry(2, "account_for_embedding_in_pipeline_split", yes(split.embedding));
    y.entry(2, "account_for_loss_in_pipeline_split", yes(split.head));
  }
  y.entry(2, "context_parallel_size", p.context);
  y.entry(2, "expert_model_parallel_size", p.expert);
  y.entry(2, "expert_tensor_parallel_size", p.expert_split().tensor);
  y.entry(2, "sequence_parallel", yes(p.sequence_parallel && p.tensor > 1));
  y.line(2, "ddp:");
  y.entry(3, "use_distributed_optimizer", yes(p.zero > 0));
  if (p.zero >= 2) {
    y.entry(3, "use_megatron_fsdp", "true");
    y.entry(3, "data_parallel_sharding_strategy",
            p.zero == 2 ? "optim_grads" : "optim_grads_params");
  }
  y.entry(3, "overlap_grad_reduce", yes(p.overlap.data));
  y.entry(3, "overlap_param_gather",
          yes(p.zero > 0 && p.overlap.data && (p.overlap.parameters || p.zero == 3)));
  y.entry(3, "grad_reduce_in_fp32", yes(job.formats.gradient == Format::kFp32));
  if (const auto elements = said_bucket(job)) {
    y.entry(3, "bucket_size", *elements);
  }
  y.line(1, "plugins:");
  y.entry(2, "precision",
          full_precision(job.formats.compute)    ? "32"
          : job.formats.compute == Format::kFp16 ? "16-mixed"
                                                 : "bf16-mixed");
  if (job.formats.compute == Format::kFp8) {
    y.entry(2, "fp8", "hybrid");
  } else if (job.formats.compute == Format::kMxfp8) {
    y.entry(2, "fp8", "e4m3");
    y.entry(2, "fp8_recipe", "mxfp8");
  } else if (job.formats.compute == Format::kNvfp4) {
    y.entry(2, "fp4", "e2m1");
  }
  if (job.system.framework.fp8_attention) {
    y.entry(2, "fp8_dot_product_attention", "true");
  }
  if (job.orthogonalises()) {
    y.line(0, "# optimizer: muon, by a MegatronMuonOptimizer of your own");
  }
  y.line(0, "data:");
  y.entry(1, "micro_batch_size", job.batch.micro);
  y.entry(1, "global_batch_size", job.batch.global);
  y.entry(1, "seq_length", job.batch.sequence);
  add_nemo_model(job, y);
  return y.text();
}

}  // namespace stepcast::interop
