// The search against brute force, its independence of threads and shards, and properties of what it
// finds.
#include "planner/parallel/parallel_search.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <set>

#include "core/job/job_rules.h"
#include "planner/parallel/closed_form_model.h"
#include "planner/parallel/parallel_space.h"
#include "planner/parallel/task_costs.h"
#include "tests/planner/parallel_jobs.h"

namespace stepcast::planner {
namespace {

using testing::small_request;

bool same(const std::vector<ParallelCandidate>& a, const std::vector<ParallelCandidate>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const ParallelCandidate& x, const ParallelCandidate& y) {
                      return x.point == y.point && x.seconds == Approx(y.seconds).epsilon(1e-12) &&
                             x.bytes == Approx(y.bytes).epsilon(1e-12);
                    });
}

std::int64_t sum(const SearchCounts& c) {
  return c.weights_too_large + c.memory_too_large + c.bounded + c.evaluated + c.left_out;
}

/// The search of the request and the options it ran with, held to brute force.
struct Searched {
  ParallelSearchOptions options;
  ParallelSearchResult found;
};

Searched held_to_brute_force(const PlanRequest& request, const models::CostModel& model,
                             double efficiency = 1) {
  // The space is that of plan_rules_test.cpp, which holds it to the loader and the builder.
  const std::set<PlanPoint> space = testing::searched(ParallelSpace(request.job, request.fixed),
                                                      *request.job.workload.transformer());
  ClosedFormModel path(request.job, model);
  std::vector<ParallelCandidate> all;
  for (const PlanPoint& point : space) {
    const StepForecast f = path.forecast(point);
    all.push_back({point, efficiency * f.seconds, f.bytes});
  }
  std::sort(all.begin(), all.end(), ranks_before);
  std::vector<double> bytes;
  for (const ParallelCandidate& c : all) {
    bytes.push_back(c.bytes);
  }
  std::sort(bytes.begin(), bytes.end());
  const double capacity = bytes[bytes.size() / 2] * (1 + 1e-6);  // some fit, some do not
  std::erase_if(all, [capacity](const ParallelCandidate& c) { return c.bytes > capacity; });
  std::vector<ParallelCandidate> front;
  for (const ParallelCandidate& c : all) {
    if (front.empty() || c.bytes < front.back().bytes) {
      front.push_back(c);
    }
  }
  std::vector<ParallelCandidate> of_families;
  for (const PlanFamily family : kPlanFamilies) {
    std::size_t left = 3;
    for (const ParallelCandidate& c : all) {
      if (family_of(c.point) == family && left > 0 && c.seconds <= 1.25 * all.front().seconds) {
        of_families.push_back(c);
        --left;
      }
    }
  }
  std::sort(of_families.begin(), of_families.end(), ranks_before);
  ParallelSearchOptions options;
  options.keep = 20;
  options.keep_of_family = 3;
  options.efficiency = efficiency;
  options.capacity = capacity;
  const ParallelSearchResult found = search_parallel(request, model, options);
  CHECK(found.counts.space == static_cast<std::int64_t>(space.size()));
  CHECK(sum(found.counts) == found.counts.space);
  // Points that are bounded all at once may fit or not.
  CHECK(found.counts.memory_too_large + found.counts.weights_too_large <=
        static_cast<std::int64_t>(space.size() - all.size()));
  CHECK(found.counts.evaluated <= static_cast<std::int64_t>(all.size()));
  all.resize(20);
  CHECK(same(found.best, all));
  CHECK(same(found.of_families, of_families));
  CHECK(same(found.front, front));
  return {options, found};
}

PlanRequest two_machines_of_two() {  // a level inside which shards can lie
  return small_request(4, {"system.host.devices=2", "system.fabric[0].size=2"});
}

