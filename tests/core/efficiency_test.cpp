// The efficiency of a kind of plan, and the names of devices it is measured on.
#include <catch2/catch.hpp>
#include <cmath>
#include <tuple>

#include "core/device_names.h"
#include "core/job/efficiency.h"

using namespace stepcast;

namespace {

EfficiencyTable table() {
  EfficiencyTable t;
  const auto group = [](EfficiencyKeys of, double factor) {
    return EfficiencyGroup{std::move(of), factor, 0, 60, 5};
  };
  t.groups = {group({}, 1.25),
              group({"", "", "", "experts"}, 1.4),
              group({"Hopper", "", "", ""}, 1.2),
              group({"Hopper", "", "megatron-core", ""}, 1.15),
              group({"Hopper", "", "megatron-core", "experts"}, 1.3),
              group({"Hopper", "h100", "megatron-core", ""}, 1.1)};
  using S = EfficiencyScope;
  t.spreads = {{S::kAll, "", "dense", 0.5, 0},
               {S::kAll, "", "experts", 0.7, 0},
               {S::kFramework, "Hopper", "experts", 0.4, 3},
               {S::kDevice, "", "dense", 0.3, 0},
               {S::kDevice, "Hopper", "dense", 0.2, 6}};
  return t;
}

Job job_of(int zero, bool experts) {
  TransformerWorkload w;
  if (experts) {
    w.moe.emplace().experts = 8;
  }
  Job job;
  job.workload.model = w;
  job.parallel.zero = zero;
  return job;
}

}  // namespace

TEST_CASE("an efficiency is that of the narrowest group that was measured", "[core][efficiency]") {
  const EfficiencyTable t = table();
  const auto factor = [&t](const char* generation, const char* device, const char* framework,
                           const char* family) {
    const EfficiencyGroup* group = nearest_efficiency(t, {generation, device, framework, family});
    REQUIRE(group != nullptr);
    return group->factor;
  };
  CHECK(factor("Hopper", "h100", "megatron-core", "dense") == 1.1);    // its own
  CHECK(factor("Hopper", "h100", "megatron-core", "experts") == 1.1);  // shared there
  CHECK(factor("Hopper", "h200", "megatron-core", "dense") == 1.15);   // on its generation
  CHECK(factor("Hopper", "h200", "megatron-core", "experts") == 1.3);
  CHECK(factor("Hopper", "h100", "nanotron", "dense") == 1.2);  // the generation
  CHECK(factor("CDNA 4", "mi355x", "megatron-core", "dense") == 1.25);
  CHECK(factor("CDNA 4", "mi355x", "megatron-core", "experts") == 1.4);
  CHECK(factor("", "mine", "mine", "adapters") == 1.25);
  CHECK(nearest_efficiency({}, {"Hopper", "h100", "megatron-core", "experts"}) == nullptr);
}

TEST_CASE("a few dense runs on a device say nothing of its experts", "[core][efficiency]") {
  EfficiencyTable t = table();
  EfficiencyGroup& own = t.groups.back();  // dense steps on the device
  for (const auto& [rows, factor] : {std::pair{4, 1.3}, {5, 1.1}}) {
    own.rows = rows;
    CAPTURE(rows);
    CHECK(nearest_efficiency(t, {"Hopper", "h100", "megatron-core", "dense"})->factor == 1.1);
    CHECK(nearest_efficiency(t, {"Hopper", "h100", "megatron-core", "experts"})->factor == factor);
  }
}

TEST_CASE("an interval is that of the generation and family, wider where they were not measured",
          "[core][efficiency]") {
  const EfficiencyTable t = table();
  const auto width = [&t](const EfficiencyKeys& keys) {
    return efficiency_width(t, *nearest_efficiency(t, keys), keys);
  };
  CHECK(width({"Hopper", "h100", "megatron-core", "dense"}) == 0.2);
  CHECK(width({"Hopper", "h100", "megatron-core", "experts"}) == 0.4);  // dense steps' factor there
  CHECK(width({"CDNA 4", "mi355x", "x", "dense"}) == 0.5);
  CHECK(width({"CDNA 4", "mi355x", "x", "experts"}) == 0.7);
  CHECK(width({"Hopper", "h100", "x", "dense"}) == 0.7);  // no group so wide was measured
}

TEST_CASE("no way of splitting a job changes its efficiency", "[core][efficiency]") {
  for (const bool experts : {false, true}) {
    Job job = job_of(0, experts);
    const auto family = efficiency_family(job);
    for (int zero = 0; zero < 4; ++zero) {
      job.parallel.zero = zero;
      job.parallel.tensor = 1 << zero;
      job.parallel.pipeline = 4 - zero;
      CHECK(efficiency_family(job) == family);
    }
    job.lora.emplace();
    CHECK(efficiency_family(job) == EfficiencyFamily::kAdapters);
  }
}

TEST_CASE("experts decide a plan's family before sharded weights do", "[core][efficiency]") {
  CHECK(plan_family(job_of(0, false)) == PlanFamily::kTensorPipeline);
  CHECK(plan_family(job_of(2, false)) == PlanFamily::kTensorPipeline);
  CHECK(plan_family(job_of(3, false)) == PlanFamily::kSharded);
  CHECK(plan_family(job_of(3, true)) == PlanFamily::kExperts);
  Job dlrm;
  dlrm.workload.model = LayeredWorkload{};
  CHECK_FALSE(plan_family(dlrm));
}

