#include "validation/plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/split_mix.h"
#include "planner/baselines/table_wise.h"
#include "studies/plan/plan.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/shards.h"

namespace stepcast::validation {
namespace {

const std::vector<EmbeddingTable>& tables_of(const Job& job) {
  return job.workload.layered()->tables;
}

/// Lists every shard with its ranks renamed; equal texts are equal plans.
template <class Renamed>
std::string text_of(const EmbeddingPlan& plan, const Renamed& as) {
  std::string text;
  for (const PlanTable& table : plan.tables) {
    std::vector<std::string> shards;
    for (const PlanShard& s : table.shards) {
      std::vector<std::string> groups;
      for (std::vector<std::int32_t> group : s.groups) {
        std::transform(group.begin(), group.end(), group.begin(), as);
        std::sort(group.begin(), group.end());
        groups.push_back(fmt::format("{}", fmt::join(group, ",")));
      }
      std::sort(groups.begin(), groups.end());
      shards.push_back(fmt::format("{}:{}:{}:{}:{}", static_cast<int>(s.sharding), s.rows[0],
                                   s.columns[1] - s.columns[0], s.tier, fmt::join(groups, "|")));
    }
    std::sort(shards.begin(), shards.end());
    text += fmt::format("{};", fmt::join(shards, " "));
  }
  return text;
}

/// The least text over the renamings that leave the machine as it is.
std::string canonical(const Job& job, const EmbeddingPlan& plan) {
  const auto ranks = static_cast<std::int32_t>(job.devices);
  const auto node = static_cast<std::int32_t>(workloads::node_size(job));
  std::string least;
  for (std::int32_t turn = 0; turn < ranks / node; ++turn) {
    for (std::int32_t place = 0; place < node; ++place) {
      const std::string text = text_of(plan, [&](std::int32_t r) {
        return (r / node + turn) % (ranks / node) * node + (r % node + place) % node;
      });
      least = least.empty() || text < least ? text : least;
    }
  }
  return least;
}

PlanTable table_as(const Job& job, const EmbeddingTable& table, ShardingKind kind,
                   std::int64_t place) {
  const std::int64_t ranks = job.devices;
  const std::int64_t node = workloads::node_size(job);
  const bool columns = kind == ShardingKind::kColumnWise;
  const std::int64_t parts = !columns ? 1 : table.dim % ranks == 0 ? ranks : 2;
  const auto [first, count] =
      columns || kind == ShardingKind::kTableWise ? std::pair(place, std::int64_t{1})
      : kind == ShardingKind::kTableRowWise       ? std::pair(place / node * node, node)
                                                  : std::pair(std::int64_t{0}, ranks);
  PlanTable out;
  out.name = table.name;
  for (std::int64_t p = 0; p < parts; ++p) {
    out.shards.push_back(workloads::shard_on(table, kind, (first + p) % ranks, count,
                                             {table.dim / parts * p, table.dim / parts * (p + 1)}));
  }
  return out;
}

/// Each table by a kind of sharding and a place, chosen one after the other.
template <class Choose>
EmbeddingPlan each_table(const Job& job, const Choose& choose) {
  EmbeddingPlan plan = workloads::empty_plan(job);
  const auto& tables = tables_of(job);
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const auto [kind, place] = choose(static_cast<std::int64_t>(t), tables[t]);
    plan.tables[t] = table_as(job, tables[t], kind, place);
  }
  return plan;
}

/// Tables of at most `replicated` rows on every rank; those wider than `whole` columns by `wide`;
/// the others whole, most costly first, to the rank with least.
EmbeddingPlan mix(const Job& job, std::int64_t replicated, std::int64_t whole, ShardingKind wide,
                  double (*cost)(const EmbeddingTable&)) {
  const auto& tables = tables_of(job);
  EmbeddingPlan plan = workloads::empty_plan(job);
  std::vector<std::size_t> order(tables.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return cost(tables[a]) > cost(tables[b]); });
  std::vector<double> load(static_cast<std::size_t>(job.devices), 0);
  for (const std::size_t t : order) {
    const EmbeddingTable& table = tables[t];
    const bool copies = table.rows <= replicated;
    const bool cut = !copies && table.dim > whole;
    const auto least = std::min_element(load.begin(), load.end()) - load.begin();
    if (!copies && !cut) {
      load[static_cast<std::size_t>(least)] += cost(table);
    }
    plan.tables[t] = table_as(job, table,
                              copies ? ShardingKind::kDataParallel
                              : cut  ? wide
                                     : ShardingKind::kTableWise,
                              least);
  }
  return plan;
}

