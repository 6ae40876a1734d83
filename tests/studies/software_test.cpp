#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "core/config/config.h"
#include "core/config/published_names.h"
#include "core/error.h"
#include "core/graph/program.h"
#include "studies/predict/predict.h"
#include "workloads/build_graph.h"

// Effects of a run's software on the step.
using namespace stepcast;
using namespace stepcast::studies;

namespace {

using Settings = std::vector<std::string>;

config::Library library() { return {STEPCAST_SOURCE_DIR}; }

Job job_of(const Settings& settings) {
  return config::load_job(config::text_source("", "test"), settings, library());
}
double seconds(const Settings& settings) { return predict(job_of(settings)).iteration.base(); }

Settings with(Settings base, const Settings& more) {
  base.insert(base.end(), more.begin(), more.end());
  return base;
}

struct Drawn {
  Settings settings;
  bool experts = false;
};

/// Small transformers of the zoo on machines of four generations.
Drawn drawn(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&random](const auto& of) { return of[random() % of.size()]; };
  const bool experts = random() % 3 != 0;
  const std::string workload =
      experts ? pick(std::vector<std::string>{"qwen3-30b-a3b", "mixtral-8x7b", "gpt-oss-20b"})
              : pick(std::vector<std::string>{"llama3-8b", "qwen3-32b", "gpt-22b"});
  const std::string system = pick(
      std::vector<std::string>{"dgx-h100", "dgx-b200", "gb200-nvl72", "dgx-h200", "dgx-a100-80gb"});
  const std::string framework = pick(std::vector<std::string>{
      "nemo@2024", "nemo@25.09", "megatron-core@2024", "megatron-core", "primus"});
  const int pipeline = pick(std::vector<int>{1, 2});
  const int micro = pick(std::vector<int>{1, 2});
  Settings settings{"workload=" + workload,
                    "system=" + system,
                    "framework=" + framework,
                    "devices=16",
                    fmt::format("workload.layers={}", 4),
                    fmt::format("parallel.pipeline={}", pipeline),
                    fmt::format("batch.micro={}", micro),
                    fmt::format("batch.global={}", 16 / pipeline * micro * 4),
                    fmt::format("batch.sequence={}", pick(std::vector<int>{512, 2048, 4096})),
                    fmt::format("parallel.zero={}", pick(std::vector<int>{0, 1}))};
  if (experts) {
    settings.push_back(fmt::format("parallel.expert={}", pick(std::vector<int>{2, 4, 8})));
  } else if (random() % 2 != 0) {
    settings.emplace_back("parallel.tensor=2");
    settings[7] = fmt::format("batch.global={}", 8 / pipeline * micro * 4);
  }
  if (system != "dgx-a100-80gb" && random() % 2 != 0) {
    settings.emplace_back("formats.compute=fp8");
  }
  return {std::move(settings), experts};
}

}  // namespace

TEST_CASE("what the software turns on makes no step slower", "[studies][property]") {
  struct Feature {
    Settings before, on;
    bool of_experts;
  };
  const Settings deepep{"parallel.dispatcher=deepep"};
  const std::vector<Feature> features{
      {{}, {"graphs=layer"}, false},
      {{"graphs=layer"}, {"graphs=full"}, false},
      {{}, {"parallel.fused_experts=true"}, true},
      {{}, {"parallel.overlap.expert=true"}, true},
      {{"parallel.overlap.expert=true"}, {"parallel.overlap.expert=batch"}, true},
      {deepep, {"parallel.fused_permutation=true"}, true},
      {deepep, {"parallel.dispatcher=hybridep"}, true},
      {{"attention={\"kernel\": \"flash2\"}"}, {"attention={\"kernel\": \"cudnn\"}"}, false}};
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const Drawn job = drawn(seed);
    CAPTURE(job.settings);
    for (const Feature& f : features) {
      if (f.of_experts && !job.experts) {
        continue;
      }
      const Settings before = with(job.settings, f.before);
      CAPTURE(f.on);
      CHECK(seconds(with(before, f.on)) <= 1.005 * seconds(before));
    }
  }
}