TEST_CASE("a job takes the efficiency its system carries for its kind of training",
          "[core][efficiency]") {
  Job job = job_of(3, false);
  CHECK_FALSE(efficiency_of(job));
  job.system.fitted[efficiency_key(EfficiencyFamily::kDense)] =
      fitted_efficiency({1.3, 1.1, 1.6, 80, 3, true, true, 0.04, "fsdp2 on h100"});
  const auto efficiency = efficiency_of(job);
  REQUIRE(efficiency);
  CHECK(efficiency->factor == 1.3);
  CHECK(efficiency->rows == 80);
  CHECK(efficiency->sources == 3);
  CHECK(efficiency->own);
  CHECK(efficiency->scatter == 0.04);
  CHECK(efficiency->measured == "fsdp2 on h100");
  job.parallel.zero = 1;
  CHECK(efficiency_of(job)->factor == 1.3);  // another plan
  CHECK_FALSE(efficiency_of([job]() mutable {
    job.lora.emplace();
    return job;
  }()));  // another kind of training
  job.calibration = {Calibration::Kind::kScale, 1.2};
  CHECK_FALSE(efficiency_of(job));  // the user's own scalar
  job.calibration = {};
  job.phase = JobPhase::kDecode;
  CHECK_FALSE(efficiency_of(job));
}

TEST_CASE("a device goes by many names", "[core][devices]") {
  const auto device = [](const char* written) {
    const auto d = device_named(written);
    return d ? d->device : std::string_view("none");
  };
  for (const char* h100 : {"H100", "h100-sxm", "NVIDIA H100 80GB HBM3", "H100-SXM-80GB", "DGX H100",
                           "NVIDIA H100-SXM5-80GB", "h100_sxm", "8x H100 SXM5", "H100 80 GB"}) {
    CAPTURE(h100);
    CHECK(device(h100) == "h100-sxm-80gb");
  }
  CHECK(device("H100-96GB HBM2e 500W") == "h100-sxm-96gb");
  CHECK(device("H100 NVL") == "none");
  CHECK(device("NVIDIA H100 PCIe") == "none");
  CHECK(device("H200") == "h200-sxm-141gb");
  CHECK(device("NVIDIA H200-NVL-141GB") == "h200-nvl-141gb");
  CHECK(device("GB200") == "gb200");
  CHECK(device("GB200 NVL72") == "gb200");
  CHECK(device("NVIDIA Blackwell GPU (B200-SXM-180GB)") == "b200-sxm");
  CHECK(device("A100-SXM-40/80GB?") == "a100-sxm-80gb");
  CHECK(device("A100 40GB") == "a100-sxm-40gb");
  CHECK(device("NVIDIA A100-PCIE-40GB") == "a100-pcie-40gb");
  CHECK(device("V100") == "v100-sxm2-32gb");
  CHECK(device("digitized_4xV100_latency") == "v100-sxm2-32gb");
  CHECK(device("Tesla V100-SXM3-32GB") == "v100-sxm3-32gb");
  CHECK(device("Tesla P100-PCIE-16GB") == "p100");
  CHECK(device("gemm__local-cpu-core__stepcast") == "local-cpu-core");
  CHECK(device("H20") == "h20");
  CHECK(device("GH200") == "gh200");
  CHECK(device("NVIDIA B300 SXM6 AC") == "b300-sxm");
  CHECK(device("H800") == "h800-sxm");
  CHECK(device("NVIDIA RTX PRO 6000 Blackwell Server Edition") == "rtx-pro-6000");
  CHECK(device("NVIDIA GeForce RTX 4090") == "rtx-4090");
  CHECK(device("NVIDIA RTX A6000") == "a6000");
  CHECK(device("NVIDIA GeForce RTX 5090") == "none");
  CHECK(device("AMD Instinct MI300X-NPS1-SPX-192GB-750W") == "mi300x");
  CHECK(device("AMD Instinct MI350X") == "mi350x");
  CHECK(device("TPU v5p") == "tpu-v5p");
  for (const char* trillium : {"TPU-v6e", "TPU v6e", "Trillium", "TPU-Trillium"}) {
    CHECK(device(trillium) == "tpu-trillium");
  }
  for (const char* ironwood : {"TPU7x", "Ironwood", "TPU v7", "TPU v7x"}) {
    CHECK(device(ironwood) == "tpu-v7");
  }
  CHECK(device("Trainium2") == "trn2");
  CHECK(device("AWS Trainium 2") == "trn2");
  CHECK(device("trn2.48xlarge") == "trn2");
  CHECK(device_named("trn2u.48xlarge")->system == "trn2-ultraserver");
  CHECK(device("GH200-96GB") == "gh200");
  CHECK(device("B300-SXM-270GB") == "b300-sxm");
  CHECK(device("TPU v4") == "none");
  CHECK(device("B100") == "none");
  CHECK(device("") == "none");
  CHECK(device_named("aws_p5_efa__nccl_all_gather")->system == "p5-h100");
}
