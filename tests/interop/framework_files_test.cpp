#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>

#include "interop/frameworks/configs.h"
#include "tests/interop/imports.h"
#include "tests/planner/parallel_jobs.h"

// Configuration files of training frameworks, read as jobs. Files are ours, keys are theirs.
namespace stepcast::interop {
namespace {

using Catch::Matchers::Contains;
using test::kLibrary;
using Overrides = std::vector<std::string>;

Job job_of(const std::string& text, Overrides overrides = {}) {
  overrides.insert(overrides.begin(), "system=dgx-h100");
  return config::load_job(config::text_source(text, "file"), overrides, kLibrary);
}

std::string error_of(const std::string& text, const Overrides& overrides = {}) {
  try {
    (void)job_of(text, overrides);
    return "accepted";
  } catch (const InputError& e) {
    return e.what();
  }
}

std::string approximated(const Job& job) {
  std::string all;
  for (const std::string& phrase : job.workload.transformer()->approximated) {
    all += phrase + "; ";
  }
  return all;
}

constexpr const char* kTitan = R"(
[job]
dump_folder = "./outputs"
[model]
name = "llama3"
flavor = "70B"
converters = ["float8"]
[optimizer]
name = "AdamW"
lr = 1.5e-4
[training]
local_batch_size = 8
seq_len = 8192
steps = 1000
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
enable_async_tensor_parallel = true
[compile]
enable = true
components = ["model"]
[activation_checkpoint]
mode = "full"
)";

TEST_CASE("a job is read from torchtitan's TOML", "[interop][frameworks]") {
  const Job job = job_of(kTitan, {"devices=256"});
  CHECK(job.workload.name == "llama3-70b");
  CHECK(job.parallel.tensor == 8);
  CHECK(job.parallel.data == 32);  // 256 / 8
  CHECK(job.parallel.zero == 3);
  CHECK(job.parallel.zero_reshard);
  CHECK(job.parallel.sequence_parallel);
  CHECK(job.parallel.overlap.tensor_products);
  CHECK(job.parallel.recompute.kind == RecomputeKind::kFull);
  CHECK(job.batch.micro == 8);
  CHECK(job.batch.global == 8 * 32);  // each replica's local batch
  CHECK(job.batch.sequence == 8192);
  CHECK(job.formats.compute == Format::kFp8);
  CHECK(job.loss.kind == LossKind::kEager);  // the loss is not among what is compiled
  CHECK(approximated(job).empty());
  // A machine, as neither the file nor the command says how many devices.
  CHECK_THAT(approximated(job_of(kTitan)), Contains("taken as 8"));
}

TEST_CASE("torchtitan's stages, old names and unknown keys are read", "[interop][frameworks]") {
  const Job staged = job_of(R"(
[model]
name = "deepseek_v3"
flavor = "671B"
[training]
local_batch_size = 16
dtype = "bfloat16"
some_count = 3
[parallelism]
pipeline_parallel_degree = 8
pipeline_parallel_schedule = "Interleaved1F1B"
expert_parallel_degree = 8
data_parallel_shard_degree = 8
)");
  CHECK(staged.devices == 64);
  CHECK(staged.parallel.virtual_stages == 2);
  CHECK(staged.parallel.expert == 8);
  CHECK_FALSE(staged.parallel.zero_reshard);  // its default keeps weights under a pipeline
  CHECK(staged.batch.micro == 1);
  CHECK(staged.batch.global == 16 * 8);
  CHECK(staged.formats.master == std::nullopt);
  CHECK_THAT(approximated(staged), Contains("training.some_count"));
  const Job old = job_of(R"(
[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 2
seq_len = 4096
data_parallel_replicate_degree = 2
data_parallel_shard_degree = 8
tensor_parallel_degree = 1
[experimental]
context_parallel_degree = 2
)");
  CHECK(old.devices == 32);
  CHECK(old.parallel.context == 2);
  CHECK(old.parallel.zero_level == "node");
}

TEST_CASE("torchtitan's schedules of a V are ours", "[interop][frameworks]") {
  for (const auto& [theirs, ours] : {std::pair{"ZBVZeroBubble", ScheduleKind::kZbV},
                                     std::pair{"DualPipeV", ScheduleKind::kDualPipeV}}) {
    const Job job = job_of(std::string("[model]\nname = \"llama3\"\nflavor = \"8B\"\n") +
                           "[training]\n[activation_checkpoint]\nmode = \"none\"\n" +
                           "[parallelism]\npipeline_parallel_degree = 8\n" +
                           "pipeline_parallel_schedule = \"" + theirs + "\"\n");
    CHECK(job.parallel.schedule == ours);
    CHECK(job.parallel.virtual_stages == 2);
    CHECK_THAT(approximated(job), !Contains("schedule"));
  }
}

TEST_CASE("errors of torchtitan's files name place and remedy", "[interop][frameworks]") {
  CHECK_THAT(error_of("[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n[training]\n"),
             Contains("model.flavor") && Contains("--set workload=NAME"));
  CHECK_THAT(error_of("[training]\nflavor =\n[model\n"), Contains("file:2"));
  const Job named =
      job_of("[model]\nflavor = \"mine\"\n[training]\nseq_len = 64\n", {"workload=qwen3-4b"});
  CHECK(named.workload.name == "qwen3-4b");
}

TEST_CASE("a job is read from DeepSpeed's JSON and a model", "[interop][frameworks]") {
  const std::string file = R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1,
      "gradient_accumulation_steps": 4, "bf16": {"enabled": true}, "steps_per_print": 10,
      "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8,
                            "offload_optimizer": {"device": "cpu", "pin_memory": true}}})";
  const Job job = job_of(file, {"workload=llama3-8b", "batch.sequence=4096"});
  CHECK(job.devices == 16);  // 64 / (1 x 4)
  CHECK(job.parallel.zero == 2);
  CHECK(job.parallel.bucket_elements == 500'000'000);
  CHECK(job.formats.compute == Format::kBf16);
  CHECK(job.formats.gradient == Format::kBf16);
  CHECK(job.offload.optimizer);
  CHECK(approximated(job).empty());
  CHECK_THAT(error_of(file), Contains("names no model; name one with --set workload=NAME"));
  // The batch tells the micro-batch: 64 over 8 devices in 2 steps.
  CHECK(
      job_of(
          R"({"train_batch_size": 64, "gradient_accumulation_steps": 2, "fp16": {"enabled": true}})",
          {"workload=llama3-8b", "devices=8"})
          .batch.micro == 4);
  const std::string automatic =
      R"({"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": "3"}})";
  CHECK(job_of(automatic, {"workload=llama3-8b", "devices=4"}).parallel.zero == 3);
}

