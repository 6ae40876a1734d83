#include <algorithm>
#include <cmath>

#include "core/graph/optimizer_state.h"
#include "core/graph/program.h"
#include "models/kernels/internal/forms.h"
#include "models/kernels/memory_bound.h"

namespace stepcast::models {
namespace {

constexpr double kSector = 32;     // bytes of one DRAM transaction of the devices
constexpr double kLine = 64;       // bytes of a host cache line
constexpr double kLongRun = 16;    // lookups of one row whose sums wait for each other on a core
constexpr double kIndexBytes = 8;  // int64 row ids and offsets
constexpr double kSortBytes = 24;  // per key and pass: 8 B key + 4 B position, read and written

double dim_of(const ShardTraffic& s) { return static_cast<double>(s.shard->dim); }
double pooled_bytes(const ShardTraffic& s) {
  return (s.shard->sequence ? s.lookups : s.bags) * sector_bytes(4 * dim_of(s), kSector);
}
/// Lookups a core has in flight: the kernel prefetches 4 KiB of rows ahead, 4 to 32 of them.
double lookups_in_flight(double dim) { return std::clamp(1024 / std::max(dim, 1.0), 4.0, 32.0); }
/// Passes of a radix sort over the row ids of one core: wide digits pay off over many lookups only.
double sort_passes(const ShardTraffic& s) {
  constexpr double kManyLookups = 16384;
  const double digit = s.lookups >= kManyLookups ? 11 : 8;
  return std::max(1.0, std::ceil(std::log2(std::max(2.0, s.rows)) / digit));
}
double digits(const ShardTraffic& s) {
  return std::max(1.0, std::ceil(std::log2(std::max(2.0, s.rows)) / 8));
}

double output_bytes(const std::vector<ShardTraffic>& shards) {
  double total = 0;
  for (const ShardTraffic& s : shards) {
    total += (s.shard->sequence ? s.lookups : s.bags) * 4 * dim_of(s);
  }
  return total;
}
/// Bytes that the ops of a group stream through a host's caches besides rows, forward and backward:
/// ids, sort words twice, pooled rows and their gradients.
double list_bytes(const std::vector<ShardTraffic>& shards) {
  double total = output_bytes(shards);
  for (const ShardTraffic& s : shards) {
    total += s.lookups * 3 * kIndexBytes;
  }
  return total;
}

/// Share of data used a distance of x capacities ago that has left the cache.
double outside(double x) { return x * x / (1 + x * x); }

/// That a pass fuses; a gradient alone updates nothing.
OptimizerKind optimizer_of(const OpFacts& facts) {
  return facts.group == nullptr || facts.op->kind == OpKind::kEmbeddingGradient
             ? OptimizerKind::kSgd
             : facts.group->optimizer;
}

/// Geometric-mean view of a group: enough to place it among calibrated ones.
class GroupForm : public KernelForm {
 public:
  std::vector<double> coordinates(const OpFacts& facts) const final {
    double lookups = 0;
    double bags = 0;
    double elements = 0;
    double rows_seen = 0;
    double table_bytes = 0;
    for (const ShardTraffic& s : facts.shards) {
      lookups += s.lookups;
      bags += s.bags;
      elements += s.lookups * dim_of(s);
      rows_seen += s.unique_rows();
      table_bytes += s.rows * s.row_bytes;
    }
    const auto safe_log = [](double v) { return std::log(std::max(v, 1e-3)); };
    const double some = std::max(lookups, 1e-3);
    return {safe_log(lookups), safe_log(lookups / std::max(bags, 1e-3)), safe_log(elements / some),
            safe_log(rows_seen / some), safe_log(table_bytes)};
  }
  std::vector<std::string_view> coordinate_names() const final {
    return {"log_lookups", "log_pooling", "log_dim", "log_unique_share", "log_table_bytes"};
  }
};

/// Embedding bags of a table group on a device whose many lookups in flight share one last-level
/// cache.
///
///   forward : time = start + max(miss_bytes / (bandwidth eff),
///                                all_bytes / (bandwidth cache_ratio))
///   backward: time = start + sort + gather + update, each bytes / bandwidth:
///     sort   = lookups * ceil(log2(rows) / 8) passes * 24 B (8 B key + 4 B position, read and
///              written)
///     gather = one pooled gradient row per lookup, from cache as far as the [bags, dim] gradients
///              fit there
///     update = rows updated * (row and optimizer state, read and written)
///   miss_bytes = sum over tables of misses(window, across) * sectors(row)
///                + indices + offsets + pooled output
///
/// window: the lookups whose distinct rows fill cache_share * l2, common to the group's tables
/// (Che, Tung, Wang, JSAC 20(7), 2002); across: the same over successive steps with all they
/// stream, so that tables smaller than the cache stay there in a loop of their own. `sorted` 1: the
/// kernel sorts and updates each distinct row once; 0: it updates with every lookup, and a row is
/// read and written again whenever it has left the cache.
/// In:      the op's EmbeddingGroup with an Access law per shard.
/// Valid:   any law; E -> infinity gives all-DRAM, one hot row gives one miss. Sectors of 32 B. All
///          lookups of a table are independent.
/// Source:  embedding-and-step-time sections 2 and 13; runtime section 9.4. Checked by
///          tests/models/embedding_test.cpp and kernel_accuracy_test.cpp.
class EmbeddingSharedCache final : public GroupForm {
 public:
  std::string_view name() const override { return "embedding.shared_cache"; }
  bool covers(const Op& op) const override { return op.as<EmbeddingAttributes>().group >= 0; }
  std::vector<Constant> constants(const Device& device) const override {
    return {{"start", device.launch.base(), 5e-6, 2e-7, 1e-4},
            {"memory_efficiency", 1, 0.8, 0.05, 1.2},
            {"update_efficiency", 1, 0.6, 0.05, 1.2},
            {"cache_ratio", 1e9, 2, 1, 10},  // ideal: the cache is never the limit
            {"cache_share", 1, 0.8, 0.05, 1},
            {"sort_start", 0, 2e-5, 1e-7, 1e-3},
            {"sorted", 1, 0.5, 0.001, 1}};
  }
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override {
    enum { kStart, kMemory, kUpdate, kCacheRatio, kCacheShare, kSortStart, kSorted };
    const double capacity = device.l2.base() * c[kCacheShare];
    const double window = shared_window(facts.shards, capacity, kSector);
    const double across =
        window_across(facts.shards, facts.streamed + list_bytes(facts.shards), capacity, kSector);
    const bool forward = !is_backward(facts.op->kind);
    double missed = 0;   // bytes from device memory
    double total = 0;    // bytes through the cache
    double updated = 0;  // read-modify-write traffic
    for (const ShardTraffic& s : facts.shards) {
      const double row = sector_bytes(s.row_bytes, kSector);
      const double lists = s.lookups * kIndexBytes + s.bags * kIndexBytes;
      if (forward) {
        missed += s.misses(window, across) * row + lists + pooled_bytes(s);
        total += s.lookups * row + lists + pooled_bytes(s);
        continue;
      }
      const double gradient_row = sector_bytes(4 * dim_of(s), kSector);
      const double gradient_bytes = pooled_bytes(s);
      const double resident = std::min(1.0, capacity / std::max(gradient_bytes, 1.0));
      const double again = std::max(0.0, s.lookups * gradient_row - gradient_bytes);
      missed += gradient_bytes + (1 - resident) * again * c[kSorted];
      total += s.lookups * gradient_row;
      missed += lists + s.lookups * digits(s) * kSortBytes * c[kSorted];
      const double state = state_row_bytes(optimizer_of(facts), s.shard->dim);
      const double updates = c[kSorted] * s.unique_rows() + (1 - c[kSorted]) * s.misses(window);
      updated += updates * 2 * (row + (state > 0 ? sector_bytes(state, kSector) : 0));
    }
    const double bandwidth = device.bandwidth.base();
    const Seconds dram(missed / (bandwidth * c[kMemory]) + updated / (bandwidth * c[kUpdate]));
    const Seconds cache(total / (bandwidth * c[kCacheRatio]));
    Prediction p =
        bounded_by(cache, dram, Seconds(c[kStart] + (forward ? 0 : c[kSorted] * c[kSortStart])));
    if (cache >= dram && cache >= p.overhead) {
      p.bound = "cache";
    }
    return p;
  }
};

/// Embedding forward on one core that walks table after table through a two-level cache (own,
/// shared).
///
///   time = start + tables * table + bags * bag + lookups * lookup + elements * element
///        + misses_near * (near_miss + lines * near_line)
///        + misses_far * (far_miss + lines * far_line)
///
/// misses_x: lookups that leave level x of capacity near / far bytes. While a table is walked it
/// has the level to itself; from one step to the next all tables and everything else the step
/// streams pass through it (embedding_traffic.h). lines = row bytes / 64. Source: derived from
/// Denning & Schwartz (1972). Checked by `stepcast validate kernels --measure embedding`.
class EmbeddingForwardLevels final : public GroupForm {
 public:
  std::string_view name() const override { return "embedding_forward.levels"; }
  bool on_core() const override { return true; }
  bool covers(const Op& op) const override { return op.kind == OpKind::kEmbeddingForward; }
  std::vector<Constant> constants(const Device& device) const override {
    const double line = kLine / std::max(device.bandwidth.base(), 1e6);
    return {{"start", device.launch.base(), 1e-6, 1e-8, 1e-3},
            {"table", 0, 5e-7, 1e-9, 1e-4},
            {"bag", 0, 5e-9, 1e-11, 1e-6},
            {"lookup", 0, 2e-9, 1e-11, 1e-6},
            {"element", 0, 2e-11, 1e-13, 1e-8},
            {"first_line", 0, line / 50, line / 1e4, line * 10},
            {"near_line", 0, line / 20, line / 1e4, line * 10},
            {"far_line", line, line, line / 100, line * 100},
            {"far_latency", 0, 1e-7, 1e-9, 1e-6},
            {"first", 32768, 32768, 8192, 262144},
            {"near", 1e6, 1e6, 1e5, 6.4e7},
            {"far", std::max(device.l2.base(), 1e5), 3e7, 1e6, 1e9}};
  }
  Prediction predict(const OpFacts& facts, const Device&,
                     std::span<const double> c) const override {
    enum {
      kStart,
      kTable,
      kBag,
      kLookup,
      kElement,
      kFirstLine,
      kNearLine,
      kFarLine,
      kFarLatency,
      kFirst,
      kNear,
      kFar
    };
    double compute = 0;
    double memory = 0;
    const double streamed = facts.streamed + list_bytes(facts.shards);
    const auto across = [&](double capacity) {
      return window_across(facts.shards, streamed, capacity, kLine);
    };
    const double output = output_bytes(facts.shards);
    const double first_across = across(c[kFirst]);
    const double near_across = across(c[kNear]);
    const double far_across = across(c[kFar]);
    for (const ShardTraffic& s : facts.shards) {
      const double lines = sector_bytes(s.row_bytes, kLine) / kLine;
      const double pooled = s.bags * c[kBag] + s.lookups * (c[kLookup] + dim_of(s) * c[kElement]);
      const double first = s.misses(own_window(s, c[kFirst], kLine), first_across);
      const double near = s.misses(own_window(s, c[kNear], kLine), near_across);
      const double far = s.misses(own_window(s, c[kFar], kLine), far_across);
      // Lines come from the near levels, and pooled ones go there, while others are added up.
      const double written =
          2 * (s.shard->sequence ? s.lookups : s.bags);  // owned, then written back
      compute +=
          longer(pooled, lines * ((first + written * outside(output / c[kFirst])) * c[kFirstLine] +
                                  (near + written * outside(output / c[kNear])) * c[kNearLine]));
      memory += lines * far * c[kFarLine];
      // Misses among the lookups in flight wait together.
      const double flight = lookups_in_flight(dim_of(s));
      const double none = std::pow(1 - std::min(1.0, far / std::max(s.lookups, 1e-9)), flight);
      memory += s.lookups / flight * (1 - none) * c[kFarLatency];
    }
    const Seconds overhead(c[kStart] + static_cast<double>(facts.shards.size()) * c[kTable]);
    Prediction p = bounded_by(Seconds(compute), Seconds(memory), overhead);
    p.time = overhead + p.compute + p.memory;
    return p;
  }
};

/// Embedding backward with the optimizer fused, on one core: sort the lookups of a table by row,
/// add up the gradients of each row, update it.
///
///   time = start + tables * table + sum over tables of
///            lookups * (lookup + passes * sort + dim * gradient
///                       + gradient lines * gradient_line * out(gradient bytes / gradient_capacity))
///          + unique * (row + (dim + state) * update + lines * line(touched bytes))
///
/// passes of a radix sort: ceil(log2(rows) / 8), / 11 from 16384 lookups on. line(touched): seconds
/// per 64-byte line of weights and state, near while the rows touched by all tables fit `capacity`,
/// far beyond; out(x) = x^2 / (1 + x^2).
/// Source:  derived; embedding-and-step-time section 13 requirement 5.
class EmbeddingBackwardLevels final : public GroupForm {
 public:
  std::string_view name() const override { return "embedding_backward.levels"; }
  bool on_core() const override { return true; }
  bool covers(const Op& op) const override { return looks_up(op.kind) && is_backward(op.kind); }
  std::vector<Constant> constants(const Device& device) const override {
    const double line = kLine / std::max(device.bandwidth.base(), 1e6);
    return {{"start", device.launch.base(), 1e-6, 1e-8, 1e-3},
            {"table", 0, 1e-6, 1e-9, 1e-3},
            {"lookup", 0, 1e-9, 1e-11, 1e-6},
            {"sort", 0, 3e-9, 1e-11, 1e-6},
            {"gradient", 0, 2e-11, 1e-13, 1e-8},
            {"chain", 0, 2e-9, 1e-11, 1e-6},
            {"turn", 0, 1e-8, 1e-10, 1e-6},
            {"row", 0, 5e-9, 1e-11, 1e-5},
            {"near_line", line, line, line / 1e3, line * 100},
            {"far_line", line, line, line / 100, line * 100},
            {"state_miss", line, line, line / 100, line * 100},
            {"near", 1e6, 1e6, 1e5, 6.4e7},
            {"far", std::max(device.l2.base(), 1e5), 3e7, 1e6, 1e9},
            {"gradient_line", 0, line / 10, line / 1e4, line * 100},
            {"gradient_capacity", 1e6, 1e6, 3e4, 6.4e7}};
  }
  Prediction predict(const OpFacts& facts, const Device&,
                     std::span<const double> c) const override {
    enum {
      kStart,
      kTable,
      kLookup,
      kSort,
      kGradient,
      kChain,
      kTurn,
      kRow,
      kNearLine,
      kFarLine,
      kStateMiss,
      kNear,
      kFar,
      kGradientLine,
      kGradientCapacity
    };
    double compute = 0;
    double memory = 0;
    double touched = 0;
    const OptimizerKind optimizer = optimizer_of(facts);
    const auto state_lines = [&](const ShardTraffic& s) {
      return sector_bytes(state_row_bytes(optimizer, s.shard->dim), kLine) / kLine;
    };
    for (const ShardTraffic& s : facts.shards) {
      touched += s.unique_rows() * (sector_bytes(s.row_bytes, kLine) + state_lines(s) * kLine);
    }
    const double streamed = facts.streamed + list_bytes(facts.shards);
    // The forward of this step read the rows before all else of the step passed by.
    const double near = outside((touched + streamed) / c[kNear]) * c[kNearLine];
    const double far = outside((touched + streamed) / c[kFar]);
    const double across = window_across(facts.shards, streamed, c[kFar], kLine);
    for (const ShardTraffic& s : facts.shards) {
      const double unique = s.unique_rows();
      const double lines = sector_bytes(s.row_bytes, kLine) / kLine;
      const double turn =
          unique / std::max(s.lookups, 1e-9);  // the next lookup goes to another row
      const double add = dim_of(s) * c[kGradient];
      const double in_long_runs = 1 - s.miss_rate(1 / kLongRun);
      compute +=
          s.lookups * (c[kLookup] + sort_passes(s) * c[kSort] + turn * (1 - turn) * c[kTurn] +
                       (1 - in_long_runs) * add + in_long_runs * longer(add, c[kChain])) +
          unique * c[kRow];
      // A row that came from memory is written back there; its state was last seen as long ago.
      const double cold = s.misses(1, across);
      memory += unique * ((lines + state_lines(s)) * near + lines * far * c[kFarLine]) +
                cold * (lines * c[kFarLine] + state_lines(s) * c[kStateMiss]);
      // A lookup reads the gradient of its bag, which may have left the near level.
      const double gradient_lines = sector_bytes(4 * dim_of(s), kLine) / kLine;
      const double gradients = (s.shard->sequence ? s.lookups : s.bags) * gradient_lines * kLine;
      memory +=
          s.lookups * gradient_lines * c[kGradientLine] * outside(gradients / c[kGradientCapacity]);
    }
    const Seconds overhead(c[kStart] + static_cast<double>(facts.shards.size()) * c[kTable]);
    Prediction p = bounded_by(Seconds(compute), Seconds(memory), overhead);
    p.time = overhead + p.compute + p.memory;
    return p;
  }
};

}  // namespace

std::unique_ptr<KernelForm> embedding_shared_cache() {
  return std::make_unique<EmbeddingSharedCache>();
}
std::unique_ptr<KernelForm> embedding_forward_levels() {
  return std::make_unique<EmbeddingForwardLevels>();
}
std::unique_ptr<KernelForm> embedding_backward_levels() {
  return std::make_unique<EmbeddingBackwardLevels>();
}

}  // namespace stepcast::models
