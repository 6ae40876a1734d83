#include "studies/predict/memory_fix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/clearly_less.h"
#include "core/config/default_framework.h"
#include "core/error.h"
#include "core/job/efficiency.h"
#include "core/job/job_rules.h"
#include "core/job/layers.h"
#include "models/cost_model.h"
#include "planner/parallel/closed_form_model.h"
#include "planner/parallel/parallel_space.h"
#include "simulator/reports/framework_memory.h"
#include "studies/predict/context_choice.h"
#include "studies/predict/predict.h"
#include "studies/predict/simulated_step.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

/// One change is taken before two unless these are faster by more than this.
constexpr double kSimpler = 0.97;

struct Change {
  std::string text;
  std::function<void(Job&)> make;
};

/// Modules that recipes with fused latent attention recompute first.
constexpr RecomputeModules kLatentUp{.attention_core = false, .latent_up = true};
bool recomputes_latent(const Job& job) {
  return job.phase == JobPhase::kTrain && job.workload.transformer()->mla && job.flash_attention &&
         job.parallel.recompute.kind == RecomputeKind::kNone;
}

/// Twice as many ranks that share the experts, and as many as lie in one unit of the innermost
/// level. None where nobody shares them: what frameworks do for plans that share experts is not in
/// the job.
std::set<std::int64_t> wider_experts(const Job& job) {
  const TransformerWorkload& w = *job.workload.transformer();
  const Parallel& p = job.parallel;
  if (!w.moe || p.expert == 1) {
    return {};
  }
  const std::int64_t inside = job.system.fabric.empty() ? 1 : job.system.devices_in_level(0);
  const std::int64_t most = std::gcd(w.moe->experts, p.tensor * p.context * p.data);
  std::set<std::int64_t> all;
  for (std::int64_t ranks = 2 * p.expert; ranks <= most; ranks *= 2) {
    if (ranks == 2 * p.expert || (ranks <= inside && 2 * ranks > std::min(inside, most))) {
      all.insert(ranks);
    }
  }
  return all;
}

/// Each alone; the same devices throughout.
std::vector<Change> changes(const Job& job) {
  std::vector<Change> all;
  const Parallel& p = job.parallel;
  const bool trains = job.phase == JobPhase::kTrain;
  if (p.tensor > 1 && !p.sequence_parallel) {
    all.push_back(
        {"parallel.sequence_parallel=true", [](Job& j) { j.parallel.sequence_parallel = true; }});
  }
  if (trains && p.data * p.context > 1) {
    for (int zero = p.zero + 1; zero <= 3; ++zero) {
      all.push_back(
          {fmt::format("parallel.zero={}", zero), [zero](Job& j) { j.parallel.zero = zero; }});
    }
  }
  if (recomputes_latent(job)) {
    all.push_back({R"(parallel.recompute={"modules":["mla_up_proj"]})", [](Job& j) {
                     j.parallel.recompute.kind = RecomputeKind::kSelective;
                     j.parallel.recompute.modules = kLatentUp;
                   }});
  }
  if (trains && p.recompute.kind == RecomputeKind::kNone && !job.flash_attention) {
    all.push_back({"parallel.recompute=selective",
                   [](Job& j) { j.parallel.recompute.kind = RecomputeKind::kSelective; }});
  }
  if (trains && p.recompute.kind != RecomputeKind::kFull) {
    all.push_back({"parallel.recompute=full", [](Job& j) {
                     j.parallel.recompute = {};
                     j.parallel.recompute.kind = RecomputeKind::kFull;
                   }});
  }
  for (std::int64_t micro = job.batch.micro / 2; micro >= 1; micro /= 2) {
    if (job.batch.micro % micro == 0) {
      all.push_back(
          {fmt::format("batch.micro={}", micro), [micro](Job& j) { j.batch.micro = micro; }});
    }
  }
  for (const std::int64_t ranks : wider_experts(job)) {
    all.push_back(
        {fmt::format("parallel.expert={}", ranks), [ranks](Job& j) { j.parallel.expert = ranks; }});
  }
  for (const auto& [name, degree] : {std::pair{"tensor", &Parallel::tensor},
                                     {"pipeline", &Parallel::pipeline},
                                     {"context", &Parallel::context}}) {
    if (p.data % 2 == 0) {
      all.push_back({fmt::format("parallel.{}={}", name, 2 * p.*degree), [degree = degree](Job& j) {
                       j.parallel.*degree *= 2;
                       j.parallel.data /= 2;
                     }});
    }
  }
  return all;
}

