#include "models/embedding.h"

#include <algorithm>
#include <cmath>

#include "models/memory_bound.h"

namespace stepcast::models {
namespace {

constexpr double kSector = 32;     // bytes of one DRAM transaction of the devices
constexpr double kLine = 64;       // bytes of a host cache line
constexpr double kIndexBytes = 8;  // int64 row ids and offsets
constexpr double kSortBytes = 24;  // per key and pass: 8 B key + 4 B position, read and written

double dim_of(const ShardTraffic& s) { return static_cast<double>(s.shard->dim); }
double pooled_bytes(const ShardTraffic& s) {
  return (s.shard->sequence ? s.lookups : s.bags) * sector_bytes(4 * dim_of(s), kSector);
}
/// Passes of a radix sort over the row ids of one core: wide digits pay off over many lookups only.
double sort_passes(const ShardTraffic& s) {
  constexpr double kManyLookups = 16384;
  const double digit = s.lookups >= kManyLookups ? 11 : 8;
  return std::max(1.0, std::ceil(std::log2(std::max(2.0, s.rows)) / digit));
}
double digits(const ShardTraffic& s) {
  return std::max(1.0, std::ceil(std::log2(std::max(2.0, s.rows)) / 8));
}

OptimizerKind optimizer_of(const OpFacts& facts) {
  return facts.program->embeddings[static_cast<std::size_t>(facts.op->detail)].optimizer;
}

/// Geometric-mean view of a group: enough to place it among calibrated ones.
std::vector<double> group_coordinates(const OpFacts& facts) {
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
std::vector<std::string_view> group_coordinate_names() {
  return {"log_lookups", "log_pooling", "log_dim", "log_unique_share", "log_table_bytes"};
}

}  // namespace

double optimizer_row_bytes(OptimizerKind kind, double dim) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return 0;
    case OptimizerKind::kAdam:
      return 2 * 4 * dim;
    case OptimizerKind::kRowwiseAdagrad:
      return 4;
    case OptimizerKind::kAdagrad:
      return 4 * dim;
  }
  return 0;
}

bool EmbeddingSharedCache::covers(const Op& op) const {
  return op.detail >= 0 &&
         (op.kind == OpKind::kEmbeddingForward || op.kind == OpKind::kEmbeddingBackward ||
          op.kind == OpKind::kEmbeddingGradient);
}

std::vector<Constant> EmbeddingSharedCache::constants(const Device& device) const {
  return {{"start", device.launch.base(), 5e-6, 2e-7, 1e-4},
          {"memory_efficiency", 1, 0.8, 0.05, 1.2},
          {"update_efficiency", 1, 0.6, 0.05, 1.2},
          {"cache_ratio", 1e9, 2, 1, 10},  // ideal: the cache is never the limit
          {"cache_share", 1, 0.8, 0.05, 1},
          {"sort_start", 0, 2e-5, 1e-7, 1e-3}};
}

