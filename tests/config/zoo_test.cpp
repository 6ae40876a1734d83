#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <set>

#include "core/config/config.h"
#include "core/config/document.h"
#include "core/error.h"
#include "tests/words.h"

using namespace stepcast;
using namespace stepcast::config;

namespace {
const Library kLibrary{STEPCAST_SOURCE_DIR};

std::set<std::string> names(const std::vector<Entry>& entries) {
  std::set<std::string> all;
  for (const Entry& e : entries) {
    all.insert(e.name);
    CHECK_FALSE(e.facts.empty());
  }
  return all;
}
}  // namespace

TEST_CASE("the library holds every device and system of the contract", "[config][zoo]") {
  const auto devices = names(list_devices(kLibrary));
  for (const std::string& d : fixtures::words_of(
           "v100-sxm2-16gb v100-sxm2-32gb v100-sxm3-32gb v100-pcie-32gb p100 p4 t4 "
           "a100-sxm-40gb a100-sxm-80gb a100-pcie-40gb h100-sxm-80gb h100-sxm-96gb "
           "h200-sxm-141gb b200-sxm gb200 l40s b300-sxm gb300 h20 h800-sxm a800-sxm gh200 l4 "
           "a10 a6000 rtx-4090 rtx-pro-6000 mi300x mi325x mi355x mi350x tpu-v5p tpu-trillium "
           "tpu-v7 trn2")) {
    CAPTURE(d);
    REQUIRE(devices.count(d) == 1);
    const Device device = load_device(d, kLibrary);
    CHECK(device.name == d);
    CHECK(device.peak.count(Format::kFp32) == 1);
    CHECK_FALSE(device.source.empty());
    // Nothing in the zoo runs at the limits of its data sheet.
    CHECK(device.fitted.count("gemm") + device.fitted.count("gemm.bf16") > 0);
  }
  const auto systems = names(list_systems(kLibrary));
  for (const char* s :
       {"dgx-v100-32gb", "dgx2h-v100",       "dgx-a100-40gb", "dgx-a100-80gb", "zionex-a100-40gb",
        "dgx-h100",      "p5-h100",          "dgx-h200",      "dgx-b200",      "gb200-nvl72",
        "l40s-8",        "dgx-b300",         "gb300-nvl72",   "h20-8",         "h800-8",
        "a800-8",        "gh200-1",          "l4-8",          "a10-8",         "a6000-8",
        "rtx-4090-8",    "rtx-pro-6000-8",   "mi300x-8",      "mi325x-8",      "mi355x-8",
        "tpu-v5p-pod",   "tpu-trillium-pod", "mi350x-8",      "gh200-4",       "tpu-v7-pod",
        "trn2-16",       "trn2-ultraserver"}) {
    CAPTURE(s);
    REQUIRE(systems.count(s) == 1);
    const System system = load_system(s, kLibrary);
    CHECK(system.name == s);
    CHECK(system.tiers.front().name == "hbm");
    CHECK(system.tiers.front().capacity == system.device.memory);
    CHECK(system.devices_in_level(0) % system.host.devices == 0);  // nvl72: 18 machines of 4
    // Inner links are never slower than outer ones.
    for (std::size_t i = 1; i < system.fabric.size(); ++i) {
      CHECK(system.fabric[i].bandwidth <= system.fabric[i - 1].bandwidth);
    }
  }
  CHECK(load_system("gb200-nvl72", kLibrary).host.devices == 4);
}

TEST_CASE("each zoo workload loads, has a default batch and runs on one machine", "[config][zoo]") {
  const auto workloads = names(list_workloads(kLibrary));
  CHECK(workloads.size() == 129);
  for (const std::string& w : workloads) {
    CAPTURE(w);
    const Workload workload = load_workload(w, kLibrary);
    CHECK(workload.name == w);
    REQUIRE(workload.default_batch.has_value());
    const Job job = load_job(
        text_source("", "job"),
        {"workload=" + w, "system=dgx-h100",
         workload.transformer() != nullptr && w == "gpt-22b" ? "parallel.tensor=8" : "devices=8"},
        kLibrary);
    CHECK(job.devices == 8);
    CHECK(job.microbatches() >= 1);
    CHECK(job.parallel.data * job.parallel.tensor == 8);
  }
}

