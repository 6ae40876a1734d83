// Memory of devices as PyTorch recorded it: snapshots and events of Kineto.
#include "traces/memory/memory_record.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "tests/studies/kineto_events.h"
#include "tests/traces/shared_traces.h"

using namespace stepcast;
using namespace stepcast::traces;
using Catch::Contains;

namespace {

constexpr std::int64_t kMiB = 1 << 20;

/// A dictionary as torch.cuda.memory._snapshot makes it, written by Python's pickle, protocol 4: a
/// segment of 100 MiB at 1000 MiB; blocks of 40 (a module's __init__), 20 and 10 (forward, the
/// first freed again), 8 (no Python frame) and 4 MiB (Adam's states); then 30 MiB that do not fit.
std::string snapshot() {
  return test::text_of(std::string(STEPCAST_SOURCE_DIR) +
                       "/tests/traces/corpus_memory/out_of_memory.pickle");
}

std::vector<MemoryRecord> read(const std::string& bytes) {
  Input input = Input::of_text("s.pickle", bytes);
  return read_memory_snapshot(input);
}

}  // namespace

TEST_CASE("a snapshot tells the peak of memory, who held it and why it ran out",
          "[traces][memory]") {
  const test::Folder folder;
  const auto file = folder.file("s.pickle", snapshot());
  CHECK(is_memory_snapshot(file));
  const std::vector<MemoryRecord> all = open_memory(file);
  REQUIRE(all.size() == 1);
  const MemoryMoment peak = memory_peak(all[0]);
  CHECK(peak.allocated == 78 * kMiB);  // 40 + 20 + 10 + 8
  CHECK(peak.reserved == 100 * kMiB);
  REQUIRE(peak.rows.size() == 3);
  CHECK(peak.rows[0].place.name == "__init__ train.py:5");
  CHECK(peak.rows[0].bytes == 40 * kMiB);
  CHECK(peak.rows[1].place.name == "forward model.py:12");
  CHECK(peak.rows[1].bytes == 30 * kMiB);
  CHECK(peak.rows[1].blocks == 2);
  const auto of = [](const MemoryMoment& m, MemoryUse use) {
    return m.by_use[static_cast<std::size_t>(use)] / kMiB;
  };
  CHECK(of(peak, MemoryUse::kWeights) == 40);
  CHECK(of(peak, MemoryUse::kForward) == 30);
  CHECK(of(peak, MemoryUse::kOptimizer) == 0);
  const auto out = out_of_memory(all[0]);
  REQUIRE(out);
  CHECK(out->asked == 30 * kMiB);
  CHECK(out->device_free == 2 * kMiB);
  CHECK(out->place == "forward model.py:12");
  CHECK(out->then.allocated == 62 * kMiB);
  CHECK(of(out->then, MemoryUse::kOptimizer) == 4);
  CHECK(of(out->then, MemoryUse::kForward) == 10);
  CHECK(out->unused() == 38 * kMiB);  // in gaps of 20 and 18: fragments
}

TEST_CASE("a pickle that would run code, or is cut, is refused with its byte",
          "[traces][memory][malformed]") {
  // cos\nsystem\n(S'true'\ntR. is what pickle calls os.system('true') with.
  CHECK_THROWS_WITH(read(std::string("\x80\x04") + "cos\nsystem\n(X\x04\0\0\0true"
                                                   "tR."),
                    Contains("s.pickle: byte 3") && Contains("would name or call code"));
  const std::string whole = snapshot();
  for (std::size_t cut = 2; cut < whole.size(); cut += 7) {
    CHECK_THROWS_AS(read(whole.substr(0, cut)), InputError);
  }
  for (std::size_t at = 2; at < whole.size(); at += 3) {  // damaged: refused or read, no more
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x15);
    try {
      for (const MemoryRecord& r : read(damaged)) {
        (void)memory_peak(r);
        (void)out_of_memory(r);
      }
    } catch (const InputError&) {
    }
  }
}

TEST_CASE("memory events of Kineto are told by the module or operator around them",
          "[traces][memory]") {
  const test::Folder folder;
  const auto change = [](int at, long address, long bytes, long total) {
    return fmt::format(
        R"(,{{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":1,"ts":{},"args":{{"Device Type":1,"Device Id":0,"Addr":{},"Bytes":{},"Total Allocated":{},"Total Reserved":4096}}}})",
        at, address, bytes, total);
  };
  // 1000 bytes are held before; 300 in a linear module, 500 by an operator, 300 freed, 100 more.
  const auto file = folder.file(
      "memory.json",
      R"({"traceEvents":[{"ph":"X","cat":"python_function","name":"nn.Module: Linear_0","pid":1,"tid":1,"ts":10,"dur":10},
{"ph":"X","cat":"cpu_op","name":"aten::linear","pid":1,"tid":1,"ts":11,"dur":5},
{"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":1,"ts":30,"dur":5})" +
          change(12, 7000, 300, 1300) + change(31, 8000, 500, 1800) + change(40, 7000, -300, 1500) +
          change(41, 9000, 100, 1600) + "]}");
  const std::vector<MemoryRecord> all = open_memory(file);
  REQUIRE(all.size() == 1);
  const MemoryMoment peak = memory_peak(all[0]);
  CHECK(peak.allocated == 1800);
  CHECK(peak.reserved == 4096);
  REQUIRE(peak.rows.size() == 3);
  CHECK(peak.rows[0].bytes == 1000);
  CHECK(peak.rows[1].place.name == "aten::add");
  CHECK(peak.rows[2].place.name == "nn.Module: Linear_0");
  const auto none = folder.file("none.json", R"({"traceEvents":[]})");
  CHECK_THROWS_WITH(open_memory(none), Contains("has no record of memory"));
}

TEST_CASE("the peak of a shared trace is the largest sum its allocator told", "[traces][memory]") {
  const auto folder = test::shared_traces();
  if (folder.empty()) {
    return;
  }
  const std::vector<MemoryRecord> all =
      open_memory(folder / "hta" / "df_index_resolver__df_index_resolver.json.gz");
  REQUIRE(all.size() == 1);
  const MemoryMoment peak = memory_peak(all[0]);
  CHECK(peak.allocated == 6629508096);
  std::int64_t sum = 0;
  for (const MemoryMoment::Row& r : peak.rows) {
    sum += r.bytes;
  }
  CHECK(sum == peak.allocated);
}
