#include "planner/embedding/plan_space.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/numbers.h"
#include "planner/embedding/capacity.h"
#include "planner/embedding/embedding_prices.h"
#include "planner/embedding/internal/hot_rows.h"
#include "planner/embedding/internal/plan_choice.h"
#include "planner/embedding/internal/route_prices.h"
#include "planner/embedding/internal/row_tier_options.h"
#include "planner/embedding/internal/slow_tier_options.h"
#include "planner/embedding/internal/whole_table_options.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/plan_layout.h"
#include "workloads/embedding_plan/shards.h"

namespace stepcast::planner {
namespace {

constexpr std::int64_t kNarrowest = 4;  // columns of a column-wise part: one vector of fp32
constexpr std::int64_t kMostParts = 64;
constexpr double kHeavy = 0.5;  // of an average rank's lookups: worth cutting into blocks of rows

/// Numbers of equal column parts that are offered: parts of at least `narrowest` columns, a
/// multiple of `multiple`.
std::vector<std::int64_t> column_parts(const EmbeddingTable& t, std::int64_t devices,
                                       std::int64_t narrowest, std::int64_t multiple) {
  std::vector<std::int64_t> parts;
  narrowest = std::max(narrowest, kNarrowest);
  for (std::int64_t k = 2; k <= std::min({devices, t.dim / narrowest, kMostParts}); ++k) {
    if (t.dim % k == 0 && t.dim / k % multiple == 0 && (k <= 4 || (k & (k - 1)) == 0)) {
      parts.push_back(k);
    }
  }
  return parts;
}

/// True if a table may be placed so where another system carries the plan out.
bool in_form(const PlanForm& form, const EmbeddingTable& table, const OptionMeaning& m) {
  const bool unpooled = table.mode == PoolingMode::kSequence;
  if (m.kind == ShardingKind::kTableRowWise && unpooled && !form.unpooled_groups) {
    return false;
  }
  if (unpooled && form.unpooled_parts > 0 && m.column_parts != 1 &&
      m.column_parts != form.unpooled_parts) {
    return false;
  }
  return m.tier == "hbm" || !form.slow_tiers ||
         std::find(form.slow_tiers->begin(), form.slow_tiers->end(), m.tier) !=
             form.slow_tiers->end();
}

/// Rows that are found by keys have one place, whole.
bool keeps_keys(const EmbeddingTable& table, const OptionMeaning& m, std::int64_t devices) {
  return !table.keyed() || (!m.row_tiers && m.row_blocks <= 1 && m.tier == "hbm" &&
                            (devices == 1 || (m.kind != ShardingKind::kDataParallel &&
                                              m.kind != ShardingKind::kColumnWise)));
}

/// And by what the job asks of its plan.
bool meets(const TableConstraint& c, const OptionMeaning& m, bool alone) {
  if (!c.shardings.empty() && !alone &&
      (m.row_tiers || m.row_blocks > 1 ||
       std::find(c.shardings.begin(), c.shardings.end(), m.kind) == c.shardings.end())) {
    return false;
  }
  if (!c.tiers.empty() && std::find(c.tiers.begin(), c.tiers.end(), m.tier) == c.tiers.end()) {
    return false;
  }
  return m.tier == "hbm" || !c.cached || *c.cached == (m.cache_bytes > 0);
}

}  // namespace

/// Writes the options of a job's tables.
class PlanSpaceBuilder {
 public:
  PlanSpaceBuilder(const Job& job, const EmbeddingPrices& prices, const PlanSpaceOptions& options,
                   PlanSpace& to)
      : job_(job),
        options_(options),
        to_(to),
        prices_(prices),
        routes_(job, prices_, options.fit, options.longest),
        choice_(job, prices_, LineFit::kNear) {}

