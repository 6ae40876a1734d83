#include "planner/embedding/embedding_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/error.h"
#include "planner/embedding/capacity.h"
#include "planner/embedding/embedding_prices.h"
#include "planner/embedding/internal/plan_choice.h"
#include "planner/embedding/ledger.h"
#include "planner/embedding/overlapped_arrival.h"
#include "planner/embedding/plan_space.h"
#include "planner/embedding/step_bound.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/plan_rules.h"

namespace stepcast::planner {
namespace {

constexpr double kScarce = 0.97;     // of a capacity
constexpr double kScarceGap = 0.03;  // above the bound
constexpr double kCeiling = 1.5;     // of the step, above a first bound: a second is found below

/// The largest share of a unit's capacity that is in use.
double fullness(const PlacementProblem& problem, const Placement& placement) {
  double most = 0;
  const auto bytes = bytes_of(problem, placement);
  for (std::size_t tier = 0; tier < bytes.size(); ++tier) {
    for (std::size_t u = 0; u < bytes[tier].size(); ++u) {
      most = std::max(
          most, static_cast<double>(bytes[tier][u]) / static_cast<double>(std::max<std::int64_t>(
                                                          1, problem.tiers[tier].capacity[u])));
    }
  }
  return most;
}

std::vector<std::pair<std::string, std::int64_t>> mix_of(const PlacementProblem& problem,
                                                         const Placement& placement) {
  std::map<std::string, std::int64_t> mix;
  for (std::size_t t = 0; t < placement.size(); ++t) {
    ++mix[problem.tables[t].options[static_cast<std::size_t>(placement[t].option)].label];
  }
  return {mix.begin(), mix.end()};
}

class Planning {
 public:
  Planning(const Job& job, const models::CostModel& model, const PlannerOptions& options)
      : job_(job), options_(options), prices_(job, model) {
    for (const EmbeddingPlan& plan : options.proposed) {
      proposed_.push_back(&plan);
    }
  }

  EmbeddingPlanning run() {
    result_.bound = std::numeric_limits<double>::infinity();
    const std::vector<std::vector<std::int64_t>> spaces = spaces_of_groups();
    spaces_ = spaces_left_ = static_cast<double>(spaces.size()) * (options_.row_tiers ? 2 : 1) + 1;
    if (options_.search.time_limit && options_.search.clock) {
      begin_ = options_.search.clock();
    }
    const bool outside = options_.slow_tiers && asks_for_slow_tier(job_);
    const bool ranges = options_.row_tiers && options_.form.row_ranges && job_.devices > 1;
    wider_follow_ = ranges;
    for (const auto& sizes : spaces) {
      explore({.group_sizes = sizes,
               .slow_tiers = outside,
               .form = options_.form,
               .proposed = proposed_},
              false);
    }
    const bool found = result_.best() != nullptr;
    wider_follow_ = false;
    for (std::size_t i = 0; ranges && i < spaces.size(); ++i) {
      explore({.group_sizes = spaces[i],
               .row_tiers = true,
               .slow_tiers = outside,
               .dedup = job_.embedding_dedup,
               .form = options_.form,
               .proposed = proposed_},
              true);
    }
    const bool slower = !options_.form.slow_tiers || !options_.form.slow_tiers->empty();
    // Slower memory may be the faster plan while memory is scarce.
    PlanSpaceOptions slow{.group_sizes = spaces.front(),
                          .row_tiers = ranges && result_.best() == nullptr,
                          .slow_tiers = true,
                          .dedup = job_.embedding_dedup,
                          .form = options_.form};
    if (options_.slow_tiers && slower && !outside) {
      const bool searched = !found || scarce_;
      wider_follow_ = slow.row_tiers != ranges;
      if (searched) {
        explore(slow, true);
      }
      if (searched ? wider_follow_ : memory_decides_) {
        slow.row_tiers = ranges;
        note_step_bound(slow);
      }
    }
    finish();
    return std::move(result_);
  }

 private:
  /// Sizes of row-split groups of each search: each by itself, which is a smaller search, then
  /// machines, racks, pods in one plan. Many tables: all sizes in one search.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> spaces_of_groups() const {
    const std::vector<std::int64_t> sizes = group_sizes(job_, options_.form);
    if (sizes.empty() || job_.workload.layered()->tables.size() > kLargeTables) {
      return {sizes};
    }
    std::vector<std::vector<std::int64_t>> spaces;
    for (const std::int64_t size : sizes) {
      spaces.push_back({size});
    }
    const auto nested = workloads::nested_units(job_);
    if (nested.size() > 1 && !options_.form.machine_groups) {
      spaces.push_back(nested);
    }
    return spaces;
  }