TEST_CASE("plans keep the cap on micro-batches that a job has", "[planner][parallel]") {
  // One replica of 4 caps' worth of samples: micro-batches of 4 or more.
  const PlanRequest r = small_request(
      8, {"parallel.tensor=8", "batch.global=" + std::to_string(4 * kMostMicrobatches)});
  const ParallelSpace space(r.job, r.fixed);
  PlanPoint split;
  split.tensor = 8;
  const std::vector<std::int32_t> micros = space.micros(split);
  CHECK(*std::min_element(micros.begin(), micros.end()) == 4);
  const ParallelSearchResult found =
      search_parallel(r, models::CostModel(r.job.system, r.job.calibration), {});
  REQUIRE_FALSE(found.best.empty());
  for (const ParallelCandidate& c : found.best) {
    CHECK(applied(r.job, c.point).microbatches() <= kMostMicrobatches);
  }
  // Fixed below it, no plan is left.
  const PlanRequest below =
      small_request(8, {"parallel.tensor=8", "batch.micro=2",
                        "batch.global=" + std::to_string(4 * kMostMicrobatches)});
  const ParallelSearchResult none =
      search_parallel(below, models::CostModel(r.job.system, r.job.calibration), {});
  CHECK(none.counts.space == 0);
}

TEST_CASE("the search finds what brute force finds", "[planner][parallel][search]") {
  const PlanRequest request = two_machines_of_two();
  const models::CostModel model(request.job.system, request.job.calibration);
  auto [options, found] = held_to_brute_force(request, model);
  CHECK(found.counts.bounded > 0);
  {
    INFO("whatever the threads, to the last count");
    options.threads = 3;
    const ParallelSearchResult again = search_parallel(request, model, options);
    CHECK(same(again.best, found.best));
    CHECK(same(again.of_families, found.of_families));
    CHECK(same(again.front, found.front));
    CHECK(again.counts.evaluated == found.counts.evaluated);
  }
  {
    INFO("without a front it looks at fewer");
    options.front = false;
    const ParallelSearchResult fewer = search_parallel(request, model, options);
    CHECK(same(fewer.best, found.best));
    CHECK(fewer.front.empty());
    CHECK(fewer.counts.evaluated <= found.counts.evaluated);
  }
}

TEST_CASE("so it does at the efficiency of a job", "[planner][parallel][search]") {
  PlanRequest request = two_machines_of_two();
  const models::CostModel model(request.job.system, request.job.calibration);
  request.job.parallel.overlap.data = true;
  CHECK(held_to_brute_force(request, model, 1.3).found.counts.bounded > 0);
}

TEST_CASE("so it does where the head is worth layers", "[planner][parallel][search]") {
  // A layer has 4 * 1024^2 + 3 * 1024 * 4096 = 16.8 million parameters, the head 32.8 million: 2.
  const PlanRequest request = small_request(2, {"workload.vocabulary=32000", "batch.global=4"});
  const models::CostModel model(request.job.system, request.job.calibration);
  const ParallelSpace space(request.job, request.fixed);
  std::set<std::vector<std::int32_t>> dealt;
  for (const DealChoice& d : space.deals(2)) {
    dealt.insert(layout_of(*request.job.workload.transformer(), 2, d.virtual_stages,
                           {d.embedding_layers, d.head_layers, {}})
                     .layers);
  }
  std::set<std::size_t> apart;
  for (const DealChoice& d : space.deals(2)) {
    apart.insert(d.alike);
  }
  CHECK(dealt.size() == apart.size());
  using Layers = std::vector<std::int32_t>;
  CHECK(dealt.contains(Layers{2, 2}));
  CHECK(dealt.contains(Layers{3, 1}));              // (4 + 2) / 2, the head 2 of them
  CHECK(dealt.contains(Layers{0, 1, 1, 1, 1, 0}));  // more chunks than layers
  held_to_brute_force(request, model);

  // 2 layers and a head worth 2 beside 2 layers, or 1 and 2 beside 3: balanced is faster.
  ClosedFormModel path(request.job, model);
  PlanPoint even;
  even.pipeline = 2;
  PlanPoint balanced = even;
  balanced.head_layers = 2;
  CHECK(path.forecast(balanced).seconds < path.forecast(even).seconds);
}