  void run() {
    const LayeredWorkload& w = *job_.workload.layered();
    to_.problem_.ranks = static_cast<std::int32_t>(job_.devices);
    to_.problem_.tiers = capacities_of(job_, options_.slow_tiers);
    for (std::size_t t = 0; t < w.tables.size(); ++t) {
      table(t, w.tables[t]);
    }
    if (options_.form.row_blocks && job_.devices > 1) {
      blocks_of_rows();
    }
    to_.problem_.fixed = routes_.fixed();
    const EmbeddingPrices::DenseStep dense = prices_.dense_step();
    const bool hidden = job_.parallel.overlap.dense_all_reduce;
    to_.dense_step_ = dense.compute + (hidden ? 0 : dense.all_reduce);
    // An exchange ahead of the next step is overlapped with the optimizer.
    const bool fused = job_.parallel.dlrm_pipeline == DlrmPipeline::kFused;
    to_.dense_alone_ =
        std::max(0.0, dense.compute - dense.before_tables - (fused ? dense.optimizer : 0));
    if (routes_.arrives_ahead()) {
      const double busy = hidden ? dense.all_reduce : 0;  // the links, meanwhile
      to_.problem_.returning = routes_.returning();
      to_.problem_.arrival_overlaps = to_load(std::max(0.0, dense.compute - busy));
    }
  }

 private:
  /// Constraint of the job on a table's placement; nullptr: none.
  [[nodiscard]] const TableConstraint* constraint_on(const EmbeddingTable& table) const {
    const auto bound = std::find_if(job_.plan_constraints.begin(), job_.plan_constraints.end(),
                                    [&](const auto& c) { return c.table == table.name; });
    return bound == job_.plan_constraints.end() ? nullptr : &*bound;
  }

  [[nodiscard]] internal::WholeTableOptions whole_table(std::size_t t) const {
    return {job_, t, prices_, routes_, options_.form.row_split};
  }

  /// With at least one option, or an InputError.
  void table(std::size_t t, const EmbeddingTable& table) {
    offer(t, table);
    if (to_.problem_.tables.back().options.empty()) {
      throw InputError(fmt::format("job: embedding.constraints.{}", table.name),
                       fmt::format("leaves no placement of the table's {} columns on {} devices; "
                                   "allow another sharding or memory",
                                   table.dim, job_.devices));
    }
  }

  void offer(std::size_t t, const EmbeddingTable& table) {
    to_.problem_.tables.push_back({table.name, {}});
    to_.meanings_.emplace_back();
    const bool alone = job_.devices == 1;
    const internal::WholeTableOptions whole = whole_table(t);
    add(t, whole.replicated(),
        {.kind = alone ? ShardingKind::kTableWise : ShardingKind::kDataParallel,
         .group = job_.devices,
         .split = alone ? Split::kBlock : Split::kReplicate});
    if (alone) {
      if (options_.slow_tiers) {
        tier_options(t);
      }
      return;
    }
    auto rows = whole.split_rows(job_.devices);
    add(t, std::move(rows.option),
        {.kind = ShardingKind::kRowWise, .group = job_.devices, .split = rows.split});
    for (const std::int64_t g : options_.group_sizes) {
      if (g > 1 && g < job_.devices) {
        auto grouped = whole.split_rows(g);
        add(t, std::move(grouped.option),
            {.kind = ShardingKind::kTableRowWise, .group = g, .split = grouped.split});
      }
    }
    add(t, whole.columns(1), {.kind = ShardingKind::kTableWise});
    const TableConstraint* constraint = constraint_on(table);
    const std::int64_t narrowest = constraint != nullptr ? constraint->narrowest : 0;
    for (const std::int64_t parts :
         options_.form.column_parts
             ? column_parts(table, job_.devices, narrowest, options_.form.column_multiple)
             : std::vector<std::int64_t>{}) {
      add(t, whole.columns(parts), {.kind = ShardingKind::kColumnWise, .column_parts = parts});
    }
    const bool used = !options_.in_use.empty() && options_.in_use[t] != nullptr &&
                      options_.in_use[t]->frequency_order;
    if (options_.row_tiers || options_.slow_tiers || used) {
      tier_options(t);
    }
  }

