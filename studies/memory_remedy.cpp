#include "studies/memory_remedy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
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
  }
  return all;
}

std::string gib(Bytes b) { return fmt::format("{:.3g} GiB", b.base() / 0x1p30); }

std::optional<Bytes> needs(const Job& job) {
  try {
    return simulator::fullest_ledger(workloads::build_graph(job), job.system.device).total();
  } catch (const InputError&) {
    return std::nullopt;  // not a legal plan
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
  const Bytes capacity = job.system.device.memory;
  if (job.workload.transformer() == nullptr) {
    return "use another embedding.plan, or more devices";
  }
  std::optional<Change> best;
  Bytes least;
  for (Change& change : changes(job)) {
    const std::optional<Bytes> total = needs(change.job);
    if (total && *total <= capacity) {
      return fmt::format("use {} ({})", change.text, gib(*total));
    }
    if (total && (!best || *total < least)) {
      least = *total;
      best = std::move(change);
    }
  }
  return best ? fmt::format(
                    "no single change of the plan is enough; {} comes nearest with {}: "
                    "combine changes, or use more devices",
                    best->text, gib(least))
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