TEST_CASE("where adapters alone are trained every chunk has a layer",
          "[planner][parallel][search]") {
  const PlanRequest request =
      small_request(2, {"workload.vocabulary=32000", "batch.global=4", R"(lora={"rank": 4})"});
  const models::CostModel model(request.job.system, request.job.calibration);
  const ParallelSpace space(request.job, request.fixed);
  REQUIRE_FALSE(space.deals(2).empty());
  for (const DealChoice& d : space.deals(2)) {
    const auto layout = layout_of(*request.job.workload.transformer(), 2, d.virtual_stages,
                                  {d.embedding_layers, d.head_layers, {}});
    CHECK(std::min(layout.layers.front(), layout.layers.back()) > 0);
  }
  ParallelSearchOptions options;
  options.keep = 3;
  options.capacity = 1e15;
  CHECK(search_parallel(request, model, options).best.size() == 3);
}

TEST_CASE("passes of a split are its own, whatever was asked before",
          "[planner][parallel][search]") {
  // 64 experts' ranks: of 64 replicas, or of 32 with their two tensor ranks each.
  const Job job = config::load_job(config::text_source("{}", "test"),
                                   {"workload=deepseek-v3", "system=gb200-nvl72", "devices=256",
                                    "batch.global=2048", "framework=nemo@25.09"},
                                   testing::kLibrary);
  const models::CostModel model(job.system, job.calibration);
  PlanPoint four;
  four.tensor = 2;
  four.sequence_parallel = true;
  four.expert = 64;
  four.pipeline = 4;
  four.data = 32;
  PlanPoint two = four;
  two.pipeline = 2;
  two.data = 64;
  const auto forward = [](const Passes& passes) {
    return passes.role[static_cast<std::size_t>(ChunkRole::kMiddle)].forward.at({{1}});
  };
  ClosedFormModel path(job, model);
  TaskTable table_alone;
  const double alone = forward(TaskCosts(path, table_alone).passes(four, RecomputeKind::kNone));
  TaskTable table;
  TaskCosts both(path, table);
  CHECK(forward(both.passes(two, RecomputeKind::kNone)) != alone);
  CHECK(forward(both.passes(four, RecomputeKind::kNone)) == alone);
}

TEST_CASE("tensor ranks that divide the tokens of some micro-batches alone",
          "[planner][parallel][search]") {
  // 510 = 2 x 255: two ranks split each sequence, four an even number of them.
  const PlanRequest any = small_request(4, {"batch.sequence=510"});
  (void)held_to_brute_force(any, models::CostModel(any.job.system, any.job.calibration));
  const PlanRequest four = small_request(
      4, {"batch.sequence=510", "parallel.tensor=4", "parallel.sequence_parallel=true"});
  const ParallelSpace space(four.job, four.fixed);
  REQUIRE(space.splits().size() == 1);
  CHECK(space.micros(space.splits().front()) == std::vector<std::int32_t>{2, 4, 8});
}

TEST_CASE("selective recomputation is what the job lists as modules",
          "[planner][parallel][search]") {
  const PlanRequest request = small_request(
      4, {"parallel.data=4", R"(parallel.recompute={"modules": ["layernorm", "mlp"]})"});
  CHECK(fixed_text(request.fixed) == "data=4, recompute=layernorm + mlp");
  const models::CostModel model(request.job.system, request.job.calibration);
  ParallelSearchOptions options;
  options.keep = 1;
  const ParallelSearchResult found = search_parallel(request, model, options);
  REQUIRE(found.best.size() == 1);
  const PlanPoint& point = found.best.front().point;
  CHECK(names_of(applied(request.job, point).parallel.recompute.modules) ==
        std::vector<std::string>{"layernorm", "mlp"});
  CHECK(found.best.front().seconds ==
        Approx(testing::simulated(request.job, point, model)).epsilon(0.01));
}

TEST_CASE("half the devices are never faster", "[planner][parallel][property]") {
  double before = 0;
  for (const std::int64_t devices : {16, 8, 4, 2, 1}) {
    // Samples enough for every device: with fewer, more devices must split more and can be slower.
    const PlanRequest request = small_request(devices, {"batch.global=64"});
    const models::CostModel model(request.job.system, request.job.calibration);
    ParallelSearchOptions options;
    options.keep = 1;
    options.front = false;
    const ParallelSearchResult found = search_parallel(request, model, options);
    REQUIRE(found.best.size() == 1);
    CHECK(found.best.front().seconds >= before);
    before = found.best.front().seconds;
  }
}

}  // namespace
}  // namespace stepcast::planner