EmbeddingPlan random_mix(const Job& job, studies::Draw& draw, bool calibration) {
  return each_table(job, [&](std::int64_t, const EmbeddingTable& table) {
    const std::int64_t place = draw.integer(0, job.devices - 1);
    const std::int64_t choice = draw.integer(0, 9);
    ShardingKind kind = ShardingKind::kTableWise;
    if (choice == 5 || choice == 6) {
      kind = ShardingKind::kRowWise;
    } else if (choice == 7 || (choice == 8 && calibration)) {
      kind = table.rows <= 4000 ? ShardingKind::kDataParallel : ShardingKind::kTableWise;
    } else if (choice == 8) {
      kind = ShardingKind::kTableRowWise;
    } else if (choice == 9 && !calibration) {
      kind = ShardingKind::kColumnWise;
    }
    return std::pair(kind, place);
  });
}

EmbeddingPlan every_table(const Job& job, ShardingKind kind) {
  return each_table(
      job, [&](std::int64_t t, const EmbeddingTable&) { return std::pair(kind, t % job.devices); });
}

constexpr std::int64_t kNoTable = std::int64_t{1} << 30;  // columns: none is that wide
double dim_cost(const EmbeddingTable& t) { return static_cast<double>(t.dim); }
double lookup_cost(const EmbeddingTable& t) { return static_cast<double>(t.dim) * t.pooling; }
/// Cost of what is exchanged, and a little of what is looked up.
double mostly_dim_cost(const EmbeddingTable& t) {
  return static_cast<double>(t.dim) * (20 + t.pooling);
}

/// Whole tables on random ranks: random costs, placed in random order.
EmbeddingPlan random_tables(const Job& job, std::uint64_t seed) {
  std::vector<std::size_t> order(tables_of(job).size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[next_split_mix(seed) % i]);
  }
  std::vector<double> cost;
  for (std::size_t t = 0; t < order.size(); ++t) {
    cost.push_back(static_cast<double>(next_split_mix(seed) % 1000000));
  }
  return planner::place_whole_tables(job, order, cost);
}

}  // namespace

bool PlanRun::called(std::string_view way) const {
  return name == way || std::find(also.begin(), also.end(), way) != also.end();
}

System two_rank_nodes(std::int64_t ranks) {
  System s;
  s.name = "two-rank-nodes";
  s.fabric.push_back({"inside", 2, GBps(0.4), microseconds(100), 1, false});
  s.fabric.push_back(
      {"across", std::max<std::int64_t>(ranks / 2, 1), GBps(0.08), microseconds(200), 1, false});
  s.host.devices = 2;
  return s;
}

Job draw_plan_task(const System& system, std::int64_t ranks, studies::Draw& draw) {
  Job job;
  job.system = system;
  job.devices = ranks;
  job.parallel.data = ranks;
  job.formats = {Format::kFp32, Format::kFp32, Format::kFp32, Format::kFp32, Format::kFp32};
  job.dense_optimizer = OptimizerKind::kSgd;
  job.embedding_optimizer = OptimizerKind::kRowwiseAdagrad;
  const std::int64_t locals[] = {192, 256, 384, 512};
  job.batch.global = ranks * draw.one_of(locals);
  LayeredWorkload dlrm;
  dlrm.dense_features = 13;
  dlrm.bottom_mlp = {32, 16};
  dlrm.top_mlp = {draw.integer(2, 6) * 8, 1};
  dlrm.interaction.kind = InteractionKind::kCat;
  const std::int64_t count = draw.integer(6, 14);
  const double exponent = draw.uniform(0, 1.1);
  for (std::int64_t t = 0; t < count; ++t) {
    EmbeddingTable table;
    table.name = fmt::format("t{}", t);
    table.rows = draw.log_integer(200, 60000);
    table.dim = 8 * std::max<std::int64_t>(1, std::llround(draw.log_uniform(8, 96) / 8));
    table.pooling = static_cast<double>(draw.log_integer(1, 24));
    const double a = std::clamp(exponent + draw.uniform(-0.2, 0.2), 0.0, 1.1);
    table.access = std::make_shared<Access>(
        a < 0.05 ? Access::uniform(table.rows) : Access::zipf(table.rows, a, draw.bits() >> 1));
    dlrm.tables.push_back(std::move(table));
  }
  job.workload.model = std::move(dlrm);
  job.workload.name = fmt::format("dlrm {} tables batch {}", count, job.batch.global);
  return job;
}

