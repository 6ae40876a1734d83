#include "models/attention.h"

#include <algorithm>
#include <cmath>

namespace stepcast::models {
namespace {

struct Shape {
  explicit Shape(const Op& op)
      : batch(size(op, 0)),
        heads(size(op, 1)),
        kv_heads(size(op, 2)),
        queries(size(op, 3)),
        keys(size(op, 4)),
        dim(size(op, 5)),
        causal((op.flags & op_flags::kCausal) != 0),
        backward(op.kind == OpKind::kAttentionBackward) {}
  static double size(const Op& op, std::size_t axis) {
    return static_cast<double>(std::max<std::int64_t>(op.shape[axis], 1));
  }
  [[nodiscard]] double scores() const {
    return batch * heads * queries * keys * (causal ? 0.5 : 1.0);
  }
  double batch, heads, kv_heads, queries, keys, dim;
  bool causal, backward;
};

bool attention(const Op& op) {
  return op.kind == OpKind::kAttentionForward || op.kind == OpKind::kAttentionBackward;
}

std::vector<double> attention_coordinates(const OpFacts& facts) {
  const Shape s(*facts.op);
  constexpr double kStep = 8;
  return {
      std::log(s.batch * s.heads),    std::log(s.queries),       std::log(s.keys), std::log(s.dim),
      std::log(s.heads / s.kv_heads), kStep * (s.causal ? 1 : 0)};
}
std::vector<std::string_view> attention_coordinate_names() {
  return {"log_batch_heads", "log_queries", "log_keys", "log_head_dim", "log_group", "causal"};
}

}  // namespace

bool AttentionTiles::covers(const Op& op) const { return attention(op); }

std::vector<Constant> AttentionTiles::constants(const Device& device) const {
  return {{"start", device.launch.base(), 5e-6, 2e-7, 1e-4},
          {"compute_efficiency", 1, 0.6, 0.05, 1},
          {"backward_efficiency", 1, 0.8, 0.1, 1},
          {"memory_efficiency", 1, 0.7, 0.02, 1.2},
          {"half_queries", 0, 100, 0.1, 5000},
          {"diagonal", 0, 100, 0.1, 1000},
          {"half_parallel", 0, 20, 0.1, 2000}};
}

Prediction AttentionTiles::predict(const OpFacts& facts, const Device& device,
                                   std::span<const double> c) const {
  const Op& op = *facts.op;
  const Shape s(op);
  const double diagonal = s.causal ? 1 + c[5] / s.keys : 1;
  const double heads = s.batch * s.heads;
  const double efficiency = c[1] * (s.backward ? c[2] : 1) * s.queries / (s.queries + c[4]) *
                            heads / (heads + c[6] * c[4] / (s.queries + c[4]));
  const Seconds compute(op.flops.base() * diagonal / (peak_rate(device, op.format) * efficiency));
  const Seconds memory(facts.bytes / (device.bandwidth.base() * c[3]));
  return bounded_by(compute, memory, Seconds(c[0]));
}

std::vector<double> AttentionTiles::coordinates(const OpFacts& facts) const {
  return attention_coordinates(facts);
}
std::vector<std::string_view> AttentionTiles::coordinate_names() const {
  return attention_coordinate_names();
}

bool AttentionParts::covers(const Op& op) const { return attention(op); }

std::vector<Constant> AttentionParts::constants(const Device& device) const {
  const double peak = std::min(peak_rate(device, Format::kFp32), 1e16);
  const double bandwidth = std::max(device.bandwidth.base(), 1.0);
  return {{"start", device.launch.base(), 1e-6, 1e-8, 1e-3},
          {"call", 0, 1e-7, 1e-9, 1e-3},
          {"rate", peak, peak, peak / 1000, peak * 1000},
          {"half_dim", 0, 8, 0.01, 1000},
          {"half_keys", 0, 8, 0.01, 1000},
          {"softmax", 0, 1e-10, 1e-12, 1e-7},
          {"bandwidth", bandwidth, bandwidth, bandwidth / 100, bandwidth * 1000}};
}

Prediction AttentionParts::predict(const OpFacts& facts, const Device&,
                                   std::span<const double> c) const {
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

std::vector<double> AttentionParts::coordinates(const OpFacts& facts) const {
  return attention_coordinates(facts);
}
std::vector<std::string_view> AttentionParts::coordinate_names() const {
  return attention_coordinate_names();
}

}  // namespace stepcast::models
