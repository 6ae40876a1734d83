#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/graph/embedding_placement.h"
#include "core/graph/optimizer_state.h"
#include "interop/formats.h"
#include "interop/torchrec/internal/parts.h"
#include "interop/torchrec/plan.h"
#include "interop/torchrec/rules.h"

// A plan of ours -> TorchRec's ParameterSharding of every table.
namespace stepcast::interop {
namespace {

using torchrec::rows_of_rank;
using torchrec::table_of;

constexpr const char* kPooledModule = "sparse_arch.embedding_bag_collection";
constexpr const char* kSequenceModule = "sparse_arch.embedding_collection";

[[noreturn]] void cannot(const PlanTable& table, std::string_view what, std::string_view remedy) {
  throw InputError(fmt::format("--export torchrec: table \"{}\"", table.name),
                   fmt::format("TorchRec has no form for {}; {}", what, remedy));
}

[[noreturn]] void reject_columns(const EmbeddingTable& t) {
  const std::int64_t unit = kTorchRecColumnMultiple;
  throw InputError(
      fmt::format("--export torchrec: table \"{}\"", t.name),
      fmt::format(
          "has dim {}, and every kernel of TorchRec takes multiples of {} only; pad it to {} "
          "columns (dim {})",
          t.dim, unit, (t.dim + unit - 1) / unit * unit, (t.dim + unit - 1) / unit * unit));
}

/// Columns that FBGEMM's kernels take, of a table or a part of it.
void check_columns(const PlanTable& table, const EmbeddingTable& described) {
  const std::int64_t unit = kTorchRecColumnMultiple;
  if (described.dim % unit != 0) {
    reject_columns(described);
  }
  for (const PlanShard& s : table.shards) {
    if (const std::int64_t columns = s.columns[1] - s.columns[0]; columns % unit != 0) {
      cannot(table, fmt::format("a part of {} columns", columns),
             fmt::format("cut the table into parts of a multiple of {}", unit));
    }
  }
}

void check_expressible(const Job& job, const PlanTable& table, const EmbeddingTable& described) {
  const std::int64_t rows = described.rows;
  check_columns(table, described);
  if (table.frequency_order) {
    cannot(table, "rows in order of popularity", "plan with row_order \"workload\"");
  }
  for (const PlanShard& s : table.shards) {
    if (s.rows[0] != 0 || s.rows[1] != rows) {
      cannot(table,
             fmt::format("rows [{}, {}) apart from the others (row tiers)", s.rows[0], s.rows[1]),
             "give all rows of the table one placement");
    }
    if (s.tier != "hbm" && (s.tier != kTorchRecHostTier || job.system.host.shares_core)) {
      cannot(table, fmt::format("rows in tier \"{}\" of this system", s.tier),
             fmt::format("keep the table in hbm, or in \"{}\" of a system with GPUs",
                         kTorchRecHostTier));
    }
    if (s.tier != table.shards.front().tier ||
        (s.cache_bytes > 0) != (table.shards.front().cache_bytes > 0)) {
      cannot(table, "parts in different memory", "give all parts of the table one tier");
    }
    if (s.split == Split::kStripe && s.groups.front().size() > 1) {
      cannot(table, "striped rows (row mod n)",
             "split it in blocks: a plan made with --export torchrec has no stripes");
    }
    if (s.groups.size() > 1) {
      cannot(table, fmt::format("{} copies on groups of ranks", s.groups.size()),
             "give it one copy, or data_parallel on every rank");
    }
  }
}

/// Rows on all ranks, on the ranks of one machine, or whole.
std::string sharding_type(const Job& job, const PlanTable& table) {
  const PlanShard& first = table.shards.front();
  const auto& group = first.groups.front();
  const auto size = static_cast<std::int64_t>(group.size());
  const std::int64_t machine = std::min(job.system.host.devices, job.devices);
  if (first.sharding == ShardingKind::kDataParallel) {
    if (size != job.devices) {
      cannot(table, fmt::format("copies on {} of {} ranks", size, job.devices),
             "use every rank or one");
    }
    return "data_parallel";
  }
  if (size == 1) {
    return table.shards.size() > 1 ? "column_wise" : "table_wise";
  }
  if (table.shards.size() == 1 && size == job.devices && first.sharding == ShardingKind::kRowWise) {
    return "row_wise";
  }
  for (const PlanShard& s : table.shards) {
    const auto& g = s.groups.front();
    if (static_cast<std::int64_t>(g.size()) != machine || g.front() % machine != 0 ||
        g.back() != g.front() + machine - 1) {
      cannot(table, fmt::format("rows over {} ranks from rank {}", g.size(), g.front()),
             fmt::format("its table_row_wise takes the {} ranks of one machine", machine));
    }
  }
  return table.shards.size() > 1 ? "grid_shard" : "table_row_wise";
}

/// The kernel of a table, by its type and memory.
std::string compute_kernel(const std::string& type, const PlanTable& table) {
  const PlanShard& first = table.shards.front();
  return type == "data_parallel" ? "dense"
         : first.tier == "hbm"   ? "fused"
         : first.cache_bytes > 0 ? "fused_uvm_caching"
                                 : "fused_uvm";
}

/// The cache as a share of the rows it stands in front of.
OrderedJson cache_of(const Job& job, const PlanTable& table, const EmbeddingTable& described) {
  const PlanShard& s = table.shards.front();
  const double row = cached_row_bytes(job.row_format(described), job.embedding_optimizer,
                                      s.columns[1] - s.columns[0]);
  const double slots = std::floor(s.cache_bytes / row);
  OrderedJson cache;
  cache["algorithm"] = s.cache_policy == RowCachePolicy::kLfu ? "LFU" : "LRU";
  cache["load_factor"] = std::min(1.0, slots / static_cast<double>(rows_of_rank(s)));
  return cache;
}

OrderedJson spec_of(const Job& job, const PlanTable& table) {
  const std::int64_t machine = std::min(job.system.host.devices, job.devices);
  OrderedJson shards = OrderedJson::array();
  for (const PlanShard& s : table.shards) {
    const auto& group = s.groups.front();
    const std::int64_t rows = s.rows[1];
    const auto members = static_cast<std::int64_t>(group.size());
    const RowSplit split{.rows = rows, .split = Split::kBlock, .members = members};
    for (std::int64_t i = 0; i < members; ++i) {
      const HeldRows held = split.part(i);
      const std::int32_t rank = group[static_cast<std::size_t>(i)];
      OrderedJson shard;
      shard["shard_sizes"] = {held.rows, s.columns[1] - s.columns[0]};
      shard["shard_offsets"] = {held.first, s.columns[0]};
      shard["placement"] = job.system.host.shares_core
                               ? fmt::format("rank:{}/cpu", rank)
                               : fmt::format("rank:{}/cuda:{}", rank, rank % machine);
      shards.push_back(std::move(shard));
    }
  }
  return shards;
}
/// A collection has tables of one dim: where there are several, each has a collection.
std::string sequence_module(const LayeredWorkload& w, const EmbeddingTable& of) {
  const bool several =
      std::any_of(w.tables.begin(), w.tables.end(), [&of](const EmbeddingTable& t) {
        return t.mode == PoolingMode::kSequence && t.dim != of.dim;
      });
  return several ? fmt::format("{}_{}", kSequenceModule, of.dim) : kSequenceModule;
}

/// Column-wise tables of a collection have parts of one width. `width`: of those before, or 0.
void expect_one_width(const PlanTable& table, const EmbeddingTable& described,
                      std::int64_t& width) {
  for (const PlanShard& s : table.shards) {
    const std::int64_t columns = s.columns[1] - s.columns[0];
    if (width != 0 && columns != width) {
      cannot(table,
             fmt::format("parts of {} columns in a collection with parts of {}", columns, width),
             fmt::format("cut the tables of {} columns that are not pooled into parts of one width",
                         described.dim));
    }
    width = columns;
  }
}

}  // namespace

void expect_torchrec_tables(const Job& job) {
  for (const EmbeddingTable& t : job.workload.layered()->tables) {
    if (t.dim % kTorchRecColumnMultiple != 0) {
      reject_columns(t);
    }
  }
}

std::string plan_to_torchrec(const Job& job, const EmbeddingPlan& plan) {
  const LayeredWorkload& w = *job.workload.layered();
  OrderedJson modules = OrderedJson::object();
  std::map<std::int64_t, std::int64_t> part_widths;  // by dim, of tables that are not pooled
  for (const PlanTable& table : plan.tables) {
    const EmbeddingTable& described = table_of(w, table.name);
    check_expressible(job, table, described);
    const bool sequence = described.mode == PoolingMode::kSequence;
    OrderedJson to;
    const std::string type = sharding_type(job, table);
    const TorchRecSharding* takes = torchrec_sharding(type);
    STEPCAST_CHECK(takes != nullptr, "sharding type {}", type);
    if (sequence && !takes->unpooled) {
      cannot(table, fmt::format("{} of a table that is not pooled", type),
             "its embedding collections take data_parallel, table_wise, column_wise and row_wise "
             "over all ranks");
    }
    to["sharding_type"] = type;
    const bool copies = type == "data_parallel";
    to["compute_kernel"] = compute_kernel(type, table);
    OrderedJson ranks = OrderedJson::array();
    for (const PlanShard& s : table.shards) {
      for (const std::int32_t r : s.groups.front()) {
        ranks.push_back(r);
      }
    }
    to["ranks"] = std::move(ranks);
    to["sharding_spec"] = copies ? OrderedJson() : spec_of(job, table);
    if (to["compute_kernel"] == "fused_uvm_caching") {
      to["cache_params"] = cache_of(job, table, described);
    }
    if (sequence && type == "column_wise") {
      expect_one_width(table, described, part_widths[described.dim]);
    }
    modules[sequence ? sequence_module(w, described) : kPooledModule][table.name] = std::move(to);
  }
  return pretty(modules, 2) + "\n";
}

}  // namespace stepcast::interop