std::vector<PlanRun> candidate_plans(const Job& job, std::uint64_t seed) {
  std::vector<PlanRun> all;
  std::map<std::string, std::size_t> known;
  const auto add = [&](std::string name, EmbeddingPlan plan) {
    const auto [it, fresh] = known.try_emplace(canonical(job, plan), all.size());
    if (fresh) {
      all.push_back({std::move(name), {}, std::move(plan)});
    } else {
      all[it->second].also.push_back(std::move(name));
    }
  };
  studies::PlanOptions search;
  search.top = 1;
  search.row_tiers = search.slow_tiers = false;
  search.seed = seed;
  if (const studies::PlanReport report = studies::plan(job, search); !report.plans.empty()) {
    add("planner", report.plans.front().plan);
  }
  for (const planner::WholeTableRule& rule : planner::whole_table_rules()) {
    add(std::string(rule.name), rule.plan(job));
  }
  add("flat_row_wise", every_table(job, ShardingKind::kRowWise));
  add("column_wise", every_table(job, ShardingKind::kColumnWise));
  add("table_row_wise", every_table(job, ShardingKind::kTableRowWise));
  const std::int64_t local = job.batch.global / job.devices;
  const struct {
    const char* name;
    std::int64_t replicated, whole;
    ShardingKind wide;
    double (*cost)(const EmbeddingTable&);
  } mixes[] = {
      // clang-format off
      {"mostly by dims", 0, kNoTable, ShardingKind::kTableWise, mostly_dim_cost},
      {"few replicated, by dims", local / 2, kNoTable, ShardingKind::kTableWise, dim_cost},
      {"small replicated, by dims", local, kNoTable, ShardingKind::kTableWise, dim_cost},
      {"small replicated, mostly by dims", local, kNoTable, ShardingKind::kTableWise, mostly_dim_cost},
      {"more replicated, by dims", 2 * local, kNoTable, ShardingKind::kTableWise, dim_cost},
      {"small replicated, by lookups", local, kNoTable, ShardingKind::kTableWise, lookup_cost},
      {"wide by columns, by dims", 0, 48, ShardingKind::kColumnWise, dim_cost},
      {"wide by columns, small replicated, by dims", local, 48, ShardingKind::kColumnWise, dim_cost},
      {"widest by columns, small replicated, mostly by dims", local, 64, ShardingKind::kColumnWise, mostly_dim_cost},
      {"widest by node rows, small replicated, by dims", local, 64, ShardingKind::kTableRowWise, dim_cost}};
  // clang-format on
  for (const auto& m : mixes) {
    add(m.name, mix(job, m.replicated, m.whole, m.wide, m.cost));
  }
  studies::Draw draw(seed);
  const std::uint64_t of_tables = draw.bits();
  add("random", random_tables(job, of_tables));
  add("random mix 1", random_mix(job, draw, false));
  draw.bits();
  add("random mix 2", random_mix(job, draw, false));
  return all;
}

Job plan_calibration_job(std::int64_t i, std::uint64_t seed, std::int64_t ranks) {
  studies::Draw draw(studies::Draw(seed ^ 0xca11b ^ (static_cast<std::uint64_t>(i) << 32)).bits());
  Job job = draw_plan_task({}, ranks, draw);
  job.system.host.devices = ranks;
  job.embedding_plan = i % 4 == 0 ? mix(job, 0, kNoTable, ShardingKind::kTableWise, mostly_dim_cost)
                       : i % 4 == 1 ? every_table(job, ShardingKind::kRowWise)
                       : i % 4 == 2 ? mix(job, 2000, kNoTable, ShardingKind::kTableWise, dim_cost)
                                    : random_mix(job, draw, true);
  job.workload.name += " " + kinds_of(*job.embedding_plan);
  return job;
}

double bytes_of_plan(const Job& job, const EmbeddingPlan& plan) {
  const auto& tables = tables_of(job);
  const auto ranks = static_cast<std::size_t>(job.devices);
  const auto batch = static_cast<double>(job.batch.global);
  const double others = static_cast<double>(job.devices - 1) / static_cast<double>(job.devices);
  std::vector<double> bytes(ranks, 0);
  for (std::size_t t = 0; t < tables.size(); ++t) {
    for (const PlanShard& s : plan.tables[t].shards) {
      const double row = 4 * static_cast<double>(s.columns[1] - s.columns[0]);
      const double lookups = batch * tables[t].pooling *
                             static_cast<double>(s.rows[1] - s.rows[0]) /
                             static_cast<double>(tables[t].rows);
      for (const auto& group : s.groups) {
        const auto n = static_cast<double>(group.size());
        const auto copies = static_cast<double>(s.groups.size());
        for (const std::int32_t r : group) {
          double& b = bytes[static_cast<std::size_t>(r)];
          if (s.sharding == ShardingKind::kDataParallel) {
            b += 3 * lookups / static_cast<double>(ranks) * row +
                 2 * others * static_cast<double>(tables[t].rows) * row;
          } else {
            b += 3 * lookups / (n * copies) * row + 2 * others * batch / copies * row +
                 8 * others * lookups / (n * copies);
          }
        }
      }
    }
  }
  return *std::max_element(bytes.begin(), bytes.end());
}

std::string kinds_of(const EmbeddingPlan& plan) {
  std::set<ShardingKind> kinds;
  for (const PlanTable& t : plan.tables) {
    for (const PlanShard& s : t.shards) {
      kinds.insert(s.sharding);
    }
  }
  std::vector<std::string> names;
  for (const ShardingKind k : kinds) {
    names.emplace_back(name_of(k));
  }
  return fmt::format("{}", fmt::join(names, " "));
}

}  // namespace stepcast::validation
