// Plans that people run, beside what `plan` finds for the same job: found, or beaten by a plan that
// `predict` says is faster. Steps are those expected at the framework's efficiency.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "command_line.h"

using namespace stepcast::cli_test;
using nlohmann::json;

namespace {

struct Recipe {
  std::string name;       ///< who runs what, and where it is published
  std::string framework;  ///< that of --for
  std::string stack;      ///< that of the key `stack`
  Words job;
  Words plan;    ///< as published
  Words change;  ///< by the ledger it fits with this alone; empty: as it is
  Words fixed;   ///< keeps a search short
};

/// arXiv 2505.09388, table 2, and its published configuration: 235 B parameters, 22 B active.
const char* const kQwen3 =
    R"(workload={"kind": "transformer", "name": "qwen3-235b", "layers": 94, "hidden": 4096,
    "heads": 64, "kv_heads": 4, "head_dim": 128, "ffn_hidden": 12288, "activation": "swiglu",
    "vocabulary": 151936, "tied_embeddings": false,
    "moe": {"experts": 128, "per_token": 8, "ffn_hidden": 1536}})";

std::vector<Recipe> recipes() {
  const Words ends{R"(parallel.pipeline_split={"embedding": 1, "head": 1})"};
  return {
      {"NVIDIA, Llama 3 70B on 64 H100: dgxc-benchmarking v25.04, BF16",
       "nemo",
       "nemo",
       "workload=llama3-70b system=dgx-h100 devices=64 batch.global=128",
       "parallel.tensor=4 parallel.context=2 parallel.pipeline=4 parallel.virtual_stages=5",
       {},
       "parallel.tensor=4 parallel.pipeline=4"},
      {"NVIDIA, Llama 3.1 405B on 1,024 H100: dgxc-benchmarking v25.04, BF16",
       "nemo",
       "nemo",
       "workload=llama3-405b system=dgx-h100 devices=1024 batch.global=512",
       "parallel.tensor=8 parallel.context=2 parallel.pipeline=8 parallel.virtual_stages=8" + ends,
       {},
       "parallel.tensor=8 parallel.pipeline=8"},
      {"NVIDIA, Qwen3 235B on 256 H100: Megatron-Bridge, qwen3_workload_base_configs.py, BF16",
       "nemo",
       "nemo",
       {kQwen3, "system=dgx-h100", "devices=256", "batch.global=2048", "batch.sequence=4096"},
       "parallel.tensor=2 parallel.pipeline=8 parallel.virtual_stages=4 parallel.expert=32" + ends,
       {},
       "parallel.tensor=2 parallel.pipeline=8"},
      {"NVIDIA, DeepSeek-V3 on 256 GB200: NeMo 25.04, pretrain_deepseek_v3.py, BF16",
       "nemo",
       "nemo",
       "workload=deepseek-v3 system=gb200-nvl72 devices=256 batch.global=2048",
       {"parallel.tensor=2", "parallel.pipeline=4", "parallel.expert=64",
        R"(parallel.pipeline_split={"embedding": 1, "head": 2})",
        R"(parallel.recompute={"modules": ["core_attn"]})"},
       {},
       "parallel.tensor=2 parallel.pipeline=4"},
      {"Meta, Llama 3 405B on 8,192 H100: arXiv 2407.21783, table 4", "megatron", "megatron-core",
       "workload=llama3-405b system=dgx-h100 devices=8192 batch.global=2048",
       "parallel.tensor=8 parallel.pipeline=16 parallel.virtual_stages=8" + ends,
       "parallel.context=2", "parallel.tensor=8 parallel.pipeline=16"}};
}

json patient(const Words& arguments) {
  return document(call(arguments + "--format json", "", 600));
}

json predicted(const Recipe& recipe, const Words& more) {
  const Words usual{"stack=" + recipe.stack, "batch.micro=1", "parallel.zero=1"};
  return patient(with_sets("predict", recipe.job + usual + recipe.plan + more, "--allow-oom"));
}

/// The step of the recipe, or with the change that makes it fit, is no shorter than the plan's, and
/// no plan is said to be impossible that takes so long: what is proven is proven to 0.5 %.
void hold(const Recipe& recipe, const Words& fixed) {
  if (!recipe.change.empty()) {
    CHECK_FALSE(predicted(recipe, {}).at("fits").get<bool>());
  }
  const double known = predicted(recipe, recipe.change).at("iteration_time_s");
  const json found = patient(with_sets("plan", recipe.job + fixed, {"--for", recipe.framework}));
  const json& first = found.at("plans").front();
  const double step = first.at("predicted_step_s");
  CAPTURE(recipe.name, known, step);
  CHECK(step <= known * 1.005);
  CHECK(first.at("lower_bound_s").get<double>() <= known * 1.005);
}

}  // namespace

TEST_CASE("plan finds what others run, or a faster plan, where tensor ranks and stages are fixed",
          "[cli][plan]") {
  const Recipe recipe = GENERATE(from_range(recipes()));
  hold(recipe, recipe.fixed);
}

TEST_CASE("plan finds what others run, or a faster plan", "[.long][cli][plan]") {
  const Recipe recipe = GENERATE(from_range(recipes()));
  hold(recipe, {});
}
