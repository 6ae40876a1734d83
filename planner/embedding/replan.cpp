#include "planner/embedding/replan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "core/error.h"
#include "planner/embedding/capacity.h"
#include "planner/embedding/embedding_prices.h"
#include "planner/embedding/internal/local_search.h"
#include "planner/embedding/internal/plan_choice.h"
#include "planner/embedding/internal/row_tier_options.h"
#include "planner/embedding/ledger.h"
#include "planner/embedding/migration.h"
#include "planner/embedding/overlapped_arrival.h"
#include "planner/embedding/plan_space.h"
#include "workloads/embedding_plan/plan_rules.h"

namespace stepcast::planner {
namespace {

constexpr std::size_t kTargets = 4;
constexpr int kBudgets = 10;               // budgets that halve
constexpr std::size_t kReturnsTried = 48;  // tables asked for the one to go home next
constexpr std::size_t kChainPoints = 256;
constexpr double kEvaluations = 12'000;  // per budget, at few ranks
constexpr double kPerTable = 60;         // more of them

/// Bytes that a choice of the space moves beyond what home does, from where the rows of each table
/// lie now (nullptr: nowhere yet). A change that moves nothing (copies that are dropped) counts as
/// one byte, so that only home is free.
class MoveBytes {
 public:
  MoveBytes(const Job& job, const PlanSpace& space, const std::vector<const PlanTable*>& from,
            const std::vector<const PlanTable*>& held, const Placement& home)
      : job_(job), space_(space), home_(home), lies_(held), everywhere_(from.size()) {
    for (std::size_t t = 0; t < from.size(); ++t) {
      held_.emplace_back(held[t] != nullptr ? *held[t] : PlanTable{});
      const bool moves = held[t] != nullptr && held[t] != from[t];
      to_home_.push_back(moves ? count(t, job.workload.layered()->tables[t], *from[t]) : 0);
    }
  }

  /// Bytes of all tables, from where they are to home.
  [[nodiscard]] std::int64_t to_home() const {
    return std::accumulate(to_home_.begin(), to_home_.end(), std::int64_t{0});
  }

  std::int64_t operator()(std::size_t t, const Choice& to) const {
    const Choice& home = home_[t];
    if (to.option == home.option && to.groups == home.groups) {
      return 0;
    }
    if (to.groups.empty()) {
      auto& known = everywhere_[t][to.option];
      known = known == 0 ? beyond_home(t, to) : known;
      return known;
    }
    return beyond_home(t, to);
  }

 private:
  [[nodiscard]] std::int64_t beyond_home(std::size_t t, const Choice& to) const {
    return std::max<std::int64_t>(1, count(t, to) - to_home_[t]);
  }

  [[nodiscard]] std::int64_t count(std::size_t t, const Choice& to) const {
    const EmbeddingTable& table = job_.workload.layered()->tables[t];
    if (lies_[t] == nullptr) {
      return 0;
    }
    const OptionMeaning& m = space_.meaning(t, to.option);
    if (m.row_tiers) {
      PlanTable tiers;
      internal::add_row_tiers(job_, table, m, tiers);
      return count(t, table, tiers);
    }
    const bool same = same_order(*lies_[t], PlanTable{});
    std::int64_t bytes = 0;
    for (std::int64_t p = 0; p < m.pieces(); ++p) {
      const std::int64_t first =
          to.groups.empty() ? 0 : to.groups[static_cast<std::size_t>(p)] * m.group;
      PlanShard s;
      s.rows = m.rows(table, p);
      s.columns = m.columns(table, p);
      s.split = m.split;
      s.tier = m.tier;
      for (std::int64_t i = 0; i < m.group; ++i) {
        const HeldPart part = held_part(s, m.group, i);
        bytes += moved_bytes(job_, table,
                             held_[t].missing(part, static_cast<std::int32_t>(first + i), same),
                             part.columns());
      }
    }
    return bytes;
  }

  [[nodiscard]] std::int64_t count(std::size_t t, const EmbeddingTable& table,
                                   const PlanTable& to) const {
    const bool same = same_order(*lies_[t], to);
    std::int64_t bytes = 0;
    for (const PlanShard& s : to.shards) {
      for (const auto& group : s.groups) {
        for (std::size_t i = 0; i < group.size(); ++i) {
          const HeldPart part =
              held_part(s, static_cast<std::int64_t>(group.size()), static_cast<std::int64_t>(i));
          bytes += moved_bytes(job_, table, held_[t].missing(part, group[i], same), part.columns());
        }
      }
    }
    return bytes;
  }

