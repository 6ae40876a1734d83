#include "core/error.h"
#include "workloads/dlrm_step.h"

// The backward pass of the dense half. A tensor that several layers read has the sum of their
// gradients; where two tensors share one gradient, nobody may work on it in place.

namespace stepcast::workloads {
namespace {

std::uint8_t as_variant(Activation a) { return static_cast<std::uint8_t>(a); }

}  // namespace

/// `id` holds (a part of) the gradient of tensor t.
void DlrmStep::give_gradient(std::int32_t t, TensorId id) {
  if (!list_.tensor(t).needs_gradient) {
    return;
  }
  std::optional<TensorId>& held = gradient_of(t);
  if (!held) {
    held = id;
    ++holders_[id];
    return;
  }
  const std::int64_t rows = b_.tensor_at(id).rows;
  const std::int64_t columns = b_.tensor_at(id).columns;
  const std::string name = list_.tensor(t).name + ".gradient";
  const bool in_place = holders_[id] == 0;
  const TensorId sum = in_place ? id : b_.activation(name, rows, columns, compute_);
  b_.op(OpKind::kAdd, name, {rows, columns}).in({*held, id}).out({sum});
  --holders_[*held];
  held = sum;
  ++holders_[sum];
}

/// Where a product writes the gradient of t, and whether it adds to what is there.
DlrmStep::Target DlrmStep::gradient_target(std::int32_t t, const std::string& name) {
  std::optional<TensorId>& held = gradient_of(t);
  if (held && holders_[*held] == 1) {
    return {*held, true};
  }
  const LayerTensor& shape = list_.tensor(t);
  return {b_.activation(name, batch_ * shape.rows, shape.columns, compute_), false};
}

/// A gradient of t that ops add single columns to, zeroed when it is made.
TensorId DlrmStep::gradient_columns(std::int32_t t) {
  std::optional<TensorId>& held = gradient_of(t);
  const LayerTensor& shape = list_.tensor(t);
  if (held) {
    held = own(*held, list_.tensor(t).name);
    return *held;
  }
  const TensorId made =
      b_.activation(shape.name + ".gradient", batch_ * shape.rows, shape.columns, compute_);
  b_.op(OpKind::kFill, shape.name + ".zero_gradient", {batch_ * shape.elements()}).out({made});
  held = made;
  ++holders_[made];
  return made;
}

/// The same values in a tensor nobody else reads.
TensorId DlrmStep::own(TensorId id, const std::string& name) {
  if (holders_[id] <= 1) {
    return id;
  }
  const Tensor& t = b_.tensor_at(id);
  const std::int64_t rows = t.rows;
  const std::int64_t columns = t.columns;
  const TensorId copy = b_.activation(name + ".own_gradient", rows, columns, compute_);
  copy_block(name + ".copy_gradient", id, copy,
             {.from_pitch = columns, .to_pitch = columns, .columns = columns}, rows, false);
  --holders_[id];
  ++holders_[copy];
  return copy;
}

/// d_a = d_y b^T and the like, where x has to have a gradient.
void DlrmStep::product_gradient(std::int32_t t, const std::string& name,
                                std::array<std::int64_t, 4> shape, std::uint8_t flags, TensorId a,
                                TensorId b) {
  if (!list_.tensor(t).needs_gradient) {
    return;
  }
  const Target target = gradient_target(t, name);
  b_.op(OpKind::kGemm, name, {shape[0], shape[1], shape[2], shape[3]})
      .flags(static_cast<std::uint8_t>(flags | (target.accumulate ? op_flags::kAccumulate : 0)))
      .in({a, b})
      .out({target.tensor});
  if (!target.accumulate) {
    give_gradient(t, target.tensor);
  }
}

void DlrmStep::layer_backward(std::size_t index) {
  const Layer& l = list_.layers[index];
  const LayerState& s = layer_states_[index];
  if (is_loss(l.kind) || !list_.output(l).needs_gradient) {
    return;
  }
  const std::optional<TensorId> arrived = gradient_of(l.out);
  STEPCAST_CHECK(arrived.has_value(), "layer '{}' has no gradient", l.name);
  TensorId dy = *arrived;
  const LayerTensor& shape = list_.output(l);
  const std::int64_t rows = batch_ * shape.rows;
  const std::int64_t width = shape.columns;
  const auto fresh = [&](const char* what, std::int32_t t) {
    const LayerTensor& x = list_.tensor(t);
    return b_.activation(l.name + what, batch_ * x.rows, x.columns, compute_);
  };
  switch (l.kind) {
    case LayerKind::kTables: {
      const TensorId before = split(dy);
      exchange_gradients();
      dense_gradient(EmbeddingRoute::kReplicated);
      --holders_[dy];
      if (!l.in.empty()) {
        give_gradient(l.in.front(), before);
      }
      return;
    }
    case LayerKind::kLinear:
      linear_backward(l, s, dy);
      return;
    case LayerKind::kActivation: {
      const TensorId dx = fresh(".d_input", l.in[0]);
      b_.op(OpKind::kActivationBackward, l.name + ".backward", {rows, width})
          .variant(as_variant(l.activation))
          .in({dy, value(l.in[0])})
          .out({dx});
      --holders_[dy];
      give_gradient(l.in[0], dx);
      return;
    }
    case LayerKind::kNorm:
      norm_backward(l, s, dy);
      return;
    case LayerKind::kAdd:
      give_gradient(l.in[0], dy);
      --holders_[dy];
      give_gradient(l.in[1], dy);
      return;
    case LayerKind::kMultiply: {
      const TensorId da = fresh(".d_first", l.in[0]);
      const TensorId db = fresh(".d_second", l.in[1]);
      b_.op(OpKind::kMultiplyBackward, l.name + ".backward", {rows, width})
          .in({dy, value(l.in[0]), value(l.in[1])})
          .out({da, db});
      --holders_[dy];
      give_gradient(l.in[0], da);
      give_gradient(l.in[1], db);
      return;
    }
    case LayerKind::kConcatenate: {
      std::int64_t column = 0;
      for (const std::int32_t t : l.in) {
        const std::int64_t columns = list_.tensor(t).columns;
        if (list_.tensor(t).needs_gradient) {
          const TensorId part = fresh(".part_gradient", t);
          copy_block(
              l.name + ".part", dy, part,
              {.from_offset = column, .from_pitch = width, .to_pitch = columns, .columns = columns},
              rows, false);
          give_gradient(t, part);
        }
        column += columns;
      }
      --holders_[dy];
      return;
    }
    case LayerKind::kColumns:
      if (list_.input(l).needs_gradient) {
        copy_block(l.name + ".backward", dy, gradient_columns(l.in[0]),
                   {.from_pitch = width,
                    .to_offset = l.first,
                    .to_pitch = list_.input(l).columns,
                    .columns = width},
                   rows, true);
      }
      --holders_[dy];
      return;
    case LayerKind::kReshape: {
      const LayerTensor& x = list_.input(l);
      // Its own tensor, so that nobody works in place on what another name still needs.
      const TensorId whole = own(dy, l.name);
      give_gradient(l.in[0], rows_of(whole, l.name + ".gradient", 0, batch_ * x.rows, x.columns));
      return;
    }
    case LayerKind::kTranspose:
    case LayerKind::kTimeMajor:
    case LayerKind::kSampleMajor: {
      const TensorId dx = fresh(".d_input", l.in[0]);
      transpose(l, l.name + ".backward", dy, dx, true);
      --holders_[dy];
      give_gradient(l.in[0], dx);
      return;
    }
    case LayerKind::kMatmul:
      matmul_backward(l, dy);
      return;
    case LayerKind::kDot: {
      const TensorId dx = fresh(".d_input", l.in[0]);
      b_.op(OpKind::kDotInteractionBackward, l.name + "_backward",
            {batch_, list_.input(l).elements() / l.head_dim, l.head_dim})
          .in({as_row(l, value(l.in[0])), dy})
          .out({as_row(l, dx)});
      --holders_[dy];
      give_gradient(l.in[0], dx);
      return;
    }
    case LayerKind::kCross:
      cross_backward(l, s, dy);
      return;
    case LayerKind::kAttention: {
      const TensorId dx = fresh(".d_input", l.in[0]);
      b_.op(OpKind::kAttentionBackward, l.name + ".backward",
            {batch_, l.heads, l.kv_heads, shape.rows, shape.rows, l.head_dim})
          .in({value(l.in[0]), value(l.out), s.saved, dy})
          .out({dx})
          .detail(l.window > 0 && l.window < shape.rows ? static_cast<std::int32_t>(l.window) : -1)
          .flags(attention_flags(l));
      --holders_[dy];
      give_gradient(l.in[0], dx);
      return;
    }
    case LayerKind::kRope:
      dy = own(dy, l.name);
      b_.op(OpKind::kRopeBackward, l.name + ".backward",
            {rows, l.heads + l.kv_heads, l.head_dim, l.head_dim})
          .in({dy})
          .out({dy});
      --holders_[dy];
      give_gradient(l.in[0], dy);
      return;
    case LayerKind::kTokenEmbedding: {
      auto op =
          b_.op(OpKind::kTokenEmbeddingBackward, l.name + ".gradient", {rows, width, l.vocabulary})
              .in({dy, value(l.in[0])})
              .out({gradient(s.parameters.front())});
      --holders_[dy];
      gradients_done(op, s.parameters);
      return;
    }
    case LayerKind::kSoftmax: {
      const TensorId dx = fresh(".d_input", l.in[0]);
      b_.op(OpKind::kSoftmaxBackward, l.name + ".backward", {rows, width})
          .in({dy, value(l.out)})
          .out({dx});
      --holders_[dy];
      give_gradient(l.in[0], dx);
      return;
    }
    case LayerKind::kMeanRows: {
      const TensorId dx = fresh(".d_input", l.in[0]);
      b_.op(OpKind::kMeanRowsBackward, l.name + ".backward",
            {batch_ * list_.input(l).rows, width, list_.input(l).rows / shape.rows})
          .in({dy})
          .out({dx});
      --holders_[dy];
      give_gradient(l.in[0], dx);
      return;
    }
    case LayerKind::kModulate: {
      const TensorId dx = fresh(".d_input", l.in[0]);
      const TensorId dc = gradient_columns(l.in[1]);
      b_.op(OpKind::kModulateBackward, l.name + ".backward",
            {rows, width, shape.rows, l.first, list_.input(l, 1).columns})
          .in({dy, value(l.in[0]), value(l.in[1])})
          .out({dx, dc});
      --holders_[dy];
      give_gradient(l.in[0], dx);
      return;
    }
    case LayerKind::kGate: {
      const TensorId branch = fresh(".d_branch", l.in[1]);
      const TensorId dc = gradient_columns(l.in[2]);
      b_.op(OpKind::kGateBackward, l.name + ".backward",
            {rows, width, shape.rows, l.first, list_.input(l, 2).columns})
          .in({dy, value(l.in[1]), value(l.in[2])})
          .out({branch, dc});
      --holders_[dy];
      give_gradient(l.in[0], dy);
      give_gradient(l.in[1], branch);
      return;
    }
    case LayerKind::kPositions: {
      const TensorId wide = rows_of(dy, l.name + ".wide_gradient", 0, batch_, shape.elements());
      auto op =
          b_.op(OpKind::kBiasActivationBackward, l.name + ".backward", {batch_, shape.elements()})
              .variant(as_variant(Activation::kNone))
              .in({wide})
              .out({wide, gradient(s.parameters.front())});
      --holders_[dy];
      gradients_done(op, s.parameters);
      give_gradient(l.in[0], dy);
      return;
    }
    case LayerKind::kConvolution:
      convolution_backward(l, s, dy);
      return;
    case LayerKind::kRecurrent:
      recurrent_backward(l, s, dy);
      return;
    case LayerKind::kAllReduce:
    case LayerKind::kCopyToGroup:
    case LayerKind::kAllGather:
    case LayerKind::kReduceScatter:
    case LayerKind::kAllToAll:
      group_backward(l, dy);
      return;
    default:
      STEPCAST_CHECK(false, "layer '{}' of kind {}", l.name, name_of(l.kind));
  }
}

void DlrmStep::linear_backward(const Layer& l, const LayerState& s, TensorId dy) {
  const std::int64_t rows = batch_ * list_.output(l).rows;
  const std::int64_t out = list_.output(l).columns;
  const std::int64_t in = list_.input(l).columns;
  const std::size_t matrix = s.parameters.back();
  if (l.bias) {
    dy = l.activation == Activation::kNone ? dy : own(dy, l.name);
    auto bias = b_.op(OpKind::kBiasActivationBackward, l.name + ".bias_backward", {rows, out})
                    .variant(as_variant(l.activation))
                    .in({dy, value(l.out)})
                    .out({dy, gradient(s.parameters.front())});
    gradients_done(bias, {s.parameters.front()});
  }
  auto product = b_.op(OpKind::kGemm, l.name + ".weight_gradient", {in, out, rows, 1})
                     .flags(op_flags::kTransposeA)
                     .in({value(l.in[0]), dy})
                     .out({gradient(matrix)});
  gradients_done(product, {matrix});
  product_gradient(l.in[0], l.name + ".input_gradient", {rows, in, out, 1}, op_flags::kTransposeB,
                   dy, weight(matrix));
  --holders_[dy];
}

/// Adds what else reads the input in the same pass, as residual branches do.
void DlrmStep::norm_backward(const Layer& l, const LayerState& s, TensorId dy) {
  const std::int64_t rows = batch_ * list_.output(l).rows;
  const std::int64_t width = list_.output(l).columns;
  std::vector<TensorId> in{dy, value(l.in[0])};
  if (!s.parameters.empty()) {
    in.push_back(weight(s.parameters.front()));
  }
  in.push_back(s.saved);
  std::optional<TensorId>& other = gradient_of(l.in[0]);
  const TensorId dx = b_.activation(l.name + ".d_input", rows, width, compute_);
  std::vector<TensorId> out{dx};
  for (const std::size_t p : s.parameters) {
    out.push_back(gradient(p));
  }
  if (other) {
    in.push_back(*other);
    in.front() = dy = own(dy, l.name);  // it is used up
  }
  auto op = b_.op(OpKind::kNormBackward, l.name + ".backward", {rows, width})
                .variant(static_cast<std::uint8_t>(l.norm))
                .in(in)
                .out(out);
  if (other) {
    op.work(op.op().flops, op.op().bytes_read * 1.5, op.op().bytes_written);
    --holders_[*other];
    other.reset();
  }
  --holders_[dy];
  gradients_done(op, s.parameters);
  give_gradient(l.in[0], dx);
}

/// y = a b: d_a = d_y b^T, d_b = a^T d_y, and the transposes of both.
void DlrmStep::matmul_backward(const Layer& l, TensorId dy) {
  const LayerTensor& a = list_.input(l, 0);
  const std::int64_t m = list_.output(l).rows;
  const std::int64_t n = list_.output(l).columns;
  const std::int64_t k = l.transpose_a ? a.rows : a.columns;
  const auto flags = [](bool ta, bool tb) {
    return static_cast<std::uint8_t>((ta ? op_flags::kTransposeA : 0) |
                                     (tb ? op_flags::kTransposeB : 0));
  };
  const TensorId av = value(l.in[0]);
  const TensorId bv = value(l.in[1]);
  if (l.transpose_a) {  // a [k, m]: d_a = b d_y^T
    product_gradient(l.in[0], l.name + ".first_gradient", {k, m, n, batch_},
                     flags(l.transpose_b, true), bv, dy);
  } else {
    product_gradient(l.in[0], l.name + ".first_gradient", {m, k, n, batch_},
                     flags(false, !l.transpose_b), dy, bv);
  }
  if (l.transpose_b) {  // b [n, k]: d_b = d_y^T a
    product_gradient(l.in[1], l.name + ".second_gradient", {n, k, m, batch_},
                     flags(true, l.transpose_a), dy, av);
  } else {
    product_gradient(l.in[1], l.name + ".second_gradient", {k, n, m, batch_},
                     flags(!l.transpose_a, false), av, dy);
  }
  --holders_[dy];
}

/// The gradient of x_l starts as that of x_{l+1} and gains du U^T V^T in place; that of x_0 gathers
/// the products over all layers.
void DlrmStep::cross_backward(const Layer& l, const LayerState& s, TensorId dy) {
  const std::int64_t rows = batch_ * list_.output(l).rows;
  const std::int64_t width = list_.output(l).columns;
  const auto [bias, up, down] = std::array{s.parameters[0], s.parameters[1], s.parameters[2]};
  dy = own(dy, l.name);
  const bool first_known = list_.input(l).needs_gradient;
  const Target first = gradient_target(l.in[0], "cross.d_first");
  const TensorId d_projected = b_.activation(l.name + ".d_projected", rows, l.rank, compute_);
  auto cross = b_.op(OpKind::kCrossBackward, l.name + ".cross_backward", {rows, width})
                   .flags(first.accumulate ? op_flags::kAccumulate : std::uint8_t{0})
                   .in({value(l.in[0]), s.saved, weight(bias), dy})
                   .out({s.saved, first.tensor, gradient(bias)});
  gradients_done(cross, {bias});
  auto up_product = b_.op(OpKind::kGemm, l.name + ".up_gradient", {l.rank, width, rows, 1})
                        .flags(op_flags::kTransposeA)
                        .in({s.projected, s.saved})
                        .out({gradient(up)});
  gradients_done(up_product, {up});
  b_.op(OpKind::kGemm, l.name + ".up_backward", {rows, l.rank, width, 1})
      .flags(op_flags::kTransposeB)
      .in({s.saved, weight(up)})
      .out({d_projected});
  auto down_product = b_.op(OpKind::kGemm, l.name + ".down_gradient", {width, l.rank, rows, 1})
                          .flags(op_flags::kTransposeA)
                          .in({value(l.in[1]), d_projected})
                          .out({gradient(down)});
  gradients_done(down_product, {down});
  if (list_.input(l, 1).needs_gradient) {
    b_.op(OpKind::kGemm, l.name + ".down_backward", {rows, width, l.rank, 1})
        .flags(op_flags::kTransposeB | op_flags::kAccumulate)
        .in({d_projected, weight(down)})
        .out({dy});
  }
  --holders_[dy];
  if (first_known && !first.accumulate) {
    give_gradient(l.in[0], first.tensor);
  }
  give_gradient(l.in[1], dy);
}

void DlrmStep::convolution_backward(const Layer& l, const LayerState& s, TensorId dy) {
  const std::int64_t rows = batch_ * list_.output(l).rows;
  const std::int64_t width = list_.output(l).columns;
  const std::size_t matrix = s.parameters.back();
  if (l.bias) {
    auto op = b_.op(OpKind::kBiasActivationBackward, l.name + ".bias_backward", {rows, width})
                  .variant(as_variant(Activation::kNone))
                  .in({dy})
                  .out({dy, gradient(s.parameters.front())});
    gradients_done(op, {s.parameters.front()});
  }
  auto product = convolution(l, OpKind::kConvolutionWeightGradient, l.name + ".weight_gradient",
                             {value(l.in[0]), dy}, gradient(matrix));
  gradients_done(product, {matrix});
  if (list_.input(l).needs_gradient) {
    const LayerTensor& x = list_.input(l);
    const TensorId dx = b_.activation(l.name + ".d_input", batch_ * x.rows, x.columns, compute_);
    convolution(l, OpKind::kConvolutionInputGradient, l.name + ".input_gradient",
                {dy, weight(matrix)}, dx);
    give_gradient(l.in[0], dx);
  }
  --holders_[dy];
}

/// Against the order of the forward pass; the gradient of U is one product over all frames.
void DlrmStep::recurrent_backward(const Layer& l, const LayerState& s, TensorId dy) {
  const std::int64_t frames = list_.output(l).rows;
  const std::int64_t width = list_.output(l).columns;
  const auto [bias, matrix] = std::array{s.parameters[0], s.parameters[1]};
  dy = own(dy, l.name);
  const auto gradient_frame = [&](std::int64_t t) {
    const std::int64_t frame = l.reverse ? frames - 1 - t : t;
    return rows_of(dy, l.name + ".frame_gradient", frame * batch_, batch_, width);
  };
  TensorId now = gradient_frame(frames - 1);
  for (std::int64_t t = frames - 1; t >= 0; --t) {
    auto op =
        b_.op(OpKind::kBiasActivationBackward, l.name + ".activation_backward", {batch_, width})
            .variant(as_variant(l.activation))
            .in({now, s.frames[static_cast<std::size_t>(t)]})
            .out({now, gradient(bias)});
    if (t == 0) {
      gradients_done(op, {bias});
      break;
    }
    const TensorId before = gradient_frame(t - 1);
    b_.op(OpKind::kGemm, l.name + ".step_backward", {batch_, width, width, 1})
        .flags(op_flags::kTransposeB | op_flags::kAccumulate)
        .in({now, weight(matrix)})
        .out({before});
    now = before;
  }
  // h_(t-1)^T d_h_t over all t: rows [0, frames - 1) of one against [1, frames) of the other.
  const std::int64_t rows = (frames - 1) * batch_;
  const std::int64_t earlier = l.reverse ? batch_ : 0;
  auto product = b_.op(OpKind::kGemm, l.name + ".weight_gradient", {width, width, rows, 1})
                     .flags(op_flags::kTransposeA)
                     .in({rows_of(value(l.out), l.name + ".earlier", earlier, rows, width),
                          rows_of(dy, l.name + ".later_gradient", batch_ - earlier, rows, width)})
                     .out({gradient(matrix)});
  gradients_done(product, {matrix});
  --holders_[dy];
  give_gradient(l.in[0], dy);
}

/// Sum and copy are each other's gradients, gather and scatter too.
void DlrmStep::group_backward(const Layer& l, TensorId dy) {
  if (l.kind == LayerKind::kAllReduce) {
    --holders_[dy];
    give_gradient(l.in[0], dy);
    return;
  }
  const OpKind kind = l.kind == LayerKind::kCopyToGroup     ? OpKind::kAllReduce
                      : l.kind == LayerKind::kAllGather     ? OpKind::kReduceScatter
                      : l.kind == LayerKind::kReduceScatter ? OpKind::kAllGather
                                                            : OpKind::kAllToAll;
  const LayerTensor& x = list_.input(l);
  const TensorId dx = b_.activation(l.name + ".d_input", batch_ * x.rows, x.columns, compute_);
  collective(kind, l.name + ".backward", l, dy, dx);
  --holders_[dy];
  give_gradient(l.in[0], dx);
}

}  // namespace stepcast::workloads
