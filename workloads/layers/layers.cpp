#include <algorithm>

#include "core/error.h"
#include "workloads/dlrm/step.h"

// The forward pass of the dense half, layer by layer (core/job/layers.h).

namespace stepcast::workloads {

/// Causal kernels skip the masked half; unfused ones keep the whole score matrix.
LayeredStep::OpEdit LayeredStep::attention(OpKind kind, const std::string& name, const Op& like) {
  auto op = layer_op(kind, name, {});
  op.op().shape = like.shape;
  op.attributes(like.attributes)
      .flags(
          static_cast<std::uint8_t>(like.flags | (job_.flash_attention ? 0 : op_flags::kUnfused)));
  return op;
}

LayeredStep::OpEdit LayeredStep::layer_op(OpKind kind, const std::string& name,
                                          std::initializer_list<std::int64_t> shape) {
  auto op = w_.compute(kind, name, shape);
  if (reads_input_) {
    w_.follows(loaded_);
    reads_input_ = false;
  }
  return op;
}

/// The values of a list's tensor for the local batch.
TensorId LayeredStep::make_value(std::int32_t t, const std::string& name) {
  const LayerTensor& shape = list_.tensor(t);
  value(t) = b_.activation(name, batch_ * shape.rows, shape.columns, compute_);
  return value(t);
}

/// Rows [first, first + rows) of a tensor, with `columns` columns.
TensorId LayeredStep::rows_of(TensorId whole, const std::string& name, std::int64_t first,
                              std::int64_t rows, std::int64_t columns) {
  return b_.tensor({.name = name,
                    .role = TensorRole::kActivation,
                    .format = b_.tensor_at(whole).format,
                    .rows = rows,
                    .columns = columns,
                    .per_microbatch = true,
                    .pieces = {},
                    .view_of = static_cast<std::int32_t>(whole),
                    .view_offset = first * columns});
}

/// The rows of each sample of a layer's input side by side.
TensorId LayeredStep::as_row(const Layer& l, TensorId x) {
  const LayerTensor& shape = list_.input(l);
  return shape.rows == 1 ? x : rows_of(x, l.name + ".row", 0, batch_, shape.elements());
}

void LayeredStep::copy_block(const std::string& name, TensorId from, TensorId to, ColumnBlock block,
                             std::int64_t rows, bool accumulate) {
  const Bytes moved = format_bytes(compute_, rows, block.columns);
  const std::int64_t columns = block.columns;
  layer_op(OpKind::kCopyColumns, name, {rows, columns})
      .flags(accumulate ? op_flags::kAccumulate : std::uint8_t{0})
      .attributes(ColumnAttributes{b_.column_copy({block})})
      .in({from})
      .out({to})
      .work(Flops{}, accumulate ? moved * 2 : moved, moved);
}

void LayeredStep::linear_forward(const Layer& l, LayerState& s) {
  const std::int64_t rows = output_rows(l);
  const std::int64_t width = list_.output(l).columns;
  const TensorId y = make_value(l.out, l.name);
  layer_op(OpKind::kGemm, l.name + ".gemm", {rows, width, list_.input(l).columns, 1})
      .in({value(l.in[0]), weight(s.parameters.back())})
      .out({y});
  if (l.bias) {
    layer_op(OpKind::kBiasActivationForward,
             l.name + (l.activation == Activation::kRelu ? ".relu" : ".bias"), {rows, width})
        .attributes(ActivationAttributes{l.activation})
        .in({y, weight(s.parameters.front())})
        .out({y});
  }
}

void LayeredStep::activation_forward(const Layer& l, LayerState&) {
  layer_op(OpKind::kActivationForward, l.name, {output_rows(l), list_.output(l).columns})
      .attributes(ActivationAttributes{l.activation})
      .in({value(l.in[0])})
      .out({make_value(l.out, l.name)});
}

void LayeredStep::norm_forward(const Layer& l, LayerState& s) {
  s.saved = b_.activation(l.name + ".statistics", output_rows(l), 2, Format::kFp32);
  std::vector<TensorId> in{value(l.in[0])};
  for (const std::size_t p : s.parameters) {
    in.push_back(weight(p));
  }
  layer_op(OpKind::kNormForward, l.name, {output_rows(l), list_.output(l).columns})
      .attributes(NormAttributes{l.norm})
      .in(in)
      .out({make_value(l.out, l.name), s.saved});
}

void LayeredStep::elementwise_forward(const Layer& l, LayerState&) {
  layer_op(l.kind == LayerKind::kAdd ? OpKind::kAdd : OpKind::kMultiplyForward, l.name,
           {output_rows(l), list_.output(l).columns})
      .in({value(l.in[0]), value(l.in[1])})
      .out({make_value(l.out, l.name)});
}

void LayeredStep::columns_forward(const Layer& l, LayerState&) {
  const std::int64_t width = list_.output(l).columns;
  copy_block(l.name, value(l.in[0]), make_value(l.out, l.name),
             {.from_offset = l.first,
              .from_pitch = list_.input(l).columns,
              .to_pitch = width,
              .columns = width},
             output_rows(l), false);
}

void LayeredStep::reshape_forward(const Layer& l, LayerState&) {
  value(l.out) = rows_of(value(l.in[0]), l.name, 0, output_rows(l), list_.output(l).columns);
}

void LayeredStep::transpose_forward(const Layer& l, LayerState&) {
  transpose(l, l.name, value(l.in[0]), make_value(l.out, l.name), false);
}

void LayeredStep::matmul_forward(const Layer& l, LayerState&) {
  const LayerTensor& a = list_.input(l);
  const LayerTensor& y = list_.output(l);
  layer_op(OpKind::kGemm, l.name, {y.rows, y.columns, l.transpose_a ? a.rows : a.columns, batch_})
      .flags(static_cast<std::uint8_t>((l.transpose_a ? op_flags::kTransposeA : 0) |
                                       (l.transpose_b ? op_flags::kTransposeB : 0)))
      .in({value(l.in[0]), value(l.in[1])})
      .out({make_value(l.out, l.name)});
}

void LayeredStep::dot_forward(const Layer& l, LayerState&) {
  layer_op(OpKind::kDotInteractionForward, l.name,
           {batch_, list_.input(l).elements() / l.dim, l.dim})
      .in({as_row(l, value(l.in[0]))})
      .out({make_value(l.out, l.name)});
}

/// SiLU leaves no statistics.
void LayeredStep::write_attention(const Layer& l, LayerState& s, TensorId out) {
  const std::int64_t length = list_.output(l).rows;
  std::vector<TensorId> made{out};
  if (!l.heads.silu) {
    s.saved =
        job_.flash_attention
            ? b_.activation(l.name + ".log_sum_exp", batch_ * l.heads.heads, length, Format::kFp32)
            : b_.activation(l.name + ".scores", batch_ * l.heads.heads * length, length, compute_);
    made.push_back(s.saved);
  }
  const Op like = attention_op(list_, l, batch_);
  attention(like.kind, l.name, like).in({value(l.in[0])}).out(made);
}

void LayeredStep::attention_forward(const Layer& l, LayerState& s) {
  write_attention(l, s, make_value(l.out, l.name));
}

void LayeredStep::gated_attention_forward(const Layer& l, LayerState& s) {
  const std::int64_t rows = output_rows(l);
  const std::int64_t width = list_.output(l).columns;
  s.projected = b_.activation(l.name + ".attended", rows, width, compute_);
  write_attention(l, s, s.projected);
  s.statistics = b_.activation(l.name + ".statistics", rows, 2, Format::kFp32);
  std::vector<TensorId> in{s.projected};
  for (const std::size_t p : s.parameters) {
    in.push_back(weight(p));
  }
  in.push_back(value(l.in[0]));
  auto op = layer_op(OpKind::kNormForward, l.name + ".norm", {rows, width})
                .attributes(NormAttributes{l.norm})
                .in(in)
                .out({make_value(l.out, l.name), s.statistics});
  op.work(op.op().flops, op.op().bytes_read * 2, op.op().bytes_written);  // the gate too
}

void LayeredStep::token_embedding_forward(const Layer& l, LayerState& s) {
  layer_op(OpKind::kTokenEmbeddingForward, l.name,
           {output_rows(l), list_.output(l).columns, l.vocabulary})
      .in({weight(s.parameters.front()), value(l.in[0])})
      .out({make_value(l.out, l.name)});
}

void LayeredStep::softmax_forward(const Layer& l, LayerState&) {
  layer_op(OpKind::kSoftmaxForward, l.name, {output_rows(l), list_.output(l).columns})
      .in({value(l.in[0])})
      .out({make_value(l.out, l.name)});
}

void LayeredStep::mean_rows_forward(const Layer& l, LayerState&) {
  const LayerTensor& x = list_.input(l);
  layer_op(OpKind::kMeanRowsForward, l.name,
           {batch_ * x.rows, list_.output(l).columns, x.rows / list_.output(l).rows})
      .in({value(l.in[0])})
      .out({make_value(l.out, l.name)});
}

void LayeredStep::modulate_forward(const Layer& l, LayerState&) {
  const LayerTensor& y = list_.output(l);
  layer_op(OpKind::kModulateForward, l.name,
           {batch_ * y.rows, y.columns, y.rows, l.first, list_.input(l, 1).columns})
      .in({value(l.in[0]), value(l.in[1])})
      .out({make_value(l.out, l.name)});
}

void LayeredStep::gate_forward(const Layer& l, LayerState&) {
  const LayerTensor& y = list_.output(l);
  layer_op(OpKind::kGateForward, l.name,
           {batch_ * y.rows, y.columns, y.rows, l.first, list_.input(l, 2).columns})
      .in({value(l.in[0]), value(l.in[1]), value(l.in[2])})
      .out({make_value(l.out, l.name)});
}

/// A bias as wide as a sample.
void LayeredStep::positions_forward(const Layer& l, LayerState& s) {
  const std::int64_t wide = list_.output(l).elements();
  const TensorId y = make_value(l.out, l.name);
  layer_op(OpKind::kBiasActivationForward, l.name, {batch_, wide})
      .attributes(ActivationAttributes{Activation::kNone})
      .in({rows_of(value(l.in[0]), l.name + ".wide_input", 0, batch_, wide),
           weight(s.parameters.front())})
      .out({rows_of(y, l.name + ".wide", 0, batch_, wide)});
}

void LayeredStep::convolution_forward(const Layer& l, LayerState& s) {
  convolution(l, OpKind::kConvolutionForward, l.name, {value(l.in[0]), weight(s.parameters.back())},
              make_value(l.out, l.name));
  if (l.bias) {
    layer_op(OpKind::kBiasActivationForward, l.name + ".bias",
             {output_rows(l), list_.output(l).columns})
        .in({value(l.out), weight(s.parameters.front())})
        .out({value(l.out)});
  }
}

/// In place where nothing else needs what was there.
void LayeredStep::rope_forward(const Layer& l, LayerState&) {
  const std::int64_t rows = batch_ * list_.output(l).rows;
  const std::int64_t width = list_.output(l).columns;
  const std::int32_t x = l.in.front();
  int readers = 0;
  bool spare = false;
  for (const Layer& other : list_.layers) {
    readers += static_cast<int>(std::count(other.in.begin(), other.in.end(), x));
    spare = spare || (other.out == x && other.kind == LayerKind::kLinear &&
                      other.activation == Activation::kNone);
  }
  if (spare && readers == 1) {
    value(l.out) = value(x);
  } else {
    copy_block(l.name + ".copy", value(x), make_value(l.out, l.name),
               {.from_pitch = width, .to_pitch = width, .columns = width}, rows, false);
  }
  layer_op(OpKind::kRopeForward, l.name,
           {rows, l.heads.heads + l.heads.kv_heads, l.heads.dim, l.heads.dim})
      .in({value(l.out)})
      .out({value(l.out)});
}

void LayeredStep::tables_forward(const Layer& l, LayerState&) {
  const TensorId before = l.in.empty() ? kNoTensor : value(l.in.front());
  value(l.out) = assemble(before);
}

void LayeredStep::concatenate_forward(const Layer& l, LayerState&) {
  const LayerTensor& shape = list_.output(l);
  const std::int64_t rows = batch_ * shape.rows;
  std::vector<TensorId> in;
  std::vector<ColumnBlock> blocks;
  std::int64_t column = 0;
  for (const std::int32_t t : l.in) {
    const std::int64_t columns = list_.tensor(t).columns;
    blocks.push_back({.input = static_cast<std::int32_t>(in.size()),
                      .from_pitch = columns,
                      .to_offset = column,
                      .to_pitch = shape.columns,
                      .columns = columns});
    in.push_back(value(t));
    column += columns;
  }
  layer_op(OpKind::kCopyColumns, l.name, {rows, shape.columns})
      .attributes(ColumnAttributes{b_.column_copy(std::move(blocks))})
      .in(in)
      .out({make_value(l.out, l.name)});
}

/// Rows and columns of every sample, or samples and frames of the batch.
void LayeredStep::transpose(const Layer& l, const std::string& name, TensorId from, TensorId to,
                            bool back) {
  const LayerTensor& x = list_.input(l);
  std::int64_t rows = x.rows;
  std::int64_t columns = x.columns;
  std::int64_t inner = 1;
  if (l.kind != LayerKind::kTranspose) {
    rows = l.kind == LayerKind::kTimeMajor ? batch_ : x.rows;
    columns = l.kind == LayerKind::kTimeMajor ? x.rows : batch_;
    inner = x.columns;
  }
  if (back) {
    std::swap(rows, columns);
  }
  layer_op(OpKind::kTranspose, name, {batch_ * x.elements() / inner, inner, rows, columns})
      .in({from})
      .out({to});
}

/// x_{l+1} = x_0 * (x_l V U + bias) + x_l.
void LayeredStep::cross_forward(const Layer& l, LayerState& s) {
  const std::int64_t rows = batch_ * list_.output(l).rows;
  const std::int64_t width = list_.output(l).columns;
  const TensorId first = value(l.in[0]);
  const TensorId x = value(l.in[1]);
  s.projected = b_.activation(l.name + ".projected", rows, l.rank, compute_);
  s.saved = b_.activation(l.name + ".u", rows, width, compute_);
  const TensorId y = make_value(l.out, l.name);
  layer_op(OpKind::kGemm, l.name + ".down", {rows, l.rank, width, 1})
      .in({x, weight(s.parameters[2])})
      .out({s.projected});
  layer_op(OpKind::kGemm, l.name + ".up", {rows, width, l.rank, 1})
      .in({s.projected, weight(s.parameters[1])})
      .out({s.saved});
  layer_op(OpKind::kCrossForward, l.name + ".cross", {rows, width})
      .in({first, s.saved, weight(s.parameters[0]), x})
      .out({y});
}

/// A product whose left matrix is gathered from the grid as it is read: each input element once
/// from memory.
LayeredStep::OpEdit LayeredStep::convolution(const Layer& l, OpKind kind, const std::string& name,
                                             const std::vector<TensorId>& in, TensorId out) {
  const LayerTensor& x = list_.input(l);
  const LayerTensor& y = list_.output(l);
  const std::int64_t positions = batch_ * y.rows;
  const std::int64_t gathered = x.columns * l.kernel[0] * l.kernel[1];
  const std::int64_t m = kind == OpKind::kConvolutionWeightGradient ? gathered : positions;
  const std::int64_t n = kind == OpKind::kConvolutionInputGradient ? gathered : y.columns;
  const std::int64_t k = kind == OpKind::kConvolutionForward         ? gathered
                         : kind == OpKind::kConvolutionInputGradient ? y.columns
                                                                     : positions;
  Bytes read;
  for (const TensorId t : in) {
    read += b_.tensor_at(t).bytes();
  }
  auto op = layer_op(kind, name, {m, n, k, 1}).in(in).out({out});
  op.work(op.op().flops, read, b_.tensor_at(out).bytes());
  return op;
}

/// Frame by frame: h_t = act(x_t + h_(t-1) U + bias); frames are rows of the whole batch.
void LayeredStep::recurrent_forward(const Layer& l, LayerState& s) {
  const std::int64_t frames = list_.output(l).rows;
  const std::int64_t width = list_.output(l).columns;
  const TensorId y = make_value(l.out, l.name);
  copy_block(l.name + ".start", value(l.in[0]), y,
             {.from_pitch = width, .to_pitch = width, .columns = width}, frames * batch_, false);
  for (std::int64_t t = 0; t < frames; ++t) {
    const std::int64_t frame = l.reverse ? frames - 1 - t : t;
    const TensorId h = rows_of(y, l.name + ".frame", frame * batch_, batch_, width);
    if (t > 0) {
      layer_op(OpKind::kGemm, l.name + ".step", {batch_, width, width, 1})
          .flags(op_flags::kAccumulate)
          .in({s.frames.back(), weight(s.parameters[1])})
          .out({h});
    }
    layer_op(OpKind::kBiasActivationForward, l.name + ".activation", {batch_, width})
        .attributes(ActivationAttributes{l.activation})
        .in({h, weight(s.parameters[0])})
        .out({h});
    s.frames.push_back(h);
  }
}

LayeredStep::OpEdit LayeredStep::collective(OpKind kind, const std::string& name, const Layer& l,
                                            TensorId from, TensorId to) {
  const std::int64_t elements =
      std::max(b_.tensor_at(from).elements(), b_.tensor_at(to).elements());
  return layer_op(kind, name, {elements})
      .communicator(comm_.first_group + l.group)
      .in({from})
      .out({to});
}

void LayeredStep::group_forward(const Layer& l, LayerState&) {
  const TensorId x = value(l.in[0]);
  if (l.kind == LayerKind::kCopyToGroup) {
    value(l.out) = x;
    return;
  }
  const OpKind kind = l.kind == LayerKind::kAllReduce       ? OpKind::kAllReduce
                      : l.kind == LayerKind::kAllGather     ? OpKind::kAllGather
                      : l.kind == LayerKind::kReduceScatter ? OpKind::kReduceScatter
                                                            : OpKind::kAllToAll;
  collective(kind, l.name, l, x, make_value(l.out, l.name));
}

/// Logits become their gradient. Without labels row i of all ranks together is of class i.
void LayeredStep::softmax_loss(const Layer& l, TensorId logits, std::optional<TensorId> labels) {
  const std::int64_t rows = b_.tensor_at(logits).rows;
  const std::int64_t width = b_.tensor_at(logits).columns;
  const TensorId maxima = b_.activation(l.name + ".maxima", rows, 1, Format::kFp32);
  const TensorId sums = b_.activation(l.name + ".sums", 2, rows, Format::kFp32);
  const auto read = [&](std::vector<TensorId> in) {
    if (labels) {
      in.push_back(*labels);
    }
    return in;
  };
  layer_op(OpKind::kCrossEntropyMax, l.name + ".max", {rows, width})
      .in({logits})
      .out({maxima})
      .format(Format::kFp32);
  layer_op(OpKind::kCrossEntropySum, l.name + ".sum", {rows, width})
      .in(read({logits, maxima}))
      .out({sums})
      .format(Format::kFp32);
  layer_op(OpKind::kCrossEntropyLoss, l.name + ".gradient", {rows, width})
      .in(read({logits, maxima, sums}))
      .out({logits})
      .format(Format::kFp32);
}

/// Queries of this rank against the items of all: rows of each kind rank by rank, then the next.
void LayeredStep::score_items(const Layer& l, LayerState& s, std::optional<TensorId> corrections) {
  const LayerTensor& query = list_.input(l);
  const std::int64_t rows = batch_ * query.rows;
  const std::int64_t width = global_batch_ * scored_items(list_, l);
  const auto gather = [&](const std::string& name, TensorId from, TensorId whole,
                          std::int64_t first) {
    const std::int64_t columns = b_.tensor_at(whole).columns;
    const std::int64_t own = b_.tensor_at(from).rows;
    const TensorId to = rows_of(whole, name + ".of_ranks", first, own * replicas_, columns);
    if (replicas_ == 1) {
      copy_block(name, from, to, {.from_pitch = columns, .to_pitch = columns, .columns = columns},
                 own, false);
    } else {
      layer_op(OpKind::kAllGather, name, {own * replicas_ * columns})
          .communicator(comm_.items)
          .in({from})
          .out({to});
    }
  };
  s.projected = b_.activation(l.name + ".items", width, query.columns, compute_);
  s.saved = b_.activation(l.name + ".logits", rows, width, compute_);
  std::int64_t first = 0;
  for (std::size_t i = 1; i < l.in.size(); ++i) {
    gather(l.name + ".all_gather", value(l.in[i]), s.projected, first);
    first += global_batch_ * list_.input(l, i).rows;
  }
  layer_op(OpKind::kGemm, l.name + ".scores", {rows, width, query.columns, 1})
      .flags(op_flags::kTransposeB)
      .in({value(l.in[0]), s.projected})
      .out({s.saved});
  if (corrections) {
    const TensorId all = b_.activation(l.name + ".log_q", width, 1, Format::kFp32);
    first = 0;
    for (std::size_t i = 1; i < l.in.size(); ++i) {
      const std::int64_t own = batch_ * list_.input(l, i).rows;
      gather(l.name + ".log_q.all_gather",
             rows_of(*corrections, l.name + ".own_log_q", first / replicas_, own, 1), all, first);
      first += own * replicas_;
    }
    layer_op(OpKind::kBiasActivationForward, l.name + ".correct", {rows, width})
        .attributes(ActivationAttributes{Activation::kNone})
        .in({s.saved, rows_of(all, l.name + ".corrections", 0, 1, width)})
        .out({s.saved});
  }
  softmax_loss(l, s.saved, std::nullopt);
}

void LayeredStep::scored_items_backward(const Layer& l, const LayerState& s) {
  const LayerTensor& query = list_.input(l);
  const std::int64_t rows = batch_ * query.rows;
  const std::int64_t width = b_.tensor_at(s.saved).columns;
  const TensorId all = b_.activation(l.name + ".items.gradient", width, query.columns, compute_);
  w_.compute(OpKind::kGemm, l.name + ".item_gradient", {width, query.columns, rows, 1})
      .flags(op_flags::kTransposeA)
      .in({s.saved, value(l.in[0])})
      .out({all});
  product_gradient(l.in[0], l.name + ".query_gradient", {rows, query.columns, width, 1}, 0, s.saved,
                   s.projected);
  std::int64_t first = 0;
  for (std::size_t i = 1; i < l.in.size(); ++i) {
    const std::int64_t of_ranks = global_batch_ * list_.input(l, i).rows;
    const TensorId from =
        rows_of(all, l.name + ".gradient.of_ranks", first, of_ranks, query.columns);
    first += of_ranks;
    if (replicas_ == 1) {
      give_gradient(l.in[i], from);
      continue;
    }
    const TensorId own = gradient_like(l, ".d_item", l.in[i]);
    w_.compute(OpKind::kReduceScatter, l.name + ".reduce_scatter", {of_ranks * query.columns})
        .communicator(comm_.items)
        .in({from})
        .out({own});
    give_gradient(l.in[i], own);
  }
}

/// Losses are means over the global batch; each leaves the gradient of what it reads.
void LayeredStep::loss(std::size_t index) {
  const Layer& l = list_.layers[index];
  if (l.kind == LayerKind::kInBatchSoftmax) {
    score_items(l, layer_states_[index],
                l.labels > 0 ? std::optional(labels_[index]) : std::nullopt);
    return;
  }
  const LayerTensor& shape = list_.input(l);
  const std::int64_t rows = batch_ * shape.rows;
  const std::int64_t width = shape.columns;
  const TensorId logits = value(l.in.front());
  const TensorId labels = labels_[index];
  if (l.kind == LayerKind::kCrossEntropy) {
    softmax_loss(l, logits, labels_[index]);
    give_gradient(l.in.front(), logits);
    return;
  }
  const TensorId gradient =
      b_.activation(list_.tensor(l.in.front()).name + ".loss_gradient", rows, width, compute_);
  if (l.kind == LayerKind::kBinaryCrossEntropy) {
    layer_op(OpKind::kBinaryCrossEntropy, l.name, {rows, width})
        .in({logits, labels})
        .out({gradient});
  } else if (l.kind == LayerKind::kMeanSquaredError) {
    layer_op(OpKind::kMeanSquaredError, l.name, {rows, width}).in({logits, labels}).out({gradient});
  } else {
    layer_op(OpKind::kConnectionistLoss, l.name, {rows, width, l.labels})
        .in({logits, labels})
        .out({gradient});
  }
  give_gradient(l.in.front(), gradient);
}

}  // namespace stepcast::workloads
