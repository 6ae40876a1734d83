#include "planner/embedding/adapt_plan.h"

#include <algorithm>
#include <numeric>

#include "planner/embedding/migration.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/plan_rules.h"
#include "workloads/embedding_plan/shards.h"

namespace stepcast::planner {
namespace {

/// Moves the shards of single tables to fewer or more ranks.
class OtherDevices {
 public:
  OtherDevices(std::int64_t before, std::int64_t now)
      : before_(before), now_(now), bytes_(static_cast<std::size_t>(now), 0) {}

  void add_kept(const PlanTable& table) {
    for (const PlanShard& s : table.shards) {
      for (const auto& group : s.groups) {
        for (const std::int32_t rank : group) {
          if (rank < now_) {
            bytes_[static_cast<std::size_t>(rank)] += share(s);
          }
        }
      }
    }
  }

  /// The table on the ranks of now.
  PlanTable carried(PlanTable table) {
    std::vector<std::int32_t> taken;  // parts of one table lie on distinct ranks
    for (const PlanShard& s : table.shards) {
      if (single(s) && s.groups.front().front() < now_) {
        taken.push_back(s.groups.front().front());
      }
    }
    for (PlanShard& s : table.shards) {
      carry(s, taken);
    }
    return table;
  }

 private:
  static bool single(const PlanShard& s) {
    return s.groups.size() == 1 && s.groups.front().size() == 1;
  }
  static double share(const PlanShard& s) {
    const auto size = static_cast<double>(s.groups.front().size());
    return static_cast<double>(s.rows[1] - s.rows[0]) *
           static_cast<double>(s.columns[1] - s.columns[0]) /
           (s.split == Split::kReplicate ? 1 : size);
  }

  void carry(PlanShard& s, std::vector<std::int32_t>& taken) {
    const auto size = static_cast<std::int64_t>(s.groups.front().size());
    if (single(s) && before_ > 1) {
      if (s.groups.front().front() >= now_) {
        s.groups = {{least_loaded(taken)}};
        bytes_[static_cast<std::size_t>(s.groups.front().front())] += share(s);
        taken.push_back(s.groups.front().front());
      }
    } else if (size == before_) {  // all ranks, one copy or a copy on each
      s.groups = workloads::groups_of(now_, now_);
    } else if (s.groups.size() > 1 && now_ % size == 0) {
      s.groups = workloads::groups_of(now_, size);
    } else if (s.groups.size() > 1 || s.groups.front().back() >= now_) {
      s.groups = workloads::groups_of(now_, now_);
    }
    if (s.groups.front().size() == 1 && s.split == Split::kReplicate) {
      s.sharding = ShardingKind::kTableWise;
      s.split = Split::kBlock;
    } else if (s.split != Split::kReplicate && s.groups.front().size() > 1) {
      const bool all = static_cast<std::int64_t>(s.groups.front().size()) == now_;
      const bool copies = s.groups.size() > 1;
      s.sharding = all || copies ? ShardingKind::kRowWise : ShardingKind::kTableRowWise;
    }
  }

  [[nodiscard]] std::int32_t least_loaded(const std::vector<std::int32_t>& taken) const {
    std::int32_t best = -1;
    for (std::int32_t r = 0; r < now_; ++r) {
      const bool free = std::find(taken.begin(), taken.end(), r) == taken.end();
      if (free && (best < 0 ||
                   bytes_[static_cast<std::size_t>(r)] < bytes_[static_cast<std::size_t>(best)])) {
        best = r;
      }
    }
    return std::max(best, 0);
  }

  std::int64_t before_, now_;
  std::vector<double> bytes_;  ///< elements, by rank
};

bool lies_on(const PlanTable& table, std::int64_t devices) {
  return std::all_of(table.shards.begin(), table.shards.end(), [&](const PlanShard& s) {
    return std::all_of(s.groups.begin(), s.groups.end(), [&](const auto& group) {
      return std::all_of(group.begin(), group.end(),
                         [&](std::int32_t rank) { return rank < devices; });
    });
  });
}

}  // namespace

AdaptedPlan adapted_plan(const Job& job, const EmbeddingPlan& from) {
  AdaptedPlan adapted;
  adapted.plan = from;
  adapted.plan.tables.clear();
  adapted.plan.ledger.clear();
  adapted.plan.devices = job.devices;
  const auto& tables = job.workload.layered()->tables;
  const EmbeddingPlan rule = workloads::make_embedding_plan(job, "auto");
  OtherDevices others(from.devices, job.devices);
  for (const EmbeddingTable& t : tables) {
    if (const PlanTable* held = held_table(from, t)) {
      others.add_kept(grown_to(t.rows, *held));
    }
  }
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const PlanTable* before = held_table(from, tables[t]);
    if (before == nullptr) {
      adapted.added.push_back(tables[t].name);
      adapted.plan.tables.push_back(rule.tables[t]);
      continue;
    }
    if (placed_rows(*before) < tables[t].rows) {
      adapted.grown.push_back(tables[t].name);
    }
    const PlanTable held = grown_to(tables[t].rows, *before);
    PlanTable carried = from.devices == job.devices ? held : others.carried(held);
    // More column parts than there are ranks now.
    std::vector<std::int32_t> ranks;
    for (const PlanShard& s : carried.shards) {
      if (s.sharding == ShardingKind::kColumnWise) {
        ranks.push_back(s.groups.front().front());
      }
    }
    std::sort(ranks.begin(), ranks.end());
    if (std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end()) {
      carried = rule.tables[t];
    }
    if (!same_placement(carried, held) || !lies_on(held, job.devices)) {
      adapted.moved.push_back(tables[t].name);
    }
    adapted.plan.tables.push_back(std::move(carried));
  }
  for (const PlanTable& t : from.tables) {
    if (std::none_of(tables.begin(), tables.end(),
                     [&](const EmbeddingTable& now) { return now.name == t.name; })) {
      adapted.removed.push_back(t.name);
    }
  }
  workloads::check_embedding_plan(job, adapted.plan, "plan carried over");
  return adapted;
}

}  // namespace stepcast::planner
