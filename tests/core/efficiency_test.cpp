// The efficiency of a kind of plan, and the names of devices it is measured on.
#include <catch2/catch.hpp>
#include <cmath>

#include "core/device_names.h"
#include "core/job/efficiency.h"

using namespace stepcast;

namespace {

EfficiencyTable table() {
  EfficiencyTable t;
  t.groups = {{"h100", "megatron-core", "tensor/pipeline", 1.1, 1.0, 1.2, 60, 5},
              {"", "megatron-core", "tensor/pipeline", 1.15, 1.0, 1.3, 90, 6},
              {"h200", "", "tensor/pipeline", 1.05, 1.0, 1.2, 4, 2},
              {"", "", "tensor/pipeline", 1.2, 1.0, 1.5, 140, 9},
              {"", "", "fsdp", 1.3, 1.0, 1.7, 80, 3},
              {"", "", "", 1.25, 0.9, 1.8, 220, 11}};
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

TEST_CASE("a pace is that of the nearest group that was measured", "[core][pace]") {
  const EfficiencyTable t = table();
  const auto factor = [&t](const char* device, const char* framework, const char* family) {
    const EfficiencyGroup* group = nearest_efficiency(t, device, framework, family);
    REQUIRE(group != nullptr);
    return group->factor;
  };
  CHECK(factor("h100", "megatron-core", "tensor/pipeline") == 1.1);   // its own
  CHECK(factor("b200", "megatron-core", "tensor/pipeline") == 1.15);  // the framework elsewhere
  CHECK(factor("h200", "megatron-core", "tensor/pipeline") == 1.15);  // before other frameworks
  CHECK(factor("h200", "nanotron", "tensor/pipeline") == 1.05);       // the family on that GPU
  CHECK(factor("h100", "nanotron", "tensor/pipeline") == 1.2);        // the family
  CHECK(factor("h100", "megatron-core", "fsdp") == 1.3);
  CHECK(factor("h100", "megatron-core", "experts") == 1.25);  // all runs
  CHECK(nearest_efficiency({}, "h100", "megatron-core", "experts") == nullptr);
}

TEST_CASE("experts decide a plan's family before sharded weights do", "[core][pace]") {
  CHECK(plan_family(job_of(0, false)) == PlanFamily::kTensorPipeline);
  CHECK(plan_family(job_of(2, false)) == PlanFamily::kTensorPipeline);
  CHECK(plan_family(job_of(3, false)) == PlanFamily::kSharded);
  CHECK(plan_family(job_of(3, true)) == PlanFamily::kExperts);
  Job dlrm;
  dlrm.workload.model = LayeredWorkload{};
  CHECK_FALSE(plan_family(dlrm));
}

TEST_CASE("a job takes the pace its system carries for its kind of plan", "[core][pace]") {
  Job job = job_of(3, false);
  CHECK_FALSE(efficiency_of(job));
  job.system.fitted[efficiency_key(PlanFamily::kSharded)] =
      fitted_efficiency({1.3, 1.1, 1.6, 80, 3, true, "fsdp2 on h100"});
  const auto efficiency = efficiency_of(job);
  REQUIRE(efficiency);
  CHECK(efficiency->factor == 1.3);
  CHECK(efficiency->rows == 80);
  CHECK(efficiency->sources == 3);
  CHECK(efficiency->own);
  CHECK(efficiency->measured == "fsdp2 on h100");
  job.parallel.zero = 1;
  CHECK_FALSE(efficiency_of(job));  // another kind of plan
  job.parallel.zero = 3;
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