constexpr const char* kAxolotl = R"(
base_model: NousResearch/Meta-Llama-3-8B
load_in_4bit: true
datasets:
  - path: mine
    type: alpaca
sequence_len: 4096
sample_packing: true
adapter: qlora
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 4
optimizer: paged_adamw_8bit
bf16: auto
gradient_checkpointing: true
flash_attention: true
warmup_steps: 10
)";

TEST_CASE("a job is read from a trainer's YAML", "[interop][frameworks]") {
  const Job job = job_of(kAxolotl, {"devices=4", "workload=llama3-8b"});
  REQUIRE(job.lora);
  CHECK(job.lora->rank == 32);
  CHECK(job.lora->dropout == Approx(0.05));
  CHECK(job.batch.global == 2 * 4 * 4);
  CHECK(job.batch.sequence == 4096);
  CHECK(job.parallel.recompute.kind == RecomputeKind::kFull);
  CHECK(job.formats.moments == Format::kInt8);
  CHECK_THAT(approximated(job), Contains("paged out") && !Contains("not read"));
  // TRL: all weights, sharded.
  const Job full = job_of(R"(
model_name_or_path: Qwen/Qwen3-8B
per_device_train_batch_size: 4
max_length: 2048
packing: true
fsdp: full_shard auto_wrap
num_processes: 8
)");
  CHECK(full.workload.name == "qwen3-8b");
  CHECK(full.parallel.zero == 3);
  CHECK_FALSE(full.lora);
  // LLaMA-Factory: a list of matrices as a text, and a file of DeepSpeed by its name.
  const Job factory = job_of(R"(
model_name_or_path: meta-llama/Llama-3.1-8B
finetuning_type: lora
lora_target: q_proj,v_proj
lora_rank: 16
cutoff_len: 2048
per_device_train_batch_size: 1
deepspeed: examples/deepspeed/ds_z3_offload_config.json
)");
  REQUIRE(factory.lora);
  CHECK(factory.parallel.zero == 3);
  CHECK(factory.offload.optimizer);
  CHECK(factory.parallel.recompute.kind == RecomputeKind::kFull);  // its own default
  CHECK_THAT(
      error_of("model_name_or_path: llama3-8b\nfinetuning_type: lora\nlora_target: banana\n"),
      Contains("lora_target") && Contains("q_proj"));
  CHECK_THAT(error_of("base_model: nobody/knows-this\nsequence_len: 64\n"),
             Contains("nobody/knows-this"));
}

