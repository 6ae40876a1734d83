#include "planner/parallel/internal/point_search.h"

#include <limits>

namespace stepcast::planner::internal {

template <class Visit>
void PointSearch::each_sharding(Work& w, PlanPoint point, CostsOf which,
                                const std::vector<char>& out, const Visit& visit) {
  const bool mixture = point.recompute == RecomputeKind::kFirstLayers;
  const Passes* set = nullptr;  // passes the path holds
  for (std::size_t z = 0; z < w.split.zeros.size(); ++z) {
    if (!w.split.has(z, point.schedule) || w.split.fits[z] == 0 || (!out.empty() && out[z] != 0)) {
      continue;
    }
    point.zero = w.split.zeros[z].stage;
    point.shard_level = w.split.zeros[z].level;
    PlanPoint of = point;
    const bool bound = (which == CostsOf::kBound && has_bound(point)) ||
                       (which == CostsOf::kTimeBound && has_time_bound(point));
    if (bound) {
      of.zero = of.shard_level = 0;
    }
    const Passes& kept = w.costs.passes(of, mixture ? RecomputeKind::kNone : of.recompute);
    const bool fresh = set != &kept;
    if (fresh) {
      const Passes& again = mixture ? w.costs.passes(of, RecomputeKind::kFull) : kept;
      w.path.set_passes(of, w.layout, kept, again, w.costs.message_times(kept, of));
      set = &kept;
    }
    const States& of_split = w.split.states(w.path.clock())[z];
    visit(z, point, which == CostsOf::kItself || bound ? of_split : w.costs.states(point, of_split),
          fresh);
  }
}

bool PointSearch::too_large(Work& w, double bytes) {
  if (table_.fits(bytes)) {
    return false;
  }
  table_.note_bytes(bytes);
  ++w.counts.memory_too_large;
  return true;
}

void PointSearch::rule_out(Work& w, const PlanPoint& choice, std::vector<char>& out) {
  out.assign(w.split.zeros.size(), 0);
  each_sharding(w, choice, CostsOf::kTimeBound, {},
                [&](std::size_t z, const PlanPoint& point, const States& states, bool) {
                  if (!has_time_bound(point)) {
                    return;
                  }
                  const bool late =
                      !by_memory_too() && beaten(w.shelf, point, bound_seconds(w, z, states), 0);
                  const double bytes = late ? 0 : w.path.lasting_bytes(states);
                  if (!late && has_bound(point) && too_large(w, bytes)) {
                    out[z] = 1;
                  } else if (late || (by_memory_too() &&
                                      beaten(w.shelf, point, bound_seconds(w, z, states), bytes))) {
                    ++w.counts.bounded;
                    w.counts.rough += rough(w) ? 1 : 0;
                    out[z] = 1;
                  }
                });
}

void PointSearch::consider(Work& w, const PlanPoint& choice) {
  bool is_rough = false;
  bool any_fresh = false;
  const auto known_rough = [&] {  // asked late: it takes the times of the passes
    is_rough = any_fresh || !is_rough ? rough(w) : is_rough;
    any_fresh = false;
    return is_rough;
  };
  w.counts.weights_too_large += w.split.too_large(choice.schedule);
  rule_out(w, choice, w.out);
  each_sharding(w, choice, CostsOf::kItself, w.out,
                [&](std::size_t, const PlanPoint& point, const States& of_split, bool fresh) {
                  any_fresh = any_fresh || fresh;
                  const double efficiency = options_.efficiency;
                  const auto bounded = [&](double seconds, double bytes) {
                    if (!beaten(w.shelf, point, seconds, bytes)) {
                      return false;
                    }
                    ++w.counts.bounded;
                    w.counts.rough += known_rough() ? 1 : 0;
                    return true;
                  };
                  if (has_bound(point)) {  // its own passes, as if the exchange took no time
                    if (!by_memory_too() && bounded(efficiency * w.path.bound(of_split), 0)) {
                      return;
                    }
                    const double bytes = w.path.lasting_bytes(of_split);
                    if (too_large(w, bytes)) {
                      return;
                    }
                    if (bounded(efficiency * w.path.bound(of_split), bytes) ||
                        bounded(efficiency * w.path.step(of_split), bytes)) {
                      return;
                    }
                  }
                  const States& states = w.costs.states(point, of_split);
                  if (!by_memory_too() && bounded(efficiency * w.path.bound(states), 0)) {
                    return;
                  }
                  const double bytes = w.path.bytes(states);
                  if (too_large(w, bytes)) {
                    return;
                  }
                  if (by_memory_too() && bounded(efficiency * w.path.bound(states), bytes)) {
                    return;
                  }
                  const double seconds = efficiency * w.path.step(states);
                  if (options_.below && bounded(seconds, bytes)) {
                    return;
                  }
                  w.counts.rough += known_rough() ? 1 : 0;
                  ++w.counts.evaluated;
                  w.shelf.offer({point, seconds, bytes + options_.reserve, is_rough});
                });
}

bool PointSearch::all_too_large(Work& w, PlanPoint point,
                                std::span<const RecomputeChoice> choices) {
  const auto full = [](const RecomputeChoice& c) { return c.kind == RecomputeKind::kFull; };
  const bool own_passes = job_.batch.global == std::int64_t{point.data} * point.micro;
  if (std::none_of(choices.begin(), choices.end(), full) || own_passes) {
    return false;
  }
  point.recompute = RecomputeKind::kFull;
  point.recompute_layers = 0;
  bool any_fits = false;
  double least = std::numeric_limits<double>::infinity();
  each_sharding(w, point, CostsOf::kBound, {},
                [&](std::size_t, const PlanPoint& of, const States& states, bool) {
                  any_fits = any_fits || table_.fits(w.path.lasting_bytes(states));
                  if (!any_fits) {
                    least = std::min(least, has_bound(of) ? w.path.lasting_bytes(states)
                                                          : w.path.bytes(states));
                  }
                });
  if (any_fits) {
    return false;
  }
  point.zero = point.shard_level = 0;
  const Passes& kept = w.costs.passes(point, RecomputeKind::kNone);
  const Passes& again = w.costs.passes(point, RecomputeKind::kFull);
  w.path.set_passes(point, w.layout, kept, again, w.costs.message_times(kept, point));
  if (!w.path.trades_memory_for_time()) {
    return false;
  }
  const auto all = static_cast<std::int64_t>(choices.size());
  const std::int64_t alone = w.split.too_large(point.schedule);
  w.counts.weights_too_large += all * alone;
  w.counts.memory_too_large += all * (w.split.count(point.schedule) - alone);
  table_.note_bytes(least);
  return true;
}

void PointSearch::consider_recomputes(Work& w, PlanPoint point,
                                      std::span<const RecomputeChoice> choices) {
  if (all_too_large(w, point, choices)) {
    return;
  }
  std::size_t next = 0;
  for (; next < choices.size() && choices[next].kind != RecomputeKind::kFirstLayers; ++next) {
    point.recompute = choices[next].kind;
    consider(w, point);
  }
  point.recompute = RecomputeKind::kFirstLayers;
  consider_first_layers(w, point, choices.subspan(next));
}

void PointSearch::consider_first_layers(Work& w, PlanPoint point,
                                        std::span<const RecomputeChoice> choices) {
  if (choices.empty()) {
    return;
  }
  bool ordered = true;
  const auto lasting = [&](const RecomputeChoice& choice) {
    point.recompute_layers = choice.layers;
    double least = std::numeric_limits<double>::infinity();
    each_sharding(w, point, CostsOf::kBound, {},
                  [&](std::size_t, const PlanPoint&, const States& states, bool fresh) {
                    least = std::min(least, w.path.lasting_bytes(states));
                    ordered = ordered && (!fresh || w.path.trades_memory_for_time());
                  });
    return least;
  };
  constexpr double kRounding = 1 - 1e-12;
  const auto all_beaten = [&](const RecomputeChoice& choice, double bytes, bool& any_rough) {
    point.recompute_layers = choice.layers;
    bool every = true;
    each_sharding(w, point, CostsOf::kBound, {},
                  [&](std::size_t z, const PlanPoint& of, const States& states, bool fresh) {
                    ordered = ordered && (!fresh || w.path.trades_memory_for_time());
                    every = every && beaten(w.shelf, of, bound_seconds(w, z, states) * kRounding,
                                            bytes * kRounding);
                    any_rough = any_rough || rough(w);
                  });
    return every;
  };
  const auto all = w.split.too_large(point.schedule);
  const auto shardings = w.split.count(point.schedule) - all;
  const auto all_bounded = [&](std::int64_t rest, bool any_rough) {
    w.counts.weights_too_large += rest * all;
    w.counts.bounded += rest * shardings;
    w.counts.rough += any_rough ? rest * shardings : 0;
  };
  if (!by_memory_too()) {  // the time of one speaks for all, whether they fit or not
    bool any_rough = false;
    if (all_beaten(choices.front(), 0, any_rough) && ordered) {
      all_bounded(static_cast<std::int64_t>(choices.size()), any_rough);
      return;
    }
  }
  const double bytes = lasting(choices.back());
  if (!ordered) {
    for (const RecomputeChoice& choice : choices) {
      point.recompute_layers = choice.layers;
      consider(w, point);
    }
    return;
  }
  const auto first = std::partition_point(
      choices.begin(), choices.end(),
      [&](const RecomputeChoice& choice) { return !table_.fits(lasting(choice)); });
  const auto below = static_cast<std::int64_t>(first - choices.begin());
  w.counts.weights_too_large += below * all;
  w.counts.memory_too_large += below * shardings;
  if (first == choices.end()) {
    table_.note_bytes(bytes);
    return;
  }
  bool any_rough = false;
  if (all_beaten(*first, bytes, any_rough)) {
    all_bounded(choices.end() - first, any_rough);
    return;
  }
  for (auto choice = first; choice != choices.end(); ++choice) {
    any_rough = false;
    if (!by_memory_too() && all_beaten(*choice, 0, any_rough)) {  // and so are those that follow
      all_bounded(choices.end() - choice, any_rough);
      return;
    }
    point.recompute_layers = choice->layers;
    consider(w, point);
  }
}

}  // namespace stepcast::planner::internal
