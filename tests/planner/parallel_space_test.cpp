// Which plans are searched: splits, their micro-batches and schedules.
#include "planner/parallel/parallel_space.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <tuple>

#include "tests/planner/parallel_jobs.h"

namespace stepcast::planner {
namespace {

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

}  // namespace
}  // namespace stepcast::planner
