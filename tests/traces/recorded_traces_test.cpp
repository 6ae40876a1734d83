// Every file of ../shared/data/traces opens, and its counts are those its README states.
#include <cmath>

#include "tests/traces/shared_traces.h"
#include "traces/events/host_calls.h"
#include "traces/open_trace.h"

using namespace stepcast;
using namespace stepcast::traces;
using test::shared_traces;

namespace {

std::uint64_t kernels(const RankRecording& r) {
  return r.count(EventCategory::kKernel) + r.count(EventCategory::kCollective);
}

std::vector<std::int64_t> steps_us(const RankRecording& r) {
  std::vector<std::int64_t> out;
  for (const StepRange& s : r.steps) {
    out.push_back(std::llround(static_cast<double>((s.end - s.begin).count()) / 1000));
  }
  return out;
}

std::uint64_t all(const RankRecording& r, const std::string& kind) {
  const auto found = r.records.find(kind);
  return found == r.records.end() ? 0 : found->second;
}

/// Checks what the model promises of any recording.
void check_model(const Recording& recording) {
  for (const RankRecording& rank : recording.ranks) {
    const Events& e = rank.events;
    CAPTURE(rank.source);
    EventId next = 0;
    bool ordered = true;
    bool linked = true;
    for (const Lane& lane : rank.lanes) {
      CHECK(lane.first == next);
      next += lane.count;
      for (EventId i = lane.first; i < next; ++i) {
        ordered =
            ordered && &rank.lanes[e.lane[i]] == &lane &&
            (rank.timing != Timing::kTimeline || i == lane.first || e.begin[i - 1] < e.begin[i] ||
             (e.begin[i - 1] == e.begin[i] && e.duration[i - 1] >= e.duration[i]));
        if (e.link[i] != kNoEvent) {
          linked = linked && on_device(e.category[i]) != on_device(e.category[e.link[i]]) &&
                   e.correlation[i] == e.correlation[e.link[i]];
        }
      }
    }
    CHECK(next == e.size());
    CHECK(ordered);
    CHECK(linked);
  }
}

}  // namespace

TEST_CASE("the 8-rank DLRM set opens as one trace with the counts of its README",
          "[traces][kineto]") {
  const auto folder = shared_traces();
  if (folder.empty()) {
    return;
  }
  const Recording r = open_trace(folder / "dlrm8-kineto");
  check_model(r);
  REQUIRE(r.ranks.size() == 8);
  const std::vector<std::int64_t> steps{14455, 19901, 13017, 19313, 17979, 17797, 13091, 12509};
  for (std::int32_t rank = 0; rank < 8; ++rank) {
    const RankRecording& k = r.ranks[static_cast<std::size_t>(rank)];
    CHECK(k.rank == rank);
    CHECK(all(k, "X") >= 2440);
    CHECK(all(k, "X") <= 2552);
    // All complete events but the profiler's one span of itself.
    CHECK(k.events.size() == all(k, "X") - 1);
    CHECK(kernels(k) >= 245);
    CHECK(kernels(k) <= 321);
    CHECK(steps_us(k) == std::vector<std::int64_t>{steps[static_cast<std::size_t>(rank)]});
    // "64 kernels on ranks 1 and 3 were launched before the window".
    CHECK(k.oddities[ParseWarning::kOrphan].count == (rank == 1 || rank == 3 ? 64 : 0));
    // "A kernel never starts before its own launch in these files."
    CHECK(k.oddities[ParseWarning::kBeforeLaunch].count == 0);
    std::map<OpKind, int> kinds;
    for (EventId i = 0; i < k.events.size(); ++i) {
      if (k.events.category[i] == EventCategory::kCollective) {
        const CollectiveInfo& c = k.collectives[static_cast<std::size_t>(k.events.detail[i])];
        ++kinds[c.kind];
        CHECK(c.bytes > 0);
      }
    }
    CHECK(kinds == std::map<OpKind, int>{{OpKind::kAllToAllV, 5}, {OpKind::kAllReduce, 3}});
  }
  CHECK(r.absolute);
  // The first all-to-all forward exchanges 6144 floats: 24576 bytes.
  bool found = false;
  for (const CollectiveInfo& c : r.ranks[0].collectives) {
    found = found || (c.kind == OpKind::kAllToAllV && c.bytes == 24576 && c.elements_in == 6144);
  }
  CHECK(found);
}

