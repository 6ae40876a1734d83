#include "workloads/embedding_plan/plan_communicators.h"

#include <set>

namespace stepcast::workloads {

std::vector<std::size_t> plan_communicators(const Job& job, const EmbeddingPlan& plan) {
  if (job.devices == 1) {
    return {};
  }
  const auto all = static_cast<std::size_t>(job.devices);
  bool ids = false;
  bool exchange = false;
  bool towers = false;
  std::set<std::size_t> split, copied;  // sizes of groups
  const DlrmWorkload& w = *job.workload.dlrm();
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const ListShares shares = list_shares(job, w.tables[t]);
    for (const PlanShard& s : plan.tables[t].shards) {
      const EmbeddingRoute route = route_of(s, w.tables[t], job, shares);
      ids = ids || !is_local(route);
      if (is_node_reduce(route)) {
        split.insert(s.groups.front().size());
      } else if (has_copies(route)) {
        copied.insert(s.groups.front().size());
      } else if (job.sptt && route == EmbeddingRoute::kExchange) {
        towers = true;
      } else {
        exchange = exchange || !is_local(route);
      }
    }
  }
  std::vector<std::size_t> sizes{all};  // dense gradients
  sizes.insert(sizes.end(), (ids ? 1 : 0) + (exchange ? 1 : 0), all);
  const auto grid = [&](std::size_t inside) {
    sizes.push_back(inside);
    sizes.push_back(all / inside);
  };
  if (towers) {
    grid(static_cast<std::size_t>(job.system.host.devices));
  }
  for (const std::size_t size : split) {
    grid(size);
  }
  for (const std::size_t size : copied) {
    grid(size);
  }
  return sizes;
}

}  // namespace stepcast::workloads
