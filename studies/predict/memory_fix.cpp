#include "studies/predict/memory_fix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "core/clearly_less.h"
#include "core/error.h"
#include "core/job/efficiency.h"
#include "core/job/job_rules.h"
#include "core/job/layers.h"
#include "models/cost_model.h"
#include "planner/embedding/shard_bytes.h"
#include "planner/parallel/closed_form_model.h"
#include "planner/parallel/parallel_space.h"
#include "simulator/reports/framework_memory.h"
#include "studies/predict/predict.h"
#include "studies/predict/recipes.h"
#include "studies/predict/simulated_step.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

using Settings = std::vector<std::string>;

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

/// One change or two that make a legal plan, in closed form.
struct Tried {
  Settings set;
  Job job;
  Bytes total;      ///< of the fullest device
  Seconds seconds;  ///< of a step
};

std::optional<Tried> tried(Job job, Settings set, planner::ClosedFormModel& path) {
  if (broken_rule(job)) {
    return std::nullopt;
  }
  try {
    const planner::StepForecast f = path.forecast(planner::point_of(job));
    const auto efficiency = efficiency_of(job);
    const Bytes bytes = Bytes(f.bytes) + reserve_of(job);
    return Tried{std::move(set), std::move(job), bytes,
                 Seconds(f.seconds * (efficiency ? efficiency->factor : 1))};
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// Every change, and every two that are not of one key, of a job that trains with all its states
/// and activations on the devices, which is what the closed form covers.
std::vector<Tried> all_tried(const Job& job, const models::CostModel& model) {
  if (job.phase != JobPhase::kTrain || job.offload != Offload{}) {
    return {};
  }
  Job base = planner::without_fits(job);
  if (recomputes_latent(job)) {  // what its selective points recompute
    base.parallel.recompute.modules = kLatentUp;
  }
  planner::ClosedFormModel path(base, model);
  std::vector<Tried> all;
  const std::vector<Change> singles = changes(job);
  const auto key = [](const Change& c) { return c.text.substr(0, c.text.find('=')); };
  for (std::size_t i = 0; i < singles.size(); ++i) {
    Job one = job;
    singles[i].make(one);
    for (std::size_t k = i + 1; k < singles.size(); ++k) {
      Job two = one;
      singles[k].make(two);
      const bool odd = two.parallel.mesh().size() != job.devices;
      if (key(singles[i]) == key(singles[k]) || odd) {
        continue;
      }
      if (auto t = tried(std::move(two), {singles[i].text, singles[k].text}, path)) {
        all.push_back(std::move(*t));
      }
    }
    if (auto t = tried(std::move(one), {singles[i].text}, path)) {
      t->seconds = t->seconds * kSimpler;
      all.push_back(std::move(*t));
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Tried& a, const Tried& b) {
    return clearly_less(a.seconds, b.seconds);
  });
  return all;
}

/// Memory that fixes may take.
Bytes room_of(const Job& job) {
  const Device& device = job.system.device;
  return leaves_headroom(job) ? RecipeSearch::usable(device) : device.memory;
}

/// Looks for fixes by loading the job with settings, as a user would.
class Fixer {
 public:
  Fixer(const Job& job, const LoadWith& load) : job_(job), load_(load) {}

  std::vector<Fix> run() {
    if (job_.workload.transformer() == nullptr) {
      fix_layers();
    } else if (job_.phase == JobPhase::kTrain) {
      fix_training();
    } else {
      fix_inference();
    }
    std::stable_sort(fixes_.begin(), fixes_.end(),
                     [](const Fix& a, const Fix& b) { return clearly_less(a.step, b.step); });
    return std::move(fixes_);
  }

 private:
  /// The fix that the settings are, if the job that they load fits.
  std::optional<Fix> fix_of(const Settings& set) {
    try {
      const Job job = load_(set);
      const ExecutionGraph graph = workloads::build_graph(job);
      const Bytes total = simulator::fullest_ledger(graph, job.system.device).total();
      least_ = std::min(least_, total);
      if (total > room_of(job)) {
        return std::nullopt;
      }
      const models::CostModel model(job.system, job.calibration);
      return Fix{set,
                 expected_step(job, graph, to_seconds(simulate_step(graph, model).result.makespan)),
                 total};
    } catch (const InputError&) {  // not a job
      return std::nullopt;
    }
  }
  bool take(const Settings& set) {
    std::optional<Fix> fix = fix_of(set);
    if (fix) {
      fixes_.push_back(std::move(*fix));
    }
    return fix.has_value();
  }

  void fix_training() {
    const models::CostModel model(job_.system, job_.calibration);
    for (const Tried& t : all_tried(job_, model)) {
      if (t.total <= room_of(t.job) && take(t.set)) {
        break;
      }
    }
    fix_by_host();
    for (std::int64_t devices = job_.devices; fixes_.empty() && devices <= most_devices();
         devices *= 2) {
      fix_by_recipe(devices);
    }
  }

  /// The fastest step that fits with more in the memory of the host.
  void fix_by_host() {
    std::optional<Fix> best;
    for (const Offload& more : {Offload{.activations = true}, Offload{.optimizer = true},
                                Offload{.activations = true, .optimizer = true}}) {
      Settings set;
      for (const auto& [name, part] :
           {std::pair{"activations", &Offload::activations}, {"optimizer", &Offload::optimizer}}) {
        if (more.*part && !(job_.offload.*part)) {
          set.push_back(fmt::format("offload.{}=true", name));
        }
      }
      if (set.empty()) {
        continue;
      }
      std::optional<Fix> fix = fix_of(set);
      if (fix && (!best || clearly_less(fix->step, best->step))) {
        best = std::move(fix);
      }
    }
    if (best) {
      fixes_.push_back(std::move(*best));
    }
  }

  /// Another plan on so many devices.
  void fix_by_recipe(std::int64_t devices) {
    const Settings on =
        devices == job_.devices ? Settings{} : Settings{fmt::format("devices={}", devices)};
    Job open = job_;
    try {
      Settings plain = on;
      const Settings split = recipe_settings({}, job_);
      plain.insert(plain.end(), split.begin(), split.end());
      open = on.empty() ? job_ : load_(plain);
    } catch (const InputError&) {  // the batch does not divide
      return;
    }
    const models::CostModel model(open.system, open.calibration);
    for (const Recipe& recipe : RecipeSearch(unsplit(open), model).best(false)) {
      Settings set = on;
      const Settings split = recipe_settings(recipe.point, job_);
      set.insert(set.end(), split.begin(), split.end());
      if (take(set)) {
        return;
      }
    }
  }

  void fix_inference() {
    for (std::int64_t micro = job_.batch.micro / 2; micro >= 1; micro /= 2) {
      if (take({fmt::format("batch.micro={}", micro)})) {
        break;
      }
    }
    for (std::int64_t devices = job_.devices; devices <= most_devices(); devices *= 2) {
      const Settings on =
          devices == job_.devices ? Settings{} : Settings{fmt::format("devices={}", devices)};
      for (std::int64_t tensor = on.empty() ? 2 * job_.parallel.tensor : job_.parallel.tensor;
           tensor <= devices; tensor *= 2) {
        Settings set = on;
        set.push_back(fmt::format("parallel.tensor={}", tensor));
        if (take(set)) {
          return;
        }
      }
    }
  }

  /// Lists of layers: a plan of tables that was searched; more ranks to a sample; a smaller batch;
  /// more devices.
  void fix_layers() {
    const LayeredWorkload& w = *job_.workload.layered();
    if (replica_fills_device(job_)) {
      return;
    }
    if (!w.tables.empty()) {
      if (!job_.embedding_plan) {
        take({"embedding.plan=search"});
      }
    } else {
      const bool splits = w.layers != nullptr && w.layers->as<DitModel>() != nullptr;
      const std::int64_t widest = splits ? job_.devices : job_.parallel.tensor;
      bool one_fits = !splits;  // a sample for each replica
      for (std::int64_t tensor = widest; tensor >= 1 && !one_fits; tensor /= 2) {
        one_fits = fix_of({fmt::format("parallel.tensor={}", tensor),
                           fmt::format("batch.global={}", job_.devices / tensor)})
                       .has_value();
      }
      for (std::int64_t global = job_.batch.global; one_fits && global >= 1 && fixes_.empty();
           global /= 2) {
        for (std::int64_t tensor = job_.parallel.tensor; tensor <= widest; tensor *= 2) {
          Settings set;
          if (tensor != job_.parallel.tensor) {
            set.push_back(fmt::format("parallel.tensor={}", tensor));
          }
          if (global != job_.batch.global) {
            set.push_back(fmt::format("batch.global={}", global));
          }
          if (!set.empty() && take(set)) {
            break;
          }
        }
      }
    }
    for (std::int64_t devices = 2 * job_.devices; fixes_.empty() && devices <= most_devices();
         devices *= 2) {
      const Bytes before = least_;
      take({fmt::format("devices={}", devices)});
      if (least_ * 2 - before > job_.system.device.memory) {
        break;  // what each of ever more devices holds, as a + b / devices, does not fit either
      }
    }
  }

  /// Devices that the fabric joins, but not without end.
  [[nodiscard]] std::int64_t most_devices() const {
    constexpr std::int64_t kMostTimes = 64;
    const auto& fabric = job_.system.fabric;
    const std::int64_t all =
        fabric.empty() ? job_.devices : job_.system.devices_in_level(fabric.size() - 1);
    return std::min(all, kMostTimes * job_.devices);
  }

  const Job& job_;
  const LoadWith& load_;
  std::vector<Fix> fixes_;
  Bytes least_ = Bytes(std::numeric_limits<double>::infinity());  ///< of what was tried
};

}  // namespace

bool replica_fills_device(const Job& job) {
  const LayeredWorkload* w = job.workload.layered();
  if (w == nullptr || w->tables.empty()) {
    return false;
  }
  Job least = job;
  least.batch.global = least.devices = 1;
  return planner::dense_bytes(least) > job.system.device.memory.base();
}

std::string memory_reason(const simulator::MemoryLedger& ledger, const Device& device) {
  auto lines = ledger.parts();
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return fmt::format(
      "out of memory: rank {} needs {}, the device has {}; most of it {} ({}) and {} ({})",
      ledger.rank, gib(ledger.total()), gib(device.memory), lines[0].first, gib(lines[0].second),
      lines[1].first, gib(lines[1].second));
}

std::vector<Fix> memory_fixes(const Job& job, const LoadWith& load) {
  return Fixer(job, load).run();
}

std::string tight_memory(Bytes used, const Device& device) {
  const double over = device.memory <= Bytes{} ? -1 : used / device.memory - 1;
  const double margin =
      over > 0 ? simulator::memory_overestimate(device) : simulator::memory_margin(device);
  if (std::abs(over) > margin) {
    return {};
  }
  return over > 0
             ? fmt::format("unlikely to fit: {:.3g} of {}; 1 forecast in 100 is {:.2g} % too high",
                           used.base() / 0x1p30, gib(device.memory), 100 * margin)
             : fmt::format(
                   "tight: {:.2g} % of the fullest device's memory is free, within the "
                   "{:.2g} % error of the method",
                   -100 * over, 100 * margin);
}

}  // namespace stepcast::studies
