#include "planner/embedding/migration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/access/row_order.h"
#include "core/error.h"
#include "core/numbers.h"
#include "planner/embedding/shard_bytes.h"

namespace stepcast::planner {
namespace {

/// Entry of that name and of as many columns; nullptr if there is none.
const PlanTable* named_table(const EmbeddingPlan& plan, const EmbeddingTable& table) {
  const auto it = std::find_if(plan.tables.begin(), plan.tables.end(),
                               [&](const PlanTable& t) { return t.name == table.name; });
  if (it == plan.tables.end()) {
    return nullptr;
  }
  std::int64_t columns = 0;
  for (const PlanShard& s : it->shards) {
    columns = std::max(columns, s.columns[1]);
  }
  return columns == table.dim ? &*it : nullptr;
}

}  // namespace

std::int64_t placed_rows(const PlanTable& table) {
  std::int64_t rows = 0;
  for (const PlanShard& s : table.shards) {
    rows = std::max(rows, s.rows[1]);
  }
  return rows;
}

PlanTable grown_to(std::int64_t rows, PlanTable table) {
  const std::int64_t before = placed_rows(table);
  if (before == rows) {
    return table;
  }
  const double growth = static_cast<double>(rows) / static_cast<double>(before);
  for (PlanShard& s : table.shards) {
    for (std::int64_t& end : s.rows) {
      end = end == before           ? rows
            : table.frequency_order ? end
                                    : std::llround(static_cast<double>(end) * growth);
    }
  }
  if (table.order != nullptr) {
    table.order = std::make_shared<const RowOrder>(
        table.order->seed() ? RowOrder::seeded(rows, *table.order->seed())
                            : RowOrder::listed(rows, table.order->ids()));
  }
  return table;
}

const PlanTable* placed_table(const EmbeddingPlan& plan, const EmbeddingTable& table) {
  const PlanTable* named = named_table(plan, table);
  return named != nullptr && placed_rows(*named) == table.rows ? named : nullptr;
}

const PlanTable* held_table(const EmbeddingPlan& plan, const EmbeddingTable& table) {
  const PlanTable* named = named_table(plan, table);
  return named != nullptr && placed_rows(*named) <= table.rows ? named : nullptr;
}

bool same_order(const PlanTable& a, const PlanTable& b) {
  return a.frequency_order == b.frequency_order &&
         (a.order == nullptr || b.order == nullptr ||
          (a.order->seed() == b.order->seed() && a.order->ids() == b.order->ids()));
}

bool same_placement(const PlanTable& a, const PlanTable& b) {
  return same_order(a, b) && a.shards.size() == b.shards.size() &&
         std::equal(a.shards.begin(), a.shards.end(), b.shards.begin(), b.shards.end(),
                    [](const PlanShard& x, const PlanShard& y) {
                      return x.rows == y.rows && x.columns == y.columns && x.tier == y.tier &&
                             x.groups == y.groups &&
                             (x.split == y.split || x.groups.front().size() == 1);
                    });
}

namespace {

class Count {
 public:
  Count(const Job& job, std::int64_t ranks) : job_(job) {
    result_.received.assign(index(ranks), 0);
    result_.sent.assign(index(ranks), 0);
    result_.levels.emplace_back("memory", 0);
    for (const FabricLevel& level : job.system.fabric) {
      result_.levels.emplace_back(level.name, 0);
    }
    receiving_.assign(index(ranks), 0);
    sending_.assign(index(ranks), 0);
  }

  void table(const EmbeddingTable& table, const PlanTable& from, const PlanTable& to) {
    if (same_placement(from, to)) {
      return;
    }
    const std::int64_t before = result_.bytes;
    const bool same = same_order(from, to);
    const TableHoldings held(from);
    for (const PlanShard& s : to.shards) {
      for (const auto& group : s.groups) {
        for (std::size_t i = 0; i < group.size(); ++i) {
          const HeldPart part =
              held_part(s, static_cast<std::int64_t>(group.size()), static_cast<std::int64_t>(i));
          const std::int64_t missing = held.missing(part, group[i], same);
          if (missing > 0) {
            fetch(table, from, to, part, group[i], missing);
          }
        }
      }
    }
    if (result_.bytes > before || !same_placement(grown_to(table.rows, from), to)) {
      result_.tables.push_back({table.name, result_.bytes - before});
    }
  }

