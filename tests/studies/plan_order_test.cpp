// Efficiencies do not decide between plans: as printed, plans of a job stand in the order in which
// they simulate. Jobs are drawn over models, systems, frameworks, formats and ways of splitting.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/config/default_framework.h"
#include "core/error.h"
#include "studies/predict/predict.h"
#include "tests/planner/draw.h"

namespace stepcast::studies {
namespace {

using planner::testing::Draw;

const config::Library kLibrary{STEPCAST_SOURCE_DIR};

struct Step {
  std::string plan;
  double simulated = 0, printed = 0;
  std::optional<Efficiency> efficiency;
};

/// nullopt where the job cannot be split so.
std::optional<Step> step_of(const std::vector<std::string>& job, const std::string& plan) {
  std::vector<std::string> set = job;
  for (std::size_t from = 0; from < plan.size();) {
    const std::size_t to = std::min(plan.find(' ', from), plan.size());
    set.push_back(plan.substr(from, to - from));
    from = to + 1;
  }
  try {
    const Job loaded =
        config::load_job_on_default_framework(config::text_source("{}", "test"), set, kLibrary).job;
    const StepPrediction p = predict(loaded);
    return Step{plan, p.hardware.base(), p.iteration.base(), p.efficiency};
  } catch (const InputError&) {
    return std::nullopt;
  }
}

std::vector<std::string> drawn_job(Draw& draw) {
  const auto one_of = [&draw]<std::size_t n>(const std::array<const char*, n>& names) {
    return std::string(names[static_cast<std::size_t>(draw({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}) %
                                                      static_cast<std::int64_t>(n))]);
  };
  const std::string system = one_of(
      std::array{"dgx-a100-80gb", "dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72", "mi300x-8"});
  const std::int64_t devices = draw({4, 8, 16});
  // Untied: of a table that two stages share, ZeRO 3 alone sums shards between them.
  std::vector<std::string> set{
      "workload=" + one_of(std::array{"llama3-8b", "llama2-13b", "gpt-22b", "mixtral-8x7b",
                                      "qwen3-30b-a3b", "qwen3-32b"}),
      "system=" + system,
      "stack=" + one_of(std::array{"megatron-core", "nemo", "torchtitan", "fsdp2", "deepspeed",
                                   "no-overlap"})};
  const auto add = [&set](const std::string& key, const auto& value) {
    set.push_back(fmt::format("{}={}", key, value));
  };
  add("devices", devices);
  add("workload.tied_embeddings", false);
  add("workload.layers", draw({2, 4}));
  add("batch.sequence", draw({512, 2048, 4096}));
  add("batch.micro", draw({1, 2}));
  add("batch.global", devices * draw({2, 4}));
  if (draw({0, 1, 2}) == 0 && system != "dgx-a100-80gb") {
    add("formats.compute", "fp8");
  }
  if (draw({0, 1, 2, 3}) == 0) {
    add("formats.gradient", "bf16");
  }
  if (draw({0, 1, 2, 3}) == 0) {
    add("parallel.recompute", "full");
  }
  return set;
}

TEST_CASE(
    "plans of 1,000 jobs are printed in the order they simulate, and sharded weights are no "
    "gift",
    "[.long][studies][plan][property]") {
  constexpr int kJobs = 1000;
  constexpr double kGift = 0.005;
  // Gradients and parameters travel under compute in all.
  const std::string under = " parallel.overlap.data=true parallel.overlap.parameters=true";
  Draw draw{36};
  int jobs = 0;
  int measured = 0;
  double worst = 0;
  while (jobs < kJobs) {
    const std::vector<std::string> job = drawn_job(draw);
    const std::string split = draw({0, 1, 2}) == 0   ? " parallel.tensor=2"
                              : draw({0, 1, 2}) == 0 ? " parallel.pipeline=2"
                                                     : "";
    std::vector<Step> steps;
    std::array<double, 4> by_zero{};
    for (std::size_t zero = 0; zero < 4; ++zero) {
      if (const auto step = step_of(
              job, fmt::format("parallel.zero={}{}{}", zero, split, zero > 0 ? under : ""))) {
        by_zero.at(zero) = step->simulated;
        steps.push_back(*step);
      }
    }
    for (const char* other : {"parallel.tensor=4", "parallel.pipeline=2 parallel.tensor=2"}) {
      if (const auto step = step_of(job, other)) {
        steps.push_back(*step);
      }
    }
    if (steps.size() < 2) {
      continue;
    }
    ++jobs;
    INFO(fmt::format("{}", fmt::join(job, " ")));
    measured += steps.front().efficiency ? 1 : 0;
    for (const Step& a : steps) {
      for (const Step& b : steps) {
        INFO(a.plan << " | " << b.plan);
        CHECK_FALSE((a.simulated < b.simulated && a.printed > b.printed));
      }
      CHECK(a.efficiency.has_value() == steps.front().efficiency.has_value());
      if (a.efficiency) {
        CHECK(a.efficiency->factor == steps.front().efficiency->factor);
      }
    }
    const double least = std::min(by_zero[1], by_zero[2]);
    if (by_zero[3] > 0 && least > 0) {
      INFO(split << ": zero 1, 2, 3: " << by_zero[1] << " " << by_zero[2] << " " << by_zero[3]);
      worst = std::max(worst, 1 - by_zero[3] / least);
      CHECK(by_zero[3] >= (1 - kGift) * least);
    }
  }
  fmt::print("  {} jobs, {} with a measured efficiency; zero 3 is at most {:.2f} % faster\n", jobs,
             measured, 100 * worst);
  CHECK(measured > kJobs / 2);
}

}  // namespace
}  // namespace stepcast::studies