  /// Lookups of a whole table on one rank: what arrives, is looked up, is updated. By the same
  /// prices whatever the space is priced by, so that all spaces of a job have the same options.
  [[nodiscard]] Femtoseconds lookups_of(std::size_t t) const {
    const auto& options = to_.problem_.tables[t].options;
    for (std::size_t o = 0; o < options.size(); ++o) {
      const OptionMeaning& m = to_.meanings_[t][o];
      if (m.kind == ShardingKind::kTableWise && m.tier == "hbm") {
        const Load load =
            internal::WholeTableOptions(job_, t, prices_, choice_, options_.form.row_split)
                .columns(1)
                .load;
        return load[kArrival] + load[kLookup] + load[kSequenceLookup] + load[kUpdate];
      }
    }
    return 0;  // the job's constraints leave no whole tables
  }

  void blocks_of_rows() {
    const std::size_t tables = to_.problem_.tables.size();
    std::vector<Femtoseconds> lookups(tables);
    double sum = 0;
    for (std::size_t t = 0; t < tables; ++t) {
      lookups[t] = lookups_of(t);
      sum += static_cast<double>(lookups[t]);
    }
    const double average = sum / real(job_.devices);
    for (std::size_t t = 0; t < tables; ++t) {
      const EmbeddingTable& table = job_.workload.layered()->tables[t];
      std::set<internal::RowBlocks> cuts;
      const auto heavy = [&](std::int64_t ranks) {
        return static_cast<double>(lookups[t]) >= kHeavy * average * real(ranks);
      };
      const auto cut_over = [&](std::int64_t group) {
        const std::int64_t most = std::min(job_.devices / group, table.rows);
        for (std::int64_t blocks = 2; blocks <= most && heavy(blocks * group); blocks *= 2) {
          cuts.insert({blocks, group});
        }
      };
      cut_over(1);
      for (const std::int64_t g : options_.group_sizes) {
        if (g > 1 && g < job_.devices) {
          cut_over(g);
        }
      }
      for (const EmbeddingPlan* plan : options_.proposed) {
        const auto cut = internal::row_blocks_of(table, plan->tables[t]);
        if (cut && offers_group(cut->group)) {
          cuts.insert(*cut);
        }
      }
      if (cuts.empty()) {
        continue;
      }
      const internal::WholeTableOptions whole = whole_table(t);
      for (const internal::RowBlocks& cut : cuts) {
        auto rows = whole.split_rows(cut.group, cut.blocks);
        const bool one = cut.group == 1;
        add(t, std::move(rows.option),
            {.kind = one ? ShardingKind::kTableWise : ShardingKind::kTableRowWise,
             .row_blocks = cut.blocks,
             .group = cut.group,
             .split = one ? Split::kBlock : rows.split});
      }
    }
  }

  [[nodiscard]] bool offers_group(std::int64_t group) const {
    return group == 1 || std::find(options_.group_sizes.begin(), options_.group_sizes.end(),
                                   group) != options_.group_sizes.end();
  }

  void tier_options(std::size_t t) {
    for (auto& [option, meaning] :
         internal::row_tier_options(job_, t, prices_, routes_, choice_, options_)) {
      add(t, std::move(option), std::move(meaning));
    }
    if (options_.slow_tiers) {
      for (auto& [option, meaning] : internal::slow_tier_options(
               job_, t, prices_, routes_, options_.form.row_split, to_.problem_.tiers)) {
        add(t, std::move(option), std::move(meaning));
      }
    }
  }

  void add(std::size_t t, PlacementOption option, OptionMeaning meaning) {
    const EmbeddingTable& table = job_.workload.layered()->tables[t];
    const TableConstraint* constraint = constraint_on(table);
    if (!in_form(options_.form, table, meaning) || !keeps_keys(table, meaning, job_.devices) ||
        (constraint != nullptr && !meets(*constraint, meaning, job_.devices == 1))) {
      return;
    }
    option.form = static_cast<std::int32_t>(to_.meanings_[t].size());
    if (option.label.empty()) {
      option.label = std::string(name_of(meaning.kind));
    }
    to_.problem_.tables[t].options.push_back(std::move(option));
    to_.meanings_[t].push_back(std::move(meaning));
  }

