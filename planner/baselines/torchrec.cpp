#include "planner/baselines/torchrec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "core/graph/embedding_placement.h"
#include "core/numbers.h"
#include "planner/embedding/capacity.h"
#include "planner/embedding/placement_state.h"
#include "planner/embedding/search.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/shards.h"

namespace stepcast::planner::torchrec {
namespace {

constexpr double kElement = 4;         // fp32
constexpr double kIndex = 8;           // int64
constexpr double kReduceCopy = 2.455;  // elements copied per element reduced, in HBM time
constexpr double kDenseCopy = 9.22;    // of a replicated table's gradient
constexpr double kBackward = 2;        // times forward compute
constexpr double kDenseKernel = 0.5;   // share of HBM bandwidth
constexpr std::size_t kBins = 100;     // of a device's HBM, dynamic programming
/// Proposals placed, times tables, times ranks: about a second. Where memory is scarce or ranks are
/// many the proposals of hours are left.
constexpr double kMostPlaced = 2e7;

/// Narrow rows read badly in whole-table kernels.
double narrow_penalty(std::int64_t columns) {
  return columns < 64 ? 1.75 : columns < 128 ? 1.15 : 1;
}

/// Greedy partitioner: on all ranks first, then the heaviest options onto the least loaded. The
/// proposal with the shortest slowest rank is kept; those that cannot be are not placed.
class Partitioner {
 public:
  explicit Partitioner(const PlacementProblem& problem)
      : problem_(problem),
        left_(kMostPlaced / static_cast<double>(problem.tables.size()) / problem.ranks) {}
  /// Among proposals rated alike the one with the least `turn` is kept.
  void rate(const std::vector<std::int32_t>& choose, std::size_t turn) {
    if (left_ < 0 || std::pair(least(choose), turn) >= best_) {
      return;
    }
    left_ -= 1;
    PlacementState state(problem_);
    if (place_greedily(state, choose) && std::pair(state.objective(), turn) < best_) {
      best_ = {state.objective(), turn};
      placement_ = state.placement();
    }
  }
  Placement take() { return std::move(placement_); }

 private:
  /// Lower bound of the slowest rank: the mean over ranks, and any one shard.
  [[nodiscard]] Femtoseconds least(const std::vector<std::int32_t>& choose) const {
    Femtoseconds on_all = 0;
    Femtoseconds sum = 0;
    Femtoseconds largest = 0;
    for (std::size_t t = 0; t < choose.size(); ++t) {
      const PlacementOption& o = problem_.tables[t].options[index(choose[t])];
      if (o.group == problem_.ranks) {
        on_all += o.piece_total();
      } else {
        sum += o.piece_total() * o.pieces * o.group;
        largest = std::max(largest, o.piece_total());
      }
    }
    return on_all + std::max(largest, sum / problem_.ranks);
  }

  const PlacementProblem& problem_;
  double left_;  ///< proposals
  Placement placement_;
  std::pair<Femtoseconds, std::size_t> best_{std::numeric_limits<Femtoseconds>::max(), 0};
};

std::vector<std::int32_t> by_shard_time(const PlacementTable& table) {
  std::vector<std::int32_t> order(table.options.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&table](std::int32_t a, std::int32_t b) {
    const auto whole = [&table](std::int32_t o) {
      const PlacementOption& option = table.options[static_cast<std::size_t>(o)];
      return option.piece_total() * option.pieces * option.group;
    };
    return whole(a) < whole(b);
  });
  return order;
}

}  // namespace

Topology topology_of(const Job& job) {
  Topology t;
  t.devices = job.devices;
  const std::int64_t node = workloads::node_size(job);
  t.per_host = node > 1 || job.devices == 1 ? node : job.devices;
  t.hbm_capacity = static_cast<double>(capacities_of(job, false).front().capacity.front()) * 0.85;
  return t;
}