  /// The search does not see which communicators a plan talks on. Where the plans it finds have no
  /// room for theirs, it looks again with that much of the devices left free.
  void explore(const PlanSpaceOptions& options, bool wide) {
    Job job = job_;
    Bytes left_free;
    while (const auto more = explored(job, options, wide, left_free > Bytes{})) {
      if (*more <= left_free || *more >= job_.system.device.memory) {
        break;
      }
      left_free = *more;
      job.system.device.memory = job_.system.device.memory - left_free;
    }
    --spaces_left_;
    if (const PlannedCandidate* best = result_.best(); options_.progress && best != nullptr) {
      options_.progress(1 - std::max(0.0, spaces_left_) / spaces_, best->objective);
    }
  }

  /// How a space is searched: its share of the time, the best plan so far, the proposed plans.
  [[nodiscard]] SearchOptions searching_in(const Job& job, const PlanSpace& space) const {
    SearchOptions searching = options_.search;
    if (searching.time_limit && searching.clock) {
      // Spaces that are left share the time that is left.
      const double left = *searching.time_limit - (searching.clock() - begin_);
      searching.time_limit = std::max(0.0, left) / std::max(1.0, spaces_left_);
    }
    for (const EmbeddingPlan* plan : proposed_) {
      if (auto start = internal::placement_of(job, space, *plan)) {
        searching.starts.push_back(std::move(*start));
      }
    }
    return searching;
  }

  /// Bytes that communicators take of plans that were found and have no room, beyond what every
  /// plan needs; nullopt: all have.
  std::optional<Bytes> explored(const Job& job, const PlanSpaceOptions& space_options, bool wide,
                                bool again) {
    const std::optional<Bytes> lacking = searched_space(job, space_options, wide, again);
    if (!again && !wider_follow_) {  // the space itself is gone: of many tables two of them take
                                     // too much memory
      note_step_bound(space_options);
    }
    return lacking;
  }

  std::optional<Bytes> searched_space(const Job& job, const PlanSpaceOptions& space_options,
                                      bool wide, bool again) {
    const PlanSpace space(job, prices_, space_options);
    std::optional<LowerBound> known;
    if (!wide && !again) {
      result_.space_log10 = std::max(result_.space_log10, space.problem().space_log10());
      const PlacementProblem& problem = space.problem();
      known = problem.arrival_overlaps ? lower_bound(relaxed(problem, 1)) : lower_bound(problem);
      memory_decides_ = memory_decides_ || known->value > known->without_memory;
      // A group size whose bound is above the best plan in hand cannot improve on it.
      if (const PlannedCandidate* best = result_.best();
          best != nullptr && load_seconds(known->value) >= best->objective) {
        return std::nullopt;
      }
    }
    SearchOptions searching = searching_in(job, space);
    searching.bound = known;
    const SearchResult found = search(space.problem(), searching);
    result_.evaluations += found.evaluations;
    result_.cut = result_.cut || found.cut;
    const double bound = load_seconds(found.bound.value);
    if (found.best.empty()) {
      // With room left free the capacity is not the device's: what the first search said stands.
      if (!again && (!result_.shortage || !wide)) {
        result_.shortage = found.shortage;
      }
      return std::nullopt;
    }
    // With room left free the bound holds for some plans only: that of the first search stands.
    if (!again && bound < result_.bound) {
      result_.bound = bound;
      result_.bound_reason = found.bound.reason;
    }
    if (!wide && !found.best.empty()) {
      scarce_ = scarce_ || (found.gap() > kScarceGap &&
                            fullness(space.problem(), found.best.front().second) > kScarce);
    }
    std::optional<Bytes> lacking;
    std::vector<std::pair<Femtoseconds, Placement>> all = found.best;
    if (found.paid) {
      all.push_back(*found.paid);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& [objective, placement] = all[i];
      PlannedCandidate c;
      c.paid = i == found.best.size();
      c.plan = space.plan(job_, placement);
      c.objective = load_seconds(objective);
      c.plan.ledger = ledger_of(job_, c.plan);
      if (const auto excess = excess_of(job_, c.plan, c.plan.ledger)) {
        // The ledger of the finished plan has the last word; what it rejects is no answer.
        result_.shortage = Shortage{excess->largest_table, excess->tier,
                                    static_cast<std::int64_t>(std::ceil(excess->held.base())),
                                    static_cast<std::int64_t>(excess->capacity.base())};
        lacking = std::max(further_communicators(job_, c.plan), lacking.value_or(Bytes{}));
        continue;
      }
      const auto broken = workloads::broken_rule(job_, c.plan);
      STEPCAST_CHECK(!broken, "{}: {}", broken->key, broken->what);
      c.wide = wide;
      c.mix = mix_of(space.problem(), placement);
      result_.candidates.push_back(std::move(c));
    }
    return lacking;
  }

