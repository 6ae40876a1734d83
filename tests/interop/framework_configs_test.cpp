#include "interop/frameworks/configs.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "interop/import.h"
#include "interop/megatron/arguments.h"
#include "tests/interop/imports.h"
#include "tests/planner/parallel_jobs.h"

namespace stepcast::interop {
namespace {

using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using test::kLibrary;

/// "section.key" of TOML's and "a.b.key" of YAML's indentation, with what stands after it.
std::map<std::string, std::string> flat(const std::string& text) {
  std::map<std::string, std::string> values;
  std::string section;
  std::vector<std::string> path;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find_first_not_of(' ');
    if (first == std::string::npos || line[first] == '#') {
      continue;
    }
    if (line[first] == '[') {
      section = line.substr(1, line.find(']') - 1) + ".";
    } else if (const std::size_t equals = line.find(" = "); equals != std::string::npos) {
      values[section + line.substr(0, equals)] = line.substr(equals + 3);
    } else {
      const std::size_t colon = line.find(':');
      path.resize(first / 2);
      path.push_back(line.substr(first, colon - first));
      std::string key;
      for (const std::string& part : path) {
        key += (key.empty() ? "" : ".") + part;
      }
      values[key] = line.size() > colon + 2 ? line.substr(colon + 2) : "";
    }
  }
  return values;
}

Job job_of(std::vector<std::string> more) {
  more.insert(more.begin(), {"workload=llama3-8b", "system=dgx-h100", "devices=32",
                             "batch.global=64", "batch.micro=1", "batch.sequence=8192"});
  return config::load_job(config::text_source("{}", "test"), more, kLibrary);
}

TEST_CASE("a plan is written for torchtitan", "[interop][export]") {
  const auto sharded = flat(torchtitan_config(
      job_of({R"(parallel.zero={"stage": 3, "level": "node"})", "parallel.tensor=2",
              "parallel.sequence_parallel=true", "parallel.recompute=selective"})));
  // 32 devices / 2 tensor ranks are 16 replicas; a node of 8 has 4 of them.
  CHECK(sharded.at("parallelism.data_parallel_shard_degree") == "4");
  CHECK(sharded.at("parallelism.data_parallel_replicate_degree") == "4");
  CHECK(sharded.at("parallelism.tensor_parallel_degree") == "2");
  CHECK(sharded.at("training.local_batch_size") == "1");
  CHECK(sharded.at("training.global_batch_size") == "64");
  CHECK(sharded.at("training.seq_len") == "8192");
  CHECK(sharded.at("activation_checkpoint.mode") == "\"selective\"");
  // Two tensor ranks and two stages lie between replicas: a node of 8 has two of them.
  const auto staged = flat(torchtitan_config(
      job_of({R"(parallel.zero={"stage": 3, "level": "node"})", "parallel.tensor=2",
              "parallel.sequence_parallel=true", "parallel.pipeline=2"})));
  CHECK(staged.at("parallelism.data_parallel_shard_degree") == "2");
  CHECK(staged.at("parallelism.data_parallel_replicate_degree") == "4");
  const auto piped = flat(torchtitan_config(
      job_of({"parallel.pipeline=4", "parallel.virtual_stages=2", "parallel.zero=3"})));
  CHECK(piped.at("parallelism.pipeline_parallel_schedule") == "\"Interleaved1F1B\"");
  // 64 sequences over 8 replicas are 8 micro-batches of one.
  CHECK(piped.at("training.local_batch_size") == "8");
  CHECK(piped.at("parallelism.pipeline_parallel_microbatch_size") == "1");
  const std::string parts = piped.at("parallelism.module_fqns_per_model_part");
  CHECK(std::count(parts.begin(), parts.end(), '[') == 1 + 8);  // 4 stages of 2 chunks
  CHECK_THAT(parts, StartsWith(R"([["tok_embeddings", "layers.0", "layers.1")"));
  CHECK_THAT(parts, EndsWith(R"("layers.31", "norm", "output"]])"));
}

TEST_CASE("a plan is written for DeepSpeed", "[interop][export]") {
  const nlohmann::json j = nlohmann::json::parse(
      deepspeed_config(job_of({"parallel.zero=2", "formats.gradient=bf16", "parallel.bucket=50 MB",
                               "parallel.recompute=full"})));
  CHECK(j.at("train_batch_size") == 64);
  CHECK(j.at("gradient_accumulation_steps") == 2);  // 64 / 32 replicas
  CHECK(j.at("zero_optimization").at("stage") == 2);
  CHECK(j.at("zero_optimization").at("reduce_bucket_size") == 25'000'000);  // of 2 bytes
  CHECK(j.at("bf16").at("enabled") == true);
  CHECK_FALSE(j.contains("communication_data_type"));  // DeepSpeed's own: that of the weights
  CHECK(j.at("stepcast").at("in_the_program").size() == 1);
  // DeepSpeed: batch = micro-batch x accumulation x replicas.
  CHECK(j.at("train_batch_size").get<int>() == j.at("train_micro_batch_size_per_gpu").get<int>() *
                                                   j.at("gradient_accumulation_steps").get<int>() *
                                                   32);
}

TEST_CASE("exports leave what a job does not say to the framework", "[interop][export]") {
  const Job silent = job_of({"parallel.zero=2", "formats.gradient=bf16"});
  const nlohmann::json j = nlohmann::json::parse(deepspeed_config(silent));
  CHECK_FALSE(j.at("zero_optimization").contains("reduce_bucket_size"));
  CHECK_FALSE(j.contains("communication_data_type"));
  CHECK_FALSE(j.contains("fp16"));
  CHECK_FALSE(flat(nemo_config(silent)).contains("trainer.strategy.ddp.bucket_size"));
  const auto holds_bucket = [](const std::string& argument) {
    return argument.find("bucket") != std::string::npos;
  };
  const std::vector<std::string> arguments = megatron_arguments(silent).arguments;
  CHECK(std::none_of(arguments.begin(), arguments.end(), holds_bucket));
  // A bucket that the job gives is exported in elements.
  Job says = silent;
  says.formats.gradient = Format::kFp32;
  says.parallel.bucket_elements = 40'000'000;
  const nlohmann::json said = nlohmann::json::parse(deepspeed_config(says));
  CHECK(said.at("zero_optimization").at("reduce_bucket_size") == 40'000'000);
  CHECK(said.at("communication_data_type") == "fp32");
  CHECK(flat(nemo_config(says)).at("trainer.strategy.ddp.bucket_size") == "40000000");
  const std::vector<std::string> more = megatron_arguments(says).arguments;
  CHECK(std::find(more.begin(), more.end(), "--ddp-bucket-size 40000000") != more.end());
}

TEST_CASE("a model of torchtitan's is called as it is there", "[interop][export]") {
  using Model = std::pair<std::string, std::string>;
  const auto of = [](const std::string& workload) {
    const auto t = flat(torchtitan_config(
        config::load_job(config::text_source("{}", "test"),
                         {"workload=" + workload, "system=dgx-h100", "batch.global=8"}, kLibrary)));
    return Model{t.at("model.name"), t.at("model.flavor")};
  };
  CHECK(of("llama3-8b") == Model{R"("llama3")", R"("8B")"});
  CHECK(of("llama3-405b") == Model{R"("llama3")", R"("405B")"});
  CHECK(of("qwen3-32b") == Model{R"("qwen3")", R"("32B")"});
  CHECK(of("qwen3-235b-a22b") == Model{R"("qwen3")", R"("235B-A22B")"});
  CHECK(of("deepseek-v3") == Model{R"("deepseek_v3")", R"("671B")"});
  CHECK(of("gpt-oss-20b") == Model{R"("gpt_oss")", R"("20b")"});
  // Others are to be added, and a comment says how.
  CHECK(of("llama2-70b") == Model{R"("llama3")", R"("llama2-70b")"});
  CHECK_THAT(torchtitan_config(job_of({"workload.layers=30"})),
             Catch::Contains("# flavor to add to torchtitan/models/llama3/__init__.py: dim 4096, "
                             "n_layers 30, n_heads 32, n_kv_heads 8, head_dim 128,"));
  CHECK_THAT(
      torchtitan_config(job_of({"workload.layers=30", "workload.details.rotary_base=1000000",
                                "workload.details.norm_epsilon=1e-6",
                                "workload.details.qk_norms=true"})),
      Catch::Contains(", rope_theta 1000000, norm_eps 1e-06, qk_norm true\n"));
  CHECK_THAT(torchtitan_config(job_of({})), !Catch::Contains("flavor to add"));
}

TEST_CASE("a plan is written for NeMo", "[interop][export]") {
  const auto y = flat(
      nemo_config(job_of({"parallel.tensor=4", "parallel.pipeline=2", "parallel.virtual_stages=2",
                          "parallel.sequence_parallel=true", "parallel.zero=1",
                          "parallel.overlap.data=true", R"(parallel.recompute={"layers": 3})"})));
  CHECK(y.at("trainer.num_nodes") == "4");
  CHECK(y.at("trainer.devices") == "8");
  CHECK(y.at("trainer.strategy.tensor_model_parallel_size") == "4");
  CHECK(y.at("trainer.strategy.virtual_pipeline_model_parallel_size") == "2");
  CHECK(y.at("trainer.strategy.sequence_parallel") == "true");
  CHECK(y.at("trainer.strategy.ddp.use_distributed_optimizer") == "true");
  CHECK(y.at("data.global_batch_size") == "64");
  CHECK(y.at("model.config.num_query_groups") == "8");
  CHECK(y.at("model.config.recompute_method") == "block");
  CHECK(y.at("model.config.recompute_num_layers") == "3");
  const auto modules =
      flat(nemo_config(job_of({R"(parallel.recompute={"modules": ["layernorm", "mlp"]})"})));
  CHECK(modules.at("model.config.recompute_granularity") == "selective");
  CHECK(modules.at("model.config.recompute_modules") == "[layernorm, mlp]");
}

TEST_CASE("layers that stages do not share equally are written for NeMo", "[interop][export]") {
  const auto said = [](const char* split) {
    return flat(nemo_config(job_of({"workload.layers=61", "parallel.pipeline=4", "parallel.zero=1",
                                    std::string("parallel.pipeline_split=") + split})));
  };
  const auto drawn = said(R"({"embedding": 1, "head": 2})");  // 64 less 1 and 2
  CHECK_THAT(drawn.at("trainer.strategy.pipeline_model_parallel_layout"),
             Catch::Contains("Et*15|t*16|t*16|t*14L"));
  CHECK_FALSE(drawn.contains("trainer.strategy.account_for_loss_in_pipeline_split"));
  CHECK_THAT(said("[15, 16, 16, 14]").at("trainer.strategy.pipeline_model_parallel_layout"),
             Catch::Contains("Et*15|t*16|t*16|t*14L"));
}

/// Content of an exported file, as a framework reads it.
class Said {
 public:
  Said(std::map<std::string, std::string> values, std::int64_t world)
      : values_(std::move(values)), world_(world) {}
  [[nodiscard]] bool has(const std::string& key) const { return values_.count(key) != 0; }
  [[nodiscard]] std::string text(const std::string& key) const {
    const auto it = values_.find(key);
    return it == values_.end() ? "" : it->second;
  }
  [[nodiscard]] bool yes(const std::string& key) const { return text(key) == "true"; }
  /// 1 for what is not said, as degrees are.
  [[nodiscard]] std::int64_t number(const std::string& key) const {
    const std::string value = text(key);
    return value.empty() || value == "null" ? 1 : std::stoll(value);
  }
  [[nodiscard]] std::int64_t world() const { return world_; }