  Migration take() {
    std::stable_sort(result_.tables.begin(), result_.tables.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    std::erase_if(result_.levels, [](const auto& l) { return l.second == 0; });
    for (std::size_t r = 0; r < receiving_.size(); ++r) {
      result_.seconds = std::max({result_.seconds, receiving_[r], sending_[r]});
    }
    return std::move(result_);
  }

 private:
  struct Source {
    std::int32_t rank = 0;
    double elements = 0;
  };

  /// 0: the rank itself; i + 1: the innermost level i of the fabric that joins both.
  [[nodiscard]] std::size_t level_of(std::int32_t a, std::int32_t b) const {
    if (a == b) {
      return 0;
    }
    const std::size_t levels = job_.system.fabric.size();
    for (std::size_t i = 0; i < levels; ++i) {
      const std::int64_t unit = job_.system.devices_in_level(i);
      if (a / unit == b / unit) {
        return i + 1;
      }
    }
    return levels;
  }

  /// Who in a group has elements of `part`; of copies the nearest.
  [[nodiscard]] std::vector<Source> sources_in(const PlanShard& s,
                                               const std::vector<std::int32_t>& group,
                                               const HeldPart& part, std::int32_t rank,
                                               bool same_order, std::int64_t rows) const {
    std::vector<Source> all;
    for (std::size_t j = 0; j < group.size(); ++j) {
      const HeldPart held =
          held_part(s, static_cast<std::int64_t>(group.size()), static_cast<std::int64_t>(j));
      const double common =
          same_order ? static_cast<double>(common_elements(part, held))
                     : static_cast<double>(least_common_elements(
                           part, {0, rows, 1, held.first_column, held.end_column}, rows)) *
                           static_cast<double>(held.rows()) / static_cast<double>(rows);
      if (common <= 0) {
        continue;
      }
      if (s.split != Split::kReplicate || all.empty()) {
        all.push_back({group[j], common});
      } else if (level_of(rank, group[j]) < level_of(rank, all.front().rank)) {
        all.front().rank = group[j];
      }
    }
    return all;
  }

  /// Charges what `rank` lacks of `part` to the nearest copy of each shard of the old plan.
  void fetch(const EmbeddingTable& table, const PlanTable& from, const PlanTable& to,
             const HeldPart& part, std::int32_t rank, std::int64_t missing) {
    const bool same = same_order(from, to);
    std::vector<Source> sources;
    double total = 0;
    for (const PlanShard& s : from.shards) {
      std::vector<Source> nearest;
      std::vector<double> least_far;
      for (const auto& group : s.groups) {
        std::vector<Source> here = sources_in(s, group, part, rank, same, table.rows);
        std::vector<double> far(job_.system.fabric.size() + 1, 0);  // the farthest level first
        for (const Source& x : here) {
          far[far.size() - 1 - level_of(rank, x.rank)] += x.elements;
        }
        if (least_far.empty() || far < least_far) {
          nearest = std::move(here);
          least_far = std::move(far);
        }
      }
      for (const Source& x : nearest) {
        if (x.rank != rank || s.tier != part.tier) {
          sources.push_back(x);
          total += x.elements;
        }
      }
    }
    std::int64_t left = moved_bytes(job_, table, missing, part.columns());
    const auto all = static_cast<double>(left);
    for (const Source& x : sources) {
      const std::int64_t bytes =
          &x == &sources.back()
              ? left
              : std::min(left, static_cast<std::int64_t>(std::llround(all * x.elements / total)));
      left -= bytes;
      charge(x.rank, rank, bytes);
    }
    charge(rank, rank, left);
  }

  void charge(std::int32_t from, std::int32_t to, std::int64_t bytes) {
    const std::size_t level = level_of(from, to);
    result_.bytes += bytes;
    result_.received[index(to)] += bytes;
    result_.sent[index(from)] += bytes;
    result_.levels[level].second += bytes;
    if (level > 0) {
      const double time =
          (Bytes(static_cast<double>(bytes)) / job_.system.fabric[level - 1].bandwidth).base();
      receiving_[index(to)] += time;
      sending_[index(from)] += time;
    }
  }

  const Job& job_;
  Migration result_;
  std::vector<double> receiving_, sending_;  ///< seconds
};

}  // namespace

TableHoldings::TableHoldings(const PlanTable& table) : rows_(placed_rows(table)) {
  for (const PlanShard& s : table.shards) {
    for (const auto& group : s.groups) {
      for (std::size_t i = 0; i < group.size(); ++i) {
        by_rank_[group[i]].push_back(
            held_part(s, static_cast<std::int64_t>(group.size()), static_cast<std::int64_t>(i)));
      }
    }
  }
}

std::int64_t TableHoldings::missing(HeldPart part, std::int32_t rank, bool same_order) const {
  if (!same_order) {  // any of its rows may have been there
    part.end = part.first + part.stride * std::min(part.rows(), rows_);
  }
  part.end = same_order ? std::min(part.end, rows_) : part.end;
  std::int64_t lacking = part.rows() * part.columns();
  if (const auto it = by_rank_.find(rank); it != by_rank_.end()) {
    for (const HeldPart& held : it->second) {
      if (held.tier == part.tier) {
        lacking -=
            same_order ? common_elements(part, held) : least_common_elements(part, held, rows_);
      }
    }
  }
  return lacking;
}

std::int64_t moved_bytes(const Job& job, const EmbeddingTable& table, std::int64_t elements,
                         std::int64_t columns) {
  if (elements == 0) {
    return 0;
  }
  const double rows = static_cast<double>(elements) / static_cast<double>(columns);
  return static_cast<std::int64_t>(
      std::llround(rows * (format_bytes(job.row_format(table), 1, columns).base() +
                           state_row_bytes(job.embedding_optimizer, columns))));
}

Migration migration_between(const Job& job, const EmbeddingPlan& from, const EmbeddingPlan& to) {
  const LayeredWorkload* w = job.workload.layered();
  if (w == nullptr) {
    throw InputError("job: workload", "has no embedding tables; use a dlrm workload");
  }
  if (to.devices != job.devices) {
    throw InputError("plan: devices", fmt::format("found {}, but the job has {}; rows move to the "
                                                  "job's devices",
                                                  to.devices, job.devices));
  }
  Count count(job, std::max(from.devices, to.devices));
  for (const EmbeddingTable& table : w->tables) {
    const PlanTable* held = held_table(from, table);
    const PlanTable* placed = placed_table(to, table);
    if (placed == nullptr) {
      throw InputError("plan: tables", fmt::format("no table '{}' of {} rows x {} columns; give a "
                                                   "plan of the job's workload",
                                                   table.name, table.rows, table.dim));
    }
    if (held != nullptr) {
      count.table(table, *held, *placed);
    }
  }
  return count.take();
}

}  // namespace stepcast::planner
