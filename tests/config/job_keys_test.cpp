// The table of job keys against what is made of it: the schema, the reference page, and jobs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <variant>

#include "core/config/config.h"
#include "core/config/job_keys.h"
#include "core/error.h"
#include "tests/words.h"

namespace stepcast::config {
namespace {

const std::filesystem::path kSource = STEPCAST_SOURCE_DIR;
const Library kZoo{kSource};

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

Job transformer_job(std::vector<std::string> more) {
  more.insert(more.begin(), {"workload=llama3-8b", "system=dgx-h100", "batch.global=8"});
  return load_job(text_source("{}", "test"), more, kZoo);
}

}  // namespace

TEST_CASE("docs/job.schema.json is what `list schema` prints", "[config][docs]") {
  CHECK(text_of(kSource / "docs/job.schema.json") == job_schema());
}

TEST_CASE("docs/jobs.md ends with what `list keys` prints", "[config][docs]") {
  const std::string page = text_of(kSource / "docs/jobs.md");
  CHECK(page.substr(std::min(page.find("## All keys"), page.size())) == job_keys_page());
}

TEST_CASE("every trait of a framework is set by its own name", "[config]") {
  using T = FrameworkTraits;
  const std::map<std::string, std::variant<bool T::*, double T::*>> members{
      {"separate_accumulation", &T::separate_accumulation},
      {"scatter_gather", &T::scatter_gather},
      {"fused_quantise", &T::fused_quantise},
      {"synchronous_messages", &T::synchronous_messages},
      {"selective_per_op", &T::selective_per_op},
      {"blocking_launches", &T::blocking_launches},
      {"keeps_outputs", &T::keeps_outputs},
      {"casts_each_pass", &T::casts_each_pass},
      {"gathers_narrow", &T::gathers_narrow},
      {"attention", &T::attention},
      {"attention_fp8_devices", &T::attention_fp8_devices},
      {"fp8_attention", &T::fp8_attention},
      {"copies_gathered", &T::copies_gathered},
      {"narrow_head", &T::narrow_head},
      {"wide_scores", &T::wide_scores},
      {"gradient_passes", &T::gradient_passes},
      {"synchronous_routing", &T::synchronous_routing},
      {"expert_layer_host", &T::expert_layer_host},
      {"exchange_multiprocessors", &T::exchange_multiprocessors},
      {"probabilities_inside", &T::probabilities_inside},
      {"narrow_ids", &T::narrow_ids},
      {"fused_optimizer", &T::fused_optimizer},
      {"arranged_rows", &T::arranged_rows},
      {"distributed_ids", &T::distributed_ids}};
  const std::string prefix = "system.framework_traits.";
  std::set<std::string> keys;
  for (const JobKey& key : job_keys()) {
    if (key.path.starts_with(prefix)) {
      keys.insert(key.path.substr(prefix.size()));
    }
  }
  CHECK(keys.size() == members.size());
  for (const auto& [name, member] : members) {
    INFO(name);
    REQUIRE(keys.contains(name));
    T expected;
    const bool flag = std::holds_alternative<bool T::*>(member);
    if (flag) {
      expected.*std::get<bool T::*>(member) = true;
    } else {
      expected.*std::get<double T::*>(member) = 1.5;
    }
    const Job job = transformer_job({prefix + name + (flag ? "=true" : "=1.5")});
    CHECK(job.system.framework == expected);
    const Job again = load_job(text_source(job_to_json(job), "again"), {}, kZoo);
    CHECK(again.system.framework == expected);
  }
}

TEST_CASE("every key of a job has its facts", "[config][docs]") {
  std::set<std::string> paths;
  for (const JobKey& key : job_keys()) {
    INFO(key.path);
    CHECK(!key.type.empty());
    CHECK(!key.usual.empty());
    CHECK(!key.help.empty());
    CHECK(key.help.find('|') == std::string::npos);
    paths.insert(key.path);
  }
  // One of every object.
  for (const std::string& path : fixtures::words_of(
           "devices batch.micro parallel.tensor parallel.overlap.data parallel.zero.level "
           "formats.compute embedding.constraints.*.sharding optimizer.dense loss.chunks "
           "lora.rank sequence_lengths.mean flows[].every calibration.scale host.issue "
           "workload.heads workload.moe.experts workload.mla.kv_rank workload.tables[].rows "
           "workload.interaction.rank workload.convolutions[].kernel access.zipf "
           "system.fabric[].bandwidth system.tiers[].capacity system.device.memory "
           "system.device.fitted.*.constants")) {
    CHECK(paths.count(path) == 1);
  }
}

TEST_CASE("a default that the table names is what a job without the key has", "[config]") {
  const std::string plain = job_to_json(transformer_job({}));
  std::size_t checked = 0;
  for (const JobKey& key : job_keys()) {
    // Numbers and words that stand in the table as they are written in a job.
    const bool of_split = key.path.starts_with("parallel.") || key.path.starts_with("formats.") ||
                          key.path == "attention" || key.path == "epilogues" ||
                          key.path == "phase" || key.path == "loss" || key.path == "calibration";
    const bool nested = std::count(key.path.begin(), key.path.end(), '.') > 1;
    const bool applies = key.applies.empty() || key.applies.find("transformers") == 0;
    const bool fixed = key.type.find(key.usual) != std::string::npos || key.usual == "true" ||
                       key.usual == "false" || key.usual == "1" || key.usual == "0";
    if (!of_split || nested || !applies || !fixed) {
      continue;
    }
    INFO(key.path << " = " << key.usual);
    CHECK(job_to_json(transformer_job({key.path + "=" + key.usual})) == plain);
    ++checked;
  }
  CHECK(checked >= 20);
}

}  // namespace stepcast::config