TEST_CASE("a host that limits the step issues graphs in its place", "[studies][host]") {
  const Settings small{"workload=llama3-8b", "system=dgx-h100",       "framework=nemo",
                       "devices=8",          "batch.global=32",       "batch.micro=1",
                       "batch.sequence=128", "host.issue=\"500 us\"", "workload.layers=8"};
  const double none = seconds(small);
  const double layer = seconds(with(small, {"graphs=layer"}));
  const double full = seconds(with(small, {"graphs=full"}));
  CHECK(layer < 0.5 * none);
  CHECK(full < 0.95 * layer);
}

TEST_CASE("the host's time for experts is per layer and pass, not per op", "[studies][host]") {
  const Settings experts{
      "workload=qwen3-30b-a3b", "system=dgx-h100", "framework=nemo@25.09", "devices=8",
      "parallel.expert=8",      "batch.global=32", "batch.micro=1",        "batch.sequence=512",
      "workload.layers=4"};
  const Job job = job_of(experts);
  CHECK(job.system.framework.expert_layer_host > 0);
  // 4 layers, 2 passes, 4 micro-batches limit the step.
  CHECK(seconds(experts) > 4 * 2 * 4 * job.system.framework.expert_layer_host);
  for (const char* more : {"formats.compute=fp8", "lora={\"rank\": 16}"}) {
    CAPTURE(more);  // casts and adapters take what their launches take
    CHECK(seconds(with(experts, {more})) < 1.05 * seconds(experts));
  }
  for (const char* more : {"graphs=full", "parallel.dispatcher=hybridep"}) {
    CAPTURE(more);
    const Job without = job_of(with(experts, {more}));
    CHECK(without.system.framework.expert_layer_host == 0);
    CHECK_FALSE(without.system.framework.synchronous_routing);
    CHECK(predict(without).iteration.base() < 0.5 * seconds(experts));
  }
}

TEST_CASE("exchanges beside another micro-batch cost what its compute does not hide",
          "[studies][experts]") {
  Settings experts{
      "workload=qwen3-30b-a3b", "system=dgx-h100",  "framework=nemo@26.06", "devices=16",
      "parallel.expert=16",     "batch.global=128", "batch.micro=1",        "batch.sequence=4096",
      "workload.layers=4",      "graphs=full"};
  const double in_turn = seconds(experts);
  experts.emplace_back("parallel.overlap.expert=batch");
  const double beside = seconds(experts);
  CHECK(beside < 0.9 * in_turn);
  // No less than the compute, and than the exchanges: half of the two together.
  CHECK(beside > 0.5 * in_turn);
  experts.emplace_back("system.fabric[1].bandwidth=\"1 GB/s\"");
  const double slow = seconds(experts);
  experts.back() = "system.fabric[1].bandwidth=\"0.5 GB/s\"";
  CHECK(seconds(experts) > 1.8 * slow);  // the exchanges are the step
}

TEST_CASE("a kernel of attention takes its ratio to the measured one", "[studies][attention]") {
  const auto ratio = [](const char* kernel, const char* system) {
    const Job job = job_of({"workload=llama3-8b", fmt::format("system={}", system),
                            fmt::format("attention={{\"kernel\": \"{}\"}}", kernel)});
    const FrameworkTraits& f = job.system.framework;
    return job.system.device.peak.contains(Format::kFp8) ? f.attention_fp8_devices : f.attention;
  };
  CHECK(ratio("flash2", "dgx-h100") == 1.7);  // models/stacks/stacks.json
  CHECK(ratio("flash2", "dgx-a100-80gb") == 1);
  CHECK(ratio("sdpa", "dgx-b200") == 1);
  CHECK(ratio("cudnn", "dgx-h100") == 1);
  CHECK_THROWS_WITH(ratio("flesh2", "dgx-h100"),
                    Catch::Contains("attention.kernel") && Catch::Contains("\"flash2\""));
  // A release names its kernel, also of a job that says no more than that attention is fused.
  const auto of_torch = [](const char* release) {
    return job_of({"workload=llama3-8b", "system=dgx-h100", "attention=flash",
                   fmt::format("framework=fsdp2@{}", release)})
        .system.framework.attention_fp8_devices;
  };
  CHECK(of_torch("torch2.4") == 1.7);
  CHECK(of_torch("torch2.9") == 1);
}

