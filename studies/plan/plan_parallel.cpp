#include "studies/plan/plan_parallel.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>

#include "core/clearly_less.h"
#include "core/error.h"
#include "models/cost_model.h"
#include "planner/parallel/closed_form_model.h"
#include "planner/parallel/parallel_for.h"
#include "planner/parallel/parallel_space.h"
#include "studies/plan/internal/joined_plans.h"
#include "studies/plan/internal/step_estimate.h"
#include "studies/predict/recipes.h"
#include "studies/predict/simulated_step.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

using internal::estimated_step;
using internal::joined;
using internal::keep_shown;
using internal::kEstimateError;
using internal::without_dominated;

/// In the order of the closed form, and again of those that may be faster than their closed form.
constexpr std::size_t kMostSimulated = 48;
/// For the former, where that order is rough.
constexpr std::size_t kRoughSimulated = 8;
/// Simulated step over closed form, less one, where nothing overlaps with compute
/// (tests/planner/closed_form_test.cpp).
constexpr double kClosedFormError = 0.01;
/// Candidates of a kind: their closed forms may be in another order than their steps.
constexpr std::size_t kOfAKind = 4;
/// Candidates of each family, of which the best is shown.
constexpr std::size_t kOfAFamily = 2;
/// Simulated at once: the best of them may put the rest out of reach.
constexpr std::size_t kRound = 8;

class Planning {
 public:
  /// `rivals`: plans that those of the request are shown among.
  Planning(const PlanRequest& request, const ParallelPlanOptions& options,
           const std::vector<RankedParallelPlan>& rivals)
      : request_(request), options_(options), model_(request.job.system, request.job.calibration) {
    if (const auto efficiency = efficiency_of(request.job)) {
      efficiency_ = efficiency->factor;
    }
    if (!rivals.empty()) {
      rival_ = rivals.front().prediction.iteration.base();
    }
    if (rivals.size() >= options.top) {
      last_rival_ = rivals[options.top - 1].prediction.iteration.base();
    }
  }

  ParallelPlanReport run() {
    begin_ = now();
    report_.job = request_.job;
    report_.fixed = request_.fixed;
    report_.capacity = request_.job.system.device.memory.base() - options_.headroom;
    const planner::ParallelSearchResult found = search(request_.job.devices, Stage{0, 0.5});
    if (found.counts.space == 0 && request_.fixed.reordered) {
      return std::move(report_);
    }
    if (found.counts.space == 0) {
      internal::reject_model(request_);
      reject_space();
    }
    report_.counts = found.counts;
    report_.cut = found.cut;
    report_.least_bytes = found.least_bytes;
    report_.front = found.front;
    report_.search_seconds = now() - begin_;
    const double searched = now();
    if (found.cut || found.best.empty() || may_be_rough()) {
      find_recipes();
    }
    if (!found.best.empty() || !recipes_.empty() || !std::isinf(rival_)) {
      report_.lower_bound = least_of(found);
      simulate_and_prove(found);
      if (report_.cut) {
        report_.lower_bound = 0;
      }
    }
    const double proved = now();
    report_.simulation_seconds = proved - searched;
    if (options_.front && options_.fewer_devices) {
      add_fewer_devices();
      report_.fewer_devices_seconds = now() - proved;
    }
    return std::move(report_);
  }

 private:
  /// True if transfers may overlap with compute: closed forms then rank roughly.
  [[nodiscard]] bool may_be_rough() const {
    const Overlap& o = request_.job.parallel.overlap;
    return o.data || o.tensor || o.expert || o.pipeline;
  }

  [[nodiscard]] double now() const { return options_.clock ? options_.clock() : 0; }
  [[nodiscard]] bool late() const {
    return options_.time_limit && now() - begin_ > *options_.time_limit;
  }

  /// Begin and end of a search, as shares of all work.
  struct Stage {
    double from = 0, to = 1;
  };