double shard_seconds(const Table& table, Kind kind, std::int64_t columns, double local_batch,
                     const Topology& topology) {
  const double ranks = real(topology.devices);
  const double host = real(topology.per_host);
  const double bags = local_batch * real(table.features);
  const double ids = local_batch * table.pooling;
  const double outputs = table.pooled ? bags : ids;
  const double row = real(columns) * kElement;
  const double flat = ranks <= host ? topology.intra_host : topology.inter_host;
  switch (kind) {
    case Kind::kTableWise:
    case Kind::kColumnWise: {
      const double read = real(std::max<std::int64_t>(columns, 32)) * kElement;
      const double compute = (kIndex * ids * ranks + ids * ranks * read + outputs * ranks * row) *
                             narrow_penalty(columns) / topology.hbm;
      const double exchange = outputs * ranks * row / flat;
      return (1 + kBackward) * compute + 2 * exchange;
    }
    case Kind::kRowWise: {
      const double mine = ids / ranks;
      const double out = table.pooled ? outputs : mine;
      const double compute =
          (kIndex * mine * ranks + mine * ranks * row + out * ranks * row) / topology.hbm;
      const double exchange = out * ranks * row / flat;
      return (1 + kBackward) * compute + 2 * exchange +
             kReduceCopy * out * ranks * row / topology.hbm;
    }
    case Kind::kTableRowWise: {
      const double mine = ids / host;
      const double out = table.pooled ? outputs : mine;
      const double compute =
          (kIndex * mine * ranks + mine * ranks * row + out * ranks * row) / topology.hbm;
      const double exchange = out * ranks * row / topology.intra_host +
                              (ranks > host ? out * (ranks / host) * row / topology.inter_host : 0);
      return (1 + kBackward) * compute + 2 * exchange +
             kReduceCopy * out * ranks * row / topology.hbm;
    }
    case Kind::kDataParallel: {
      const double bandwidth = kDenseKernel * topology.hbm;
      const double compute = (kIndex * ids + ids * row + outputs * row) / bandwidth;
      const double bytes = real(table.rows) * row;
      const double hosts = std::min(ranks / host, 2.0);
      const double sync = bytes * (2 * hosts - 1) / hosts / (topology.inter_host * host) *
                          (ranks > 2 * host ? 2 : 1);
      return (1 + kBackward) * compute + sync + kDenseCopy * bytes / bandwidth;
    }
  }
  return 0;
}

double shard_bytes(const Table& table, Kind kind, std::int64_t columns, double local_batch,
                   const Topology& topology) {
  const double ranks = real(topology.devices);
  const double parts = kind == Kind::kRowWise        ? ranks
                       : kind == Kind::kTableRowWise ? real(topology.per_host)
                                                     : 1;
  const bool local = kind == Kind::kDataParallel;
  const double weights = std::ceil(real(table.rows) / parts) * real(columns) * kElement;
  const double ids = local_batch * table.pooling * (local ? 1 : ranks) / parts;
  const double outputs =
      (table.pooled ? local_batch * real(table.features) : local_batch * table.pooling / parts) *
      (local ? 1 : ranks);
  const double state = weights / std::max<double>(1, real(columns));
  return weights + state + 2 * ids * kIndex + outputs * real(columns) * kElement;
}

PlacementProblem problem(const std::vector<Table>& tables, double global_batch,
                         const Topology& topology, std::int64_t least_columns) {
  PlacementProblem p;
  p.ranks = static_cast<std::int32_t>(topology.devices);
  p.tiers = {{"hbm", 1,
              std::vector<std::int64_t>(static_cast<std::size_t>(topology.devices),
                                        static_cast<std::int64_t>(topology.hbm_capacity))}};
  const double local = global_batch / real(topology.devices);
  for (const Table& table : tables) {
    PlacementTable& to = p.tables.emplace_back();
    to.name = table.name;
    const auto add = [&](Kind kind, std::int64_t pieces, std::int64_t group, const char* label) {
      PlacementOption o;
      o.label = label;
      o.form = static_cast<std::int32_t>(kind);
      o.pieces = static_cast<std::int32_t>(pieces);
      o.group = static_cast<std::int32_t>(group);
      const std::int64_t columns = table.dim / pieces;
      o.load[0] = to_load(shard_seconds(table, kind, columns, local, topology));
      o.bytes[0] =
          static_cast<std::int64_t>(std::ceil(shard_bytes(table, kind, columns, local, topology)));
      to.options.push_back(std::move(o));
    };
    add(Kind::kDataParallel, 1, topology.devices, "data_parallel");
    if (topology.devices == 1) {
      continue;
    }
    add(Kind::kTableWise, 1, 1, "table_wise");
    for (std::int64_t k = 2; k <= topology.devices && table.dim / k >= 4; ++k) {
      if (table.dim % k == 0 && table.dim / k >= least_columns && table.dim / k % 4 == 0) {
        add(Kind::kColumnWise, k, 1, "column_wise");
      }
    }
    add(Kind::kRowWise, 1, topology.devices, "row_wise");
    if (topology.per_host < topology.devices && topology.devices % topology.per_host == 0) {
      add(Kind::kTableRowWise, 1, topology.per_host, "table_row_wise");
    }
  }
  return p;
}

Placement greedy(const PlacementProblem& problem) {
  const std::size_t tables = problem.tables.size();
  std::vector<std::vector<std::int32_t>> ladder;
  for (const PlacementTable& t : problem.tables) {
    ladder.push_back(by_shard_time(t));
  }
  std::vector<std::size_t> step(tables, 0);
  Partitioner partitioner(problem);
  for (std::size_t turn = 0;; ++turn) {
    std::vector<std::int32_t> choose(tables);
    for (std::size_t t = 0; t < tables; ++t) {
      choose[t] = ladder[t][step[t]];
    }
    partitioner.rate(choose, turn);
    std::size_t largest = tables;
    Femtoseconds most = -1;
    for (std::size_t t = 0; t < tables; ++t) {
      const Femtoseconds here =
          problem.tables[t].options[static_cast<std::size_t>(choose[t])].piece_total();
      if (step[t] + 1 < ladder[t].size() && here > most) {
        most = here;
        largest = t;
      }
    }
    if (largest == tables) {
      return partitioner.take();
    }
    ++step[largest];
  }
}

