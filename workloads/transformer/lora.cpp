#include <fmt/format.h>

#include <cmath>

#include "workloads/transformer/stage.h"

// Low-rank adapters: y = x W + alpha / rank * (dropout(x) A) B, W not trained (arXiv 2106.09685).
//
// On a matrix whose columns are split over tensor ranks (qkv, fc1) A is whole on each, B split
// the same way: the adapter adds to what the base product makes, forward and backward, and its
// share of the input's gradient travels in the base's sum. On one split by rows (projection, fc2) A
// is split the same way and B whole: dropout(x) A is summed over tensor ranks, `rank` columns wide,
// and the adapter adds to this rank's rows of the base's sum. Source: NVIDIA NeMo,
// collections/llm/peft/lora.py and megatron_gpt_peft, ParallelLinearAdapter.
namespace stepcast::workloads {

using op_flags::kAccumulate;

namespace {

ParameterSpec matrix(const std::string& name, std::int64_t rows, std::int64_t columns, double scale,
                     GradientSum sum) {
  ParameterPiece p;
  p.key = parameter_key(name);
  p.columns = columns;
  p.scale = scale;
  return {name, rows, columns, {p}, sum, Replicas::kData, kHeadUnit};
}

}  // namespace

/// Only adapters are trained.
void TransformerStage::freeze(std::vector<ParameterSpec>& specs, std::size_t first,
                              bool of_layer) const {
  for (std::size_t i = first; job_.lora && i < specs.size(); ++i) {
    const bool narrow = of_layer && specs[i].rows > 1;
    specs[i].sum = narrow ? GradientSum::kFrozenNarrow : GradientSum::kFrozen;
    specs[i].stored = narrow ? job_.formats.frozen : std::nullopt;
  }
}

void TransformerStage::add_adapter_parameters(const std::string& at,
                                              std::vector<ParameterSpec>& specs) const {
  const Lora& l = *job_.lora;
  const std::int64_t h = shape_.model.hidden;
  const auto add = [&](bool has, const char* name, std::int64_t inputs, std::int64_t outputs,
                       bool by_rows) {
    if (!has) {
      return;
    }
    const GradientSum partial = shape_.tensor > 1 ? GradientSum::kOverTensor : GradientSum::kNone;
    const GradientSum rows = shape_.sequence_parallel ? partial : GradientSum::kNone;
    ParameterSpec a =
        matrix(at + name + ".lora_a", inputs, l.rank, std::sqrt(3.0 / static_cast<double>(inputs)),
               by_rows ? GradientSum::kNone : partial);
    ParameterSpec b =
        matrix(at + name + ".lora_b", l.rank, outputs, 0, by_rows ? rows : GradientSum::kNone);
    if (by_rows) {
      a.pieces.front().tensor_row_step = inputs;
    } else {
      b.pieces.front().tensor_column_step = outputs;
    }
    specs.push_back(std::move(b));
    specs.push_back(std::move(a));
  };
  add(l.fc2, "mlp.fc2", shape_.ffn, h, true);
  add(l.fc1, "mlp.fc1", h, shape_.fc1_width, false);
  add(l.projection, "attention.projection", shape_.query_width, h, true);
  add(l.qkv, "attention.qkv", h, shape_.qkv_width, false);
}

/// Tensors that the forward pass keeps of one adapter. Where x is a workspace or needed by nothing
/// else, it is the dropped copy that stays.
TransformerStage::Adapter TransformerStage::adapter(bool keep, const std::string& at,
                                                    const char* name, std::int64_t inputs,
                                                    std::int64_t outputs, bool by_rows) {
  Adapter a;
  a.parameter = at + name;
  a.op = std::string("lora") + std::string(name).substr(std::string(name).rfind('.'));
  a.inputs = inputs;
  a.outputs = outputs;
  a.by_rows = by_rows;
  a.low = kept(keep, a.parameter + ".lora", by_rows ? shape_.rows : shape_.tokens, job_.lora->rank,
               compute_);
  if (job_.lora->dropout > 0) {
    a.dropped = kept(keep, a.parameter + ".lora_input", shape_.tokens, inputs, compute_);
    a.mask = kept(keep, a.parameter + ".lora_mask", shape_.tokens, inputs, Format::kInt8);
  }
  return a;
}

void TransformerStage::adapter_tensors(const std::string& at, bool keep, LayerTensors& t) {
  if (!job_.lora) {
    return;
  }
  const Lora& l = *job_.lora;
  const std::int64_t h = shape_.model.hidden;
  if (l.qkv) {
    t.adapters.qkv = adapter(keep, at, "attention.qkv", h, shape_.qkv_width, false);
  }
  if (l.projection) {
    t.adapters.projection = adapter(keep, at, "attention.projection", shape_.query_width, h, true);
  }
  if (l.fc1) {
    t.adapters.fc1 = adapter(keep, at, "mlp.fc1", h, shape_.fc1_width, false);
  }
  if (l.fc2) {
    t.adapters.fc2 = adapter(keep, at, "mlp.fc2", shape_.ffn, h, true);
  }
}

/// Reads and writes some tensors of `rows` x `columns` so many times.
void TransformerStage::pass_over(const std::string& name, std::int64_t rows, std::int64_t columns,
                                 const std::vector<TensorId>& in, const std::vector<TensorId>& out,
                                 double read, double written) {
  const double bytes = static_cast<double>(rows * columns);
  auto op = writer_.compute(OpKind::kAdd, name, {rows, columns});
  op.in(in).out(out);
  op.work(op.op().flops, Bytes(bytes * read), Bytes(bytes * written));
}

TransformerStage::AdapterExtent TransformerStage::extent_of(const Adapter& a) const {
  return {a, job_.lora->rank, shape_.tokens, a.by_rows ? shape_.rows : shape_.tokens,
          bits_per_element(compute_) / 8};
}

/// Adds to `out`: all tokens of a column-split product, this rank's rows of a row-split one.
void TransformerStage::adapter_forward(const std::optional<Adapter>& adapter, TensorId in,
                                       TensorId out) {
  if (!adapter) {
    return;
  }
  const auto& [a, r, n, rows, each] = extent_of(*adapter);
  TensorId x = in;
  if (job_.lora->dropout > 0) {
    pass_over(a.op + ".dropout", n, a.inputs, {in}, {a.dropped, a.mask}, each, each + 1);
    x = a.dropped;
  }
  const bool summed = a.by_rows && shape_.tensor > 1;
  const TensorId narrow = summed ? writer_.workspace("lora.partial", n, r, compute_) : a.low;
  gemm(product(adapter_matrix(a, "a", n), x, narrow));
  TensorId low = narrow;
  if (summed) {
    const Gathered sum = reduced((a.op + ".reduce").c_str(), narrow, "lora.reduced");
    writer_.await(sum.ready);
    low = sum.tensor;
  }
  if (job_.fused_epilogues) {  // the product scales and adds
    gemm(product(adapter_matrix(a, "b", rows), low, out, kAccumulate));
    return;
  }
  const TensorId made = writer_.workspace(a.op + ".output", rows, a.outputs, compute_);
  gemm(product(adapter_matrix(a, "b", rows), low, made));
  // Scaled by a kernel of its own, then added.
  pass_over(a.op + ".scale", rows, a.outputs, {made}, {made}, each, each);
  pass_over(a.op + ".add", rows, a.outputs, {made, out, a.low}, {out, a.low}, 2 * each, each);
}

/// From the gradient of the base product's output to what the adapter adds to that of its input.
void TransformerStage::adapter_backward(const std::optional<Adapter>& adapter, TensorId in,
                                        TensorId output_gradient, TensorId input_gradient) {
  if (!adapter) {
    return;
  }
  const auto& [a, r, n, rows, each] = extent_of(*adapter);
  const bool fused = job_.fused_epilogues;
  const TensorId dy =
      fused ? output_gradient : writer_.workspace(a.op + ".output", rows, a.outputs, compute_);
  if (!fused) {
    pass_over(a.op + ".scale_gradient", rows, a.outputs, {output_gradient}, {dy}, each, each);
  }
  const TensorId d_low =
      writer_.workspace(a.by_rows ? "lora.row_gradient" : "lora.gradient", rows, r, compute_);
  both_gradients(adapter_matrix(a, "b", rows), a.low, dy, d_low);
  Gathered low{d_low};
  if (a.by_rows) {
    low = gathered((a.op + ".gather_gradient").c_str(), d_low, Rows::kAdapter);
    writer_.await(low.ready);
  }
  const bool dropout = job_.lora->dropout > 0;
  const bool adds = fused && !dropout;  // the product does
  const TensorId dx =
      adds ? input_gradient : writer_.workspace(a.op + ".input_gradient", n, a.inputs, compute_);
  both_gradients(adapter_matrix(a, "a", n), dropout ? a.dropped : in, low.tensor, dx,
                 adds ? kAccumulate : 0);
  if (adds) {
    return;
  }
  if (fused) {
    pass_over(a.op + ".dropout_gradient", n, a.inputs, {dx, a.mask, input_gradient},
              {input_gradient}, 2 * each + 1, each);
    return;
  }
  if (dropout) {
    pass_over(a.op + ".dropout_gradient", n, a.inputs, {dx, a.mask}, {dx}, each + 1, each);
  }
  pass_over(a.op + ".add_gradient", n, a.inputs, {dx, input_gradient}, {input_gradient}, 2 * each,
            each);
}

}  // namespace stepcast::workloads