 private:
  std::map<std::string, std::string> values_;
  std::int64_t world_;
};

struct StartRule {
  const char* says;  ///< and where the framework checks it
  std::function<bool(const Said&)> holds;
};

/// torchtitan of 2025: torchtitan/distributed/parallel_dims.py (ParallelDims._validate),
/// torchtitan/train.py, torchtitan/distributed/pipeline_parallel.py, torchtitan/models/*/infra/
/// parallelize.py, torchtitan/config/job_config.py.
std::vector<StartRule> torchtitan_rules() {
  const auto degree = [](const Said& s, const char* name) {
    return s.number(std::string("parallelism.") + name);
  };
  const auto shards = [degree](const Said& s) { return degree(s, "data_parallel_shard_degree"); };
  const auto replicas = [degree, shards](const Said& s) {
    return degree(s, "data_parallel_replicate_degree") * shards(s);
  };
  return {
      {"parallel_dims: degrees multiply to the ranks",
       [=](const Said& s) {
         return replicas(s) * degree(s, "context_parallel_degree") *
                    degree(s, "tensor_parallel_degree") * degree(s, "pipeline_parallel_degree") ==
                s.world();
       }},
      {"parallel_dims: experts borrow context ranks and some that shard",
       [=](const Said& s) {
         const std::int64_t expert = degree(s, "expert_parallel_degree");
         const std::int64_t tensor = degree(s, "tensor_parallel_degree");
         const std::int64_t columns = degree(s, "expert_tensor_parallel_degree");
         const std::int64_t lent =
             degree(s, "context_parallel_degree") * (columns == tensor ? 1 : tensor);
         return expert == 1 || ((columns == tensor || columns == 1) && expert % lent == 0 &&
                                shards(s) * lent % expert == 0);
       }},
      {"train: the global batch is a multiple of local batch times replicas",
       [=](const Said& s) {
         return s.number("training.global_batch_size") %
                    (s.number("training.local_batch_size") * replicas(s)) ==
                0;
       }},
      {"pipeline_parallel: the micro-batch divides the local batch",
       [=](const Said& s) {
         return s.number("training.local_batch_size") %
                    degree(s, "pipeline_parallel_microbatch_size") ==
                0;
       }},
      {"pipeline_parallel: as many chunks as stages, or a multiple of them where chunks interleave",
       [=](const Said& s) {
         const std::string parts = s.text("parallelism.module_fqns_per_model_part");
         const std::int64_t chunks = std::count(parts.begin(), parts.end(), '[') - 1;
         const std::int64_t stages = degree(s, "pipeline_parallel_degree");
         const bool loops =
             s.text("parallelism.pipeline_parallel_schedule") == "\"Interleaved1F1B\"";
         return stages == 1 || (loops ? chunks % stages == 0 && chunks > stages : chunks == stages);
       }},
      {"parallelize: a sequence has a part for each tensor rank, two for each context rank",
       [=](const Said& s) {
         const std::int64_t context = degree(s, "context_parallel_degree");
         return s.number("training.seq_len") %
                    (degree(s, "tensor_parallel_degree") * (context > 1 ? 2 * context : 1)) ==
                0;
       }},
      {"parallelize: asynchronous tensor parallelism is compiled",
       [](const Said& s) {
         return !s.yes("parallelism.enable_async_tensor_parallel") || s.yes("compile.enable");
       }},
      {"job_config: reshard_after_forward is default, always or never",
       [](const Said& s) {
         const std::string value = s.text("parallelism.fsdp_reshard_after_forward");
         return value == "\"always\"" || value == "\"never\"" || value == "\"default\"";
       }},
      {"activation_checkpoint: none, selective or full",
       [](const Said& s) {
         const std::string mode = s.text("activation_checkpoint.mode");
         return mode == "\"none\"" || mode == "\"selective\"" || mode == "\"full\"";
       }},
  };
}

/// DeepSpeed of 2025: deepspeed/runtime/config.py (_batch_assertion, _do_error_check),
/// deepspeed/runtime/pipe/engine.py, deepspeed/runtime/zero/config.py.
std::vector<StartRule> deepspeed_rules() {
  return {
      {"config: batch = micro-batch x accumulation x replicas",
       [](const Said& s) {
         return s.number("train_batch_size") == s.number("train_micro_batch_size_per_gpu") *
                                                    s.number("gradient_accumulation_steps") *
                                                    s.number("replicas");
       }},
      {"config: bf16 or fp16, not both",
       [](const Said& s) { return !s.yes("bf16.enabled") || !s.yes("fp16.enabled"); }},
      {"config: ZeRO has stages 0 to 3",
       [](const Said& s) {
         const std::string stage = s.text("zero_optimization.stage");
         return stage.size() == 1 && stage >= "0" && stage <= "3";
       }},
      {"config: ZeRO needs bf16 or fp16",
       [](const Said& s) {
         return s.text("zero_optimization.stage") == "0" || s.yes("bf16.enabled") ||
                s.yes("fp16.enabled");
       }},
      {"pipe/engine: a pipeline has ZeRO below 2",
       [](const Said& s) {
         return s.number("stages") == 1 || s.text("zero_optimization.stage") < "2";
       }},
      {"zero/config: a bucket has elements",
       [](const Said& s) { return s.number("zero_optimization.reduce_bucket_size") > 0; }},
      {"config: gradients travel in fp32, fp16 or bf16",
       [](const Said& s) {
         const std::string type = s.text("communication_data_type");
         return type.empty() || type == "fp32" || type == "fp16" || type == "bf16";
       }},
  };
}

/// NeMo 2: megatron/core/model_parallel_config.py and transformer/transformer_config.py
/// (__post_init__), nemo/lightning/pytorch/strategies/megatron_strategy.py.
std::vector<StartRule> nemo_rules() {
  const auto degree = [](const Said& s, const char* name) {
    return s.number(std::string("trainer.strategy.") + name);
  };
  const auto data = [degree](const Said& s) {
    return s.world() /
           (degree(s, "tensor_model_parallel_size") * degree(s, "pipeline_model_parallel_size") *
            degree(s, "context_parallel_size"));
  };
  return {
      {"parallel_state: ranks are a multiple of the degrees",
       [=](const Said& s) {
         return s.world() == s.number("trainer.num_nodes") * s.number("trainer.devices") &&
                s.world() % (degree(s, "tensor_model_parallel_size") *
                             degree(s, "pipeline_model_parallel_size") *
                             degree(s, "context_parallel_size")) ==
                    0;
       }},
      {"model_parallel_config: sequence parallelism needs tensor ranks",
       [=](const Said& s) {
         return !s.yes("trainer.strategy.sequence_parallel") ||
                degree(s, "tensor_model_parallel_size") > 1;
       }},
      {"model_parallel_config: a pipeline says the format of its messages",
       [=](const Said& s) {
         return degree(s, "pipeline_model_parallel_size") == 1 ||
                s.has("trainer.strategy.pipeline_dtype");
       }},
      {"model_parallel_config: experts on tensor ranks need sequence parallelism",
       [=](const Said& s) {
         return degree(s, "expert_model_parallel_size") == 1 ||
                degree(s, "tensor_model_parallel_size") == 1 ||
                s.yes("trainer.strategy.sequence_parallel");
       }},
      {"transformer_config: layers, with ends that count, are a multiple of the chunks, or drawn",
       [=](const Said& s) {
         const std::int64_t layers =
             s.number("model.config.num_layers") +
             (s.yes("trainer.strategy.account_for_embedding_in_pipeline_split") ? 1 : 0) +
             (s.yes("trainer.strategy.account_for_loss_in_pipeline_split") ? 1 : 0);
         return s.has("trainer.strategy.pipeline_model_parallel_layout") ||
                layers % (degree(s, "pipeline_model_parallel_size") *
                          degree(s, "virtual_pipeline_model_parallel_size")) ==
                    0;
       }},
      {"transformer_config: a layout draws every chunk, and no end counts beside it",
       [=](const Said& s) {
         const std::string layout = s.text("trainer.strategy.pipeline_model_parallel_layout");
         return layout.empty() ||
                (1 + std::count(layout.begin(), layout.end(), '|') ==
                     degree(s, "pipeline_model_parallel_size") *
                         degree(s, "virtual_pipeline_model_parallel_size") &&
                 !s.yes("trainer.strategy.account_for_embedding_in_pipeline_split") &&
                 !s.yes("trainer.strategy.account_for_loss_in_pipeline_split"));
       }},
      {"transformer_config: full recomputation has a method and a number of layers",
       [](const Said& s) {
         return s.text("model.config.recompute_granularity") != "full" ||
                (s.has("model.config.recompute_method") &&
                 s.number("model.config.recompute_num_layers") > 0);
       }},
      {"megatron_strategy: gathers overlap only with the distributed optimizer",
       [](const Said& s) {
         return !s.yes("trainer.strategy.ddp.overlap_param_gather") ||
                (s.yes("trainer.strategy.ddp.use_distributed_optimizer") &&
                 s.yes("trainer.strategy.ddp.overlap_grad_reduce"));
       }},
      {"data: the micro-batch divides each replica's share of the batch",
       [=](const Said& s) {
         return s.number("data.global_batch_size") %
                    (data(s) * s.number("data.micro_batch_size")) ==
                0;
       }},
  };
}

/// Content of the file that DeepSpeed reads, with the degrees that its launcher or program gives.
Said said_to_deepspeed(const Job& plan) {
  std::map<std::string, std::string> values;
  const nlohmann::json file = nlohmann::json::parse(deepspeed_config(plan)).flatten();
  for (const auto& [pointer, value] : file.items()) {
    std::string key = pointer.substr(1);
    std::replace(key.begin(), key.end(), '/', '.');
    values[key] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  values["replicas"] = std::to_string(plan.parallel.data);
  values["stages"] = std::to_string(plan.parallel.pipeline);
  return {values, plan.devices};
}

TEST_CASE("exported plans pass what torchtitan, DeepSpeed and NeMo check before they start",
          "[interop][export][property]") {
  struct Framework {
    TrainingFramework framework;
    std::vector<StartRule> rules;
    std::function<Said(const Job&)> said;
  };
  const std::vector<Framework> frameworks{
      {TrainingFramework::kTorchtitan, torchtitan_rules(),
       [](const Job& j) { return Said(flat(torchtitan_config(j)), j.devices); }},
      {TrainingFramework::kDeepspeed, deepspeed_rules(), said_to_deepspeed},
      {TrainingFramework::kNemo, nemo_rules(),
       [](const Job& j) { return Said(flat(nemo_config(j)), j.devices); }}};
  for (const Framework& framework : frameworks) {
    std::mt19937 rng(37);
    int exported = 0;
    for (int i = 0; i < 6000 && exported < 100; ++i) {
      Job job = planner::testing::random_job(rng);
      job.parallel.overlap = {};
      job.parallel.overlap.data = i % 2 == 0;
      job.parallel.overlap.pipeline = i % 3 == 0;
      job.parallel.overlap.tensor = job.parallel.overlap.tensor_products = i % 5 == 0;
      const auto point = planner::testing::random_point(job, rng);
      if (!point) {
        continue;
      }
      const Job plan = applied(job, *point);
      if (broken_rule(plan, framework.framework)) {
        continue;
      }
      ++exported;
      const Said said = framework.said(plan);
      INFO(name_of(framework.framework) << ": " << planner::describe(plan));
      for (const StartRule& rule : framework.rules) {
        INFO(rule.says);
        CHECK(rule.holds(said));
      }
    }
    INFO(name_of(framework.framework));
    CHECK(exported >= 50);
  }
}

TEST_CASE("the checks of frameworks find what they are there for", "[interop][export]") {
  const auto broken = [](const std::vector<StartRule>& rules, const Said& said) {
    std::string text;
    for (const StartRule& rule : rules) {
      text += rule.holds(said) ? "" : rule.says;
    }
    return text;
  };
  using Catch::Matchers::Contains;
  const Job plan = job_of({"parallel.tensor=2", "parallel.pipeline=2", "parallel.zero=3",
                           "parallel.sequence_parallel=true", "parallel.overlap.tensor=true",
                           "parallel.overlap.tensor_products=true"});
  auto titan = flat(torchtitan_config(plan));
  CHECK(broken(torchtitan_rules(), Said(titan, 32)).empty());
  titan["compile.enable"] = "false";
  CHECK_THAT(broken(torchtitan_rules(), Said(titan, 32)), Contains("compiled"));
  CHECK_THAT(broken(torchtitan_rules(), Said(titan, 64)), Contains("multiply to the ranks"));
  CHECK_THAT(broken(deepspeed_rules(), said_to_deepspeed(plan)), Contains("below 2"));
  auto nemo = flat(nemo_config(plan));
  CHECK(broken(nemo_rules(), Said(nemo, 32)).empty());
  nemo.erase("trainer.strategy.pipeline_dtype");
  CHECK_THAT(broken(nemo_rules(), Said(nemo, 32)), Contains("messages"));
}

}  // namespace
}  // namespace stepcast::interop
