#include "core/error.h"
#include "core/graph/op_traits.h"
#include "workloads/dlrm/step.h"

// The backward pass of the dense half. A tensor that several layers read has the sum of their
// gradients; where two tensors share one gradient, no op may work on it in place.

namespace stepcast::workloads {

/// `id` holds (a part of) the gradient of tensor t.
void LayeredStep::give_gradient(std::int32_t t, TensorId id) {
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
  w_.compute(OpKind::kAdd, name, {rows, columns}).in({*held, id}).out({sum});
  --holders_[*held];
  held = sum;
  ++holders_[sum];
}

/// Tensor that a product writes the gradient of t to, and whether it adds to what is there.
LayeredStep::Target LayeredStep::gradient_target(std::int32_t t, const std::string& name) {
  std::optional<TensorId>& held = gradient_of(t);
  if (held && holders_[*held] == 1) {
    return {*held, true};
  }
  const LayerTensor& shape = list_.tensor(t);
  return {b_.activation(name, batch_ * shape.rows, shape.columns, compute_), false};
}

/// A gradient of t that ops add single columns to, zeroed when it is made.
TensorId LayeredStep::gradient_columns(std::int32_t t) {
  std::optional<TensorId>& held = gradient_of(t);
  const LayerTensor& shape = list_.tensor(t);
  if (held) {
    held = own(*held, list_.tensor(t).name);
    return *held;
  }
  const TensorId made =
      b_.activation(shape.name + ".gradient", batch_ * shape.rows, shape.columns, compute_);
  w_.compute(OpKind::kFill, shape.name + ".zero_gradient", {batch_ * shape.elements()}).out({made});
  held = made;
  ++holders_[made];
  return made;
}

/// The same values in a tensor that no other op reads.
TensorId LayeredStep::own(TensorId id, const std::string& name) {
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
void LayeredStep::product_gradient(std::int32_t t, const std::string& name,
                                   std::array<std::int64_t, 4> shape, std::uint8_t flags,
                                   TensorId a, TensorId b) {
  if (!list_.tensor(t).needs_gradient) {
    return;
  }
  const Target target = gradient_target(t, name);
  w_.compute(OpKind::kGemm, name, {shape[0], shape[1], shape[2], shape[3]})
      .flags(static_cast<std::uint8_t>(flags | (target.accumulate ? op_flags::kAccumulate : 0)))
      .in({a, b})
      .out({target.tensor});
  if (!target.accumulate) {
    give_gradient(t, target.tensor);
  }
}

/// A tensor for the gradient of `t`.
TensorId LayeredStep::gradient_like(const Layer& l, const char* what, std::int32_t t) {
  const LayerTensor& x = list_.tensor(t);
  return b_.activation(l.name + what, batch_ * x.rows, x.columns, compute_);
}

/// `dx` is the gradient of the first input; `dy` was read for the last time.
void LayeredStep::pass_on(const Layer& l, TensorId dy, TensorId dx) {
  --holders_[dy];
  give_gradient(l.in[0], dx);
}

void LayeredStep::tables_backward(const Layer& l, LayerState&, TensorId dy) {
  const TensorId before = split(dy);
  exchange_gradients();
  dense_gradient(EmbeddingRoute::kReplicated);
  --holders_[dy];
  if (!l.in.empty()) {
    give_gradient(l.in.front(), before);
  }
}

void LayeredStep::activation_backward(const Layer& l, LayerState&, TensorId dy) {
  const TensorId dx = gradient_like(l, ".d_input", l.in[0]);
  w_.compute(OpKind::kActivationBackward, l.name + ".backward",
             {output_rows(l), list_.output(l).columns})
      .attributes(ActivationAttributes{l.activation})
      .in({dy, value(l.in[0])})
      .out({dx});
  pass_on(l, dy, dx);
}

void LayeredStep::add_backward(const Layer& l, LayerState&, TensorId dy) {
  give_gradient(l.in[0], dy);
  --holders_[dy];
  give_gradient(l.in[1], dy);
}

void LayeredStep::multiply_backward(const Layer& l, LayerState&, TensorId dy) {
  const TensorId da = gradient_like(l, ".d_first", l.in[0]);
  const TensorId db = gradient_like(l, ".d_second", l.in[1]);
  w_.compute(OpKind::kMultiplyBackward, l.name + ".backward",
             {output_rows(l), list_.output(l).columns})
      .in({dy, value(l.in[0]), value(l.in[1])})
      .out({da, db});
  pass_on(l, dy, da);
  give_gradient(l.in[1], db);
}

void LayeredStep::concatenate_backward(const Layer& l, LayerState&, TensorId dy) {
  std::int64_t column = 0;
  for (const std::int32_t t : l.in) {
    const std::int64_t columns = list_.tensor(t).columns;
    if (list_.tensor(t).needs_gradient) {
      const TensorId part = gradient_like(l, ".part_gradient", t);
      copy_block(l.name + ".part", dy, part,
                 {.from_offset = column,
                  .from_pitch = list_.output(l).columns,
                  .to_pitch = columns,
                  .columns = columns},
                 output_rows(l), false);
      give_gradient(t, part);
    }
    column += columns;
  }
  --holders_[dy];
}

void LayeredStep::columns_backward(const Layer& l, LayerState&, TensorId dy) {
  const std::int64_t width = list_.output(l).columns;
  if (list_.input(l).needs_gradient) {
    copy_block(l.name + ".backward", dy, gradient_columns(l.in[0]),
               {.from_pitch = width,
                .to_offset = l.first,
                .to_pitch = list_.input(l).columns,
                .columns = width},
               output_rows(l), true);
  }
  --holders_[dy];
}

/// Its own tensor, so that no op works in place on what another name still needs.
void LayeredStep::reshape_backward(const Layer& l, LayerState&, TensorId dy) {
  const LayerTensor& x = list_.input(l);
  const TensorId whole = own(dy, l.name);
  give_gradient(l.in[0], rows_of(whole, l.name + ".gradient", 0, batch_ * x.rows, x.columns));
}

void LayeredStep::transpose_backward(const Layer& l, LayerState&, TensorId dy) {
  const TensorId dx = gradient_like(l, ".d_input", l.in[0]);
  transpose(l, l.name + ".backward", dy, dx, true);
  pass_on(l, dy, dx);
}

void LayeredStep::dot_backward(const Layer& l, LayerState&, TensorId dy) {
  const TensorId dx = gradient_like(l, ".d_input", l.in[0]);
  w_.compute(OpKind::kDotInteractionBackward, l.name + "_backward",
             {batch_, list_.input(l).elements() / l.dim, l.dim})
      .in({as_row(l, value(l.in[0])), dy})
      .out({as_row(l, dx)});
  pass_on(l, dy, dx);
}

void LayeredStep::write_attention_gradient(const Layer& l, const LayerState& s, TensorId out,
                                           TensorId dy, TensorId dx) {
  const Op like = attention_op(list_, l, batch_);
  attention(traits_of(like.kind).backward, l.name + ".backward", like)
      .in(l.heads.silu ? std::vector<TensorId>{value(l.in[0]), dy}
                       : std::vector<TensorId>{value(l.in[0]), out, s.saved, dy})
      .out({dx});
}

void LayeredStep::attention_backward(const Layer& l, LayerState& s, TensorId dy) {
  const TensorId dx = gradient_like(l, ".d_input", l.in[0]);
  write_attention_gradient(l, s, value(l.out), dy, dx);
  pass_on(l, dy, dx);
}

/// The norm's op writes the gradient of the gate, attention's those of the other columns.
void LayeredStep::gated_attention_backward(const Layer& l, LayerState& s, TensorId dy) {
  const std::int64_t rows = output_rows(l);
  const std::int64_t width = list_.output(l).columns;
  const TensorId dx = gradient_like(l, ".d_input", l.in[0]);
  const TensorId attended = b_.activation(l.name + ".d_attended", rows, width, compute_);
  std::vector<TensorId> in{dy, s.projected, weight(s.parameters.front()), s.statistics,
                           value(l.in[0])};
  std::vector<TensorId> out{attended};
  for (const std::size_t p : s.parameters) {
    out.push_back(gradient(p));
    if (p != s.parameters.front()) {
      in.push_back(weight(p));
    }
  }
  out.push_back(dx);
  auto op = w_.compute(OpKind::kNormBackward, l.name + ".norm_backward", {rows, width})
                .attributes(NormAttributes{l.norm})
                .in(in)
                .out(out);
  op.work(op.op().flops, op.op().bytes_read * 1.5, op.op().bytes_written * 2);
  gradients_done(s.parameters);
  write_attention_gradient(l, s, s.projected, attended, dx);
  pass_on(l, dy, dx);
}

void LayeredStep::rope_backward(const Layer& l, LayerState&, TensorId dy) {
  dy = own(dy, l.name);
  w_.compute(OpKind::kRopeBackward, l.name + ".backward",
             {output_rows(l), l.heads.heads + l.heads.kv_heads, l.heads.dim, l.heads.dim})
      .in({dy})
      .out({dy});
  pass_on(l, dy, dy);
}

void LayeredStep::token_embedding_backward(const Layer& l, LayerState& s, TensorId dy) {
  w_.compute(OpKind::kTokenEmbeddingBackward, l.name + ".gradient",
             {output_rows(l), list_.output(l).columns, l.vocabulary})
      .in({dy, value(l.in[0])})
      .out({gradient(s.parameters.front())});
  --holders_[dy];
  gradients_done(s.parameters);
}

void LayeredStep::softmax_backward(const Layer& l, LayerState&, TensorId dy) {
  const TensorId dx = gradient_like(l, ".d_input", l.in[0]);
  w_.compute(OpKind::kSoftmaxBackward, l.name + ".backward",
             {output_rows(l), list_.output(l).columns})
      .in({dy, value(l.out)})
      .out({dx});
  pass_on(l, dy, dx);
}

void LayeredStep::mean_rows_backward(const Layer& l, LayerState&, TensorId dy) {
  const LayerTensor& x = list_.input(l);
  const TensorId dx = gradient_like(l, ".d_input", l.in[0]);
  w_.compute(OpKind::kMeanRowsBackward, l.name + ".backward",
             {batch_ * x.rows, list_.output(l).columns, x.rows / list_.output(l).rows})
      .in({dy})
      .out({dx});
  pass_on(l, dy, dx);
}

void LayeredStep::modulate_backward(const Layer& l, LayerState&, TensorId dy) {
  const LayerTensor& y = list_.output(l);
  const TensorId dx = gradient_like(l, ".d_input", l.in[0]);
  const TensorId dc = gradient_columns(l.in[1]);
  w_.compute(OpKind::kModulateBackward, l.name + ".backward",
             {batch_ * y.rows, y.columns, y.rows, l.first, list_.input(l, 1).columns})
      .in({dy, value(l.in[0]), value(l.in[1])})
      .out({dx, dc});
  pass_on(l, dy, dx);
}

void LayeredStep::gate_backward(const Layer& l, LayerState&, TensorId dy) {
  const LayerTensor& y = list_.output(l);
  const TensorId branch = gradient_like(l, ".d_branch", l.in[1]);
  const TensorId dc = gradient_columns(l.in[2]);
  w_.compute(OpKind::kGateBackward, l.name + ".backward",
             {batch_ * y.rows, y.columns, y.rows, l.first, list_.input(l, 2).columns})
      .in({dy, value(l.in[1]), value(l.in[2])})
      .out({branch, dc});
  pass_on(l, dy, dy);
  give_gradient(l.in[1], branch);
}

void LayeredStep::positions_backward(const Layer& l, LayerState& s, TensorId dy) {
  const std::int64_t wide = list_.output(l).elements();
  const TensorId rows = rows_of(dy, l.name + ".wide_gradient", 0, batch_, wide);
  w_.compute(OpKind::kBiasActivationBackward, l.name + ".backward", {batch_, wide})
      .attributes(ActivationAttributes{Activation::kNone})
      .in({rows})
      .out({rows, gradient(s.parameters.front())});
  --holders_[dy];
  gradients_done(s.parameters);
  give_gradient(l.in[0], dy);
}

}  // namespace stepcast::workloads