  const Job& job_;
  const PlanSpaceOptions& options_;
  PlanSpace& to_;
  const EmbeddingPrices& prices_;
  internal::RoutePrices routes_;
  internal::RoutePrices choice_;  ///< what cuts rows: the same in every space of a job
};

void check_plannable(const Job& job) {
  const LayeredWorkload* w = job.workload.layered();
  if (w == nullptr || w->tables.empty()) {
    throw InputError("job: workload",
                     fmt::format("'{}' has no embedding tables to place; use a dlrm workload",
                                 job.workload.name));
  }
  if (job.batch.global < job.devices || job.batch.global % job.devices != 0) {
    throw InputError("job: batch.global",
                     fmt::format("{} samples do not divide over {} devices; use a multiple",
                                 job.batch.global, job.devices));
  }
}

std::array<std::int64_t, 2> OptionMeaning::rows(const EmbeddingTable& table,
                                                std::int64_t piece) const {
  if (row_blocks == 1) {
    return {0, table.rows};
  }
  return {internal::first_row_of(table, piece, row_blocks),
          internal::first_row_of(table, piece + 1, row_blocks)};
}

std::array<std::int64_t, 2> OptionMeaning::columns(const EmbeddingTable& table,
                                                   std::int64_t piece) const {
  const std::int64_t width = table.dim / column_parts;
  const std::int64_t first = column_parts > 1 ? piece * width : 0;
  return {first, first + width};
}

PlanSpace::PlanSpace(const Job& job, const EmbeddingPrices& prices,
                     const PlanSpaceOptions& options) {
  check_plannable(job);
  PlanSpaceBuilder(job, prices, options, *this).run();
}

EmbeddingPlan PlanSpace::plan(const Job& job, const Placement& placement) const {
  EmbeddingPlan plan = workloads::empty_plan(job);
  plan.sync_interval = job.sync_interval > 1 ? job.sync_interval : 0;
  plan.dedup = job.embedding_dedup;
  const LayeredWorkload& w = *job.workload.layered();
  for (std::size_t t = 0; t < w.tables.size(); ++t) {
    const EmbeddingTable& table = w.tables[t];
    const OptionMeaning& m = meaning(t, placement[t].option);
    PlanTable& to = plan.tables[t];
    if (m.row_tiers) {
      internal::add_row_tiers(job, table, m, to);
      continue;
    }
    for (std::int64_t p = 0; p < m.pieces(); ++p) {
      PlanShard s;
      s.rows = m.rows(table, p);
      s.columns = m.columns(table, p);
      s.sharding = m.kind;
      s.split = m.split;
      s.tier = m.tier;
      s.cache_bytes = m.cache_bytes;
      s.cache_policy = m.cache_policy;
      const std::int64_t g =
          m.group == job.devices ? 0 : placement[t].groups[static_cast<std::size_t>(p)];
      s.groups = {workloads::rank_range(g * m.group, m.group)};
      to.shards.push_back(std::move(s));
    }
  }
  return plan;
}

bool asks_for_slow_tier(const Job& job) {
  return std::any_of(job.plan_constraints.begin(), job.plan_constraints.end(),
                     [](const TableConstraint& c) {
                       return !c.tiers.empty() &&
                              std::find(c.tiers.begin(), c.tiers.end(), "hbm") == c.tiers.end();
                     });
}

std::vector<std::int64_t> group_sizes(const Job& job, const PlanForm& form) {
  std::vector<std::int64_t> sizes = workloads::nested_units(job);
  if (form.machine_groups || job.workload.layered()->tables.size() > kManyTables) {
    std::erase_if(sizes, [&job](auto size) { return size != workloads::node_size(job); });
    return sizes;
  }
  for (const std::int64_t unit : workloads::nested_units(job)) {
    for (const std::int64_t size : {2 * unit, 4 * unit}) {
      if (size < job.devices && job.devices % size == 0 &&
          std::find(sizes.begin(), sizes.end(), size) == sizes.end()) {
        sizes.push_back(size);
      }
    }
  }
  return sizes;
}

}  // namespace stepcast::planner