TEST_CASE("words of trainers say how FSDP shards", "[interop][frameworks]") {
  const auto with = [](const std::string& more) {
    return job_of(
        "base_model: llama3-8b\nsequence_len: 512\nsample_packing: true\n"
        "micro_batch_size: 1\nnum_processes: 16\n" +
        more);
  };
  CHECK(with("fsdp: []\n").parallel.zero == 0);
  CHECK(with("fsdp: shard_grad_op auto_wrap\n").parallel.zero == 2);
  CHECK(with("fsdp_config:\n  fsdp_sharding_strategy: 2\n").parallel.zero == 2);
  CHECK(with("fsdp: [hybrid_shard, auto_wrap]\n").parallel.zero_level == "node");
  const Job second = with(
      "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: false\n"
      "  activation_checkpointing: true\n");
  CHECK(second.parallel.zero == 3);
  CHECK_FALSE(second.parallel.zero_reshard);
  CHECK(second.parallel.recompute.kind == RecomputeKind::kFull);
  CHECK(with("bf16: false\nfp16: false\n").formats.compute == Format::kFp32);
  CHECK(job_of("base_model: llama3-8b\nsequence_len: 512\ndp_shard_size: 4\ndp_replicate_size: 2\n"
               "tensor_parallel_size: 2\n")
            .devices == 16);
  CHECK_THAT(error_of("base_model: llama3-8b\nrl: dpo\n"), Contains("rl") && Contains("reference"));
}

TEST_CASE("a job is read from nanotron's YAML", "[interop][frameworks]") {
  const std::string file = R"(
general: {project: mine, seed: 42}
model:
  dtype: bfloat16
  model_config:
    hidden_act: silu
    hidden_size: 2048
    intermediate_size: 8192
    num_attention_heads: 32
    num_hidden_layers: 24
    num_key_value_heads: 32
    vocab_size: 49152
    tie_word_embeddings: true
optimizer: {zero_stage: 1, accumulate_grad_in_fp32: true}
parallelism: {dp: 8, tp: 2, pp: 2, pp_engine: 1f1b, tp_mode: REDUCE_SCATTER}
tokens: {sequence_length: 2048, micro_batch_size: 2, batch_accumulation_per_replica: 16}
)";
  const Job job = job_of(file);
  CHECK(job.devices == 32);
  CHECK(job.workload.transformer()->ffn_hidden == 8192);
  CHECK(job.parallel.pipeline == 2);
  CHECK(job.parallel.zero == 1);
  CHECK(job.parallel.sequence_parallel);
  CHECK(job.batch.global == 2 * 16 * 8);
  CHECK(approximated(job).empty());
  CHECK_THAT(error_of("model:\n  model_config:\n    hidden_size: 576\nparallelism:\n  dp: 64\n"),
             Contains("num_hidden_layers"));
}