TEST_CASE("Kineto files of all dialects hold the events, kernels, collectives and steps stated",
          "[traces][kineto]") {
  const auto folder = shared_traces();
  if (folder.empty()) {
    return;
  }
  struct Expected {
    const char* file;
    std::uint64_t events, kernels, collectives;
    std::vector<std::int64_t> steps;
  };
  const std::vector<Expected> files{
      {"hta/df_index_resolver__df_index_resolver.json.gz",
       123379,
       19370,
       2020,
       {345770, 365256, 346097, 344269, 336328}},
      {"hta/nccl_parser_config__nccl_data.json.gz", 26933, 2700, 21, {222442, 219727, 224936}},
      {"hta/ns_resolution_trace__rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
       45420,
       4350,
       0,
       {35116, 72078, 95697, 95551, 95699}},
      {"hta/critical_path_alexnet__benchmark_result_2869224_1695835535_trace.json.gz",
       868,
       79,
       0,
       {}},
      {"hta/critical_path_simple_add__benchmark_result_493459_1694039959_trace.json.gz",
       838,
       79,
       0,
       {}},
      {"hta/critical_path_cuda_event_sync_multi_stream__event_sync_trace.json.gz", 57, 3, 0, {}},
      {"hta/large_integer_trace__rank-70.json.gz", 2, 1, 1, {}},
  };
  for (const Expected& x : files) {
    CAPTURE(x.file);
    const Recording r = open_trace(folder / x.file);
    check_model(r);
    REQUIRE(r.ranks.size() == 1);
    CHECK(all(r.ranks[0], "X") == x.events);
    CHECK(kernels(r.ranks[0]) == x.kernels);
    CHECK(r.ranks[0].count(EventCategory::kCollective) == x.collectives);
    // The README cuts one of its numbers to whole microseconds, we round: one apart at most.
    const auto steps = steps_us(r.ranks[0]);
    REQUIRE(steps.size() == x.steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      CHECK(std::abs(steps[i] - x.steps[i]) <= 1);
    }
  }
  for (const char* file : {"kineto-tb/resnet50_nw0.1623143089861.json.gz",
                           "kineto-tb/resnet50_nw4.1623212756351.json.gz"}) {
    const Recording r = open_trace(folder / file);
    check_model(r);
    CHECK(r.ranks[0].steps.size() == 6);
    CHECK(kernels(r.ranks[0]) > 8000);
    CHECK(r.all_oddities()[ParseWarning::kUnknownCategory].count == 0);
  }
}

