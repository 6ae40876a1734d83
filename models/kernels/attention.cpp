#include <algorithm>
#include <cmath>

#include "models/kernels/internal/forms.h"

namespace stepcast::models {
namespace {

constexpr double kQueryTile = 128;  // rows of a block: FlashAttention-2 and -3 at usual widths
constexpr double kKeyTile = 64;     // keys of one step

struct Shape {
  explicit Shape(const Op& op)
      : batch(size(op, 0)),
        heads(size(op, 1)),
        kv_heads(size(op, 2)),
        queries(size(op, 3)),
        keys(size(op, 4)),
        dim(size(op, 5)),
        window(window_of(op, keys)),
        causal((op.flags & op_flags::kCausal) != 0),
        unfused((op.flags & op_flags::kUnfused) != 0),
        backward(is_backward(op.kind)) {
    if (std::holds_alternative<JaggedAttributes>(op.attributes)) {
      in_sequences();
    }
  }
  /// Rows of drawn lengths count as sequences of one length, that of the sequence a row stands in
  /// on average: as many rows, and as many pairs.
  void in_sequences() {
    const double rows = batch * queries;
    const double seen = keys / rows;  // keys of a query; causal: (length + 1) / 2
    queries = keys = window = std::max(1.0, causal ? 2 * seen - 1 : seen);
    batch = rows / queries;
  }
  static double size(const Op& op, std::size_t axis) {
    return static_cast<double>(std::max<std::int64_t>(op.shape[axis], 1));
  }
  static double window_of(const Op& op, double keys) {
    const std::int32_t window = op.as<AttentionAttributes>().window;
    return window > 0 ? std::min(static_cast<double>(window), keys) : keys;
  }
  [[nodiscard]] double scores() const {
    return batch * heads * queries * keys * (causal ? 0.5 : 1.0);
  }
  /// Products of the forward pass this op amounts to.
  [[nodiscard]] double passes() const { return !backward ? 1 : unfused ? 2 : 2.5; }
  double batch, heads, kv_heads, queries, keys, dim, window;
  bool causal, unfused, backward;
};

/// The grid of an attention kernel.
struct Blocks {
  /// `packed` heads fill a block together.
  Blocks(const Shape& s, double packed, double multiprocessors) {
    const double span = kQueryTile / packed;  // positions one block covers
    const double per_head = std::ceil(s.queries / span);
    const double heads = s.batch * s.heads / packed;
    const double most = s.causal && !s.unfused ? std::min(s.keys, s.window + span) : s.keys;
    const double full = std::ceil(most / kKeyTile) * kKeyTile;
    double seen = per_head * full;  // keys walked by the blocks of one head
    if (s.causal && !s.unfused) {
      // Block i sees min(full, offset + (i + 1) span) keys, in whole tiles.
      const double offset = std::max(0.0, s.keys - s.queries);
      const double ramp = std::clamp(std::floor((full - offset) / span), 0.0, per_head);
      const double rounded = kKeyTile / 2 * per_head * std::max(0.0, 1 - span / kKeyTile);
      seen = std::min(
          seen, ramp * offset + span * ramp * (ramp + 1) / 2 + (per_head - ramp) * full + rounded);
    }
    count = heads * per_head;
    steps = heads * std::max(seen / kKeyTile, per_head);
    longest = full / kKeyTile;
    if (per_head <= 1) {
      longest /= std::clamp(multiprocessors / count, 1.0, longest);
    }
  }
  double count = 0, steps = 0, longest = 0;
};

/// The tiles of a fused kernel; products and softmax one by one:
/// models/kernels/unfused_attention.h.
bool fused(const Op& op) {
  return class_of(op.kind) == OpClass::kAttention && (op.flags & op_flags::kUnfused) == 0;
}

bool attention(const Op& op) { return class_of(op.kind) == OpClass::kAttention; }

class AttentionForm : public KernelForm {
 public:
  std::vector<double> coordinates(const OpFacts& facts) const final {
    const Shape s(*facts.op);
    constexpr double kStep = 8;
    return {std::log(s.batch * s.heads),
            std::log(s.queries),
            std::log(s.window),
            std::log(s.dim),
            std::log(s.heads / s.kv_heads),
            kStep * (s.causal ? 1 : 0)};
  }
  std::vector<std::string_view> coordinate_names() const final {
    return {"log_batch_heads", "log_queries", "log_keys", "log_head_dim", "log_group", "causal"};
  }
};

/// Attention core (scores, softmax, weighted sum) as blocks of query rows that walk over tiles of
/// keys; causal or full, windowed, grouped queries, forward or backward, in one kernel.
///
///   time  = start + longer(work, streams) + serial * shorter(work, streams)
///   work  = (steps * step + blocks * block) / multiprocessors + critical * longest * step
///   step  = 4 * 128 * 64 * (head_dim + softmax_columns) / (peak / multiprocessors *
///           compute_efficiency)
///   streams = bytes / (bandwidth * memory_efficiency)
///
/// A block holds 128 query rows of one head; in the share `packing` of the kernels rows of all
/// heads that share keys fill it together. steps = key tiles of 64 that the mask and the window
/// leave to all blocks, the diagonal ones whole; longest = those of the last block, which ends the
/// kernel when the others are done (Graham, SIAM J. Appl. Math. 17(2), 1969). A single block per
/// head splits its keys over idle multiprocessors. `serial`: share of the streams (preparing q, k,
/// v) not hidden under the blocks. Unfused: the mask skips nothing and bytes count the score
/// matrix. Backward: the op's products (5 instead of 2 when fused) divided by
/// `backward_efficiency`; no rows were measured, so its constants are transferred and marked so.
///
/// In:      {batch, heads, kv_heads, queries, keys, head_dim}; AttentionAttributes.
/// Valid:   sizes >= 1. One software stack per set of constants: stacks differ by 24 % median.
/// Source:  Dao, "FlashAttention-2", arXiv 2307.08691 (partition of work); derived. Checked by
///          tests/models/kernel_accuracy_test.cpp.
class AttentionTiles final : public AttentionForm {
 public:
  std::string_view name() const override { return "attention.tiles"; }
  bool covers(const Op& op) const override { return fused(op); }
  std::vector<Constant> constants(const Device& device) const override {
    return {{"start", device.launch.base(), 1e-5, 2e-7, 1e-4},
            {"memory_efficiency", 1, 0.5, 0.02, 1},
            {"serial", 0, 0.5, 0.01, 1},
            {"compute_efficiency", 1, 0.7, 0.05, 1},
            {"softmax_columns", 0, 30, 0.1, 500},
            {"block", 0, 1e-6, 1e-8, 1e-4},
            {"critical", 0, 0.7, 0.01, 2},
            {"packing", 0, 0.3, 0.01, 1},
            {"backward_efficiency", 1, 0.8, 0.1, 1}};
  }
  Prediction predict(const OpFacts& facts, const Device& device,
                     std::span<const double> c) const override {
    enum { kStart, kMemory, kSerial, kCompute, kSoftmax, kBlock, kCritical, kPacking, kBackward };
    const Op& op = *facts.op;
    const Shape whole(op);
    const double multiprocessors = std::max<double>(1, static_cast<double>(device.multiprocessors));
    const double rate = peak_rate(device, op.format) / multiprocessors * c[kCompute] *
                        (whole.backward ? c[kBackward] : 1);
    const double step =
        whole.passes() * 4 * kQueryTile * kKeyTile * (whole.dim + c[kSoftmax]) / rate;
    const double group = std::max(1.0, whole.heads / whole.kv_heads);
    const auto in_tiles = [&](const Shape& s, double bytes) {
      const auto work_of = [&](double packed) {
        const Blocks blocks(s, packed, multiprocessors);
        return (blocks.steps * step + blocks.count * c[kBlock]) / multiprocessors +
               c[kCritical] * blocks.longest * step;
      };
      const Seconds work(
          group == 1 ? work_of(1) : (1 - c[kPacking]) * work_of(1) + c[kPacking] * work_of(group));
      const Seconds streams(bytes / (device.bandwidth.base() * c[kMemory]));
      Prediction p = bounded_by(work, streams, Seconds(c[kStart]));
      p.time += c[kSerial] * std::min(work, streams);
      return p;
    };
    const Prediction tiles = in_tiles(whole, facts.bytes);
    if (like_measured(op) || whole.backward) {
      return tiles;
    }
    // Few queries of many keys: kernels split the keys over the multiprocessors, let the heads of a
    // group share what is read, and fill as many rows of a tile as there are (in steps of the
    // tensor units' 16). Then keys and values are read at the memory's rate. It takes no less than
    // the queries over their own keys.
    const double rows = whole.queries * group;
    const double blocks = whole.batch * whole.heads / group * std::ceil(rows / kQueryTile);
    const double filled = std::min(kQueryTile, std::ceil(rows / 16) * 16) / kQueryTile;
    const double steps = std::ceil(whole.window / kKeyTile);
    const Seconds split(blocks * (steps * step * filled + c[kBlock]) / multiprocessors);
    const Seconds reads(facts.bytes / device.bandwidth.base());
    const Prediction few = bounded_by(split, reads, Seconds(c[kStart]));
    Shape own = whole;
    own.keys = own.window = whole.queries;
    const double elements = 2 * own.batch * own.dim * own.queries * (own.heads + own.kv_heads);
    const double statistics = 4 * own.batch * own.heads * own.queries;  // fp32, one a row
    const Prediction least = in_tiles(own, elements * bits_per_element(op.format) / 8 + statistics);
    const Prediction cached = few.time < least.time ? least : few;
    return cached.time < tiles.time ? cached : tiles;
  }
  /// Measured rows have no cached tokens: as many keys as queries, or a window of them.
  bool like_measured(const Op& op) const override {
    const Shape s(op);
    return s.queries >= s.window;
  }
  bool of_op_alone() const override { return true; }
};

/// Attention on one core as the sum of its parts.
///
///   time = start + batch heads call + flops / (rate d / (d + half_dim) keys / (keys + half_keys))
///   + scores * softmax + bytes / bandwidth
///
/// `scores` = batch heads queries keys (half when causal), each an exponential and its bookkeeping.
/// Source: derived.
class AttentionParts final : public AttentionForm {
 public:
  std::string_view name() const override { return "attention.parts"; }
  bool on_core() const override { return true; }
  bool covers(const Op& op) const override { return attention(op); }
  std::vector<Constant> constants(const Device& device) const override {
    const double peak = std::min(peak_rate(device, Format::kFp32), 1e16);
    const double bandwidth = std::max(device.bandwidth.base(), 1.0);
    return {{"start", device.launch.base(), 2e-7, 1e-8, 1e-3},
            {"call", 0, 5e-7, 1e-9, 1e-3},
            {"rate", peak, peak, peak / 1000, peak * 1000},
            {"half_dim", 0, 8, 0.01, 1000},
            {"half_keys", 0, 50, 0.01, 1000},
            {"softmax", 0, 3e-10, 1e-12, 1e-7},
            {"bandwidth", bandwidth, bandwidth, bandwidth / 100, bandwidth * 1000}};
  }
  Prediction predict(const OpFacts& facts, const Device&,
                     std::span<const double> c) const override {
    const Op& op = *facts.op;
    const Shape s(op);
    const double rate = c[2] * s.dim / (s.dim + c[3]) * s.keys / (s.keys + c[4]);
    const Seconds compute(op.flops.base() / rate + s.scores() * c[5]);
    const Seconds memory(facts.bytes / c[6]);
    const Seconds overhead(c[0] + s.batch * s.heads * c[1]);
    Prediction p = bounded_by(compute, memory, overhead);
    p.time = overhead + compute + memory;
    return p;
  }
  bool of_op_alone() const override { return true; }
};

}  // namespace

std::unique_ptr<KernelForm> attention_tiles() { return std::make_unique<AttentionTiles>(); }
std::unique_ptr<KernelForm> attention_parts() { return std::make_unique<AttentionParts>(); }

}  // namespace stepcast::models
