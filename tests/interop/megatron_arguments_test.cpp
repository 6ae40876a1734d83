#include "interop/megatron/arguments.h"

#include <catch2/catch.hpp>

#include "core/config/config.h"
#include "interop/import.h"
#include "tests/interop/imports.h"
#include "tests/planner/parallel_jobs.h"
#include "workloads/transformer/shape.h"

namespace stepcast::interop {
namespace {

using test::kLibrary;

TEST_CASE("a job written as Megatron-LM's arguments is read back as it was",
          "[interop][megatron]") {
  const std::string more =
      GENERATE("attention=unfused", "optimizer=sgd", "optimizer=muon",
               R"(optimizer={"dense": "muon", "iterations": 8, "shards": "layer_sharded"})",
               "formats.gradient=bf16", "formats.compute=fp16", "formats.compute=fp8",
               "parallel.zero=1", "parallel.zero=2", "parallel.zero=3", "parallel.recompute=full",
               "parallel.context=2", R"(parallel.recompute={"modules": ["layernorm", "mlp"]})",
               R"(parallel={"tensor": 2, "context": 2, "context_algorithm": "all_to_all"})");
  CAPTURE(more);
  const std::string system = "system=dgx-h100";
  const Job job =
      config::load_job(config::text_source("{}", "test"),
                       {"workload=megatron-8.3b", system, "batch.global=16", "batch.micro=1",
                        "batch.sequence=1024", "devices=8", "parallel.tensor=2", more},
                       kLibrary);
  const Job again = config::load_job(
      config::text_source(text_of(megatron_arguments(job)), "arguments"), {system}, kLibrary);
  CHECK(again.flash_attention == job.flash_attention);
  CHECK(again.dense_optimizer == job.dense_optimizer);
  CHECK(again.muon.shards == job.muon.shards);
  CHECK(again.muon.iterations == job.muon.iterations);
  CHECK(again.formats.compute == job.formats.compute);
  CHECK(again.formats.gradient == job.formats.gradient);
  CHECK(again.parallel.zero == job.parallel.zero);
  CHECK(again.parallel.recompute.kind == job.parallel.recompute.kind);
  CHECK(again.parallel.recompute.modules == job.parallel.recompute.modules);
  CHECK(again.parallel.tensor == job.parallel.tensor);
  CHECK(again.parallel.context == job.parallel.context);
  if (job.parallel.context > 1) {
    CHECK(again.parallel.context_algorithm == workloads::context_algorithm(job));
  }
}

TEST_CASE("what a config of Hugging Face says of a model goes to Megatron-LM",
          "[interop][megatron]") {
  const auto script = [](const std::string& said) {
    const Job job = config::load_job(
        config::text_source(R"({"num_hidden_layers": 8, "hidden_size": 1024, "vocab_size": 32000,
                                "intermediate_size": 2816, "num_attention_heads": 16, )" +
                                said + "}",
                            "config.json"),
        {"system=dgx-h100", "batch.global=8"}, kLibrary);
    // A job keeps what was read.
    const Job again =
        config::load_job(config::text_source(config::job_to_json(job), "job.json"), {}, kLibrary);
    CHECK(text_of(megatron_arguments(again)) == text_of(megatron_arguments(job)));
    return text_of(megatron_arguments(job));
  };
  using Catch::Contains;
  const std::string qwen3 =
      script(R"("model_type": "qwen3", "rope_theta": 1000000, "rms_norm_eps": 1e-06)");
  CHECK_THAT(qwen3, Contains("  --rotary-base 1000000\n") && Contains("  --norm-epsilon 1e-06\n") &&
                        Contains("  --qk-layernorm\n") && !Contains("--add-qkv-bias") &&
                        !Contains("of your model"));
  CHECK_THAT(script(R"("model_type": "qwen2", "rms_norm_eps": 1e-06)"),
             Contains("  --add-qkv-bias\n") && !Contains("qk-layernorm"));
  CHECK_THAT(script(R"("model_type": "llama", "rope_theta": 500000.0, "rope_scaling":
                        {"rope_type": "llama3", "factor": 8.0})"),
             Contains("--rotary-base 500000\n") && Contains("--use-rope-scaling\n") &&
                 Contains("--rope-scaling-factor 8\n"));
  CHECK_THAT(script(R"("model_type": "deepseek_v3", "q_lora_rank": 512, "kv_lora_rank": 512,
                        "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
                        "rope_scaling": {"type": "yarn"})"),
             Contains("--qk-layernorm") && Contains("# rope_scaling: yarn is not written"));
}

TEST_CASE("a built-in model is written with what its published configuration says",
          "[interop][megatron]") {
  const auto script = [](const char* workload) {
    return text_of(megatron_arguments(config::load_job(
        config::text_source("{}", "test"),
        {std::string("workload=") + workload, "system=dgx-h100", "batch.global=8", "batch.micro=1"},
        kLibrary)));
  };
  using Catch::Contains;
  // FlashAttention 2 has no latent attention.
  CHECK_THAT(script("deepseek-v3"), Contains("--attention-backend auto"));
  CHECK_THAT(script("llama3-8b"), Contains("--attention-backend flash"));
  CHECK_THAT(script("llama3-8b"), Contains("  --rotary-base 500000\n") &&
                                      Contains("  --norm-epsilon 1e-05\n") &&
                                      !Contains("of your model"));
  CHECK_THAT(script("qwen3-8b"), Contains("  --rotary-base 1000000\n") &&
                                     Contains("  --norm-epsilon 1e-06\n") &&
                                     Contains("  --qk-layernorm\n"));
  // The rest is left to the user, by name.
  CHECK_THAT(script("megatron-8.3b"), Contains("--qk-layernorm, --add-qkv-bias of your model"));
}

TEST_CASE("products narrower than 16 bits are written for Megatron-LM and read back",
          "[interop][megatron]") {
  const std::string format = GENERATE("fp8", "mxfp8", "nvfp4");
  CAPTURE(format);
  const Job job = config::load_job(config::text_source("{}", "test"),
                                   {"workload=llama3-8b", "system=dgx-b200", "batch.global=16",
                                    "batch.micro=1", "formats.compute=" + format},
                                   kLibrary);
  const std::string text = text_of(megatron_arguments(job));
  CHECK_THAT(text, Catch::Contains("--bf16") && !Catch::Contains("no argument"));
  const Job again = config::load_job(config::text_source(text, "arguments"), {}, kLibrary);
  CHECK(again.formats.compute == job.formats.compute);
  CHECK(again.system.name == "dgx-b200");
}

TEST_CASE("attention in fp8 is written for Megatron-LM and read back", "[interop][megatron]") {
  const Job job =
      config::load_job(config::text_source("{}", "test"),
                       {"workload=llama3-8b", "system=dgx-h100", "batch.global=16", "batch.micro=1",
                        "formats.compute=fp8", "formats.attention=fp8"},
                       kLibrary);
  const Job again =
      config::load_job(config::text_source(text_of(megatron_arguments(job)), "arguments"),
                       {"system=dgx-h100"}, kLibrary);
  CHECK(again.system.framework.fp8_attention);
  CHECK(again.formats.compute == Format::kFp8);
}

TEST_CASE("groups of experts and dispatch by machines are written for Megatron-LM",
          "[interop][megatron]") {
  const std::string system = "system=dgx-h100";
  const Job job = config::load_job(
      config::text_source("{}", "test"),
      {"workload=mixtral-8x7b", system, "workload.moe.groups=4", "workload.moe.groups_per_token=2",
       "batch.global=16", "batch.micro=1", "batch.sequence=1024", "devices=8", "parallel.expert=4",
       "parallel.expert_dispatch=per_machine"},
      kLibrary);
  const Job again = config::load_job(
      config::text_source(text_of(megatron_arguments(job)), "arguments"), {system}, kLibrary);
  CHECK(again.parallel.expert_dispatch == ExpertDispatch::kPerMachine);
  CHECK(again.workload.transformer()->moe->groups == 4);
  CHECK(again.workload.transformer()->moe->groups_per_token == 2);
}

TEST_CASE("layers that stages do not share equally are written for Megatron-LM and read back",
          "[interop][megatron]") {
  struct Case {
    const char* layers;
    const char* split;
    std::vector<std::string> said;  ///< beside the model and the degrees
  };
  const Case c = GENERATE(
      Case{"30",
           R"({"embedding": 1, "head": 1})",
           {"--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split",
            "--num-virtual-stages-per-pipeline-rank 2"}},
      Case{"31", R"({"head": 1})", {"--account-for-loss-in-pipeline-split"}},
      Case{"14", R"({"embedding": 1, "head": 1})", {"--account-for-embedding-in-pipeline-split"}},
      // Uneven, or a heavier head: drawn, whatever was said in the job.
      Case{"29",
           R"({"embedding": 0, "head": 0})",
           {"--pipeline-model-parallel-layout \"Et*3|t*4|t*4|t*4|t*4|t*4|t*3|t*3L\""}},
      Case{"30",
           R"({"embedding": 0, "head": 2})",
           {"--pipeline-model-parallel-layout \"Et*4|t*4|t*4|t*4|t*4|t*4|t*4|t*2L\""}},
      Case{"6",
           "[0, 1, 1, 1, 1, 1, 1, 0]",
           {"--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"}},
      Case{"9",
           "[0, 2, 1, 1, 1, 1, 3, 0]",
           {"--pipeline-model-parallel-layout \"E|t*2|t|t|t|t|t*3|L\""}});
  CAPTURE(c.layers, c.split);
  const std::string system = "system=dgx-h100";
  const Job job = config::load_job(
      config::text_source("{}", "test"),
      {"workload=megatron-8.3b", system, std::string("workload.layers=") + c.layers,
       "batch.global=16", "batch.micro=1", "batch.sequence=1024", "devices=4",
       "parallel.pipeline=4", "parallel.virtual_stages=2",
       std::string("parallel.pipeline_split=") + c.split},
      kLibrary);
  const std::string text = text_of(megatron_arguments(job));
  CAPTURE(text);
  for (const std::string& said : c.said) {
    CHECK_THAT(text, Catch::Contains(said));
  }
  const Job again = config::load_job(config::text_source(text, "arguments"), {system}, kLibrary);
  const auto counts = [](const Job& of) {
    std::vector<std::int64_t> all{of.parallel.virtual_stages};
    for (const LayerRange& range : workloads::transformer_shape(of).ranges) {
      all.push_back(range.count);
    }
    return all;
  };
  CHECK(counts(again) == counts(job));
}

}  // namespace
}  // namespace stepcast::interop
