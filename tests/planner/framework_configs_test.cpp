#include "planner/parallel/framework_configs.h"

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/planner/parallel_jobs.h"

namespace stepcast::planner {
namespace {

using testing::kLibrary;

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

TEST_CASE("a plan is written for torchtitan", "[planner][export]") {
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
  CHECK(
      piped.at("parallelism.pipeline_parallel_split_points") ==
      R"(["layers.4", "layers.8", "layers.12", "layers.16", "layers.20", "layers.24", "layers.28"])");
}

TEST_CASE("a plan is written for DeepSpeed", "[planner][export]") {
  const nlohmann::json j = nlohmann::json::parse(
      deepspeed_config(job_of({"parallel.zero=2", "formats.gradient=bf16", "parallel.bucket=50 MB",
                               "parallel.recompute=full"})));
  CHECK(j.at("train_batch_size") == 64);
  CHECK(j.at("gradient_accumulation_steps") == 2);  // 64 / 32 replicas
  CHECK(j.at("zero_optimization").at("stage") == 2);
  CHECK(j.at("zero_optimization").at("reduce_bucket_size") == 25'000'000);  // of 2 bytes
  CHECK(j.at("bf16").at("enabled") == true);
  CHECK(j.at("communication_data_type") == "bf16");
  CHECK(j.at("stepcast").at("in_the_program").size() == 1);
  // DeepSpeed: batch = micro-batch x accumulation x replicas.
  CHECK(j.at("train_batch_size").get<int>() == j.at("train_micro_batch_size_per_gpu").get<int>() *
                                                   j.at("gradient_accumulation_steps").get<int>() *
                                                   32);
}

TEST_CASE("a plan is written for NeMo", "[planner][export]") {
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
}

}  // namespace
}  // namespace stepcast::planner
