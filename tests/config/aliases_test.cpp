// Short names of keys and other names of built-in files.
#include "core/config/aliases.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>
#include <set>

#include "core/config/job_keys.h"
#include "core/error.h"
#include "interop/import.h"

using namespace stepcast;
using namespace stepcast::config;
using Catch::Matchers::Contains;

namespace {

const Library kNames = interop::library(STEPCAST_SOURCE_DIR);

Job named_job(const std::vector<std::string>& settings) {
  return load_job(text_source("", "test"), settings, kNames);
}

}  // namespace

TEST_CASE("an alias stands for one key that there is", "[config][aliases]") {
  std::set<std::string> keys;
  for (const JobKey& key : job_keys()) {
    keys.insert(key.path);
  }
  std::set<std::string_view> seen;
  for (const KeyAlias& a : key_aliases()) {
    INFO(a.alias);
    CHECK(keys.contains(std::string(a.key)));
    CHECK_FALSE(keys.contains(std::string(a.alias)));  // nothing else is called so
    CHECK(seen.insert(a.alias).second);
    CHECK(key_called(a.alias) == a.key);
  }
  CHECK(key_called("parallel.tensor") == "parallel.tensor");
  CHECK(key_called("") == "");
}

TEST_CASE("settings are spelled out", "[config][aliases]") {
  CHECK(spelled_out(std::string("tp=8")) == "parallel.tensor=8");
  CHECK(spelled_out(std::string("seq=8k")) == "batch.sequence=8192");          // 8 * 1024
  CHECK(spelled_out(std::string("seq=4k,8K")) == "batch.sequence=4096,8192");  // each of a list
  CHECK(spelled_out(std::string("gbs=1m")) == "batch.global=1048576");         // 2^20
  CHECK(spelled_out(std::string("cached=8k")) == "cached=8192");
  CHECK(spelled_out(std::string("devices=1k")) == "devices=1024");  // the key in full too
  for (const char* same : {"seq=k", "seq=8kk", "seq=-8k", "seq=", "seq=8.5k", "gpus=8kg",
                           "seq=99999999999999999999k"}) {
    const std::string text(same);
    const std::string value = text.substr(text.find('='));
    CHECK(spelled_out(text).ends_with(value));  // the loader says what is wrong
  }
  for (const char* other :
       {"parallel.tensor=8k", "attention=unfused", "no setting", "=8", "a.tp=1"}) {
    CHECK(spelled_out(std::string(other)) == other);
  }
}

TEST_CASE("a job of aliases is that of the keys", "[config][aliases]") {
  const Job by_keys =
      named_job({"workload=llama3-70b", "system=dgx-h100", "devices=64", "parallel.tensor=4",
                 "parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.context=2",
                 "parallel.data=4", "parallel.zero=1", "parallel.recompute=full",
                 "batch.global=256", "batch.micro=1", "batch.sequence=8192", "formats.compute=fp8",
                 "parallel.sequence_parallel=true", "framework=megatron-core"});
  const Job by_aliases =
      named_job({"model=Llama-3.1-70B", "on=H100", "n=64", "tp=4", "pp=2", "vpp=2", "cp=2", "dp=4",
                 "zero=1", "recompute=full", "gbs=256", "mbs=1", "seq=8k", "precision=fp8",
                 "sp=true", "framework=megatron"});
  CHECK(job_to_json(by_keys) == job_to_json(by_aliases));
  CHECK(job_to_json(by_keys) != job_to_json(named_job({"workload=llama3-70b"})));
}

TEST_CASE("models have other names", "[config][aliases]") {
  for (const auto& [written, name] : std::vector<std::pair<const char*, const char*>>{
           {"llama3-8b", "llama3-8b"},
           {"Llama3-8B", "llama3-8b"},
           {"llama3.1-8b", "llama3-8b"},
           {"meta-llama/Llama-3.1-8B", "llama3-8b"},
           {"meta-llama/Meta-Llama-3-70B-Instruct", "llama3-70b"},
           {"meta-llama/Llama-2-7b-hf", "llama2-7b"},
           {"Qwen/Qwen3-32B", "qwen3-32b"},
           {"Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b"},
           {"deepseek-ai/DeepSeek-V3", "deepseek-v3"},
           {"mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"},
           {"openai/gpt-oss-20b", "gpt-oss-20b"}}) {
    INFO(written);
    CHECK(workload_called(written, kNames) == name);
  }
  for (const char* none : {"", "/", "llama3.2-8b", "llama-3.1", "./llama3-8b", "../llama3-8b",
                           "a/b/llama3-8b", "/llama3-8b", "-instruct", "llama3-8b.json"}) {
    INFO(none);
    CHECK(workload_called(none, kNames).empty());
  }
  // The parameters that a token uses need not be said.
  for (const auto& file : std::filesystem::directory_iterator(kNames.root / "workloads" / "zoo")) {
    const std::string name = file.path().stem();
    std::smatch match;
    if (std::regex_match(name, match, std::regex("(.*)-a[0-9]+b"))) {
      CHECK(workload_called(match[1].str(), kNames) == name);
    }
  }
  // All in the data file are names of files, and one alias is of one model.
  std::set<std::string> seen;
  for (const std::string& alias : workload_aliases(kNames)) {
    INFO(alias);
    CHECK(seen.insert(alias).second);
    CHECK_NOTHROW(load_workload(alias, kNames));
  }
}

TEST_CASE("a GPU is its usual system", "[config][aliases]") {
  for (const auto& [written, name] :
       std::vector<std::pair<const char*, const char*>>{{"h100", "dgx-h100"},
                                                        {"H100", "dgx-h100"},
                                                        {"DGX-H100", "dgx-h100"},
                                                        {"hgx h100", "dgx-h100"},
                                                        {"h100-sxm-80gb", "dgx-h100"},
                                                        {"a100", "dgx-a100-80gb"},
                                                        {"h200", "dgx-h200"},
                                                        {"B200", "dgx-b200"},
                                                        {"b300", "dgx-b300"},
                                                        {"gb200", "gb200-nvl72"},
                                                        {"gb300", "gb300-nvl72"},
                                                        {"MI300X", "mi300x-8"},
                                                        {"l40s", "l40s-8"},
                                                        {"p5", "p5-h100"}}) {
    INFO(written);
    CHECK(system_called(written, kNames) == name);
  }
  // Whatever says more, or names no machine of the library, is no system: nobody's own cluster is
  // taken for another.
  for (const char* none :
       {"", "my-h100-cluster", "h1000", "t4", "h100.json", "./dgx-h100", "h100/8"}) {
    INFO(none);
    CHECK(system_called(none, kNames).empty());
  }
  CHECK_THROWS_WITH(named_job({"workload=rm1", "system=my-h100-cluster"}),
                    Contains("my-h100-cluster"));
}

TEST_CASE("a job that names no system is on the default one", "[config][aliases]") {
  CHECK(job_to_json(named_job({"workload=rm1"})) ==
        job_to_json(named_job({"workload=rm1", "system=" + std::string(kDefaultSystem)})));
  CHECK(job_to_json(named_job({"workload=rm1", "system.device.memory=40 GB"})) ==
        job_to_json(named_job({"workload=rm1", "system=dgx-h100", "system.device.memory=40 GB"})));
}
