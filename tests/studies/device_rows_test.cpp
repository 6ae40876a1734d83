// Measurements of a device sweep, as rows for the fits: written, read back, fitted.
#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "core/whole_file.h"
#include "models/measured/measured_table.h"
#include "studies/fit/calibration_rows.h"
#include "studies/fit/device_rows.h"

namespace {

using namespace stepcast;
using runtime::calibration::DeviceCase;
using runtime::calibration::DeviceSweep;
using runtime::calibration::SweepPart;

/// A device without a GPU: every case takes its bytes at 1 TB/s plus its FLOPs at 100 TFLOP/s plus
/// 2 us.
DeviceSweep made_sweep(std::size_t of_each_part) {
  DeviceSweep sweep;
  sweep.facts.name = "Made Device 80GB";
  sweep.facts.memory = GB(80);
  sweep.facts.l2 = MB(50);
  sweep.facts.multiprocessors = 132;
  sweep.facts.copy = GBps(2000);
  sweep.facts.launch = {2e-6, 3e-6, 4e-6};
  std::array<std::size_t, 4> taken{};
  for (const DeviceCase& c : runtime::calibration::device_cases(3, GB(40))) {
    if (taken.at(static_cast<std::size_t>(c.part))++ < of_each_part) {
      const double t =
          2e-6 + (c.op.bytes_read + c.op.bytes_written).base() / 1e12 + c.op.flops.base() / 1e14;
      sweep.samples.push_back({c, Seconds(t), Seconds(t), Seconds(t), 9});
    }
  }
  return sweep;
}

}  // namespace

TEST_CASE("cases of a sweep have work, fit the memory and come in one order", "[calibration]") {
  const auto cases = runtime::calibration::device_cases(1, GB(20));
  std::set<OpKind> kinds;
  for (const DeviceCase& c : cases) {
    CAPTURE(text_of(c));
    REQUIRE((c.op.bytes_read + c.op.bytes_written).base() > 0);
    kinds.insert(c.op.kind);
    if (c.part == SweepPart::kEmbedding) {
      REQUIRE(static_cast<double>(c.embedding.rows * c.embedding.dim) * 4 <=
              10e9);  // half the memory
    }
  }
  CHECK(kinds.size() > 20);
  const auto again = runtime::calibration::device_cases(1, GB(20));
  REQUIRE(again.size() == cases.size());
  for (std::size_t i = 0; i < cases.size(); i += 97) {
    CHECK(text_of(again[i]) == text_of(cases[i]));
  }
  // Anchors first, in one order whatever the seed; then the others, shuffled.
  const auto other = runtime::calibration::device_cases(2, GB(20));
  std::size_t anchors = 0;
  while (is_anchor(cases[anchors])) {
    CHECK(text_of(other[anchors]) == text_of(cases[anchors]));
    ++anchors;
  }
  CHECK(anchors >= 20);
  CHECK(text_of(other[anchors]) != text_of(cases[anchors]));
  std::set<SweepPart> with_anchors;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    with_anchors.insert(is_anchor(cases[i]) ? cases[i].part : SweepPart::kCount);
    CHECK((!is_anchor(cases[i]) || i == 0 || cases[i].part != cases[i - 1].part ||
           is_anchor(cases[i - 1])));
  }
  CHECK(with_anchors.size() == 5);  // all four parts, and what is none
  double shares = 0;
  for (const SweepPart p :
       {SweepPart::kEmbedding, SweepPart::kGemm, SweepPart::kAttention, SweepPart::kMemoryBound}) {
    shares += share_of(p);
  }
  CHECK(shares < 1);
}

TEST_CASE("rows of a sweep are read back by fit with their times, tables and reuse",
          "[calibration]") {
  const DeviceSweep sweep = made_sweep(40);
  studies::FitRows rows;
  studies::add_device_sweep(rows, sweep, MB(200));
  REQUIRE(rows.ops.size() == sweep.samples.size());
  const auto file =
      std::filesystem::temp_directory_path() / fmt::format("stepcast-device-rows-{}.csv", getpid());
  write_whole_file(file, studies::calibration_csv(rows));
  const models::MeasuredTable table = models::read_measured(file, {.device = "made"});
  std::filesystem::remove(file);
  CHECK(table.skipped.empty());
  REQUIRE(table.ops.size() == sweep.samples.size());
  CHECK(table.host.size() == 3);  // one launch cost per batch of launches
  for (std::size_t i = 0; i < table.ops.size(); ++i) {
    const Op& op = table.op(table.ops[i]);
    CHECK(op.kind == sweep.samples[i].what.op.kind);
    CHECK(op.shape == sweep.samples[i].what.op.shape);
    CHECK(table.ops[i].time.base() == Approx(sweep.samples[i].median.base()));
    if (sweep.samples[i].what.part == SweepPart::kEmbedding) {
      const EmbeddingGroup& group = *table.program->group_of(op);
      CHECK(group.shards.at(0).rows == sweep.samples[i].what.embedding.rows);
      CHECK(group.optimizer == sweep.samples[i].what.embedding.optimizer);
    }
  }
}

TEST_CASE("facts of a swept device", "[calibration]") {
  const System system = studies::measured_system(made_sweep(40), 1, 1);
  CHECK(system.device.name == "made-device-80gb");
  CHECK(system.device.bandwidth == GBps(2000));
  CHECK(system.device.launch.base() == Approx(3e-6));  // the median of 2, 3 and 4 us
  CHECK(system.device.peak.at(Format::kBf16).base() <
        1e14);  // below the made rate by its overheads
  CHECK(system.device.peak.at(Format::kBf16).base() > 5e13);
}