  planner::ParallelSearchResult search(std::int64_t devices, Stage stage,
                                       std::optional<double> below = {}) {
    PlanRequest request = request_;
    request.job.devices = devices;
    planner::ParallelSearchOptions o;
    o.keep =
        std::max(may_be_rough() ? 2 * kRoughSimulated : kMostSimulated, kOfAKind * options_.top) +
        1;
    o.each = kOfAKind;
    o.near = std::min(options_.top, o.keep);
    if (!may_be_rough()) {  // a plan further behind cannot be simulated as one of the best
      o.margin = (1 + kClosedFormError) / (1 - kClosedFormError) - 1;
      o.at_most = last_rival_ * (1 + kClosedFormError);
    } else {
      o.at_most = last_rival_ * (1 + planner::kFamilyMargin);
    }
    o.rival = rival_;
    const bool first = devices == request_.job.devices && !below;
    o.keep_of_family = first && options_.top > 1 ? kOfAFamily : 0;
    o.front = options_.front;
    o.bound_splits = may_be_rough() && first;
    if (below) {
      o.each = std::numeric_limits<std::size_t>::max();
      o.margin = o.at_most = std::numeric_limits<double>::infinity();
      o.keep += kMostSimulated;  // some of them were simulated
      o.below = *below / (1 - kLeastTimeError);
    }
    o.efficiency = efficiency_;
    o.capacity = report_.capacity;
    o.reserve = reserve_of(request.job).base();
    o.threads = options_.threads;
    if (options_.time_limit) {
      o.time_limit = std::max(0.0, *options_.time_limit - (now() - begin_));
    }
    o.clock = options_.clock;
    if (options_.on_progress) {
      o.on_progress = [this, stage](double share, double best) {
        const double simulated = fastest();
        options_.on_progress(stage.from + share * (stage.to - stage.from),
                             std::isinf(simulated) ? best : simulated);
      };
    }
    planner::ParallelSearchResult found;
    if (devices == request_.job.devices) {
      if (!search_) {
        search_.emplace(request, model_, o);
      }
      found = search_->run(o);
    } else {
      found = planner::search_parallel(request, model_, o);
    }
    for (auto* list : {&found.best, &found.of_families, &found.front}) {
      for (planner::ParallelCandidate& c : *list) {
        c.order = request_.job.parallel.order;
      }
    }
    return found;
  }