TEST_CASE("what the profilers say of collectives, waits, drops and clocks is kept",
          "[traces][kineto]") {
  const auto folder = shared_traces();
  if (folder.empty()) {
    return;
  }
  {
    const Recording r = open_trace(folder / "hta/nccl_parser_config__nccl_data.json.gz");
    const RankRecording& k = r.ranks[0];
    // "ALL with collective metadata": a group of 2, sized, on the kernel itself.
    for (EventId i = 0; i < k.events.size(); ++i) {
      if (k.events.category[i] == EventCategory::kCollective) {
        const CollectiveInfo& c = k.collectives[static_cast<std::size_t>(k.events.detail[i])];
        const bool wide = r.names.view(c.dtype) == "Long";
        CHECK(c.bytes == (wide ? 8 : 4) * c.elements_in);
        CHECK_FALSE(c.from_host);
        CHECK(k.groups.at(static_cast<std::size_t>(c.group)).ranks ==
              std::vector<std::int32_t>{0, 1});
      }
    }
    // Base time and relative microseconds add up to the nanosecond:
    // 1711964646000000000 + the earliest ts, 4458676416788.066 us.
    CHECK(r.origin.count() == 1716423322416788066);
    CHECK(r.oddities[ParseWarning::kMissingRank].count == 1);
    // "Record counts: Out-of-range = 4181, Blocklisted runtime = 37458, ..."
    CHECK(k.oddities[ParseWarning::kDropped].count == 0);
    CHECK(k.oddities[ParseWarning::kDownsampled].count == 0);
    CHECK(k.metadata.at("activities_outside_the_capture_window") == "4181");
    CHECK(k.metadata.at("calls_kineto_never_records") == "37458");
  }
  {
    const Recording r = open_trace(
        folder / "hta/critical_path_cuda_event_sync_multi_stream__event_sync_trace.json.gz");
    const RankRecording& k = r.ranks[0];
    // Stream 24 waits for the event that call 1385 recorded on stream 20.
    bool found = false;
    for (const SyncInfo& s : k.syncs) {
      found = found || (s.kind == SyncInfo::Kind::kStreamWait && s.stream == 24 &&
                        s.source_stream == 20 && s.record_correlation == 1385);
    }
    CHECK(found);
    CHECK(k.count(EventCategory::kSync) == 5);
  }
}

TEST_CASE("execution graphs open with the nodes stated and their dependencies",
          "[traces][chakra][pytorch-et]") {
  const auto folder = shared_traces();
  if (folder.empty()) {
    return;
  }
  const auto nodes = [&folder](const char* file) {
    const Recording r = open_trace(folder / file);
    check_model(r);
    CHECK_FALSE(r.ranks[0].dependencies.empty());
    return r.ranks[0].events.size();
  };
  CHECK(nodes("chakra/chakra.0.et") == 3664);
  CHECK(nodes("chakra/feeder_tests_trace.v2.tar.gz") == 11347);
  CHECK(nodes("chakra/json_trace.tar.gz/jsonData/chakra.0.json") == 3664);
  CHECK(nodes("chakra/1.0.2-chakra.0.0.4.tgz") == 263);
  CHECK(nodes("astra-resnet-dp/Resnet50_DataParallel.0.et") == 215);
  CHECK(nodes("param/hf_GPT2_et.json.tar.gz") == 27156);
  CHECK(nodes("param/linear_et.json.gz") == 931);
  CHECK(nodes("param/resnet_et.json.gz") == 14392);
  CHECK(nodes("param/resnet_2gpu_et.json.gz") == 14392);
  const Recording ranks = open_trace(folder / "dlrm8-pytorch-et");
  REQUIRE(ranks.ranks.size() == 8);
  for (const RankRecording& r : ranks.ranks) {
    CHECK(r.events.size() == 1675);
    CHECK(r.timing == Timing::kNone);
  }
  const Recording npus = open_trace(folder / "astra-resnet-dp/resnet_dp.tar.gz");
  REQUIRE(npus.ranks.size() == 64);
  for (const RankRecording& r : npus.ranks) {
    CHECK(r.events.size() == 215);
    CHECK(r.count(EventCategory::kCollective) == 54);
    CHECK(r.metadata.at("version") == "0.0.4");
  }
  CHECK(open_trace(folder / "astra-resnet-dp/onecomm_allreduce.tar.gz").ranks.size() == 64);
}

TEST_CASE("every file of the shared traces opens", "[traces]") {
  const auto folder = shared_traces();
  if (folder.empty()) {
    return;
  }
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().filename() != "README.md") {
      CAPTURE(entry.path().string());
      CHECK_NOTHROW(open_trace(entry.path()));
      ++files;
    }
  }
  CHECK(files >= 38);
}
