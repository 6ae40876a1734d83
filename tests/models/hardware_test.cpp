#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <string>

#include "core/config/config.h"
#include "models/cost_model.h"

using namespace stepcast;

// Facts of the zoo's devices and systems: consistent among themselves, and equal to published
// figures where the arithmetic behind those is known.

namespace {

const config::Library kLibrary{STEPCAST_SOURCE_DIR};

double tera(const Device& d, Format f) { return d.peak.at(f).base() * 1e-12; }

}  // namespace

TEST_CASE("peaks of a device never fall as formats narrow", "[models][hardware]") {
  for (const auto& entry : config::list_devices(kLibrary)) {
    CAPTURE(entry.name);
    const Device d = config::load_device(entry.name, kLibrary);
    double before = 0;
    for (const Format f : {Format::kFp32, Format::kTf32, Format::kFp16, Format::kFp8}) {
      const auto peak = d.peak.find(f);
      if (peak != d.peak.end()) {
        CHECK(peak->second.base() >= before);
        before = peak->second.base();
      }
    }
    if (d.peak.contains(Format::kBf16)) {
      CHECK(tera(d, Format::kBf16) == tera(d, Format::kFp16));
    }
    if (d.peak.contains(Format::kFp8)) {
      // Trainium2: 1,299 and 667.
      CHECK(tera(d, Format::kFp8) == Approx(2 * tera(d, Format::kFp16)).epsilon(0.03));
    }
    CHECK(d.memory > d.l2);
    CHECK(d.watts > 0);
    CHECK(d.launch > Seconds{});
    // Fewer than 10 and more than 2000 FLOP per byte would be another kind of machine.
    const double intensity = d.peak.rbegin()->second.base() / d.bandwidth.base();
    CHECK(intensity > 10);
    CHECK(intensity < 2000);  // fp4 of GB300: 15 PFLOP/s over 8 TB/s
    // The source is for the facts, not a name.
    CHECK(d.source.size() > 40);
  }
}

TEST_CASE("memory is what programs see, not the GB of a data sheet", "[models][hardware]") {
  // Drivers keep a percent of what vendors state, whose GB are GiB. Where more is missing (ECC
  // keeps a sixteenth of GDDR, XLA 0.75 GiB), the file says the figure and who saw it.
  const std::map<std::string, double> stated{{"a10", 24},
                                             {"a100-pcie-40gb", 40},
                                             {"a100-sxm-40gb", 40},
                                             {"a100-sxm-80gb", 80},
                                             {"a6000", 48},
                                             {"a800-sxm", 80},
                                             {"b200-sxm", 180},
                                             {"b300-sxm", 270},
                                             {"gb200", 186},
                                             {"gb300", 279},
                                             {"gh200", 96},
                                             {"h100-sxm-80gb", 80},
                                             {"h100-sxm-96gb", 96},
                                             {"h20", 96},
                                             {"h200-nvl-141gb", 141},
                                             {"h200-sxm-141gb", 141},
                                             {"h800-sxm", 80},
                                             {"l4", 24},
                                             {"l40s", 48},
                                             {"mi300x", 192},
                                             {"mi325x", 256},
                                             {"mi350x", 288},
                                             {"mi355x", 288},
                                             {"p100", 16},
                                             {"p4", 8},
                                             {"rtx-4090", 24},
                                             {"rtx-pro-6000", 96},
                                             {"t4", 16},
                                             {"tpu-trillium", 32},
                                             {"tpu-v5p", 96},
                                             {"tpu-v7", 192},
                                             {"trn2", 96},
                                             {"v100-pcie-32gb", 32},
                                             {"v100-sxm2-16gb", 16},
                                             {"v100-sxm2-32gb", 32},
                                             {"v100-sxm3-32gb", 32}};
  for (const auto& entry : config::list_devices(kLibrary)) {
    CAPTURE(entry.name);
    const Device d = config::load_device(entry.name, kLibrary);
    REQUIRE(stated.count(d.name) == 1);  // a new device: add what its vendor states
    const double gib = d.memory.base() / GiB(1).base();
    const double share = gib / stated.at(d.name);
    CAPTURE(gib, share);
    CHECK(share <= 1);
    const bool measured = d.source.find(fmt::format("{:.2f} GiB in", gib)) != std::string::npos;
    CHECK((share >= 0.985 || (measured && share > 0.9)));
    CHECK(d.source.find("memory is what ") != std::string::npos);
    const double decimal = d.memory.base() * 1e-9;
    CHECK(std::abs(decimal - std::round(decimal)) > 1e-6);  // 141 GB read as 131 GiB
  }
}