  /// Why there is no legal plan, and what would have one.
  [[noreturn]] void reject_space() const {
    const Job& job = request_.job;
    if (auto broken = planner::ParallelSpace(job, request_.fixed).broken_alone()) {
      throw InputError(broken->key, broken->what);
    }
    std::vector<std::string> fixes;
    const auto add = [&](std::string_view key, std::int64_t value) {
      PlanRequest other = request_;
      (key == "devices" ? other.job.devices : other.job.batch.global) = value;
      if (has_plans(other)) {
        fixes.push_back(fmt::format("{}={}", key, value));
      }
    };
    const auto below =
        static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(job.devices)));
    add("devices", below);
    add("devices", 2 * below);
    add("batch.global", divisible_batch(job));
    const std::string fixed = planner::fixed_text(request_.fixed);
    throw InputError(
        "parallel",
        fmt::format("no legal plan of {} on {} devices with a global batch of {}{}{}; {}",
                    job.workload.name, job.devices, job.batch.global,
                    fixed.empty()
                        ? ""
                        : fmt::format(" where {} {} fixed", fixed,
                                      fixed.find(',') == std::string::npos ? "is" : "are"),
                    request_.fixed.framework
                        ? fmt::format(" that {} can run", name_of(*request_.fixed.framework))
                        : "",
                    fixes.empty() ? "fix fewer keys, or change devices or batch.global"
                                  : fmt::format("use {}", fmt::join(fixes, " or "))));
  }

  /// Takes the plans that a forecast would try: no search, cut or in rough order, ends behind them.
  void find_recipes() {
    const planner::ParallelSpace space(request_.job, request_.fixed);
    for (const Recipe& r : RecipeSearch(request_.job, model_).best(false)) {
      if ((report_.capacity <= 0 || r.bytes.base() <= report_.capacity) && space.holds(r.point)) {
        recipes_.push_back({r.point, r.seconds.base() * efficiency_, r.bytes.base(), may_be_rough(),
                            request_.job.parallel.order});
      }
    }
  }

  /// Simulates those that may be faster than what is known, however late.
  void simulate_recipes() {
    std::int64_t passes = 0;
    std::vector<planner::PlanPoint> fit;
    for (const planner::ParallelCandidate& c : recipes_) {
      if (std::any_of(fit.begin(), fit.end(), [&c](const auto& p) { return alike(p, c.point); })) {
        continue;
      }
      passes += passes_of(planner::applied(request_.job, c.point));
      if (fit.size() == kSimulatedRecipes ||
          (passes > kSimulatedPasses && !std::isinf(fastest()))) {
        break;
      }
      if ((c.rough || may_be_fastest(c)) && !was_simulated(c)) {
        steps_.push_back(simulated(c, steps_.size(), false));
        if (!steps_.back().fits) {
          continue;
        }
      }
      fit.push_back(c.point);
    }
    complete_shown();
  }

  /// Plans on fewer devices join the front where they need less memory than any that is faster;
  /// they always need fewer devices.
  void add_fewer_devices() {
    for (std::int64_t devices = request_.job.devices; devices % 2 == 0;) {
      devices /= 2;
      if (late()) {
        report_.front_cut = true;
        break;
      }
      const planner::ParallelSearchResult found = search(devices, Stage{1, 1});
      report_.front_cut = report_.front_cut || found.cut;
      if (found.best.empty()) {
        break;
      }
      report_.front.insert(report_.front.end(), found.front.begin(), found.front.end());
    }
    report_.front = without_dominated(report_.front);
  }

  struct Simulated {
    double seconds = std::numeric_limits<double>::infinity();  ///< for want of time
    std::size_t turn = 0;
    planner::ParallelCandidate candidate;
    bool fits = true;  ///< by the ledger; the closed form's memory may be a few percent short of it
    bool whole = false;  ///< else `seconds` are what it takes at least, from a part of the step
    /// Among those that may be shown.
    std::shared_ptr<const ExecutionGraph> graph;
    std::shared_ptr<const SimulatedStep> step;
  };

  /// No more than that is said of a plan that does not fit.
  [[nodiscard]] Simulated simulated(const planner::ParallelCandidate& c, std::size_t turn,
                                    bool whole) const {
    const Job job = planner::settled(request_.job, c.point, model_);
    auto graph = std::make_shared<const ExecutionGraph>(workloads::build_graph(job));
    const double bytes = simulator::fullest_ledger(*graph, job.system.device).total().base();
    Simulated s;
    s.seconds = c.seconds;
    s.turn = turn;
    s.candidate = c;
    s.fits = report_.capacity <= 0 || bytes <= report_.capacity;
    if (!s.fits) {
      return s;
    }
    if (const auto about = whole ? std::nullopt : estimated_step(job, model_)) {
      s.seconds = *about * (1 - kEstimateError) * efficiency_;
      return s;
    }
    s.step = std::make_shared<const SimulatedStep>(simulate_step(*graph, model_));
    s.seconds = to_seconds(s.step->result.makespan).base() * efficiency_;
    s.whole = true;
    s.graph = std::move(graph);
    return s;
  }

  /// Until every plan to be shown so far is simulated in full. True if some were not.
  bool complete_shown() {
    for (bool any = false;; any = true) {
      std::vector<std::size_t> parts;
      for (const Simulated* s : shown()) {
        if (!s->whole || !s->graph) {
          parts.push_back(static_cast<std::size_t>(s - steps_.data()));
        }
      }
      if (parts.empty()) {
        forget_others();
        return any;
      }
      planner::parallel_for(parts.size(), options_.threads, [&](std::size_t, std::size_t i) {
        Simulated& s = steps_[parts[i]];
        s = simulated(s.candidate, s.turn, true);
      });
    }
  }

  /// Keeps graphs of the plans to be shown so far, all simulated in full: others stay behind.
  void forget_others() {
    const std::vector<const Simulated*> best = shown();
    for (Simulated& s : steps_) {
      if (std::find(best.begin(), best.end(), &s) == best.end()) {
        s.graph.reset();
        s.step.reset();
      }
    }
  }

  /// Simulates those of `list` that are in reach, in its order and in rounds, at most `most`; first
  /// one of a kind. What an estimate puts in reach is so by the whole step, which is no shorter.
  template <class InReach>
  void simulate(const std::vector<planner::ParallelCandidate>& list, std::size_t most,
                const InReach& in_reach) {
    std::vector<char> taken(list.size(), 0);
    for (std::size_t done = 0; done < most && (std::isinf(fastest()) || !late());) {
      const std::size_t round = std::min(steps_.empty() ? options_.top : kRound, most - done);
      std::vector<planner::ParallelCandidate> some;
      const auto other_kind = [&some](const planner::ParallelCandidate& c) {
        return std::none_of(some.begin(), some.end(), [&c](const planner::ParallelCandidate& o) {
          return planner::kind_of(o.point) == planner::kind_of(c.point);
        });
      };
      const auto wanted = [&](const planner::ParallelCandidate& c) {
        return steps_.empty() ? other_kind(c) && (std::isinf(last_rival_) || in_reach(c))
                              : in_reach(c) || (complete_shown() && in_reach(c));
      };
      for (std::size_t i = 0; i < list.size() && some.size() < round; ++i) {
        if (taken[i] == 0 && wanted(list[i])) {
          taken[i] = 1;
          some.push_back(list[i]);
        }
      }
      if (some.empty()) {
        break;
      }
      const std::size_t from = steps_.size();
      steps_.resize(from + some.size());
      planner::parallel_for(some.size(), options_.threads, [&](std::size_t, std::size_t i) {
        if (i == 0 || !late()) {
          steps_[from + i] = simulated(some[i], from + i, false);
        }
      });
      done += some.size();
      std::erase_if(steps_, [](const Simulated& s) { return std::isinf(s.seconds); });
    }
    complete_shown();
  }

  /// The fastest of each kind that was simulated and fits, ascending.
  [[nodiscard]] std::vector<const Simulated*> best_of_kinds() const {
    std::vector<const Simulated*> sorted;
    for (const Simulated& s : steps_) {
      if (s.fits) {
        sorted.push_back(&s);
      }
    }
    std::sort(sorted.begin(), sorted.end(), [](const Simulated* a, const Simulated* b) {
      return std::pair(comparable(a->seconds), a->turn) <
             std::pair(comparable(b->seconds), b->turn);
    });
    std::vector<planner::PlanKind> kinds;
    std::erase_if(sorted, [&kinds](const Simulated* s) {
      const planner::PlanKind kind = planner::kind_of(s->candidate.point);
      const bool seen = std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
      kinds.push_back(kind);
      return seen;
    });
    return sorted;
  }
  /// Those of them to show.
  [[nodiscard]] std::vector<const Simulated*> shown() const {
    std::vector<const Simulated*> best = best_of_kinds();
    keep_shown(best, options_.top, [](const Simulated* s) {
      return std::pair(planner::family_of(s->candidate.point), s->seconds);
    });
    return best;
  }
  /// Seconds of the fastest plan that was simulated and fits, rivals included; infinite while none
  /// does.
  [[nodiscard]] double fastest() const {
    const auto best = best_of_kinds();
    return best.empty() ? rival_ : std::min(rival_, best.front()->seconds);
  }
  [[nodiscard]] double at_least(const planner::ParallelCandidate& c) const {
    return c.seconds * (1 - kLeastTimeError);
  }
  /// True if a plan that takes at least so long can be the fastest.
  [[nodiscard]] bool may_be_fastest(const planner::ParallelCandidate& c) const {
    return !clearly_less(fastest(), at_least(c));
  }
  /// True if it can be among those to show: faster than the one of its kind, or of a kind that is
  /// not there.
  [[nodiscard]] bool may_be_shown(const planner::ParallelCandidate& c) const {
    if (clearly_less(last_rival_, at_least(c))) {
      return false;
    }
    auto best = best_of_kinds();
    best.resize(std::min(best.size(), options_.top));
    const planner::PlanKind kind = planner::kind_of(c.point);
    for (const Simulated* s : best) {
      if (planner::kind_of(s->candidate.point) == kind) {
        return !clearly_less(s->seconds, at_least(c));
      }
    }
    return best.size() < options_.top || !clearly_less(best.back()->seconds, at_least(c));
  }
  /// Seconds that no plan of the search can be expected below, as far as its times are bounds.
  [[nodiscard]] double least_of(const planner::ParallelSearchResult& found) const {
    return found.best.empty() ? found.others_at_least
                              : std::min(found.best.front().seconds, found.others_at_least);
  }
  [[nodiscard]] bool was_simulated(const planner::ParallelCandidate& c) const {
    return std::any_of(steps_.begin(), steps_.end(),
                       [&c](const Simulated& s) { return s.candidate.point == c.point; });
  }

  /// The fastest in closed form, then every plan that its least time does not put behind the best.
  void simulate_and_prove(const planner::ParallelSearchResult& found) {
    const bool rough = report_.counts.rough > 0;
    simulate(found.best, std::max(rough ? kRoughSimulated : kMostSimulated, options_.top),
             [this](const auto& c) { return may_be_shown(c); });
    simulate(found.of_families, found.of_families.size(), [this](const auto& c) {
      const auto best = shown();
      return !was_simulated(c) && std::none_of(best.begin(), best.end(), [&c](const auto* s) {
        return planner::family_of(s->candidate.point) == planner::family_of(c.point);
      });
    });
    simulate_recipes();
    report_.cut = report_.cut || late();
    // Closed forms that bound the simulator have said it all, if all others are too slow.
    const bool known_behind =
        !rough && !report_.cut &&
        clearly_less(fastest(), found.others_at_least * (1 - kLeastTimeError)) &&
        std::none_of(found.best.begin(), found.best.end(),
                     [this](const auto& c) { return !was_simulated(c) && may_be_fastest(c); });
    // Takes the rest of those at hand if none of the fastest fits after all.
    const double best =
        std::isinf(fastest()) && !found.best.empty() ? found.best.back().seconds : fastest();
    planner::ParallelSearchResult below;
    if (!known_behind && !report_.cut) {
      below = search(request_.job.devices, Stage{0.5, 1}, best);
      report_.cut = report_.cut || below.cut;
    }
    if (rough && !below.best.empty()) {
      report_.lower_bound = std::min(report_.lower_bound, least_of(below));
    }
    std::vector<planner::ParallelCandidate> rest;
    std::copy_if(below.best.begin(), below.best.end(), std::back_inserter(rest),
                 [this](const planner::ParallelCandidate& c) { return !was_simulated(c); });
    // Proves nothing if more are in reach than a search lists: a few are a second look.
    report_.unproven_more = !std::isinf(below.others_at_least);
    simulate(rest, report_.unproven_more ? kRound : kMostSimulated,
             [this](const auto& c) { return may_be_fastest(c); });
    report_.cut = report_.cut || late();
    report_.simulated = steps_.size();
    report_.others_at_least = std::min(fastest() / (1 - kLeastTimeError), below.others_at_least);
    for (const planner::ParallelCandidate& c : rest) {
      if (!was_simulated(c) && may_be_fastest(c)) {
        ++report_.unproven;
        report_.others_at_least = std::min(report_.others_at_least, c.seconds);
      }
    }
    report_.proven = report_.unproven == 0 && !report_.unproven_more && !report_.cut;
    rank();
  }

  void rank() {
    std::vector<Simulated> best;
    for (const Simulated* s : shown()) {
      best.push_back(*s);
    }
    steps_ = std::move(best);
    report_.plans.resize(steps_.size());
    planner::parallel_for(steps_.size(), options_.threads, [&](std::size_t, std::size_t i) {
      const planner::ParallelCandidate& c = steps_[i].candidate;
      RankedParallelPlan& plan = report_.plans[i];
      plan.job = planner::settled(request_.job, c.point, model_);
      plan.point = c.point;
      plan.closed_form = planner::ClosedFormModel(request_.job, model_).forecast(c.point).seconds;
      plan.bytes = c.bytes;
      plan.prediction = predict(plan.job, *steps_[i].graph, *steps_[i].step);
    });
    if (!report_.plans.empty()) {
      report_.lower_bound =
          std::min(report_.lower_bound, report_.plans.front().prediction.iteration.base());
    }
  }

  const PlanRequest& request_;
  const ParallelPlanOptions& options_;
  models::CostModel model_;
  double efficiency_ = 1;  ///< expected over simulated step of the job's plans
  double begin_ = 0;
  double rival_ = std::numeric_limits<double>::infinity();  // seconds of the fastest rival ...
  double last_rival_ = rival_;                              // ... and of the last to be shown
  std::vector<Simulated> steps_;
  std::vector<planner::ParallelCandidate> recipes_;
  std::optional<planner::ParallelSearch> search_;  // of the job's own number of devices
  ParallelPlanReport report_;
};

}  // namespace