  const Job& job_;
  const PlanSpace& space_;
  const Placement& home_;
  std::vector<const PlanTable*> lies_;
  std::vector<TableHoldings> held_;
  std::vector<std::int64_t> to_home_;
  mutable std::vector<std::unordered_map<std::int32_t, std::int64_t>> everywhere_;
};

struct Found {
  std::int64_t bytes = 0;
  Femtoseconds objective = 0;
  Placement placement;
};

/// The front of one space.
class Reach {
 public:
  Reach(const Job& job, const EmbeddingPrices& prices, const std::vector<const PlanTable*>& from,
        const std::vector<const PlanTable*>& held, std::vector<std::int64_t> sizes,
        const ReplanOptions& options)
      : job_(job),
        from_(from),
        options_(options),
        space_(job, prices,
               {.group_sizes = std::move(sizes),
                .row_tiers = options.row_tiers && job.devices > 1,
                .slow_tiers = asks_for_slow_tier(job),
                .form = options.form,
                .in_use = from}),
        problem_(space_.problem()),
        home_(place_home()),
        plain_(problem_.arrival_overlaps ? relaxed(problem_, 0.5) : problem_),
        bytes_(job, space_, from, held, home_) {}

  void run() {
    const PlacementState at_home(plain_, home_);
    // A plan that does not fit is no rival, however fast.
    front_.push_back(
        {0,
         at_home.fits() ? objective_of(problem_, home_) : std::numeric_limits<Femtoseconds>::max(),
         home_});
    SearchOptions free = options_.search;
    free.keep = kTargets;
    free.effort = SearchEffort::kQuick;
    free.time_limit.reset();
    const SearchResult targets = search(problem_, free);
    bound_ = load_seconds(targets.bound.value);
    evaluations_ += targets.evaluations;
    for (const auto& [objective, placement] : targets.best) {
      chain_home(placement);
    }
    const std::int64_t most = front_.back().bytes;
    const int budgets = problem_.tables.size() > kManyTables ? kBudgets / 3 : kBudgets;
    for (int k = budgets; k-- > 0 && most > 0;) {
      improve_within(most >> k, targets.bound.value);
    }
  }

  [[nodiscard]] const std::vector<Found>& front() const { return front_; }
  [[nodiscard]] const std::vector<std::string>& kept() const { return kept_; }
  [[nodiscard]] double bound() const { return bound_; }
  [[nodiscard]] std::uint64_t evaluations() const { return evaluations_; }

  [[nodiscard]] ReplanPoint point(const Found& found, const EmbeddingPlan& from) const {
    ReplanPoint p;
    p.plan = space_.plan(job_, found.placement);
    p.plan.workload = from.workload;
    for (std::size_t t = 0; t < from_.size(); ++t) {
      const Choice& c = found.placement[t];
      if (c.option == home_[t].option && c.groups == home_[t].groups) {
        p.plan.tables[t] = *from_[t];
      }
    }
    p.bytes = found.bytes + bytes_.to_home();
    p.home = found.bytes == 0;
    p.objective = load_seconds(objective_of(problem_, found.placement));
    p.time = load_seconds(found.objective);
    return p;
  }

 private:
  Placement place_home() {
    Placement home;
    for (std::size_t t = 0; t < from_.size(); ++t) {
      if (auto c = internal::choice_of(job_, space_, t, *from_[t])) {
        home.push_back(std::move(*c));
      } else {
        kept_.push_back(from_[t]->name);
        PlacementOption stays;
        stays.label = "as it is";
        stays.group = problem_.ranks;
        problem_.tables[t].options = {stays};
        home.push_back({0, {}});
      }
    }
    return home;
  }

  [[nodiscard]] bool at_home(std::size_t t, const Choice& c) const {
    return c.option == home_[t].option && c.groups == home_[t].groups;
  }