Prediction EmbeddingSharedCache::predict(const OpFacts& facts, const Device& device,
                                         std::span<const double> c) const {
  const double window = shared_window(facts.shards, device.l2.base() * c[4], kSector);
  const bool forward = facts.op->kind == OpKind::kEmbeddingForward;
  double missed = 0;   // bytes from device memory
  double total = 0;    // bytes through the cache
  double updated = 0;  // read-modify-write traffic
  for (const ShardTraffic& s : facts.shards) {
    const double row = sector_bytes(s.row_bytes, kSector);
    const double lists = s.lookups * kIndexBytes + s.bags * kIndexBytes;
    if (forward) {
      missed += s.misses(window) * row + lists + pooled_bytes(s);
      total += s.lookups * row + lists + pooled_bytes(s);
      continue;
    }
    const double gradient_row = sector_bytes(4 * dim_of(s), kSector);
    const double gradient_bytes = pooled_bytes(s);
    const double resident = std::min(1.0, device.l2.base() * c[4] / std::max(gradient_bytes, 1.0));
    const double again = std::max(0.0, s.lookups * gradient_row - gradient_bytes);
    missed += gradient_bytes + (1 - resident) * again;
    total += s.lookups * gradient_row;
    missed += lists + s.lookups * digits(s) * kSortBytes;
    if (facts.op->kind == OpKind::kEmbeddingGradient) {
      updated += s.unique_rows() * 2 * row;
    } else {
      const double state = optimizer_row_bytes(optimizer_of(facts), dim_of(s));
      updated += s.unique_rows() * 2 * (row + (state > 0 ? sector_bytes(state, kSector) : 0));
    }
  }
  const double bandwidth = device.bandwidth.base();
  const Seconds dram(missed / (bandwidth * c[1]) + updated / (bandwidth * c[2]));
  const Seconds cache(total / (bandwidth * c[3]));
  Prediction p = bounded_by(cache, dram, Seconds(c[0] + (forward ? 0 : c[5])));
  if (p.bound == "compute") {
    p.bound = "cache";
  }
  return p;
}

std::vector<double> EmbeddingSharedCache::coordinates(const OpFacts& facts) const {
  return group_coordinates(facts);
}
std::vector<std::string_view> EmbeddingSharedCache::coordinate_names() const {
  return group_coordinate_names();
}

std::vector<Constant> EmbeddingForwardLevels::constants(const Device& device) const {
  const double line = kLine / std::max(device.bandwidth.base(), 1e6);
  return {{"start", device.launch.base(), 1e-6, 1e-8, 1e-3},
          {"table", 0, 5e-7, 1e-9, 1e-4},
          {"bag", 0, 1e-8, 1e-11, 1e-6},
          {"lookup", 0, 3e-9, 1e-11, 1e-6},
          {"element", 0, 1e-10, 1e-13, 1e-8},
          {"near_miss", 0, 2e-9, 1e-12, 1e-6},
          {"near_line", 0, line / 4, line / 1e4, line * 100},
          {"far_miss", 0, 1e-8, 1e-11, 1e-6},
          {"far_line", line, line, line / 100, line * 100},
          {"near", 1e6, 1e6, 1e4, 6.4e7},
          {"far", std::max(device.l2.base(), 1e5), 3e7, 1e6, 1e9},
          {"kept", 0, 0.3, 0.01, 1}};
}

Prediction EmbeddingForwardLevels::predict(const OpFacts& facts, const Device&,
                                           std::span<const double> c) const {
  enum {
    kStart,
    kTable,
    kBag,
    kLookup,
    kElement,
    kNearMiss,
    kNearLine,
    kFarMiss,
    kFarLine,
    kNear,
    kFar,
    kKept
  };
  double compute = 0;
  double memory = 0;
  double touched = 0;
  for (const ShardTraffic& s : facts.shards) {
    touched += s.unique_rows() * sector_bytes(s.row_bytes, kLine);
  }
  for (const ShardTraffic& s : facts.shards) {
    const double lines = sector_bytes(s.row_bytes, kLine) / kLine;
    compute += s.bags * c[kBag] + s.lookups * (c[kLookup] + dim_of(s) * c[kElement]);
    const double near = s.misses(own_window(s, c[kNear], kLine));
    const double far = s.misses(own_window(s, c[kFar], kLine));
    // Rows kept over a step: all tables and their updates pass through the level in between.
    const double keep = c[kKept] * c[kFar] / (c[kFar] + touched);
    memory += near * (c[kNearMiss] + lines * c[kNearLine]) +
              far * (1 - keep) * (c[kFarMiss] + lines * c[kFarLine]);
  }
  const Seconds overhead(c[kStart] + static_cast<double>(facts.shards.size()) * c[kTable]);
  Prediction p = bounded_by(Seconds(compute), Seconds(memory), overhead);
  p.time = overhead + p.compute + p.memory;
  return p;
}