TEST_CASE("a job is read from MaxText's YAML", "[interop][frameworks]") {
  const Job job = job_of(R"(
run_name: mine
base_emb_dim: 4096
base_num_query_heads: 32
base_num_kv_heads: 8
base_mlp_dim: 14336
base_num_decoder_layers: 32
head_dim: 128
mlp_activations: ["silu", "linear"]
vocab_size: 128256
per_device_batch_size: 4
max_target_length: 8192
ici_fsdp_parallelism: 16
ici_tensor_parallelism: 2
remat_policy: minimal
steps: 30
)");
  CHECK(job.devices == 32);
  CHECK(job.parallel.zero == 3);
  CHECK(job.batch.global == 4 * 32);
  CHECK(job.batch.micro == 8);  // 128 over 16 replicas
  CHECK(job.parallel.recompute.kind == RecomputeKind::kSelective);
  CHECK(approximated(job).empty());
  CHECK(job_of("model_name: llama3.1-405b\nper_device_batch_size: 1\nremat_policy: full\n",
               {"devices=1024"})
            .workload.name == "llama3-405b");
}

constexpr const char* kSizes = R"(
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  num_query_groups: 8
  seq_length: 8192
)";

TEST_CASE("a job is read from YAML around Megatron", "[interop][frameworks]") {
  const Job arguments = job_of(
      "ENV_VARS:\n  NCCL_IB_TIMEOUT: 19\nMODEL_ARGS:\n" +
          [] {
            std::string dashed;
            for (const char c : std::string(kSizes)) {
              dashed += c == '_' ? '-' : c;
            }
            for (std::size_t at = 0; (at = dashed.find("\n  ", at)) != std::string::npos; at += 5) {
              dashed.insert(at + 3, "--");
            }
            return dashed;
          }() +
          R"(
  --group-query-attention: true
  --swiglu: true
  --vocab-size: 128256
  --untie-embeddings-and-output-weights: true
  --attention-dropout: 0.0
  --hidden-dropout: 0.0
  --micro-batch-size: 1
  --global-batch-size: 128
  --tensor-model-parallel-size: 2
  --sequence-parallel: true
  --use-distributed-optimizer: true
  --recompute-activations: false
  --bf16: true
)",
      {"devices=16"});
  CHECK(arguments.workload.transformer()->kv_heads == 8);
  CHECK(arguments.parallel.tensor == 2);
  CHECK(arguments.parallel.zero == 1);
  CHECK(arguments.parallel.recompute.kind == RecomputeKind::kNone);
  // Texts over several lines, and lists of layers as dumps have them.
  const Job recipe = job_of(
      "DEPENDENCIES:\n  dockerfile: |\n    FROM image\n    RUN [ a ]: b\n"
      "ARGS:" +
          std::string(kSizes) + R"(  vocab_size: 128256
  swiglu: true
  num_experts: 8
  moe_layer_freq: [0, 0)" +
          [] {
            std::string ones;
            for (int layer = 2; layer < 32; ++layer) {
              ones += ", 1";
            }
            return ones;
          }() +
          R"(]
  attention_dropout: 0.0
  hidden_dropout: 0.0
  micro_batch_size: 1
  global_batch_size: 16
)",
      {"devices=8"});
  CHECK(recipe.workload.transformer()->has_experts(2));
  CHECK_FALSE(recipe.workload.transformer()->has_experts(1));
  CHECK_THAT(error_of("ARGS:\n  num_layers: 2\n  hidden_size: many\n"),
             Contains("file: --hidden-size") && !Contains(":2:"));
  const Job nemo = job_of("model:\n  _target_: some.Provider\n  gated_linear_unit: true\n" +
                              std::string(kSizes) + R"(  vocab_size: 128256
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: 4
  sequence_parallel: true
  recompute_granularity: null
train:
  micro_batch_size: 1
  global_batch_size: 64
ddp: {use_distributed_optimizer: true, overlap_grad_reduce: true, grad_reduce_in_fp32: false}
mixed_precision: bf16_mixed
)",
                          {"devices=32"});
  CHECK(nemo.parallel.virtual_stages == 4);
  CHECK(nemo.formats.gradient == Format::kBf16);
  CHECK(nemo.workload.transformer()->activation == Activation::kSwiGlu);
  CHECK(nemo.workload.transformer()->tied_embeddings);  // where the file does not say
  const Job first =
      job_of("trainer: {devices: 8, num_nodes: 2, precision: bf16}\nmodel:" + std::string(kSizes) +
             R"(  vocab_size: 128256
  encoder_seq_length: ${model.seq_length}
  activation: fast-swiglu
  micro_batch_size: 1
  global_batch_size: 64
  activations_checkpoint_granularity: full
  activations_checkpoint_method: uniform
  some_depth: 7
  optim: {name: distributed_fused_adam, overlap_grad_sync: true}
)");
  CHECK(first.devices == 16);
  CHECK(first.parallel.zero == 1);
  CHECK(first.parallel.overlap.data);
  CHECK(first.parallel.recompute.kind == RecomputeKind::kFull);
  CHECK_THAT(approximated(first), Contains("some_depth") && Contains("encoder_seq_length"));
}