  void offer(const PlacementState& state, std::int64_t bytes) {
    if (!state.fits()) {
      return;
    }
    const Femtoseconds objective =
        problem_.arrival_overlaps ? objective_of(problem_, state.placement()) : state.objective();
    const auto after =
        std::find_if(front_.begin(), front_.end(), [&](const Found& f) { return f.bytes > bytes; });
    if (after != front_.begin() && std::prev(after)->objective <= objective) {
      return;
    }
    auto end = after;
    while (end != front_.end() && end->objective >= objective) {
      ++end;
    }
    auto begin = after;
    if (begin != front_.begin() && std::prev(begin)->bytes == bytes) {
      --begin;
    }
    front_.insert(front_.erase(begin, end), {bytes, objective, state.placement()});
  }

  /// Offers a placement and all that lie between it and home. Hands back the first of them that
  /// moves at most `allowed`.
  Placement chain_home(const Placement& from, std::int64_t allowed = 0) {
    std::optional<Placement> within;
    PlacementState state(plain_, from);
    std::vector<std::pair<std::int64_t, std::size_t>> away;
    std::int64_t bytes = 0;
    for (std::size_t t = 0; t < from.size(); ++t) {
      if (!at_home(t, from[t])) {
        away.emplace_back(bytes_(t, from[t]), t);
        bytes += away.back().first;
      }
    }
    std::stable_sort(away.begin(), away.end(), std::greater<>());
    const std::size_t step = away.size() / kChainPoints + 1;
    while (!away.empty()) {
      if (away.size() % step == 0) {
        offer(state, bytes);
      }
      if (!within && bytes <= allowed) {
        within = state.placement();
      }
      std::size_t next = 0;
      Femtoseconds least = std::numeric_limits<Femtoseconds>::max();
      for (std::size_t i = 0; i < std::min(away.size(), kReturnsTried); ++i) {
        const std::size_t t = away[i].second;
        const Choice there = state.placement()[t];
        state.remove(t);
        state.add(t, home_[t]);
        if (state.objective() < least) {
          least = state.objective();
          next = i;
        }
        state.remove(t);
        state.add(t, there);
      }
      const auto [saved, t] = away[next];
      state.remove(t);
      state.add(t, home_[t]);
      bytes -= saved;
      away.erase(away.begin() + static_cast<std::ptrdiff_t>(next));
    }
    evaluations_ += state.evaluations();
    return within.value_or(home_);
  }

  void improve_within(std::int64_t allowed, Femtoseconds bound) {
    PlacementProblem limited = plain_;
    limited.moves =
        Moves{home_, [this](std::size_t t, const Choice& c) { return bytes_(t, c); }, allowed};
    const auto enough =
        static_cast<Femtoseconds>(static_cast<double>(bound) * (1 + options_.search.good_enough));
    SearchOptions untimed = options_.search;
    untimed.time_limit.reset();
    const auto tables = static_cast<double>(problem_.tables.size());
    internal::Budget budget(
        untimed, static_cast<std::uint64_t>((kEvaluations + kPerTable * tables) * 64 /
                                            (64 + static_cast<double>(problem_.ranks))));
    internal::Incumbents best_found(kTargets);
    internal::LocalSearch local(limited, untimed.seed, enough, budget, best_found);
    // From the best that moves no more, and from the target as far as the budget goes.
    const Placement best =
        std::prev(std::find_if(front_.begin(), front_.end(), [&](const Found& f) {
          return f.bytes > allowed;
        }))->placement;
    const Placement target = front_.back().placement;
    for (const Placement& start : {best, chain_home(target, allowed)}) {
      PlacementState state(limited, start);
      local.descend(state);
    }
    evaluations_ += budget.evaluations();
    for (const auto& [objective, placement] : best_found.take()) {
      chain_home(placement);
    }
  }

