#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "models/kernels/internal/forms.h"

namespace stepcast::models {
namespace {

/// Block shapes that libraries choose among, in both orientations, largest first; structure of the
/// form, not calibrated.
struct Tile {
  double a, b;
};
constexpr std::array<Tile, 9> kTiles{{{256, 128},
                                      {128, 128},
                                      {256, 64},
                                      {128, 64},
                                      {64, 64},
                                      {256, 32},
                                      {128, 32},
                                      {64, 32},
                                      {64, 16}}};
constexpr std::array<double, 12> kSplits{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
constexpr double kMostWaves = 8;     // of split tiles: beyond, the device is full without splitting
constexpr double kPartialBytes = 8;  // a partial sum in fp32, written and read

enum TileWaveConstant {
  kStart,
  kMemoryEfficiency,
  kResident,
  kTileEfficiency,
  kHalfTile,
  kTilePower,
  kSustained,
  kWaveShare,
  kCrowding,
  kEpilogue,
  kCoreBandwidth,
  kCacheBandwidth,
  kSplitStart,
  kSplitTraffic,
  kBlend,
  kTransposedA,
  kTransposedB
};

constexpr std::int64_t kLongRow = 1024;  // whole blocks of any format

double smooth_maximum(double a, double b, double blend) {
  const double high = std::max(a, b);
  const double low = std::min(a, b);
  if (blend <= 0 || low < 0.05 * high) {
    return high;
  }
  return high * std::pow(1 + std::pow(low / high, 1 / blend), blend);
}

/// One product on one device: sizes, and what all tiles share.
struct Product {
  Product(const Op& op, const Device& device, double cold_bytes, std::span<const double> c)
      : m(extent(op, 0)),
        n(extent(op, 1)),
        k(extent(op, 2)),
        batch(extent(op, 3)),
        element(bits_per_element(op.format, kLongRow) / 8),
        units(static_cast<double>(std::max<std::int64_t>(device.multiprocessors, 1))),
        bandwidth(device.bandwidth.base()),
        layout(((op.flags & op_flags::kTransposeA) != 0 ? c[kTransposedA] : 1) *
               ((op.flags & op_flags::kTransposeB) != 0 ? c[kTransposedB] : 1)),
        rate(peak_rate(device, op.format) / units * c[kTileEfficiency] * layout),
        memory(cold_bytes / (bandwidth * c[kMemoryEfficiency])),
        sustained(op.flops.base() / (peak_rate(device, op.format) * c[kSustained])) {}
  double m, n, k, batch, element, units, bandwidth, layout, rate, memory, sustained;
};

struct Choice {
  double time = std::numeric_limits<double>::infinity();
  double compute = 0;
  double split = 0;
};

/// Tries one tile in one orientation at every split, keeps the fastest.
void consider(const Product& p, double rows, double columns, double rate, bool largest,
              std::span<const double> c, Choice& best) {
  const double tiles = std::ceil(p.m / rows) * std::ceil(p.n / columns) * p.batch;
  const double used_rows = std::min(rows, p.m);
  const double used_columns = std::min(columns, p.n);
  const double share = p.bandwidth / p.units;
  const double products = 2 * rows * columns * p.k / rate;
  const double load = (used_rows + used_columns) * p.k * p.element / share;
  const double store = c[kEpilogue] * used_rows * used_columns * p.element / share;
  const double least = std::max(p.memory, p.sustained);
  for (const double parts : kSplits) {
    if (parts > 1 && tiles * parts > kMostWaves * p.units) {
      return;
    }
    const double split = parts > 1 ? c[kSplitStart] + c[kSplitTraffic] * parts * p.m * p.n *
                                                          p.batch * kPartialBytes / p.bandwidth
                                   : 0;
    if (least + split >= best.time) {
      return;
    }
    const double exact = tiles * parts / p.units;
    const double waves =
        std::max(1.0, (1 - c[kWaveShare]) * exact + c[kWaveShare] * std::ceil(exact));
    const double supply =
        std::min(c[kCoreBandwidth], c[kCacheBandwidth] * std::max(1.0, 1 / exact));
    double compute = waves * (std::max(products, load / supply) / parts + store);
    if (!largest && exact > 1) {
      compute *= 1 + c[kCrowding] * (exact - 1);
    }
    compute = std::max(compute, p.sustained);
    if (std::max(compute, p.memory) + split < best.time) {
      const double time = smooth_maximum(compute, p.memory, c[kBlend]) + split;
      if (time < best.time) {
        best = {time, compute, split};
      }
    }
  }
}

/// Device time of one (batched) matrix product C[m,n] = A[m,k] B[k,n] on a device with many
/// multiprocessors: the fastest of a menu of tiles and splits of k.
///
///   time    = start + min over tiles [tm, tn] and splits s of blend(compute, memory) + split
///   compute = max(waves * (max(products, load) / s + store), flops / (peak * sustained))
///   memory  = (B + (A + C) * out(A + C over resident * L2)) / (bandwidth * memory_efficiency)
///   split   = 0 for s = 1, else split_start + split_traffic * s m n 8 B / bandwidth
///
/// waves: w = (1 - wave_share) x + wave_share ceil(x), at least 1, x = tiles * s / multiprocessors.
/// All but the largest tile cost 1 + crowding (x - 1) beyond one wave: libraries leave them once
/// large ones fill the device. products: 2 tm tn k at the tile's share of a multiprocessor's peak,
/// tile_efficiency / (1 + (half_tile / h)^tile_power) with 1 / h = 1 / tm + 1 / tn, since a tile
/// moves 1 / h operand elements per product. load: the tile's operands at core_bandwidth (limit of
/// one multiprocessor) or cache_bandwidth (limit of all), in shares of the memory bandwidth.
/// store: the tile's results at that share, times epilogue. sustained: the share of peak that power
/// allows. out(x) = x^4 / (1 + x^4): A and C of a small product stay in the cache, B never is
/// there. blend(a, b) = (a^p + b^p)^(1/p), p = 1 / blend. transposed_a, transposed_b: rates of the
/// backward layouts relative to forward; 1 without measurements.
///
/// In:      shape {m, n, k, batch}, flags. Out: device time, launch included as `start`.
/// Valid:   m, n, k >= 1. Never falls as m, n, k or batch grow. Without constants: the roofline.
/// Errors:  none.
/// Source:  Williams et al., "Roofline", CACM 52(4), 2009; wave quantisation and split k as in the
/// device vendor's GEMM guides; the rest derived. Checked by tests/models/gemm_accuracy_test.cpp.
class GemmTileWave final : public KernelForm {
 public:
  std::string_view name() const override { return "gemm.tile_wave"; }
  bool covers(const Op& op) const override {
    return op.kind == OpKind::kGemm || traits_of(op.kind).family == OpFamily::kDotInteraction;
  }
  std::vector<Constant> constants(const Device& device) const override {
    const double launch = device.launch.base();
    return {{"start", launch, 3e-6, 2e-7, 5e-5},
            {"memory_efficiency", 1, 0.8, 0.05, 1},
            {"resident", 0, 0.3, 0.01, 1},
            {"tile_efficiency", 1, 0.95, 0.05, 1},
            {"half_tile", 0, 30, 1, 200},
            {"tile_power", 1, 3, 0.5, 6},
            {"sustained", 1, 0.78, 0.05, 1},
            {"wave_share", 0, 0.5, 0.01, 1},
            {"crowding", 0, 0.2, 0.001, 5},
            {"epilogue", 0, 1, 0.01, 10},
            {"core_bandwidth", 1, 3, 1, 50},
            {"cache_bandwidth", 1, 3.1, 0.5, 50},
            {"split_start", launch, 2.6e-6, 1e-8, 1e-4},
            {"split_traffic", 1, 0.5, 0.01, 10},
            {"blend", 0, 0.3, 0.02, 1},
            {"transposed_a", 1, 1, 0.5, 1.2},
            {"transposed_b", 1, 1, 0.5, 1.2}};
  }
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override {
    const Op& op = *facts.op;
    const double bandwidth = device.bandwidth.base() * c[kMemoryEfficiency];
    const bool plain = c[kHalfTile] <= 0;  // without calibration: the roofline, no padding
    if (op.kind != OpKind::kGemm || plain) {
      const double rate = peak_rate(device, op.format) * c[kSustained];
      return bounded_by(Seconds(op.flops.base() / rate), Seconds(facts.bytes / bandwidth),
                        Seconds(c[kStart]));
    }
    // B is read from memory; A was just written and C will be read soon: as far as they fit the
    // cache they never go there.
    const double weights = std::min(
        facts.bytes, format_bytes(op.format, op.shape[1], op.shape[2]).base() * extent(op, 3));
    const double passing = facts.bytes - weights;
    const double x = passing / std::max(device.l2.base() * c[kResident], 1.0);
    const double outside = x * x * x * x / (1 + x * x * x * x);
    const Product product(op, device, weights + passing * outside, c);
    Choice best;
    for (const Tile& tile : kTiles) {
      const double side = 1 / (1 / tile.a + 1 / tile.b);
      const double rate = product.rate / (1 + std::pow(c[kHalfTile] / side, c[kTilePower]));
      const bool largest = &tile == kTiles.data();
      consider(product, tile.a, tile.b, rate, largest, c, best);
      if (tile.a != tile.b) {
        consider(product, tile.b, tile.a, rate, largest, c, best);
      }
    }
    Prediction p =
        bounded_by(Seconds(best.compute), Seconds(product.memory), Seconds(c[kStart] + best.split));
    p.time = Seconds(c[kStart] + best.time);
    return p;
  }
  /// Peak FLOPs, and memory traffic of what cannot have been in the cache.
  Seconds limit(const OpFacts& facts, const Device& device) const override {
    const double rate = peak_rate(device, facts.op->format);
    const double cold = std::max(0.0, facts.bytes - device.l2.base());
    return Seconds(std::max(facts.op->flops.base() / rate, cold / device.bandwidth.base()));
  }
  bool of_op_alone() const override { return true; }
  std::vector<double> coordinates(const OpFacts& facts) const override {
    return gemm_coordinates(*facts.op);
  }
  std::vector<std::string_view> coordinate_names() const override {
    return gemm_coordinate_names();
  }
};

}  // namespace

std::unique_ptr<KernelForm> gemm_tile_wave() { return std::make_unique<GemmTileWave>(); }

}  // namespace stepcast::models