TEST_CASE("buckets hold elements as Megatron-LM counts them", "[studies][buckets]") {
  const auto exchanges = [](const Settings& more) {
    const Job job = job_of(with({"workload=llama3-8b", "system=dgx-h100", "devices=64",
                                 "batch.global=64", "parallel.zero=1"},
                                more));
    const ExecutionGraph graph = workloads::build_graph(job);
    const Program& p = graph.programs.front();
    return std::count_if(p.ops.begin(), p.ops.end(),
                         [&p](const Op& op) { return p.name(op) == "gradients.exchange"; });
  };
  const auto usual = exchanges({});
  const auto megatron = exchanges({"parallel.bucket_elements=megatron"});
  CHECK(megatron == exchanges({"parallel.bucket_elements=64000000"}));  // 64 ranks: over 40 million
  CHECK(megatron < usual);
  CHECK(exchanges({"parallel.bucket_elements=134217728"}) < megatron);
}

TEST_CASE("every release of every framework runs what it is for", "[studies][stacks]") {
  const config::PublishedNames names = config::load_published_names(library());
  for (const config::Framework& framework : names.frameworks) {
    CAPTURE(framework.name);
    if (framework.product == "hugectr" || framework.product == "torchrec") {
      continue;  // of recommenders
    }
    for (const char* workload : {"llama3-8b", "mixtral-8x7b"}) {
      if (framework.name == "hai-llm" && workload == std::string("llama3-8b")) {
        continue;  // of experts alone
      }
      Settings settings{std::string("workload=") + workload, "system=dgx-h100",
                        "framework=" + framework.name, "devices=16", "batch.global=64"};
      CHECK(seconds(settings) > 0);
      settings.emplace_back("parallel.tensor=2");
      CHECK(seconds(settings) > 0);
    }
  }
  CHECK(names.find_framework("nemo")->name == "nemo@26.06");  // the newest
  CHECK(names.find_framework("NeMo@25.04")->name == "nemo@25.04");
  // A release is a difference to the one before.
  const Job first = job_of({"workload=llama3-8b", "system=dgx-h100", "framework=nemo@2024"});
  const Job later = job_of({"workload=llama3-8b", "system=dgx-h100", "stack=nemo@26.06"});
  CHECK(first.parallel.bucket_elements < 0);
  CHECK(later.parallel.bucket_elements == 134217728);
  CHECK(later.formats.gradient == Format::kBf16);
  CHECK(later.parallel.overlap.parameters);
  CHECK_THROWS_WITH(job_of({"workload=llama3-8b", "system=dgx-h100", "framework=nemo@24.99"}),
                    Catch::Contains("--set framework") && Catch::Contains("nemo@25.04"));
}

TEST_CASE("the frozen format of adapters may be that of the products", "[studies][lora]") {
  const auto frozen = [](const char* compute) {
    return job_of(
               {"workload=llama2-70b", "system=dgx-b200", "lora={\"rank\": 16}",
                fmt::format("formats={{\"compute\": \"{}\", \"frozen\": \"compute\"}}", compute)})
        .formats.frozen;
  };
  CHECK(frozen("nvfp4") == Format::kNvfp4);
  CHECK(frozen("fp8") == Format::kFp8);
}
