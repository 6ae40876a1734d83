#include "studies/predict/chosen_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "core/clearly_less.h"
#include "core/config/default_framework.h"
#include "core/error.h"
#include "core/job/layers.h"
#include "models/cost_model.h"
#include "simulator/reports/memory_ledger.h"
#include "studies/plan/searched_plan.h"
#include "studies/predict/memory_fix.h"
#include "studies/predict/recipes.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

using config::JobOnFramework;
using config::PlanRequestOnFramework;
using Settings = std::vector<std::string>;

/// Plans that take no longer than that times the fastest tie with it.
constexpr double kTie = 1.01;

Settings joined(Settings a, const Settings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// A job with settings that a chooser adds.
struct Candidate {
  JobOnFramework on;
  Settings settings;
  Seconds seconds;
  std::optional<BuiltStep> built = std::nullopt;
};

class Chooser {
 public:
  Chooser(const config::Source& source, const Settings& overrides, const config::Library& library)
      : source_(source),
        overrides_(overrides),
        library_(library),
        given_(config::given_keys(source, overrides, library)) {}

  [[nodiscard]] JobOnFramework read(const Settings& settings) const {
    return config::load_job_on_default_framework(source_, joined(overrides_, settings), library_);
  }
  [[nodiscard]] JobOnFramework load(const Settings& settings) const {
    JobOnFramework on = read(settings);
    on.job = with_searched_plan(std::move(on.job));
    return on;
  }
  [[nodiscard]] PlanRequestOnFramework open(const Settings& settings) const {
    return config::load_plan_request_on_framework(source_, joined(overrides_, settings), library_,
                                                  "");
  }

  ChosenJob run() {
    std::optional<InputError> wrong;
    if (given_.plan) {
      try {
        ChosenJob said = literal();
        if (said.job.workload.transformer() != nullptr) {
          return said;
        }
      } catch (const InputError& error) {
        wrong = error;
      }
    }
    std::optional<PlanRequestOnFramework> open_job;
    try {
      open_job = open({});
    } catch (const InputError&) {
      return literal();  // which says what is wrong
    }
    const Job& job = open_job->request.job;
    const bool layers = job.workload.transformer() == nullptr;
    const std::int64_t machine = job.devices;
    if (wrong && !layers) {
      return on_more_machines(job, *wrong);
    }
    const bool trains = !layers && job.phase == JobPhase::kTrain;
    if (layers && replica_fills_device(job)) {
      return literal();
    }
    for (std::int64_t devices = trains ? first_devices(job, machine) : machine;
         devices <= most_devices(job); devices *= 2) {
      const Settings on =
          devices == machine ? Settings{} : Settings{fmt::format("devices={}", devices)};
      tried_ = 0;
      const Bytes before = std::exchange(least_, Bytes(std::numeric_limits<double>::infinity()));
      std::optional<Candidate> best = layers   ? layered(on, job)
                                      : trains ? trained(on)
                                               : served(on);
      if (best) {
        return chosen(std::move(*best), devices, machine);
      }
      const bool known = !std::isinf(least_.base());
      if (known && !trains && !clearly_less(least_.base(), before.base())) {
        break;  // more devices hold no less each
      }
      if (layers && job.workload.layered()->tables.empty() &&
          (known ? 2 * least_ - before > job.system.device.memory : devices > job.batch.global)) {
        break;  // nor would ever more, which hold a + b / devices; or have no sample each
      }
    }
    try {
      return literal();
    } catch (const InputError& error) {
      throw trains ? nothing_tried_fits(error) : error;
    }
  }

  /// Error of a job that names no plan: `plain` is that of replicas alone.
  [[nodiscard]] InputError nothing_tried_fits(const InputError& plain) const {
    const char* search = "`stepcast plan` with the same options searches all";
    return tried_ > 0
               ? InputError("parallel", fmt::format("none of the {} plans tried fits; {}, or "
                                                    "name one: --tp, --pp, --cp, --zero",
                                                    tried_, search))
               : InputError(plain.where(),
                            fmt::format("{}, or another plan: {}", plain.problem(), search));
  }

  /// A plan that is said and `wrong` on one machine, on the fewest that its degrees divide.
  [[nodiscard]] ChosenJob on_more_machines(const Job& job, const InputError& wrong) const {
    for (std::int64_t devices = 2 * job.devices; !given_.devices && devices <= most_devices(job);
         devices *= 2) {
      try {
        Settings on{fmt::format("devices={}", devices)};
        return chosen({load(on), on, {}}, devices, job.devices);
      } catch (const InputError&) {  // nor that many
      }
    }
    throw wrong;
  }

  [[nodiscard]] ChosenJob literal() const {
    JobOnFramework on = load({});
    return noted({std::move(on.job), {}, std::move(on.default_framework), std::move(on.rejected),
                  std::move(on.framework), std::nullopt});
  }

 private:
  /// Those said, else as many as the fabric joins.
  [[nodiscard]] std::int64_t most_devices(const Job& job) const {
    const auto& fabric = job.system.fabric;
    return given_.devices || fabric.empty() ? job.devices
                                            : job.system.devices_in_level(fabric.size() - 1);
  }

  /// Machines whose devices hold the states, were all of them sharded.
  [[nodiscard]] std::int64_t first_devices(const Job& job, std::int64_t machine) const {
    std::int64_t devices = machine;
    const Bytes states = RecipeSearch::least_states(job);
    while (!given_.devices && devices < most_devices(job) &&
           states > job.system.device.memory * static_cast<double>(devices)) {
      devices *= 2;
    }
    return devices;
  }

  bool fits(const Job& job, const ExecutionGraph& graph, Bytes memory) {
    const Bytes needed = simulator::fullest_ledger(graph, job.system.device).total();
    least_ = std::min(least_, needed);
    return memory <= Bytes{} || needed <= memory;
  }

  std::optional<Candidate> trained(const Settings& on) {
    Settings said = on;
    PlanRequestOnFramework request = open(said);
    const models::CostModel model(request.request.job.system, request.request.job.calibration);
    std::vector<Recipe> recipes = recipes_of(request.request.job, model);
    if (recipes.empty() && !given_.global && tried_ == 0) {
      said.push_back(fmt::format("batch.global={}", divisible_batch(request.request.job)));
      request = open(said);
      recipes = recipes_of(request.request.job, model);
    }
    const Device& device = request.request.job.system.device;
    tight_ = !recipes.empty() && recipes.front().bytes > RecipeSearch::usable(device);
    std::vector<std::pair<Candidate, const planner::PlanPoint*>> fit;
    std::size_t simulated = 0;
    std::int64_t passes = 0;
    for (const Recipe& recipe : recipes) {
      if (simulated == kSimulatedRecipes) {
        break;
      }
      const planner::PlanPoint& p = recipe.point;
      std::optional<Candidate> made;
      if (std::none_of(fit.begin(), fit.end(), [&p](auto& f) { return alike(*f.second, p); })) {
        made = candidate(recipe, request.request.job, said);
      }
      if (!made) {
        continue;
      }
      ExecutionGraph graph = workloads::build_graph(made->on.job);
      if (!fits(made->on.job, graph, tight_ ? device.memory : RecipeSearch::usable(device))) {
        continue;
      }
      if (tight_) {
        return made;
      }
      passes += passes_of(made->on.job);
      if (passes > kSimulatedPasses) {
        return fit.empty() ? std::move(made) : simplest(std::move(fit));
      }
      ++simulated;
      SimulatedStep step = simulate_account(graph, model);
      made->seconds = to_seconds(step.result.makespan);
      made->built = BuiltStep{std::move(graph), std::move(step)};
      fit.emplace_back(std::move(*made), &recipe.point);
    }
    return simplest(std::move(fit));
  }

  /// The simplest of plans within a hundredth of the fastest: fewest stages, then fewest tensor
  /// ranks, then the least that is sharded.
  static std::optional<Candidate> simplest(
      std::vector<std::pair<Candidate, const planner::PlanPoint*>> of) {
    const auto seconds = [](const auto& a, const auto& b) {
      return clearly_less(a.first.seconds, b.first.seconds);
    };
    std::stable_sort(of.begin(), of.end(), seconds);
    std::erase_if(of, [fastest = of.empty() ? Seconds{} : of.front().first.seconds](const auto& a) {
      return a.first.seconds > kTie * fastest;
    });
    const auto rank = [](const auto& a) {
      const planner::PlanPoint& p = *a.second;
      return std::tuple(p.pipeline, p.tensor, p.zero, p.context, p.virtual_stages);
    };
    const auto first = std::min_element(
        of.begin(), of.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    return first == of.end() ? std::nullopt : std::optional(std::move(first->first));
  }

  std::vector<Recipe> recipes_of(const Job& job, const models::CostModel& model) {
    RecipeSearch search(job, model);
    std::vector<Recipe> recipes = search.best(given_.devices);
    tried_ = search.tried();
    return recipes;
  }

  /// The job that a user gets who types the recipe; nullopt where its framework says otherwise.
  [[nodiscard]] std::optional<Candidate> candidate(const Recipe& recipe, const Job& open_job,
                                                   Settings settings) const {
    settings = joined(std::move(settings), recipe_settings(recipe.point, open_job));
    std::erase(settings, "parallel.sequence_parallel=true");  // which most frameworks say
    // A job that says no key of its plan would be chosen for again.
    if (recipe.point.micro == 1) {
      settings.emplace_back("batch.micro=1");
    }
    try {
      Candidate made{read(settings), settings, recipe.seconds};
      const Settings rest = recipe_settings(recipe.point, made.on.job);
      if (!rest.empty()) {  // what its framework says of plans of that shape
        made.settings = joined(std::move(made.settings), rest);
        made.on = read(made.settings);
      }
      made.on.job = with_searched_plan(std::move(made.on.job));
      return made;
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

  /// Inference: the fewest tensor ranks, as closed forms are of training steps.
  std::optional<Candidate> served(const Settings& on) {
    const PlanRequestOnFramework request = open(on);
    const Job& job = request.request.job;
    for (std::int64_t tensor = 1; tensor <= job.devices; tensor *= 2) {
      if (job.devices % tensor != 0) {
        continue;
      }
      Settings settings = on;
      settings.push_back(fmt::format("parallel.tensor={}", tensor));
      try {
        ++tried_;
        JobOnFramework loaded = load(settings);
        if (fits(loaded.job, workloads::build_graph(loaded.job), job.system.device.memory)) {
          return Candidate{std::move(loaded), std::move(settings), {}};
        }
      } catch (const InputError&) {  // not so many tensor ranks
      }
    }
    return std::nullopt;
  }

  /// A list of layers, on the fewest ranks to a sample where its kind can be split.
  std::optional<Candidate> layered(const Settings& on, const Job& job) {
    const LayeredWorkload& w = *job.workload.layered();
    const bool splits = w.layers != nullptr && w.layers->as<DitModel>() != nullptr && !given_.plan;
    const std::int64_t widest = splits ? job.system.host.devices : 1;
    for (std::int64_t tensor = 1; tensor <= widest; tensor *= 2) {
      Settings settings = on;
      if (tensor > 1) {
        settings.push_back(fmt::format("parallel.tensor={}", tensor));
      }
      try {
        JobOnFramework loaded = load(settings);
        if (fits(loaded.job, workloads::build_graph(loaded.job), job.system.device.memory)) {
          return Candidate{std::move(loaded), std::move(settings), {}};
        }
      } catch (const InputError&) {  // fewer samples than ranks, say
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] ChosenJob chosen(Candidate best, std::int64_t devices, std::int64_t machine) const {
    PlanChoice choice{tried_ > 0, tried_, tight_, std::move(best.settings), {}};
    if (devices > machine) {
      choice.notes.push_back(fmt::format("{} devices: the fewest machines that {}", devices,
                                         given_.plan ? "it is legal on" : "hold it"));
    }
    return noted({std::move(best.on.job), std::move(choice), std::move(best.on.default_framework),
                  std::move(best.on.rejected), std::move(best.on.framework),
                  std::move(best.built)});
  }

  /// Says it where the batch is not the workload's default.
  [[nodiscard]] ChosenJob noted(ChosenJob of) const {
    const std::optional<Batch>& usual = of.job.workload.default_batch;
    if (!given_.global && usual && usual->global != of.job.batch.global) {
      of.choice.notes.push_back(fmt::format("global batch {}: the default, {}, does not divide",
                                            of.job.batch.global, usual->global));
    }
    return of;
  }

  const config::Source& source_;
  const Settings& overrides_;
  const config::Library& library_;
  config::GivenKeys given_;
  std::int64_t tried_ = 0;
  bool tight_ = false;
  Bytes least_ = Bytes(std::numeric_limits<double>::infinity());  ///< that a device of the last
                                                                  ///< machines needs
};

}  // namespace

ChosenJob choose_plan(const config::Source& source, const std::vector<std::string>& overrides,
                      const config::Library& library, bool as_is) {
  Chooser chooser(source, overrides, library);
  return as_is ? chooser.literal() : chooser.run();
}

}  // namespace stepcast::studies