std::string gib(Bytes b) {
  return b.base() < 1000 * 0x1p30 ? fmt::format("{:.3g} GiB", b.base() / 0x1p30)
                                  : fmt::format("{:.3g} TiB", b.base() / 0x1p40);
}

/// In full: bytes of the fullest device and, where it has them, seconds; else never.
std::pair<Bytes, Seconds> simulated(const Job& of, const models::CostModel& model) {
  const Job job = settled(of);
  const ExecutionGraph graph = workloads::build_graph(job);
  const Bytes total = simulator::fullest_ledger(graph, job.system.device).total();
  if (total > job.system.device.memory) {
    return {total, Seconds(std::numeric_limits<double>::infinity())};
  }
  return {total,
          expected_step(job, graph, to_seconds(simulate_step(graph, model).result.makespan))};
}

/// One change or two that make a legal plan, in closed form.
struct Tried {
  std::string text;
  Job job;
  Bytes total;      ///< of the fullest device
  Seconds seconds;  ///< of a step
};

std::optional<Tried> tried(Job job, std::string text, std::optional<planner::ClosedFormModel>& path,
                           const models::CostModel& model) {
  if (broken_rule(job)) {
    return std::nullopt;
  }
  try {
    // The closed form covers training steps alone, and not the host's memory.
    if (job.phase != JobPhase::kTrain || job.offload != Offload{}) {
      const auto [total, seconds] = simulated(job, model);
      return Tried{std::move(text), std::move(job), total, seconds};
    }
    const planner::StepForecast f = path->forecast(planner::point_of(job));
    const auto efficiency = efficiency_of(job);
    const Bytes context = simulator::framework_memory(job.system.device, {}, {}).context;
    return Tried{std::move(text), std::move(job), Bytes(f.bytes) + context,
                 Seconds(f.seconds * (efficiency ? efficiency->factor : 1))};
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// Every change, and every two that are not of one key.
std::vector<Tried> all_tried(const Job& job, const models::CostModel& model) {
  if (job.phase != JobPhase::kTrain) {
    return {};  // closed forms are of training steps
  }
  Job base = planner::without_fits(job);
  if (recomputes_latent(job)) {  // what its selective points recompute
    base.parallel.recompute.modules = kLatentUp;
  }
  std::optional<planner::ClosedFormModel> path;
  if (job.phase == JobPhase::kTrain) {
    path.emplace(base, model);
  }
  std::vector<Tried> all;
  const std::vector<Change> singles = changes(job);
  const auto key = [](const Change& c) { return c.text.substr(0, c.text.find('=')); };
  const auto typed = [](const Change& c) { return config::quoted_setting(c.text); };
  for (std::size_t i = 0; i < singles.size(); ++i) {
    Job one = job;
    singles[i].make(one);
    const bool pairs = job.offload == Offload{};  // else each takes a simulation
    for (std::size_t k = i + 1; pairs && k < singles.size(); ++k) {
      Job two = one;
      singles[k].make(two);
      const bool odd = two.parallel.mesh().size() != job.devices;
      if (key(singles[i]) == key(singles[k]) || odd) {
        continue;
      }
      if (auto t =
              tried(std::move(two), typed(singles[i]) + " and " + typed(singles[k]), path, model)) {
        all.push_back(std::move(*t));
      }
    }
    if (auto t = tried(std::move(one), typed(singles[i]), path, model)) {
      t->seconds = t->seconds * kSimpler;
      all.push_back(std::move(*t));
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Tried& a, const Tried& b) {
    return clearly_less(a.seconds, b.seconds);
  });
  return all;
}

/// Fastest step that fits with more in the memory of the host.
std::optional<Tried> offloaded(const Job& job, const models::CostModel& model) {
  std::optional<Tried> best;
  for (const Offload& more : {Offload{.activations = true}, Offload{.optimizer = true},
                              Offload{.activations = true, .optimizer = true}}) {
    Job one = job;
    std::vector<std::string> set;
    for (const auto& [name, part] :
         {std::pair{"activations", &Offload::activations}, {"optimizer", &Offload::optimizer}}) {
      if (more.*part && !(one.offload.*part)) {
        one.offload.*part = true;
        set.push_back(config::quoted_setting(fmt::format("offload.{}=true", name)));
      }
    }
    if (set.empty() || broken_rule(one)) {
      continue;
    }
    const auto [total, seconds] = simulated(one, model);
    if (total <= job.system.device.memory && (!best || clearly_less(seconds, best->seconds))) {
      best = Tried{fmt::format("{}", fmt::join(set, " and ")), one, total, seconds};
    }
  }
  return best;
}

/// Bytes of the fullest device with `tensor` ranks to a sample and `global` samples in a step;
/// nullopt where the workload cannot be split so.
std::optional<Bytes> layered_bytes(Job job, std::int64_t tensor, std::int64_t global) {
  const std::int64_t replicas = job.devices / tensor;
  if (job.devices % tensor != 0 || global % replicas != 0) {
    return std::nullopt;
  }
  job.parallel.tensor = tensor;
  job.parallel.data = replicas;
  job.batch = {.global = global, .micro = global / replicas, .sequence = 0};
  try {
    return simulator::fullest_ledger(workloads::build_graph(job), job.system.device).total();
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// A list of layers: another place for its tables; without tables the largest batch that fits on
/// the fewest ranks to a sample, where its kind can be split.
std::string layered_fix(const Job& job) {
  const LayeredWorkload& w = *job.workload.layered();
  if (!w.tables.empty()) {
    return "use another embedding.plan, or more devices";
  }
  const bool splits = w.layers != nullptr && w.layers->as<DitModel>() != nullptr;
  const std::int64_t widest = splits ? job.devices : job.parallel.tensor;
  for (std::int64_t global = job.batch.global; global >= 1; global /= 2) {
    for (std::int64_t tensor = job.parallel.tensor; tensor <= widest; tensor *= 2) {
      const auto bytes = layered_bytes(job, tensor, global);
      if (!bytes || *bytes > job.system.device.memory) {
        continue;
      }
      std::vector<std::string> changes;
      if (tensor != job.parallel.tensor) {
        changes.push_back(fmt::format("parallel.tensor={}", tensor));
      }
      if (global != job.batch.global) {
        changes.push_back(fmt::format("batch.global={}", global));
      }
      return fmt::format("use {} ({})", fmt::join(changes, " and "), gib(*bytes));
    }
  }
  return "use devices with more memory";
}

}  // namespace

std::string memory_reason(const simulator::MemoryLedger& ledger, const Device& device) {
  auto lines = ledger.parts();
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return fmt::format(
      "out of memory: rank {} needs {}, the device has {}; most of it {} ({}) and {} ({})",
      ledger.rank, gib(ledger.total()), gib(device.memory), lines[0].first, gib(lines[0].second),
      lines[1].first, gib(lines[1].second));
}

std::string memory_fix(const Job& job, const std::string& default_framework) {
  if (job.workload.transformer() == nullptr) {
    return layered_fix(job);
  }
  const models::CostModel model(job.system, job.calibration);
  const Bytes memory = job.system.device.memory;
  const std::vector<Tried> all = all_tried(job, model);
  const std::optional<Tried> host = offloaded(job, model);
  const std::string beside = host ? fmt::format("{} ({}, {:.3g} s a step)", host->text,
                                                gib(host->total), host->seconds.base())
                                  : "";
  for (const Tried& t : all) {
    if (t.total > memory) {
      continue;
    }
    const auto [total, seconds] = simulated(t.job, model);
    if (total <= memory) {
      const bool named = default_framework.empty() || plan_family(t.job) == plan_family(job);
      return fmt::format(
          "use {}{} ({}, {:.3g} s a step), the fastest change that fits, {}or "
          "search with `stepcast plan`",
          t.text, named ? "" : " with stack=" + default_framework, gib(total), seconds.base(),
          host ? beside + ", " : "");
    }
  }
  if (host) {
    return fmt::format("use {}: no change of the plan alone is enough", beside);
  }
  const auto smallest = std::min_element(
      all.begin(), all.end(), [](const Tried& a, const Tried& b) { return a.total < b.total; });
  return smallest == all.end() ? "use more devices, or ones with more memory"
                               : fmt::format(
                                     "no two changes of the plan are enough; {} comes nearest with "
                                     "{}: use more devices",
                                     smallest->text, gib(smallest->total));
}

std::string tight_memory(Bytes used, const Device& device) {
  const double margin = simulator::memory_margin(device);
  const double over = device.memory <= Bytes{} ? -1 : used / device.memory - 1;
  if (over <= -margin || over > margin) {
    return {};
  }
  const std::string errs = fmt::format("within the {:.2g} % error of the method", 100 * margin);
  return over > 0 ? fmt::format("likely fits: {:.3g} of {}, {}", used.base() / 0x1p30,
                                gib(device.memory), errs)
                  : fmt::format(
                        "tight: {:.2g} % of the fullest device's memory is free, {}",
                        -100 * over, errs);
}

}  // namespace stepcast::studies
