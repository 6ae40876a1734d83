#include "core/job/layers.h"

#include <cmath>

#include "core/error.h"
#include "core/graph/op.h"
#include "core/graph/op_attributes.h"
#include "core/numbers.h"

namespace stepcast {
namespace {

constexpr std::array<std::string_view, static_cast<std::size_t>(LayerKind::kCount)> kKindNames{
    "tables",
    "linear",
    "activation",
    "norm",
    "add",
    "multiply",
    "concatenate",
    "columns",
    "reshape",
    "transpose",
    "matmul",
    "dot",
    "cross",
    "attention",
    "gated_attention",
    "softmax",
    "mean_rows",
    "modulate",
    "gate",
    "positions",
    "rope",
    "embedding",
    "convolution",
    "time_major",
    "sample_major",
    "recurrent",
    "all_reduce",
    "copy_to_group",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "binary_cross_entropy",
    "mean_squared_error",
    "cross_entropy",
    "connectionist",
    "in_batch_softmax"};

/// Glorot & Bengio, AISTATS 2010.
double uniform_scale(std::int64_t in, std::int64_t out) {
  return std::sqrt(6.0 / static_cast<double>(in + out));
}

std::int64_t kernel_elements(const LayerList& list, const Layer& l) {
  return list.input(l).columns * l.kernel[0] * l.kernel[1];
}

}  // namespace

std::string_view name_of(LayerKind kind) { return kKindNames.at(static_cast<std::size_t>(kind)); }

std::string_view LayerModel::kind() const {
  constexpr std::array<std::string_view, 5> kinds{"wukong", "dhen", "dit", "rnn_ctc", "graph"};
  return kinds.at(spec.index());
}

std::int64_t LayerList::ranks_per_sample() const {
  std::int64_t product = 1;
  for (const LayerGroup& g : groups) {
    product *= g.size;
  }
  return product;
}

std::int64_t LayerList::input_width() const {
  std::int64_t width = 0;
  for (const std::int32_t t : inputs) {
    width += tensor(t).elements();
  }
  return width;
}

std::array<std::int64_t, 2> label_shape(const LayerList& list, const Layer& loss) {
  const LayerTensor& x = list.input(loss);
  switch (loss.kind) {
    case LayerKind::kMeanSquaredError:
      return {x.rows, x.columns};
    case LayerKind::kConnectionist:
    case LayerKind::kInBatchSoftmax:
      return {loss.labels, 1};
    default:
      return {x.rows, 1};
  }
}

std::int64_t label_width(const LayerList& list) {
  std::int64_t width = 0;
  for (const Layer& l : list.layers) {
    if (is_loss(l.kind)) {
      const auto [rows, columns] = label_shape(list, l);
      width += rows * columns;
    }
  }
  return width;
}

std::vector<LayerParameter> parameters_of(const LayerList& list, const Layer& l) {
  std::vector<LayerParameter> all;
  const auto add = [&](const char* role, std::int64_t rows, std::int64_t columns, double scale,
                       double constant = 0) {
    all.push_back({l.name + "." + role, rows, columns, scale, constant, rows == 1});
  };
  switch (l.kind) {
    case LayerKind::kLinear: {
      const std::int64_t in = list.input(l).columns;
      const std::int64_t out = list.output(l).columns;
      if (l.bias) {
        add("bias", 1, out, 1 / std::sqrt(real(out)));
      }
      add("weight", in, out, uniform_scale(in, out));
      return all;
    }
    case LayerKind::kCross: {
      const std::int64_t width = list.output(l).columns;
      add("bias", 1, width, 0);
      add("up", l.rank, width, uniform_scale(l.rank, width));
      add("down", width, l.rank, uniform_scale(width, l.rank));
      return all;
    }
    case LayerKind::kGatedAttention:
    case LayerKind::kNorm:
      if (l.affine) {
        add("scale", 1, list.output(l).columns, 0, 1);
        if (l.norm == Norm::kLayerNorm) {
          add("shift", 1, list.output(l).columns, 0);
        }
      }
      return all;
    case LayerKind::kPositions:
      add("table", 1, list.output(l).elements(), 0.02);
      return all;
    case LayerKind::kTokenEmbedding:
      add("weight", l.vocabulary, list.output(l).columns, 0.02);
      all.back().added = true;
      return all;
    case LayerKind::kConvolution:
      if (l.bias) {
        add("bias", 1, list.output(l).columns, 0);
      }
      add("weight", kernel_elements(list, l), list.output(l).columns,
          uniform_scale(kernel_elements(list, l), list.output(l).columns));
      return all;
    case LayerKind::kRecurrent: {
      const std::int64_t width = list.output(l).columns;
      add("bias", 1, width, 0);
      add("weight", width, width, uniform_scale(width, width));
      return all;
    }
    default:
      return all;
  }
}

std::int64_t parameter_count(const LayerList& list) {
  std::int64_t count = 0;
  for (const Layer& l : list.layers) {
    for (const LayerParameter& p : parameters_of(list, l)) {
      count += p.rows * p.columns;
    }
  }
  return count;
}

Op attention_op(const LayerList& list, const Layer& l, std::int64_t samples) {
  const std::int64_t length = list.output(l).rows;
  const LayerHeads& h = l.heads;
  Op op;
  op.kind = OpKind::kAttentionForward;
  op.shape = {samples, h.heads, h.kv_heads, length, length, h.dim};
  op.attributes = AttentionAttributes{
      .window = h.window > 0 && h.window < length ? static_cast<std::int32_t>(h.window) : 0};
  if (h.lengths) {
    op.kind = OpKind::kJaggedAttentionForward;
    op.shape[4] = std::llround(real(samples) * h.pairs);
    op.attributes = JaggedAttributes{*h.lengths};
  }
  op.flags = h.causal ? op_flags::kCausal : std::uint8_t{0};
  return op;
}

std::int64_t scored_items(const LayerList& list, const Layer& l) {
  std::int64_t items = 0;
  for (std::size_t i = 1; l.kind == LayerKind::kInBatchSoftmax && i < l.in.size(); ++i) {
    items += list.input(l, i).rows;
  }
  return items;
}

double forward_flops(const LayerList& list, const Layer& l) {
  if (l.out < 0) {
    return 0;
  }
  const LayerTensor& out = list.output(l);
  const double outputs = real(out.elements());
  switch (l.kind) {
    case LayerKind::kLinear:
      return 2 * outputs * real(list.input(l).columns);
    case LayerKind::kMatmul:
      return 2 * outputs * real(l.transpose_a ? list.input(l).rows : list.input(l).columns);
    case LayerKind::kCross:
      return 4 * outputs * real(l.rank);
    case LayerKind::kDot: {
      const double vectors = real(list.input(l).elements()) / real(l.dim);
      return vectors * (vectors - 1) * real(l.dim);
    }
    case LayerKind::kAttention:
    case LayerKind::kGatedAttention: {
      const LayerHeads& h = l.heads;
      return h.lengths ? 4 * h.pairs * real(h.heads) * real(h.dim)
                       : 4 * real(out.rows) * real(out.rows) * real(h.heads) * real(h.dim) *
                             (h.causal ? 0.5 : 1);
    }
    case LayerKind::kConvolution:
      return 2 * outputs * real(kernel_elements(list, l));
    case LayerKind::kRecurrent:
      return 2 * outputs * real(out.columns);
    default:
      return 0;
  }
}

double forward_flops(const LayerList& list) {
  double sum = 0;
  for (const Layer& l : list.layers) {
    sum += forward_flops(list, l);
  }
  return sum;
}

double training_flops(const LayerList& list) {
  double sum = 0;
  for (const Layer& l : list.layers) {
    const bool gradient = !l.in.empty() && list.input(l).needs_gradient;
    sum += forward_flops(list, l) * (gradient ? 3 : 2);
  }
  return sum;
}

}  // namespace stepcast