bool has_plans(const PlanRequest& request) {
  return !planner::ParallelSpace(request.job, request.fixed).splits().empty();
}

ParallelPlanReport plan_parallel(const PlanRequest& request, const ParallelPlanOptions& options) {
  if (!internal::searches_order(request)) {
    return Planning(request, options, {}).run();
  }
  PlanRequest turned = request;
  turned.job.parallel.order = kPipelineOutside;
  turned.fixed.reordered = true;
  const auto now = [&options] { return options.clock ? options.clock() : 0; };
  const double begin = now();
  const auto progress = [&options](ParallelPlanOptions& of, double from) {
    if (options.on_progress) {
      of.on_progress = [&options, from](double share, double best) {
        options.on_progress(from + share / 2, best);
      };
    }
  };
  ParallelPlanOptions first = options;
  if (first.time_limit) {
    *first.time_limit /= 2;
  }
  progress(first, 0);
  ParallelPlanReport usual = Planning(request, first, {}).run();
  ParallelPlanOptions second = options;
  if (second.time_limit) {
    *second.time_limit = std::max(0.0, *second.time_limit - (now() - begin));
  }
  progress(second, 0.5);
  ParallelPlanReport other = Planning(turned, second, usual.plans).run();
  if (other.counts.space == 0) {
    usual.order_searched = true;
    return usual;
  }
  return joined(std::move(usual), std::move(other), options.top);
}

}  // namespace stepcast::studies
