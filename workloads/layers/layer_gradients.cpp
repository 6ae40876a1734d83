#include "core/error.h"
#include "workloads/dlrm/step.h"

// Gradients of the layers that have parameters or mix samples.

namespace stepcast::workloads {

void LayeredStep::linear_backward(const Layer& l, LayerState& s, TensorId dy) {
  const std::int64_t rows = batch_ * list_.output(l).rows;
  const std::int64_t out = list_.output(l).columns;
  const std::int64_t in = list_.input(l).columns;
  const std::size_t matrix = s.parameters.back();
  if (l.bias) {
    dy = l.activation == Activation::kNone ? dy : own(dy, l.name);
    w_.compute(OpKind::kBiasActivationBackward, l.name + ".bias_backward", {rows, out})
        .attributes(ActivationAttributes{l.activation})
        .in({dy, value(l.out)})
        .out({dy, gradient(s.parameters.front())});
    gradients_done({s.parameters.front()});
  }
  w_.compute(OpKind::kGemm, l.name + ".weight_gradient", {in, out, rows, 1})
      .flags(op_flags::kTransposeA)
      .in({value(l.in[0]), dy})
      .out({gradient(matrix)});
  gradients_done({matrix});
  product_gradient(l.in[0], l.name + ".input_gradient", {rows, in, out, 1}, op_flags::kTransposeB,
                   dy, weight(matrix));
  --holders_[dy];
}

/// Adds what else reads the input in the same pass, as residual branches do.
void LayeredStep::norm_backward(const Layer& l, LayerState& s, TensorId dy) {
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
  auto op = w_.compute(OpKind::kNormBackward, l.name + ".backward", {rows, width})
                .attributes(NormAttributes{l.norm})
                .in(in)
                .out(out);
  if (other) {
    op.work(op.op().flops, op.op().bytes_read * 1.5, op.op().bytes_written);
    --holders_[*other];
    other.reset();
  }
  --holders_[dy];
  gradients_done(s.parameters);
  give_gradient(l.in[0], dx);
}

/// y = a b: d_a = d_y b^T, d_b = a^T d_y, and the transposes of both.
void LayeredStep::matmul_backward(const Layer& l, LayerState&, TensorId dy) {
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
void LayeredStep::cross_backward(const Layer& l, LayerState& s, TensorId dy) {
  const std::int64_t rows = batch_ * list_.output(l).rows;
  const std::int64_t width = list_.output(l).columns;
  const auto [bias, up, down] = std::array{s.parameters[0], s.parameters[1], s.parameters[2]};
  dy = own(dy, l.name);
  const bool first_known = list_.input(l).needs_gradient;
  const Target first = gradient_target(l.in[0], "cross.d_first");
  const TensorId d_projected = b_.activation(l.name + ".d_projected", rows, l.rank, compute_);
  w_.compute(OpKind::kCrossBackward, l.name + ".cross_backward", {rows, width})
      .flags(first.accumulate ? op_flags::kAccumulate : std::uint8_t{0})
      .in({value(l.in[0]), s.saved, weight(bias), dy})
      .out({s.saved, first.tensor, gradient(bias)});
  gradients_done({bias});
  w_.compute(OpKind::kGemm, l.name + ".up_gradient", {l.rank, width, rows, 1})
      .flags(op_flags::kTransposeA)
      .in({s.projected, s.saved})
      .out({gradient(up)});
  gradients_done({up});
  w_.compute(OpKind::kGemm, l.name + ".up_backward", {rows, l.rank, width, 1})
      .flags(op_flags::kTransposeB)
      .in({s.saved, weight(up)})
      .out({d_projected});
  w_.compute(OpKind::kGemm, l.name + ".down_gradient", {width, l.rank, rows, 1})
      .flags(op_flags::kTransposeA)
      .in({value(l.in[1]), d_projected})
      .out({gradient(down)});
  gradients_done({down});
  if (list_.input(l, 1).needs_gradient) {
    w_.compute(OpKind::kGemm, l.name + ".down_backward", {rows, width, l.rank, 1})
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

void LayeredStep::convolution_backward(const Layer& l, LayerState& s, TensorId dy) {
  const std::int64_t rows = batch_ * list_.output(l).rows;
  const std::int64_t width = list_.output(l).columns;
  const std::size_t matrix = s.parameters.back();
  if (l.bias) {
    w_.compute(OpKind::kBiasActivationBackward, l.name + ".bias_backward", {rows, width})
        .attributes(ActivationAttributes{Activation::kNone})
        .in({dy})
        .out({dy, gradient(s.parameters.front())});
    gradients_done({s.parameters.front()});
  }
  convolution(l, OpKind::kConvolutionWeightGradient, l.name + ".weight_gradient",
              {value(l.in[0]), dy}, gradient(matrix));
  gradients_done({matrix});
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
void LayeredStep::recurrent_backward(const Layer& l, LayerState& s, TensorId dy) {
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
    w_.compute(OpKind::kBiasActivationBackward, l.name + ".activation_backward", {batch_, width})
        .attributes(ActivationAttributes{l.activation})
        .in({now, s.frames[static_cast<std::size_t>(t)]})
        .out({now, gradient(bias)});
    if (t == 0) {
      gradients_done({bias});
      break;
    }
    const TensorId before = gradient_frame(t - 1);
    w_.compute(OpKind::kGemm, l.name + ".step_backward", {batch_, width, width, 1})
        .flags(op_flags::kTransposeB | op_flags::kAccumulate)
        .in({now, weight(matrix)})
        .out({before});
    now = before;
  }
  // h_(t-1)^T d_h_t over all t: rows [0, frames - 1) of one against [1, frames) of the other.
  const std::int64_t rows = (frames - 1) * batch_;
  const std::int64_t earlier = l.reverse ? batch_ : 0;
  w_.compute(OpKind::kGemm, l.name + ".weight_gradient", {width, width, rows, 1})
      .flags(op_flags::kTransposeA)
      .in({rows_of(value(l.out), l.name + ".earlier", earlier, rows, width),
           rows_of(dy, l.name + ".later_gradient", batch_ - earlier, rows, width)})
      .out({gradient(matrix)});
  gradients_done({matrix});
  --holders_[dy];
  give_gradient(l.in[0], dy);
}

/// Sum and copy are each other's gradients, gather and scatter too.
void LayeredStep::group_backward(const Layer& l, LayerState&, TensorId dy) {
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