std::vector<double> EmbeddingForwardLevels::coordinates(const OpFacts& facts) const {
  return group_coordinates(facts);
}
std::vector<std::string_view> EmbeddingForwardLevels::coordinate_names() const {
  return group_coordinate_names();
}

std::vector<Constant> EmbeddingBackwardLevels::constants(const Device& device) const {
  const double line = kLine / std::max(device.bandwidth.base(), 1e6);
  return {{"start", device.launch.base(), 1e-6, 1e-8, 1e-3},
          {"table", 0, 1e-6, 1e-9, 1e-3},
          {"lookup", 0, 5e-9, 1e-11, 1e-6},
          {"sort", 0, 3e-9, 1e-11, 1e-6},
          {"gradient", 0, 2e-10, 1e-13, 1e-8},
          {"row", 0, 1e-8, 1e-11, 1e-5},
          {"near_line", line, line / 2, line / 1e3, line * 100},
          {"far_line", line, line * 2, line / 100, line * 100},
          {"capacity", std::max(device.l2.base(), 1e5), 2e7, 1e5, 1e9},
          {"update", 0, 3e-10, 1e-13, 1e-8},
          {"gradient_line", 0, line / 4, line / 1e4, line * 100},
          {"gradient_capacity", 1e6, 1e6, 5e4, 6.4e7}};
}

Prediction EmbeddingBackwardLevels::predict(const OpFacts& facts, const Device&,
                                            std::span<const double> c) const {
  enum {
    kStart,
    kTable,
    kLookup,
    kSort,
    kGradient,
    kRow,
    kNearLine,
    kFarLine,
    kCapacity,
    kUpdate,
    kGradientLine,
    kGradientCapacity
  };
  double compute = 0;
  double memory = 0;
  double touched = 0;
  const OptimizerKind optimizer =
      facts.op->kind == OpKind::kEmbeddingGradient ? OptimizerKind::kSgd : optimizer_of(facts);
  const auto lines_of = [&](const ShardTraffic& s) {
    return (sector_bytes(s.row_bytes, kLine) +
            sector_bytes(optimizer_row_bytes(optimizer, dim_of(s)), kLine)) /
           kLine;
  };
  for (const ShardTraffic& s : facts.shards) {
    touched += s.unique_rows() * lines_of(s) * kLine;
  }
  const double line = seconds_per_byte(touched, 1 / c[kNearLine], 1 / c[kFarLine], c[kCapacity]);
  for (const ShardTraffic& s : facts.shards) {
    const double unique = s.unique_rows();
    const double state_elements = optimizer_row_bytes(optimizer, dim_of(s)) / 4;
    compute += s.lookups * (c[kLookup] + sort_passes(s) * c[kSort] + dim_of(s) * c[kGradient]) +
               unique * (c[kRow] + (dim_of(s) + state_elements) * c[kUpdate]);
    // A lookup reads the gradient of its bag: from memory once those of the table outgrow the near
    // level.
    const double gradient_row = sector_bytes(4 * dim_of(s), kLine);
    const double x = (s.shard->sequence ? s.lookups : s.bags) * gradient_row / c[kGradientCapacity];
    memory += unique * lines_of(s) * line +
              s.lookups * gradient_row / kLine * c[kGradientLine] * x * x / (1 + x * x);
  }
  const Seconds overhead(c[kStart] + static_cast<double>(facts.shards.size()) * c[kTable]);
  Prediction p = bounded_by(Seconds(compute), Seconds(memory), overhead);
  p.time = overhead + p.compute + p.memory;
  return p;
}

std::vector<double> EmbeddingBackwardLevels::coordinates(const OpFacts& facts) const {
  return group_coordinates(facts);
}
std::vector<std::string_view> EmbeddingBackwardLevels::coordinate_names() const {
  return group_coordinate_names();
}

}  // namespace stepcast::models
