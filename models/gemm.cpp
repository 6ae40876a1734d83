#include "models/gemm.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/memory_bound.h"

namespace stepcast::models {
namespace {

/// Block shapes that libraries choose among; structure of the form, not calibrated.
struct Tile {
  double m, n;
};
constexpr std::array<Tile, 7> kTiles{
    {{256, 128}, {128, 256}, {128, 128}, {64, 256}, {128, 64}, {64, 128}, {64, 64}}};

double extent(const Op& op, std::size_t axis) {
  return static_cast<double>(std::max<std::int64_t>(op.shape[axis], 1));
}

bool dot_interaction(const Op& op) {
  return op.kind == OpKind::kDotInteractionForward || op.kind == OpKind::kDotInteractionBackward;
}

/// A layout costs a category step in the coordinates, so that residuals of one layout do not leak
/// into another.
double layout_coordinate(const Op& op) {
  constexpr double kStep = 8;
  return kStep * ((op.flags & op_flags::kTransposeA) != 0 ? 1 : 0) +
         2 * kStep * ((op.flags & op_flags::kTransposeB) != 0 ? 1 : 0);
}

std::vector<double> gemm_coordinates(const OpFacts& facts) {
  const Op& op = *facts.op;
  return {std::log(extent(op, 0)), std::log(extent(op, 1)), std::log(extent(op, 2)),
          std::log(extent(op, 3)), layout_coordinate(op)};
}
std::vector<std::string_view> gemm_coordinate_names() {
  return {"log_m", "log_n", "log_k", "log_batch", "layout"};
}

double smooth_maximum(double a, double b, double blend) {
  const double high = std::max(a, b);
  const double low = std::min(a, b);
  if (blend <= 0 || low <= 0) {
    return high;
  }
  return high * std::pow(1 + std::pow(low / high, 1 / blend), blend);
}

enum TileWaveConstant {
  kStart,
  kComputeEfficiency,
  kMemoryEfficiency,
  kTileCost,
  kWaveShare,
  kBlend,
  kDepth
};

}  // namespace

bool GemmTileWave::covers(const Op& op) const {
  return op.kind == OpKind::kGemm || dot_interaction(op);
}

std::vector<Constant> GemmTileWave::constants(const Device& device) const {
  return {{"start", device.launch.base(), 3e-6, 2e-7, 5e-5},
          {"compute_efficiency", 1, 0.8, 0.05, 1},
          {"memory_efficiency", 1, 0.8, 0.05, 1.2},
          {"tile_cost", 0, 8, 0.01, 200},
          {"wave_share", 0, 0.5, 0.01, 1},
          {"blend", 0, 0.3, 0.02, 1},
          {"depth", 0, 64, 0.01, 2000}};
}

Prediction GemmTileWave::predict(const OpFacts& facts, const Device& device,
                                 std::span<const double> c) const {
  const Op& op = *facts.op;
  const double peak = peak_rate(device, op.format);
  const double bandwidth = device.bandwidth.base() * c[kMemoryEfficiency];
  const Seconds memory(facts.bytes / bandwidth);
  if (dot_interaction(op)) {
    return bounded_by(Seconds(op.flops.base() / (peak * c[kComputeEfficiency])), memory,
                      Seconds(c[kStart]));
  }
  const double m = extent(op, 0);
  const double n = extent(op, 1);
  const double k = extent(op, 2);
  const double batch = extent(op, 3);
  const double units = static_cast<double>(std::max<std::int64_t>(device.multiprocessors, 1));
  const double ideal = op.flops.base() / peak;
  double compute = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    const double tiles = std::ceil(m / tile.m) * std::ceil(n / tile.n) * batch;
    const double exact = tiles / units;
    const double waves = (1 - c[kWaveShare]) * exact + c[kWaveShare] * std::ceil(exact);
    const double work = 2 * tile.m * tile.n * (k + c[kDepth]);
    const double efficiency =
        c[kComputeEfficiency] / (1 + c[kTileCost] * (1 / tile.m + 1 / tile.n));
    compute = std::min(compute, waves * work / (peak / units * efficiency));
  }
  if (c[kWaveShare] <= 0 && c[kTileCost] <= 0) {
    compute = ideal / c[kComputeEfficiency];  // plain roofline: partial tiles are not padded
  }
  compute = std::max(compute, ideal);
  Prediction p = bounded_by(Seconds(compute), memory, Seconds(c[kStart]));
  p.time = Seconds(c[kStart] + smooth_maximum(compute, memory.base(), c[kBlend]));
  return p;
}

std::vector<double> GemmTileWave::coordinates(const OpFacts& facts) const {
  return gemm_coordinates(facts);
}
std::vector<std::string_view> GemmTileWave::coordinate_names() const {
  return gemm_coordinate_names();
}

bool GemmShapeRate::covers(const Op& op) const { return op.kind == OpKind::kGemm; }