TEST_CASE("peaks follow from multiprocessors and clocks", "[models][hardware]") {
  // FLOP/s = multiprocessors * FLOP per cycle and multiprocessor * boost clock (white papers).
  struct Known {
    const char* name;
    Format format;
    double per_cycle;
    double clock_ghz;
  };
  for (const Known& k : {
           Known{"v100-sxm2-16gb", Format::kFp16, 1024, 1.530},
           Known{"v100-sxm2-32gb", Format::kFp32, 128, 1.530},
           Known{"v100-pcie-32gb", Format::kFp32, 128, 1.370},
           Known{"v100-sxm3-32gb", Format::kFp16, 1024, 1.597},
           Known{"p100", Format::kFp32, 128, 1.480},
           Known{"p4", Format::kFp32, 256, 1.063},
           Known{"t4", Format::kFp16, 1024, 1.590},
           Known{"a100-sxm-80gb", Format::kBf16, 2048, 1.410},
           Known{"a100-pcie-40gb", Format::kFp32, 128, 1.410},
           Known{"h100-sxm-80gb", Format::kBf16, 4096, 1.830},
           Known{"h200-sxm-141gb", Format::kBf16, 4096, 1.830},
           Known{"l40s", Format::kFp32, 256, 2.520},
           Known{"h800-sxm", Format::kBf16, 4096, 1.830},
           Known{"a800-sxm", Format::kBf16, 2048, 1.410},
           Known{"gh200", Format::kBf16, 4096, 1.830},
           Known{"l4", Format::kBf16, 1024, 2.040},
           Known{"a10", Format::kBf16, 1024, 1.695},
           Known{"a6000", Format::kBf16, 1024, 1.800},
           Known{"rtx-4090", Format::kBf16, 512, 2.520},
           Known{"mi300x", Format::kBf16, 2048, 2.100},
           Known{"mi325x", Format::kBf16, 2048, 2.100},
           Known{"mi355x", Format::kBf16, 4096, 2.400},
           Known{"mi350x", Format::kBf16, 4096, 2.200},
           Known{"b200-sxm", Format::kFp32, 256, 1.965},
       }) {
    CAPTURE(k.name);
    const Device d = config::load_device(k.name, kLibrary);
    const double peak = static_cast<double>(d.multiprocessors) * k.per_cycle * k.clock_ghz * 1e-3;
    CHECK(tera(d, k.format) == Approx(peak).epsilon(0.02));
  }
}

TEST_CASE("memory bandwidth follows from bus width and data rate", "[models][hardware]") {
  // GB/s = bits of the bus / 8 * Gbit/s per pin (data sheets).
  struct Known {
    const char* name;
    double bits, rate;
  };
  for (const Known& k : {
           Known{"v100-sxm2-32gb", 4096, 1.755},
           Known{"p100", 4096, 1.43},
           Known{"p4", 256, 6.0},
           Known{"t4", 256, 10.0},
           Known{"a100-sxm-40gb", 5120, 2.43},
           Known{"a100-sxm-80gb", 5120, 3.186},
           Known{"h100-sxm-80gb", 5120, 5.23},
           Known{"h200-sxm-141gb", 6144, 6.25},
           Known{"b200-sxm", 7680, 7.992},
           Known{"l40s", 384, 18.0},
           Known{"l4", 192, 12.5},
           Known{"a10", 384, 12.5},
           Known{"a6000", 384, 16.0},
           Known{"rtx-4090", 384, 21.0},
           Known{"rtx-pro-6000", 512, 28.0},
           Known{"mi300x", 8192, 5.2},
       }) {
    CAPTURE(k.name);
    const Device d = config::load_device(k.name, kLibrary);
    CHECK(d.bandwidth.base() * 1e-9 == Approx(k.bits / 8 * k.rate).epsilon(0.01));
  }
}