TEST_CASE("parameters of the zoo's transformers are the published ones", "[config][zoo][oracle]") {
  // In billions, from the papers (SC21 Table 1 prints its own formula; model cards for the others),
  // within 1 %.
  const std::map<std::string, double> published{
      {"gpt3-175b", 175},      {"sc21-1.7b", 1.65},     {"sc21-3.6b", 3.6},
      {"sc21-7.5b", 7.5},      {"sc21-18b", 18.4},      {"sc21-39b", 39.1},
      {"sc21-76b", 76.1},      {"sc21-145b", 145.6},    {"sc21-310b", 310.1},
      {"sc21-530b", 529.6},    {"sc21-1t", 1008},       {"gpt-22b", 22},
      {"mt-nlg-530b", 530},    {"bloom-176b", 176.2},   {"llama2-7b", 6.74},
      {"llama2-13b", 13.02},   {"llama2-70b", 68.98},   {"llama3-8b", 8.03},
      {"llama3-70b", 70.55},   {"llama3-405b", 405.85}, {"nemotron4-15b", 15.6},
      {"nemotron4-340b", 341}, {"megatron-8.3b", 8.3},  {"mpt-7b", 6.65},
      {"mpt-30b", 29.98},      {"mixtral-8x7b", 46.7},  {"deepseek-v3", 671},
      {"qwen3-32b", 32.8},     {"qwen3-30b-a3b", 30.5}, {"qwen3-235b-a22b", 235.1}};
  for (const auto& [name, billions] : published) {
    CAPTURE(name);
    CHECK(parameter_count(load_workload(name, kLibrary)) / 1e9 == Approx(billions).epsilon(0.012));
  }
  // Those of published weights stand in the file: "... config.json: 7.62 B parameters".
  int stated = 0;
  for (const Entry& e : list_workloads(kLibrary)) {
    CAPTURE(e.name);
    const Json file = parse_json(read_whole_file(std::filesystem::path(STEPCAST_SOURCE_DIR) /
                                                     "workloads/zoo" / (e.name + ".json"),
                                                 e.name, kLargestJson),
                                 e.name);
    const std::string source = file.value("source", "");
    const auto at = source.find("config.json: ");
    if (at != std::string::npos && source.find(" B parameters", at) != std::string::npos) {
      ++stated;
      CHECK(parameter_count(load_workload(e.name, kLibrary)) / 1e9 ==
            Approx(std::stod(source.substr(at + 13))).epsilon(0.005));
    }
  }
  CHECK(stated >= 54);
  // SC21's formula 12 l h^2 (1 + 13/(12h) + (V+s)/(12 l h)) for its largest model, with s = 2048
  // learned positions.
  const double l = 128, h = 25600, v = 51200, s = 2048;
  const double formula = 12 * l * h * h * (1 + 13 / (12 * h) + (v + s) / (12 * l * h));
  // We count the final LayerNorm too: 2h.
  CHECK(parameter_count(load_workload("sc21-1t", kLibrary)) ==
        Approx(formula + 2 * h).epsilon(1e-12));
}

TEST_CASE("the zoo's tables are the published ones", "[config][zoo]") {
  const Workload v2 = load_workload("mlperf-dlrm-v2", kLibrary);
  double rows = 0, lookups = 0;
  for (const EmbeddingTable& t : v2.layered()->tables) {
    rows += static_cast<double>(t.rows);
    lookups += t.pooling;
  }
  CHECK(rows == 204184588);  // total_rows of the reference configuration
  CHECK(lookups == 214);
  CHECK(load_workload("hugectr-510", kLibrary).layered()->tables.size() == 510);
  // 8 x 1e6 x 64, MLPs 512-512-64 and (64 + 36)-1024-1024-1024-1: 36 = 9 * 8 / 2 dots.
  const double mlps = (512 * 512 + 512) + (512 * 64 + 64) + (100 * 1024 + 1024) +
                      2 * (1024 * 1024 + 1024) + (1024 + 1);
  CHECK(parameter_count(load_workload("dlrm-default", kLibrary)) == 8e6 * 64 + mlps);
}
