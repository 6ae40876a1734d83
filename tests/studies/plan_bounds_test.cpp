// The bounds that `plan` prints, held to plans drawn at random from the space that
// docs/explanation/parallel-planner.md states: uneven layers, every schedule, every framework.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>

#include "core/job/job_rules.h"
#include "planner/parallel/closed_form_model.h"
#include "studies/plan/plan_parallel.h"
#include "tests/planner/draw.h"
#include "tests/planner/parallel_jobs.h"

namespace stepcast::studies {
namespace {

using planner::PlanPoint;
using planner::testing::Draw;

/// Two machines of two devices or of four, layers that few pipelines divide, one schedule or all,
/// one framework or none; some layers, or all, with experts.
PlanRequest drawn_request(Draw& draw, bool experts, std::string& said) {
  const std::int64_t each = draw({2, 2, 4});
  std::vector<std::string> set{
      "workload=llama2-7b",       "system=dgx-a100-80gb", "workload.hidden=1024",
      "workload.heads=8",         "workload.kv_heads=8",  "workload.head_dim=128",
      "workload.ffn_hidden=4096", "batch.sequence=1024",  "parallel.recompute=none"};
  const auto add = [&set](const std::string& key, const auto& value) {
    set.push_back(fmt::format("{}={}", key, value));
  };
  add("workload.layers", draw({3, 5, 6, 7, 9, 14}));
  add("workload.vocabulary", draw({4000, 32000}));  // the head less than a layer, or two
  add("system.host.devices", each);
  add("system.fabric[0].size", each);
  add("devices", 2 * each);
  add("batch.global", draw({8, 16}));
  add("batch.micro", draw({1, 2}));
  add("parallel.overlap.data", draw({0, 0, 1}) == 1 ? "true" : "false");
  const auto flag = [&draw] { return draw({0, 1}) == 1 ? "true" : "false"; };
  add("parallel.overlap.tensor", flag());
  add("parallel.overlap.pipeline", flag());
  if (draw({0, 1}) == 1) {
    add("parallel.schedule",
        std::array{"1f1b", "gpipe", "zb-h1"}[static_cast<std::size_t>(draw({0, 1, 2}))]);
  }
  if (draw({0, 1, 2}) == 0) {
    add("parallel.virtual_stages", draw({1, 2, 4}));
  }
  if (experts) {
    const std::int64_t count = draw({4, 8});
    add("workload.moe",
        fmt::format(R"({{"experts": {}, "per_token": {}, "ffn_hidden": {}, "shared": {}, )"
                    R"("first_dense_layers": {}}})",
                    count, draw({1, 2}), draw({512, 2048}), draw({0, 0, 1}), draw({0, 0, 1, 2})));
    add("parallel.overlap.expert", flag());
  }
  said = fmt::format("{}", fmt::join(set, " "));
  PlanRequest r = planner::testing::request_of(set);
  constexpr std::array kFor{TrainingFramework::kMegatron, TrainingFramework::kNemo,
                            TrainingFramework::kTorchtitan, TrainingFramework::kDeepspeed};
  if (const std::int64_t n = draw({0, 0, 0, 1, 2, 3, 3, 4}); n > 0) {
    r.fixed.framework = kFor[static_cast<std::size_t>(n - 1)];
  }
  return r;
}

/// Decides as the section "What is searched" states it.
bool states_ends(const Job& job, const PlanPoint& p) {
  const TransformerWorkload& model = *job.workload.transformer();
  TransformerWorkload more = model;
  ++more.layers;
  const double ratio = static_cast<double>(model.vocabulary * model.hidden) /
                       static_cast<double>(transformer_active_parameters(more, 1) -
                                           transformer_active_parameters(model, 1));
  const std::int64_t ends = p.embedding_layers + p.head_layers;
  const bool heavy = ratio >= 1 && p.head_layers <= std::ceil(ratio);
  const bool equal = p.head_layers <= 1 &&
                     (model.layers + ends) % (std::int64_t{p.pipeline} * p.virtual_stages) == 0;
  return ends == 0 || (p.pipeline > 1 && (heavy || equal));
}

/// A plan that `predict` takes, of the request's space.
std::optional<PlanPoint> drawn_plan(const PlanRequest& r, Draw& draw) {
  for (int attempt = 0; attempt < 2000; ++attempt) {
    PlanPoint p;
    p.tensor = static_cast<std::int32_t>(draw({1, 1, 2, 4}));
    p.pipeline = static_cast<std::int32_t>(draw({1, 2, 4, 8}));
    const std::int32_t used = p.tensor * p.pipeline;
    if (r.job.devices % used != 0) {
      continue;
    }
    p.data = static_cast<std::int32_t>(r.job.devices / used);
    p.micro = static_cast<std::int32_t>(*r.fixed.micro);
    p.virtual_stages = static_cast<std::int32_t>(draw({1, 2, 3, 4, 7, 8}));
    const std::vector<ScheduleKind> schedules = planner::searched_schedules(r.job);
    p.schedule =
        schedules[static_cast<std::size_t>(draw({0, 0, 1, 2, 3, 4, 5, 6})) % schedules.size()];
    if (splits_weights(p.schedule)) {
      p.virtual_stages = static_cast<std::int32_t>(traits_of(p.schedule).least_chunks);
    }
    p.embedding_layers = static_cast<std::int32_t>(draw({0, 1}));
    p.head_layers = static_cast<std::int32_t>(draw({0, 1, 2, 3}));
    p.zero = static_cast<std::int32_t>(draw({0, 1, 2, 3}));
    p.sequence_parallel = p.tensor > 1 && draw({0, 1}) == 1;
    if (r.job.workload.transformer()->moe) {
      p.expert = static_cast<std::int32_t>(draw({1, 2, 2, 4, 8}));
    }
    if (p.pipeline == 1) {
      p.virtual_stages = 1;
      p.embedding_layers = p.head_layers = 0;
    }
    p.schedule = r.fixed.schedule.value_or(p.schedule);
    p.virtual_stages = static_cast<std::int32_t>(r.fixed.virtual_stages.value_or(p.virtual_stages));
    if (!states_ends(r.job, p)) {
      continue;
    }
    const Job job = planner::applied(r.job, p);
    if (!broken_rule(job) && (!r.fixed.framework || !broken_rule(job, *r.fixed.framework))) {
      return p;
    }
  }
  return std::nullopt;
}

std::optional<ParallelPlanReport> planned(const PlanRequest& r) {
  try {
    ParallelPlanOptions options;
    options.fewer_devices = false;
    return plan_parallel(r, options);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// `job`: the request's, in an order of ranks that was searched.
void hold(const Job& job, const ParallelPlanReport& report, const PlanPoint& p) {
  const models::CostModel model(job.system, job.calibration);
  const double seconds = planner::testing::simulated(job, p, model);
  planner::ClosedFormModel path(job, model, planner::CostBasis::kLowerBound);
  const double least = path.forecast(p).seconds;
  CAPTURE(planner::describe(p), seconds, least, report.lower_bound, report.others_at_least);
  CHECK(least <= seconds * (1 + kLeastTimeError));
  CHECK(seconds * (1 + kLeastTimeError) >= report.lower_bound);
  // It was simulated, and is no faster than the first; or it was not, and takes as long as is said.
  CHECK((seconds * (1 + 1e-9) >= report.plans.front().prediction.iteration.base() ||
         seconds * (1 + kLeastTimeError) >= report.others_at_least));
}

/// Plans that were drawn, and how many of them have experts apart, are uneven, have heavier ends or
/// another schedule.
struct Drawn {
  int plans = 0, distributed = 0, uneven = 0, ends = 0, other_schedules = 0;
};

/// Draws the job of a seed, every eighth with experts, and at most so many plans of it, and holds
/// them to the bounds.
void draw_job(unsigned seed, int plans, Drawn& drawn) {
  Draw draw(seed);
  std::string said;
  const PlanRequest r = drawn_request(draw, seed % 8 == 0, said);
  const std::optional<ParallelPlanReport> report = planned(r);
  CAPTURE(seed, said, planner::fixed_text(r.fixed));
  for (int i = 0; i < plans; ++i) {
    const std::optional<PlanPoint> p = drawn_plan(r, draw);
    if (!p) {  // few plans are legal, or none
      break;
    }
    REQUIRE(report.has_value());
    Job job = r.job;
    if (report->order_searched && draw({0, 1}) == 1) {
      job.parallel.order = kPipelineOutside;
    }
    hold(job, *report, *p);
    ++drawn.plans;
    drawn.distributed += p->expert > 1 ? 1 : 0;
    drawn.uneven +=
        r.job.workload.transformer()->layers % (p->pipeline * p->virtual_stages) != 0 ? 1 : 0;
    drawn.ends += p->embedding_layers + p->head_layers > 0 ? 1 : 0;
    drawn.other_schedules += p->pipeline > 1 && p->schedule != ScheduleKind::kOneFOneB ? 1 : 0;
  }
}

/// The same of so many seeds; some plans are of each sort.
void draw_jobs(unsigned first, unsigned jobs, int of_each) {
  Drawn drawn;
  for (unsigned seed = first; seed < first + jobs; ++seed) {
    draw_job(seed, of_each, drawn);
  }
  CHECK(drawn.distributed > drawn.plans / 40);
  CHECK(drawn.uneven > drawn.plans / 10);
  CHECK(drawn.ends > drawn.plans / 20);
  CHECK(drawn.other_schedules > drawn.plans / 50);
}

}  // namespace

TEST_CASE("no plan drawn from the stated space is faster than the bounds that are printed",
          "[studies][plan][property]") {
  draw_jobs(1, 20, 100);
}

TEST_CASE("the least time is one where layers hide or share each other's transfers",
          "[studies][plan][property]") {
  Drawn drawn;
  // Tensor ranks on both sides of a slow link: compute of a layer with experts hides transfers of
  // its neighbour without, and the other way round. Then layers of five buckets, layers without
  // experts in a model that has some, and experts that only tensor ranks have copies of.
  for (const unsigned seed : {720U, 5144U, 1928U, 6648U, 9120U}) {
    draw_job(seed, 4, drawn);
  }
  CHECK(drawn.plans == 20);
}

TEST_CASE("the least time of sharded weights is one at any number of layers",
          "[studies][plan][property]") {
  // Gathers and reductions take longer than the backward pass of a layer: over PCIe between nodes.
  for (const int layers : {2, 3, 6, 14, 20, 40}) {
    const PlanRequest r = planner::testing::small_request(
        8, {"workload.vocabulary=32000", fmt::format("workload.layers={}", layers),
            "batch.global=16", "batch.micro=2", "system.host.devices=4", "system.fabric[0].size=4",
            "parallel.overlap.data=true", "parallel.overlap.tensor=true"});
    planner::PlanPoint p;
    p.data = 8;
    p.micro = 2;
    p.zero = 3;
    const models::CostModel model(r.job.system, r.job.calibration);
    const double seconds = planner::testing::simulated(r.job, p, model);
    planner::ClosedFormModel path(r.job, model, planner::CostBasis::kLowerBound);
    CAPTURE(layers);
    CHECK(path.forecast(p).seconds <= seconds * (1 + kLeastTimeError));
  }
}

TEST_CASE("no plan of ten thousand jobs is faster than the bounds that are printed",
          "[.long][studies][plan][property]") {
  const unsigned first = GENERATE(range(1U, 10'000U, 250U));
  DYNAMIC_SECTION("jobs from " << first << " on") { draw_jobs(first, 250, 4); }
}

}  // namespace stepcast::studies