TEST_CASE("fabrics of systems are those of their machines", "[models][hardware]") {
  // GB/s per device and direction: NVLinks * GB/s per link; NIC: Gbit/s / 8 * NICs per device.
  struct Known {
    const char* name;
    std::int64_t inner;  // devices the innermost level joins
    double inner_gbs, outer_gbs;
  };
  for (const Known& k : {
           Known{"dgx-v100-32gb", 8, 6 * 25.0, 4 * 12.5 / 8},
           Known{"dgx2h-v100", 16, 6 * 25.0, 8 * 12.5 / 16},
           Known{"dgx-a100-40gb", 8, 12 * 25.0, 25},
           Known{"dgx-a100-80gb", 8, 12 * 25.0, 25},
           Known{"zionex-a100-40gb", 8, 12 * 25.0, 25},
           Known{"dgx-h100", 8, 18 * 25.0, 50},
           Known{"p5-h100", 8, 18 * 25.0, 50},
           Known{"dgx-h200", 8, 18 * 25.0, 50},
           Known{"dgx-b200", 8, 18 * 50.0, 50},
           Known{"dgx-b300", 8, 18 * 50.0, 100},
           Known{"gb300-nvl72", 72, 18 * 50.0, 100},
           Known{"h20-8", 8, 18 * 25.0, 50},
           Known{"h800-8", 8, 8 * 25.0, 50},
           Known{"a800-8", 8, 8 * 25.0, 25},
           Known{"mi300x-8", 8, 7 * 64.0, 50},
           Known{"mi355x-8", 8, 7 * 76.8, 50},
           Known{"mi350x-8", 8, 7 * 76.8, 50},
           Known{"gh200-4", 4, 18 * 25.0, 25},
           Known{"trn2-16", 16, 1024 / 2.0, 3200 / 8.0 / 16},
           Known{"trn2-ultraserver", 16, 1024 / 2.0, 256 / 2.0},
           Known{"tpu-v7-pod", 9216, 1200 / 2.0, 100 / 8.0},
           Known{"gb200-nvl72", 72, 18 * 50.0, 50},
       }) {
    CAPTURE(k.name);
    const System s = config::load_system(k.name, kLibrary);
    REQUIRE(s.fabric.size() >= 2);
    CHECK(s.fabric[0].size == k.inner);
    CHECK(s.fabric[0].bandwidth.base() * 1e-9 == Approx(k.inner_gbs));
    CHECK(s.fabric[1].bandwidth.base() * 1e-9 == Approx(k.outer_gbs));
  }
  for (const auto& entry : config::list_systems(kLibrary)) {
    CAPTURE(entry.name);
    const System s = config::load_system(entry.name, kLibrary);
    CHECK(s.host.devices >= 1);
    CHECK(s.host.cores >= s.host.devices);
    for (const FabricLevel& level : s.fabric) {
      CHECK(level.size >= 2);
      CHECK(level.latency > Seconds{});
      CHECK(level.oversubscription >= 1);
    }
    for (const Tier& tier : s.tiers) {
      CHECK(tier.capacity > Bytes{});
      CHECK(tier.bandwidth.base() > 0);
      // Reached over a link of the host: never as fast as the device's own memory.
      if (tier.name != "hbm") {
        CHECK(tier.bandwidth.base() / static_cast<double>(tier.shared_by) <
              s.device.bandwidth.base());
        CHECK(tier.shared_by == s.host.devices);
      }
    }
  }
}

TEST_CASE("every fitted entry was measured or says that it is transferred", "[models][hardware]") {
  const auto check = [](const FittedModels& fitted) {
    CHECK_FALSE(fitted.empty());
    for (const auto& [key, model] : fitted) {
      CAPTURE(key, model.source);
      CHECK_FALSE(model.form.empty());
      if (model.form == "step.spread") {  // where steps lie about predictions: no fit of a time
        CHECK(model.constants.at("low") < 0);
        CHECK(model.constants.at("high") > 0);
        CHECK((model.samples > 0) == (model.source.find("no published step") == std::string::npos));
        continue;
      }
      CHECK((model.log_sigma > 0) != (model.form == "memory.reserve"));  // bytes have no scatter
      const auto says = [&source = model.source](const char* text) {
        return source.find(text) != std::string::npos;
      };
      const bool marked = says("transferred") || says("reference figures, not a fit") ||
                          says("all kinds together, for kinds without rows");
      if (model.samples == 0) {
        CHECK(marked);
        CHECK(model.range.empty());
      } else {
        CHECK_FALSE(marked);
        CHECK(model.error.median > 0);
      }
    }
  };
  for (const auto& entry : config::list_devices(kLibrary)) {
    CAPTURE(entry.name);
    check(config::load_device(entry.name, kLibrary).fitted);
  }
  for (const auto& entry : config::list_systems(kLibrary)) {
    CAPTURE(entry.name);
    check(config::load_system(entry.name, kLibrary).fitted);
  }
}
