#include "studies/memory_remedy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/pace.h"
#include "models/cost_model.h"
#include "studies/simulated_step.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

struct Change {
  std::string text;
  Job job;
};

/// The same devices split otherwise.
Job split_more(Job job, std::int64_t Parallel::*degree) {
  job.parallel.*degree *= 2;
  job.parallel.data /= 2;
  return job;
}

std::vector<Change> changes(const Job& job) {
  std::vector<Change> all;
  const Parallel& p = job.parallel;
  const auto add = [&](std::string text, auto&& change) {
    all.push_back({std::move(text), job});
    change(all.back().job);
  };
  const bool trains = job.phase == JobPhase::kTrain;
  if (p.tensor > 1 && !p.sequence_parallel) {
    add("parallel.sequence_parallel=true", [](Job& j) { j.parallel.sequence_parallel = true; });
  }
  if (trains && p.data * p.context > 1) {
    for (int zero = p.zero + 1; zero <= 3; ++zero) {
      add(fmt::format("parallel.zero={}", zero), [zero](Job& j) { j.parallel.zero = zero; });
    }
  }
  if (trains && p.recompute.kind == RecomputeKind::kNone && !job.flash_attention) {
    add("parallel.recompute=selective",
        [](Job& j) { j.parallel.recompute.kind = RecomputeKind::kSelective; });
  }
  if (trains && p.recompute.kind != RecomputeKind::kFull) {
    add("parallel.recompute=full",
        [](Job& j) { j.parallel.recompute.kind = RecomputeKind::kFull; });
  }
  for (std::int64_t micro = job.batch.micro / 2; micro >= 1; micro /= 2) {
    if (job.batch.micro % micro == 0) {
      add(fmt::format("batch.micro={}", micro), [micro](Job& j) { j.batch.micro = micro; });
    }
  }
  if (p.data % 2 == 0) {
    all.push_back(
        {fmt::format("parallel.tensor={}", 2 * p.tensor), split_more(job, &Parallel::tensor)});
    all.push_back({fmt::format("parallel.pipeline={}", 2 * p.pipeline),
                   split_more(job, &Parallel::pipeline)});
    all.push_back(
        {fmt::format("parallel.context={}", 2 * p.context), split_more(job, &Parallel::context)});
  }
  return all;
}

std::string gib(Bytes b) { return fmt::format("{:.3g} GiB", b.base() / 0x1p30); }

/// A change that is a legal plan.
struct Tried {
  std::string text;
  Bytes total;                     ///< of the fullest device
  std::optional<Seconds> seconds;  ///< of a step, where it fits
};

std::optional<Tried> tried(const Change& change, const models::CostModel& model) {
  try {
    const ExecutionGraph graph = workloads::build_graph(change.job);
    const Device& device = change.job.system.device;
    Tried all{change.text, simulator::fullest_ledger(graph, device).total(), std::nullopt};
    if (all.total <= device.memory) {
      const auto pace = pace_of(change.job);
      all.seconds =
          to_seconds(simulate_step(graph, model).result.makespan) * (pace ? pace->factor : 1);
    }
    return all;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

}  // namespace

std::string memory_reason(const simulator::MemoryLedger& ledger, const Device& device) {
  auto lines = ledger.lines();
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return fmt::format(
      "does not fit: rank {} needs {}, the device has {}; most of it {} ({}) and {} ({})",
      ledger.rank, gib(ledger.total()), gib(device.memory), lines[0].first, gib(lines[0].second),
      lines[1].first, gib(lines[1].second));
}

std::string memory_remedy(const Job& job) {
  if (job.workload.transformer() == nullptr) {
    return "use another embedding.plan, or more devices";
  }
  const models::CostModel model(job.system, job.calibration);
  std::optional<Tried> fastest;
  std::optional<Tried> smallest;
  for (const Change& change : changes(job)) {
    const std::optional<Tried> now = tried(change, model);
    if (now && now->seconds && (!fastest || *now->seconds < *fastest->seconds)) {
      fastest = now;
    }
    if (now && (!smallest || now->total < smallest->total)) {
      smallest = now;
    }
  }
  if (fastest) {
    return fmt::format("use {} ({}, {:.3g} s a step), the fastest single change that fits",
                       fastest->text, gib(fastest->total), fastest->seconds->base());
  }
  return smallest ? fmt::format(
                        "no single change of the plan is enough; {} comes nearest with {}: "
                        "combine changes, or use more devices",
                        smallest->text, gib(smallest->total))
                  : "use more devices, or ones with more memory";
}

std::string tight_memory(Bytes used, Bytes capacity) {
  constexpr double kRoom = 0.05;
  if (capacity <= Bytes{} || used > capacity || used < (1 - kRoom) * capacity) {
    return {};
  }
  return fmt::format(
      "{:.2g} % of the fullest device's memory is left, while published runs took 4 % more or less "
      "than predicted on average (docs/accuracy.md): leave more where it has to fit",
      100 * (1 - used / capacity));
}

}  // namespace stepcast::studies