  const Job& job_;
  const std::vector<const PlanTable*>& from_;
  const ReplanOptions& options_;
  PlanSpace space_;
  PlacementProblem problem_;
  std::vector<std::string> kept_;
  Placement home_;
  PlacementProblem plain_;  ///< what local search works on; problem_ itself unless arrival overlaps
  MoveBytes bytes_;
  std::vector<Found> front_;
  double bound_ = 0;
  std::uint64_t evaluations_ = 0;
};

/// Row-split groups smaller than all ranks that a plan uses.
std::vector<std::int64_t> sizes_of(const Job& job, const EmbeddingPlan& plan) {
  std::vector<std::int64_t> sizes;
  for (const PlanTable& table : plan.tables) {
    for (const PlanShard& s : table.shards) {
      const auto size = static_cast<std::int64_t>(s.groups.front().size());
      if (s.split != Split::kReplicate && size > 1 && size < job.devices &&
          job.devices % size == 0 && std::find(sizes.begin(), sizes.end(), size) == sizes.end()) {
        sizes.push_back(size);
      }
    }
  }
  return sizes;
}

/// The first, the last and, between them, each that gains a fair share of all there is to gain.
template <class Point>
std::vector<Point> thinned(std::vector<Point> all, std::size_t keep) {
  if (all.size() <= keep || keep < 3) {
    return all;
  }
  const double share = (all[1].time - all.back().time) / static_cast<double>(keep - 2);
  std::vector<Point> kept{std::move(all.front())};
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (i + 1 == all.size() || kept.back().time - all[i].time >= share) {
      kept.push_back(std::move(all[i]));
    }
  }
  return kept;
}

/// Sorted by bytes, without those that move more for nothing.
std::vector<ReplanPoint> front_of(std::vector<ReplanPoint> all) {
  std::stable_sort(all.begin(), all.end(), [](const ReplanPoint& a, const ReplanPoint& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.time < b.time;
  });
  std::vector<ReplanPoint> front;
  for (ReplanPoint& p : all) {
    if (front.empty() || p.time < front.back().time) {
      front.push_back(std::move(p));
    }
  }
  return front;
}

}  // namespace

ReplanFront replan_front(const Job& job, const models::CostModel& model, const EmbeddingPlan& from,
                         const ReplanOptions& options) {
  check_plannable(job);
  std::vector<const PlanTable*> tables;
  std::vector<const PlanTable*> held;
  for (const EmbeddingTable& t : job.workload.layered()->tables) {
    const auto it = std::find_if(from.tables.begin(), from.tables.end(),
                                 [&](const PlanTable& p) { return p.name == t.name; });
    if (it == from.tables.end()) {
      throw InputError("plan: tables", fmt::format("table '{}' of the workload is not in the plan; "
                                                   "every table needs a place",
                                                   t.name));
    }
    tables.push_back(&*it);
    held.push_back(options.held != nullptr ? held_table(*options.held, t) : &*it);
  }
  // The sizes of groups that the plan has, or one of those that it might have.
  std::vector<std::vector<std::int64_t>> spaces;
  if (const auto own = sizes_of(job, from); !own.empty()) {
    spaces.push_back(own);
  } else {
    for (const std::int64_t size : group_sizes(job, options.form)) {
      spaces.push_back({size});
      if (tables.size() > kManyTables) {
        break;
      }
    }
  }
  if (spaces.empty()) {
    spaces.emplace_back();
  }
  const EmbeddingPrices prices(job, model);
  ReplanFront result;
  result.bound = std::numeric_limits<double>::infinity();
  std::vector<ReplanPoint> fit;
  Job search_job = job;
  Bytes left_free;
  for (bool again = true; again;) {
    std::vector<ReplanPoint> all;
    for (const auto& sizes : spaces) {
      Reach reach(search_job, prices, tables, held, sizes, options);
      reach.run();
      // With room left free the bound holds for some plans only: that of the first search stands.
      result.bound = left_free > Bytes{} ? result.bound : std::min(result.bound, reach.bound());
      result.evaluations += reach.evaluations();
      result.kept = reach.kept();
      for (const Found& f : reach.front()) {
        // Whether the plan in use fits is not a question of what a search left free.
        if (f.bytes > 0 || !(left_free > Bytes{})) {
          all.push_back(reach.point(f, from));
        }
      }
    }
    // Plans that the ledger of the finished plan rejects (kept tables count here) are no answer.
    // Where it is communicators that have no room the next search leaves that much free.
    Bytes lacking;
    for (ReplanPoint& p : thinned(front_of(std::move(all)), options.points)) {
      p.plan.devices = job.devices;
      if (workloads::broken_rule(job, p.plan)) {
        continue;  // tables that stay and tables that move, together, have too many sizes of groups
      }
      p.plan.ledger = ledger_of(job, p.plan);
      if (p.home || !excess_of(job, p.plan, p.plan.ledger)) {
        fit.push_back(std::move(p));
      } else {
        lacking = std::max(lacking, further_communicators(job, p.plan));
      }
    }
    again = lacking > left_free && lacking < job.system.device.memory;
    left_free = lacking;
    search_job.system.device.memory = job.system.device.memory - left_free;
  }
  result.points = thinned(front_of(std::move(fit)), options.points);
  return result;
}

}  // namespace stepcast::planner