  /// Shortest step that a space leaves possible, searched or not, where prices are never above the
  /// model's. Lines below the model are the higher the shorter the steps that they hold for: below
  /// a ceiling the bound holds, and a plan above it is bounded by the ceiling.
  void note_step_bound(PlanSpaceOptions options) {
    options.fit = LineFit::kBelow;
    double bound = 0;
    for (int turn = 0; turn < 2 && bound < step_bound_; ++turn) {
      const PlanSpace space(job_, prices_, options);
      if (shortage_of(space.problem())) {
        return;
      }
      bound = std::max(bound, std::min(options.longest, least_step(job_, space, step_bound_)));
      options.longest = kCeiling * bound;
    }
    step_bound_ = std::min(step_bound_, bound);
  }

  void finish() {
    result_.step_bound = result_.candidates.empty() ? 0 : step_bound_;
    auto& all = result_.candidates;
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.objective < b.objective; });
    // Results of the wider space may be in the narrower space too.
    const auto same = [](const auto& a, const auto& b) { return a.objective == b.objective; };
    all.erase(std::unique(all.begin(), all.end(), same), all.end());
    if (all.empty()) {
      result_.bound = 0;
    } else {
      result_.shortage.reset();
      result_.gap = all.front().objective / std::max(result_.bound, 1e-15) - 1;
    }
    std::vector<PlannedCandidate> kept;
    std::size_t kept_first = 0;
    bool plain = false;
    bool paid = false;
    for (PlannedCandidate& c : all) {
      const bool also = (!c.wide && !plain) || (c.paid && !paid);
      plain = plain || !c.wide;
      paid = paid || c.paid;
      if (kept_first++ < options_.keep || also) {
        kept.push_back(std::move(c));
      }
    }
    all = std::move(kept);
  }

  const Job& job_;
  const PlannerOptions& options_;
  EmbeddingPrices prices_;
  std::vector<const EmbeddingPlan*> proposed_;
  double step_bound_ = std::numeric_limits<double>::infinity();
  EmbeddingPlanning result_;
  double begin_ = 0;  ///< on the clock, where there is a limit
  double spaces_ = 1, spaces_left_ = 1;
  bool wider_follow_ = false;    ///< spaces that hold those searched now: their bounds are theirs
  bool scarce_ = false;          ///< memory stands between a plan and its bound
  bool memory_decides_ = false;  ///< a bound knows of it
};

}  // namespace

const PlannedCandidate* EmbeddingPlanning::best() const {
  const PlannedCandidate* best = nullptr;
  for (const PlannedCandidate& c : candidates) {
    if (best == nullptr || c.objective < best->objective) {
      best = &c;
    }
  }
  return best;
}

EmbeddingPlanning plan_embeddings(const Job& job, const models::CostModel& model,
                                  const PlannerOptions& options) {
  check_plannable(job);
  return Planning(job, model, options).run();
}

namespace {

Job without_constraints(const Job& job) {
  check_plannable(job);
  Job free = job;
  free.plan_constraints.clear();
  return free;
}

}  // namespace

PlanPricer::PlanPricer(const Job& job, const models::CostModel& model,
                       std::vector<const EmbeddingPlan*> proposed)
    : job_(without_constraints(job)),
      prices_(job_, model),
      space_(job_, prices_, {.group_sizes = group_sizes(job_), .proposed = std::move(proposed)}) {}

std::optional<double> PlanPricer::objective(const EmbeddingPlan& plan) const {
  const auto placement = internal::placement_of(job_, space_, plan);
  return placement ? std::optional(load_seconds(objective_of(space_.problem(), *placement)))
                   : std::nullopt;
}

std::optional<double> objective_of_plan(const Job& job, const models::CostModel& model,
                                        const EmbeddingPlan& plan) {
  return PlanPricer(job, model, {&plan}).objective(plan);
}

}  // namespace stepcast::planner
