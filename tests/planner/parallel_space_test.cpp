// Which plans are searched: splits, their micro-batches and schedules.
#include "planner/parallel/parallel_space.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <tuple>

#include "tests/planner/parallel_jobs.h"

namespace stepcast::planner {
namespace {

using testing::kLibrary;
using testing::small_request;

TEST_CASE("turns of chunks are not searched, and a job that gives them says so",
          "[planner][parallel]") {
  PlanRequest r = small_request(4);
  CHECK_NOTHROW(ParallelSpace(r.job, r.fixed));
  r.job.parallel.chunk_microbatches = 4;
  CHECK_THROWS_WITH(
      ParallelSpace(r.job, r.fixed),
      Catch::StartsWith("parallel.chunk_microbatches: ") && Catch::Contains("leave it out"));
}

TEST_CASE("layers that do not divide evenly are assigned with ends that count as layers",
          "[planner][parallel][search]") {
  // 14 layers over 4 stages: 16 with both ends, so 1, 2 or 4 chunks a stage are equal.
  PlanRequest request = small_request(4, {"workload.layers=14", "parallel.pipeline=4"});
  using Said = std::set<std::tuple<std::int32_t, std::int32_t, std::int32_t>>;
  const auto said = [&request] {
    const ParallelSpace space(request.job, request.fixed);
    REQUIRE(space.splits().size() == 1);
    Said all;
    for (const ScheduleChoice& s : space.schedules(space.splits().front())) {
      if (s.kind == ScheduleKind::kOneFOneB) {
        all.insert({s.deal.virtual_stages, s.deal.embedding_layers, s.deal.head_layers});
      }
    }
    return all;
  };
  // Dealt out evenly the outermost chunks are one short: as with both ends, but for empty chunks.
  CHECK(said() == Said{{1, 0, 0}, {2, 0, 0}, {3, 0, 0}, {4, 1, 1}});
  request.fixed.virtual_stages = 4;
  CHECK(said() == Said{{4, 1, 1}});
  request.fixed.virtual_stages = std::nullopt;
  request.fixed.framework = TrainingFramework::kMegatron;
  CHECK(said() == Said{{1, 1, 1}, {2, 1, 1}, {4, 1, 1}});
}

TEST_CASE("a framework that draws chunks has stages of 61 layers", "[planner][parallel][search]") {
  // With a head of two layers and the embedding as one there are 64: NVIDIA's stages of
  // DeepSeek-V3.
  PlanRequest request =
      small_request(4, {"workload.layers=61", "workload.vocabulary=100000", "parallel.pipeline=4"});
  request.fixed.framework = TrainingFramework::kMegatron;
  const ParallelSpace space(request.job, request.fixed);
  REQUIRE(space.splits().size() == 1);
  std::set<std::int32_t> chunks;
  for (const ScheduleChoice& s : space.schedules(space.splits().front())) {
    const DealChoice& deal = s.deal;
    CHECK((61 + deal.embedding_layers + deal.head_layers) % (4 * deal.virtual_stages) == 0);
    if (deal.embedding_layers == 1 && deal.head_layers == 2) {
      chunks.insert(deal.virtual_stages);
    }
  }
  CHECK(chunks == std::set<std::int32_t>{1, 2, 4, 8});
}

TEST_CASE("a framework without sequence parallelism has tensor ranks",
          "[planner][parallel][search]") {
  PlanRequest request = small_request(4, {"parallel.pipeline=1", "parallel.data=1"});
  request.fixed.framework = TrainingFramework::kDeepspeed;
  const std::vector<PlanPoint> splits = ParallelSpace(request.job, request.fixed).splits();
  CHECK(std::any_of(splits.begin(), splits.end(),
                    [](const PlanPoint& p) { return p.tensor == 4 && !p.sequence_parallel; }));
}

/// Points that Calculon's exhaustive search visits for a model of `layers` blocks on `devices`
/// processors with a batch of at most `batch`: its rules, as found in its command
/// `llm-optimal-execution`. It has dimensions we do not search (three ways to run tensor-parallel
/// communication, three ways to overlap it, a network for each kind of parallelism, offloading to a
/// second memory) and lacks some that we do; the count is the yardstick its published speed refers
/// to.
std::int64_t calculon_space(const TransformerWorkload& model, std::int64_t sequence,
                            std::int64_t devices, std::int64_t batch, std::int64_t networks,
                            bool second_memory) {
  std::int64_t space = 0;
  for (const std::int32_t t : divisors_of(devices)) {
    if (model.hidden % t != 0 || model.heads % t != 0) {
      continue;
    }
    for (const std::int32_t p : divisors_of(std::min<std::int64_t>(devices / t, model.layers))) {
      const std::int64_t d = devices / t / p;
      if (devices % (std::int64_t{t} * p) != 0 || model.layers % p != 0 || d > batch) {
        continue;
      }
      const auto interleavings = p == 1 ? std::size_t{1} : divisors_of(model.layers / p).size();
      std::int64_t micros = 0;
      for (const std::int32_t micro : divisors_of(batch / d)) {
        micros += micro * sequence % t == 0 ? 1 : 0;
      }
      const std::int64_t nets =
          (t > 1 ? networks : 1) * (p > 1 ? networks : 1) * (d > 1 ? networks : 1);
      // Recompute full, attention only, none; each with three kinds of tensor-parallel
      // communication, one of which may gather again where not everything is recomputed.
      const std::int64_t full = 3;
      const std::int64_t partial = 2 * (3 + 1);
      const std::int64_t offloads = second_memory ? full * 4 + partial * 8 : full + partial;
      const std::int64_t overlaps = (d > 1 ? 2 * 2 : 1) * (t > 1 ? 3 : 1);  // and sharded optimizer
      space += static_cast<std::int64_t>(interleavings) * micros * nets * overlaps * offloads;
    }
  }
  return space;
}

TEST_CASE("Calculon's spaces, counted by its rules", "[planner][parallel][space]") {
  // 64 processors, batch 64, two networks; 512 processors, batch 512.
  const auto model = [](const char* name) {
    return *config::load_workload(name, kLibrary).transformer();
  };
  const TransformerWorkload gpt3 = model("gpt3-175b");
  CHECK(calculon_space(gpt3, 2048, 64, 64, 2, false) == 467'808);
  CHECK(calculon_space(gpt3, 2048, 64, 64, 2, true) == 3'232'128);
  CHECK(calculon_space(gpt3, 2048, 512, 512, 2, true) == 6'582'816);
  CHECK(calculon_space(model("sc21-1t"), 2048, 512, 512, 2, true) == 5'882'400);
}

}  // namespace
}  // namespace stepcast::planner