Placement dynamic_programming(const PlacementProblem& problem) {
  const std::size_t tables = problem.tables.size();
  const std::size_t bins = kBins * static_cast<std::size_t>(problem.ranks);
  double capacity = 0;
  for (const std::int64_t c : problem.tiers.front().capacity) {
    capacity += static_cast<double>(c);
  }
  const double bin = capacity / static_cast<double>(bins);
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::vector<double> sum(bins + 1, kNone);
  sum[0] = 0;
  std::vector<std::vector<std::int16_t>> from(tables);
  std::vector<std::vector<std::size_t>> cost_bins(tables);
  for (std::size_t t = 0; t < tables; ++t) {
    std::vector<double> next(bins + 1, kNone);
    from[t].assign(bins + 1, -1);
    for (const PlacementOption& o : problem.tables[t].options) {
      const double bytes = static_cast<double>(o.bytes[0]) * o.pieces * o.group;
      cost_bins[t].push_back(static_cast<std::size_t>(std::ceil(bytes / bin)));
    }
    for (std::size_t o = 0; o < cost_bins[t].size(); ++o) {
      const PlacementOption& option = problem.tables[t].options[o];
      const double time = load_seconds(option.piece_total()) * option.pieces * option.group;
      for (std::size_t b = cost_bins[t][o]; b <= bins; ++b) {
        const double with = sum[b - cost_bins[t][o]] + time;
        if (with < next[b]) {
          next[b] = with;
          from[t][b] = static_cast<std::int16_t>(o);
        }
      }
    }
    sum = std::move(next);
  }
  std::vector<std::size_t> proposals;  // bins
  double last = kNone;
  for (std::size_t b = 0; b <= bins; ++b) {
    if (sum[b] != kNone && sum[b] != last) {
      last = sum[b];
      proposals.push_back(b);
    }
  }
  // The fastest on average first: the others are seldom placed then.
  std::stable_sort(proposals.begin(), proposals.end(),
                   [&sum](std::size_t a, std::size_t b) { return sum[a] < sum[b]; });
  Partitioner partitioner(problem);
  for (const std::size_t b : proposals) {
    std::vector<std::int32_t> choose(tables);
    std::size_t at = b;
    for (std::size_t t = tables; t-- > 0;) {
      choose[t] = from[t][at];
      at -= cost_bins[t][static_cast<std::size_t>(choose[t])];
    }
    partitioner.rate(choose, b);
  }
  return partitioner.take();
}

std::vector<Table> tables_of(const LayeredWorkload& workload) {
  std::vector<Table> tables;
  for (const EmbeddingTable& t : workload.tables) {
    tables.push_back(
        {t.name, t.rows, t.dim, t.pooling, t.mode != PoolingMode::kSequence, t.feature_count()});
  }
  return tables;
}

EmbeddingPlan plan_of(const Job& job, const PlacementProblem& problem, const Placement& placement) {
  EmbeddingPlan plan = workloads::empty_plan(job);
  const LayeredWorkload& w = *job.workload.layered();
  for (std::size_t t = 0; t < placement.size(); ++t) {
    const EmbeddingTable& table = w.tables[t];
    const PlacementOption& o =
        problem.tables[t].options[static_cast<std::size_t>(placement[t].option)];
    ShardingKind kind = ShardingKind::kTableWise;
    switch (static_cast<Kind>(o.form)) {
      case Kind::kTableWise:
        break;
      case Kind::kColumnWise:
        kind = ShardingKind::kColumnWise;
        break;
      case Kind::kRowWise:
        kind = ShardingKind::kRowWise;
        break;
      case Kind::kTableRowWise:
        kind = ShardingKind::kTableRowWise;
        break;
      case Kind::kDataParallel:
        kind = ShardingKind::kDataParallel;
        break;
    }
    const std::int64_t width = table.dim / o.pieces;
    for (std::int64_t p = 0; p < o.pieces; ++p) {
      const std::int64_t first =
          o.group == problem.ranks
              ? 0
              : placement[t].groups[static_cast<std::size_t>(p)] * std::int64_t{o.group};
      plan.tables[t].shards.push_back(
          workloads::shard_on(table, kind, first, o.group, {p * width, (p + 1) * width}));
    }
  }
  return plan;
}

}  // namespace stepcast::planner::torchrec