/// Degrees and batch, which every framework's file has.
void check_same(const Job& plan, const Job& read) {
  CHECK(read.devices == plan.devices);
  CHECK(read.parallel.tensor == plan.parallel.tensor);
  CHECK(read.parallel.pipeline == plan.parallel.pipeline);
  CHECK(read.parallel.context == plan.parallel.context);
  CHECK(read.parallel.expert == plan.parallel.expert);
  CHECK(read.parallel.data == plan.parallel.data);
  CHECK(read.batch.global == plan.batch.global);
  CHECK(read.batch.micro == plan.batch.micro);
  CHECK(read.parallel.zero == plan.parallel.zero);
  CHECK(read.parallel.recompute.kind == plan.parallel.recompute.kind);
}

TEST_CASE("exported plans are read back as they were", "[interop][frameworks][property]") {
  std::mt19937 rng(42);
  int titan = 0, nemo = 0, deepspeed = 0;
  for (int i = 0; i < 3000 && (titan < 60 || nemo < 60 || deepspeed < 30); ++i) {
    Job job = planner::testing::random_job(rng);
    job.formats.compute = Format::kBf16;
    const auto point = planner::testing::random_point(job, rng);
    if (!point) {
      continue;
    }
    const Job plan = applied(job, *point);
    const std::string devices = fmt::format("devices={}", plan.devices);
    const std::string system = "system=" + config::system_to_json(plan.system, -1);
    const std::string workload = "workload=" + config::workload_to_json(plan.workload, -1);
    INFO(planner::describe(plan));
    const auto read = [&](const std::string& text, Overrides more) {
      more.insert(more.end(), {devices, system, workload});
      return config::load_job(config::text_source(text, "file"), more, kLibrary);
    };
    const Recompute& again = plan.parallel.recompute;  // torchtitan selects single ops
    const bool says =
        again.kind == RecomputeKind::kNone || again.kind == RecomputeKind::kFull ||
        (again.kind == RecomputeKind::kSelective && !plan.workload.transformer()->parallel_block);
    if (!broken_rule(plan, TrainingFramework::kTorchtitan) && plan.parallel.zero != 1 &&
        plan.parallel.zero != 2 && (plan.parallel.zero == 3 || plan.parallel.context == 1) &&
        says) {
      ++titan;
      const Job back = read(torchtitan_config(plan), {});
      check_same(plan, back);
      CHECK(back.parallel.zero_reshard == plan.parallel.zero_reshard);
      CHECK(back.parallel.virtual_stages == plan.parallel.virtual_stages);
    }
    if (!broken_rule(plan, TrainingFramework::kNemo)) {
      ++nemo;
      const Job back = read(nemo_config(plan), {});
      check_same(plan, back);
      CHECK(back.parallel.virtual_stages == plan.parallel.virtual_stages);
      CHECK(back.parallel.overlap.data == plan.parallel.overlap.data);
    }
    const Parallel& p = plan.parallel;
    if (!broken_rule(plan, TrainingFramework::kDeepspeed) && p.pipeline == 1 && p.expert == 1 &&
        p.recompute.kind == RecomputeKind::kNone) {
      ++deepspeed;
      check_same(plan, read(deepspeed_config(plan),
                            {fmt::format("batch.sequence={}", plan.batch.sequence)}));
    }
  }
  CHECK(titan >= 60);
  CHECK(nemo >= 60);
  CHECK(deepspeed >= 30);
}

}  // namespace
}  // namespace stepcast::interop
