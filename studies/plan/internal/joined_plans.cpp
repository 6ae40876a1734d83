#include "studies/plan/internal/joined_plans.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace stepcast::studies::internal {

std::vector<planner::ParallelCandidate> without_dominated(
    const std::vector<planner::ParallelCandidate>& all) {
  std::vector<planner::ParallelCandidate> front;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& c = all[i];
    const auto beats = [&c](const planner::ParallelCandidate& o, bool earlier) {
      const auto of = o.point.devices(), than = c.point.devices();
      const bool no_worse = of <= than && !clearly_less(c.seconds, o.seconds) && o.bytes <= c.bytes;
      return no_worse &&
             (earlier || of < than || clearly_less(o.seconds, c.seconds) || o.bytes < c.bytes);
    };
    bool dominated = false;
    for (std::size_t j = 0; j < all.size() && !dominated; ++j) {
      dominated = j != i && beats(all[j], j < i);
    }
    if (!dominated) {
      front.push_back(c);
    }
  }
  return front;
}

bool searches_order(const PlanRequest& request) {
  const TransformerWorkload* t = request.job.workload.transformer();
  const System& system = request.job.system;
  return t != nullptr && t->moe && !request.fixed.order && request.fixed.expert != 1 &&
         request.job.parallel.order == kUsualOrder && request.fixed.pipeline != 1 &&
         system.fabric.size() > 1 && request.job.devices > system.devices_in_level(0);
}

void reject_model(const PlanRequest& request) {
  if (const auto& framework = request.fixed.framework) {
    if (const auto broken = broken_rule(request.job, *framework);
        broken && !broken->key.starts_with("parallel.")) {
      throw InputError(broken->key, broken->what);
    }
  }
}

ParallelPlanReport joined(ParallelPlanReport a, ParallelPlanReport b, std::size_t top) {
  // 0: unknown, for a search was cut, or found no plan and says nothing.
  const auto least = [&](double x, double y) {
    const bool one = a.plans.empty() || b.plans.empty();
    return x > 0 && y > 0 ? std::min(x, y) : one && !a.cut && !b.cut ? x + y : 0.0;
  };
  a.lower_bound = least(a.lower_bound, b.lower_bound);
  a.others_at_least = least(a.others_at_least, b.others_at_least);
  std::move(b.plans.begin(), b.plans.end(), std::back_inserter(a.plans));
  std::stable_sort(a.plans.begin(), a.plans.end(), [](const auto& x, const auto& y) {
    return clearly_less(x.prediction.iteration, y.prediction.iteration);
  });
  std::vector<planner::PlanKind> kinds;
  std::erase_if(a.plans, [&kinds](const RankedParallelPlan& plan) {
    const planner::PlanKind kind = planner::kind_of(plan.point);
    const bool seen = std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
    kinds.push_back(kind);
    return seen;
  });
  keep_shown(a.plans, top, [](const RankedParallelPlan& p) {
    return std::pair(planner::family_of(p.point), p.prediction.iteration.base());
  });
  a.front.insert(a.front.end(), b.front.begin(), b.front.end());
  std::stable_sort(a.front.begin(), a.front.end(), [](const auto& x, const auto& y) {
    return std::pair(-x.point.devices(), comparable(x.seconds)) <
           std::pair(-y.point.devices(), comparable(y.seconds));
  });
  a.front = without_dominated(a.front);
  a.counts += b.counts;
  a.order_searched = true;
  a.simulated += b.simulated;
  a.unproven += b.unproven;
  a.cut = a.cut || b.cut;
  a.front_cut = a.front_cut || b.front_cut;
  a.unproven_more = a.unproven_more || b.unproven_more;
  a.proven = a.unproven == 0 && !a.unproven_more && !a.cut;
  a.search_seconds += b.search_seconds;
  a.fewer_devices_seconds += b.fewer_devices_seconds;
  a.simulation_seconds += b.simulation_seconds;
  a.least_bytes =
      a.least_bytes > 0 && b.least_bytes > 0 ? std::min(a.least_bytes, b.least_bytes) : 0;
  return a;
}

}  // namespace stepcast::studies::internal