std::vector<Constant> GemmShapeRate::constants(const Device& device) const {
  const double peak = std::min(peak_rate(device, Format::kFp32), 1e16);
  const double bandwidth = std::max(device.bandwidth.base(), 1.0);
  return {{"start", device.launch.base(), 1e-6, 1e-8, 1e-3},
          {"call", 0, 1e-7, 1e-9, 1e-4},
          {"rate", peak, peak, peak / 1000, peak * 1000},
          {"half_m", 0, 4, 0.01, 500},
          {"half_n", 0, 4, 0.01, 500},
          {"half_k", 0, 4, 0.01, 500},
          {"nt", 1, 1, 0.1, 3},
          {"tn", 1, 1, 0.1, 3},
          {"near", bandwidth, bandwidth * 10, bandwidth / 20, bandwidth * 1000},
          {"far", bandwidth, bandwidth, bandwidth / 20, bandwidth * 1000},
          {"capacity", std::max(device.l2.base(), 1e5), 2e6, 1e5, 1e9},
          {"tn_half_n", 0, 30, 0.01, 1000},
          {"vector", 2 / peak, 1e-10, 1e-12, 1e-8}};
}

Prediction GemmShapeRate::predict(const OpFacts& facts, const Device&,
                                  std::span<const double> c) const {
  enum {
    kStart0,
    kCall,
    kRate,
    kHalfM,
    kHalfN,
    kHalfK,
    kNt,
    kTn,
    kNear,
    kFar,
    kCapacity,
    kTnHalfN,
    kVector
  };
  const Op& op = *facts.op;
  const double m = extent(op, 0);
  const double n = extent(op, 1);
  const double k = extent(op, 2);
  // Operand and result elements cost their packing and edges: seconds per element of B, A and C
  // over those of the products.
  const bool transposed_a = (op.flags & op_flags::kTransposeA) != 0;
  const double half_n = transposed_a ? c[kTnHalfN] : c[kHalfN];
  const double layout =
      ((op.flags & op_flags::kTransposeB) != 0 ? c[kNt] : 1) * (transposed_a ? c[kTn] : 1);
  const double rate = c[kRate] * layout / (1 + c[kHalfM] / m + half_n / n + c[kHalfK] / k);
  const bool vector = m == 1 || n == 1;
  const Seconds compute(vector ? op.flops.base() / 2 * c[kVector] : op.flops.base() / rate);
  const Seconds memory(operand_seconds(facts, c[kNear], c[kFar], c[kCapacity]));
  const Seconds overhead(c[kStart0] + extent(op, 3) * c[kCall]);
  Prediction p = bounded_by(compute, memory, overhead);
  p.time = overhead + compute + memory;  // one core: operand traffic is not hidden
  return p;
}

std::vector<double> GemmShapeRate::coordinates(const OpFacts& facts) const {
  return gemm_coordinates(facts);
}
std::vector<std::string_view> GemmShapeRate::coordinate_names() const {
  return gemm_coordinate_names();
}

std::vector<Constant> DotInteractionParts::constants(const Device& device) const {
  const double peak = std::min(peak_rate(device, Format::kFp32), 1e16);
  const double bandwidth = std::max(device.bandwidth.base(), 1.0);
  return {{"start", device.launch.base(), 1e-6, 1e-8, 1e-3},
          {"sample", 0, 2e-7, 1e-10, 1e-4},
          {"pair", 0, 3e-10, 1e-13, 1e-7},
          {"product", 1 / peak, 4 / peak, 0.1 / peak, 1e3 / peak},
          {"near", bandwidth, bandwidth * 2, bandwidth / 20, bandwidth * 1000},
          {"far", bandwidth, bandwidth, bandwidth / 20, bandwidth * 20},
          {"capacity", std::max(device.l2.base(), 1e5), 2e6, 1e5, 1e9}};
}

Prediction DotInteractionParts::predict(const OpFacts& facts, const Device&,
                                        std::span<const double> c) const {
  const double samples = extent(*facts.op, 0);
  const double pairs = extent(*facts.op, 1) * extent(*facts.op, 1);
  const Seconds compute(samples * (c[1] + pairs * c[2] + pairs * extent(*facts.op, 2) * c[3]));
  const Seconds memory(operand_seconds(facts, c[4], c[5], c[6]));
  Prediction p = bounded_by(compute, memory, Seconds(c[0]));
  p.time = p.overhead + compute + memory;
  return p;
}

std::vector<double> DotInteractionParts::coordinates(const OpFacts& facts) const {
  const Op& op = *facts.op;
  return {std::log(extent(op, 0)), std::log(extent(op, 1)), std::log(extent(op, 2))};
}
std::vector<std::string_view> DotInteractionParts::coordinate_names() const {
  return {"log_samples", "log_features", "log_dim"};
}

}  // namespace stepcast::models
