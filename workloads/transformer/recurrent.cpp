#include <fmt/format.h>

#include <algorithm>

#include "workloads/transformer/stage.h"

// Mixers with a state of constant size (core/job/recurrent_mixer.h), by columns and rows over
// tensor ranks as Megatron-LM has them: each rank has some heads, their keys and their channels of
// the convolution.
//
//   norm1 -> [gather] -> in -> convolution -> scan -> norm and gate -> out -> [reduce] -> add
//
// Gates of two narrow matrices read norm1 too; the first is whole on each rank. The kernels of
// Mamba-2 keep what goes into the convolution and make its output again in the backward pass
// (mamba_split_conv1d_scan_combined); those of delta rules keep both, and the inverse of each
// chunk's key products.
namespace stepcast::workloads {

using op_flags::kAccumulate;

TransformerStage::RecurrentWidths TransformerStage::recurrent_widths() const {
  const RecurrentMixer& r = *shape_.model.recurrent;
  return {RecurrentMixer::width_of(r.inputs(shape_.tensor)),
          RecurrentMixer::width_of(r.convolved(shape_.tensor)), r.values() / shape_.tensor};
}

std::int64_t TransformerStage::scan_chunk() const {
  return std::min(shape_.model.recurrent->chunk, shape_.sequence);
}

TransformerStage::RecurrentTensors TransformerStage::recurrent_tensors(const std::string& at,
                                                                       bool keep) {
  const RecurrentMixer& r = *shape_.model.recurrent;
  const RecurrentWidths w = recurrent_widths();
  const std::int64_t n = shape_.tokens;
  const std::int64_t heads = r.heads / shape_.tensor;
  const std::string name = at + "recurrent.";
  RecurrentTensors t;
  t.in = kept(keep, name + "in", n, w.in, compute_);
  const bool again = r.rule == RecurrentRule::kMamba2;
  t.convolved = kept(keep && !again, name + "convolved", n, w.convolved, compute_);
  for (const RecurrentMixer::Columns& gate : r.narrow_gates(shape_.tensor)) {
    t.narrow_gates.push_back(
        kept(keep, name + gate.name + "_narrow", shape_.rows, r.gate_rank, compute_));
    t.gates.push_back(kept(keep, name + gate.name, n, gate.columns, compute_));
  }
  if (r.scans()) {
    t.scanned = kept(keep, name + "scanned", n, w.values, compute_);
    t.statistics = kept(keep, name + "statistics", n, heads, Format::kFp32);
  }
  if (r.scan_rule() != ScanRule::kDecay && r.scans()) {
    t.inverse = kept(keep, name + "inverse", n, heads * scan_chunk(), compute_);
  }
  t.gated = kept(keep, name + "gated", n, w.values, compute_);
  return t;
}

/// One pass over rows of the mixer's columns, which reads and writes so many elements of a row.
void TransformerStage::recurrent_pass(OpKind kind, const char* name, std::int64_t columns,
                                      std::vector<TensorId> in, std::vector<TensorId> out,
                                      double read, double written) {
  auto op = writer_.compute(kind, name, {shape_.tokens, columns});
  op.in(in).out(out);
  if (kind == OpKind::kNormForward || kind == OpKind::kNormBackward) {
    op.attributes(NormAttributes{Norm::kRmsNorm});
  }
  const double each = static_cast<double>(shape_.tokens) * bits_per_element(compute_) / 8;
  op.work(op.op().flops, Bytes(read * each), Bytes(written * each));
}

void TransformerStage::scan(OpKind kind, const char* name, std::vector<TensorId> in,
                            std::vector<TensorId> out) {
  const RecurrentMixer& r = *shape_.model.recurrent;
  writer_
      .compute(kind, name,
               {shape_.tokens, r.heads / shape_.tensor, r.key_dim, r.value_dim,
                r.key_heads / shape_.tensor, scan_chunk()})
      .in(in)
      .out(out)
      .attributes(ScanAttributes{r.scan_rule()});
}

/// The convolution's input: columns of the projection, or with a gate before it their product.
TensorId TransformerStage::convolution_input(const RecurrentTensors& t) {
  if (shape_.model.recurrent->scans()) {
    return t.in;
  }
  const RecurrentWidths w = recurrent_widths();
  const TensorId product =
      writer_.workspace("recurrent.gated_in", shape_.tokens, w.values, compute_);
  const auto v = static_cast<double>(w.values);
  recurrent_pass(OpKind::kMultiplyForward, "layer.recurrent.gate_in", w.values, {t.in}, {product},
                 2 * v, v);
  return product;
}

TensorId TransformerStage::convolve(const char* name, const std::string& at, TensorId from,
                                    TensorId to) {
  const RecurrentMixer& r = *shape_.model.recurrent;
  writer_
      .compute(OpKind::kCausalConvolutionForward, name,
               {shape_.tokens, recurrent_widths().convolved, r.kernel})
      .in({from, parameter(at + "recurrent.convolution.weight").weight})
      .out({to});
  return to;
}

void TransformerStage::recurrent_forward(const std::string& at, const LayerTensors& t,
                                         TensorId output) {
  const RecurrentMixer& r = *shape_.model.recurrent;
  const RecurrentTensors& x = t.recurrent;
  const RecurrentWidths w = recurrent_widths();
  const std::int64_t h = shape_.model.hidden;
  const std::int64_t n = shape_.tokens;
  const std::string name = at + "recurrent.";
  const TensorId partial = writer_.workspace("partial", n, h, compute_);
  const Gathered input = gathered_for_product("layer.recurrent.gather", t.norm1, Rows::kInput);
  writer_.product("layer.recurrent", {{"in", w.in}}, [&] {
    gemm(product(linear("layer.recurrent.in", name + "in", n), input.tensor, x.in), input);
  });
  const auto gates = r.narrow_gates(shape_.tensor);
  for (std::size_t i = 0; i < gates.size(); ++i) {
    const std::string of = name + gates[i].name;
    gemm(product(whole_linear("layer.recurrent.gate_down", of + "_down"), t.norm1,
                 x.narrow_gates[i]));
    const Gathered narrow =
        gathered("layer.recurrent.gather_gate", x.narrow_gates[i], Rows::kQuery);
    gemm(product(linear("layer.recurrent.gate_up", of + "_up", n), narrow.tensor, x.gates[i]),
         narrow);
  }
  convolve("layer.recurrent.convolution", at, convolution_input(x), x.convolved);
  const auto v = static_cast<double>(w.values);
  if (r.scans()) {
    std::vector<TensorId> in{x.convolved, x.in, parameter(name + "vectors").weight};
    std::vector<TensorId> out{x.scanned};
    if (!x.gates.empty()) {
      in.push_back(x.gates.front());
    }
    if (r.scan_rule() != ScanRule::kDecay) {
      out.push_back(x.inverse);
    }
    scan(OpKind::kScanForward, "layer.recurrent.scan", in, out);
    recurrent_pass(
        OpKind::kNormForward, "layer.recurrent.gated_norm", w.values,
        {x.scanned, x.gates.empty() ? x.in : x.gates.back(), parameter(name + "norm.gamma").weight},
        {x.gated, x.statistics}, 2 * v, v);
  } else {
    recurrent_pass(OpKind::kMultiplyForward, "layer.recurrent.gate_out", w.values,
                   {x.convolved, x.in}, {x.gated}, 2 * v, v);
  }
  Gathered mixed;
  writer_.product("layer.recurrent", {{"out", h}}, [&] {
    mixed = reduced("layer.recurrent.reduce",
                    product(linear("layer.recurrent.out", name + "out", n), x.gated, partial));
  });
  writer_.await(mixed.ready);
  add("layer.recurrent.add", t.first, t.input, mixed.tensor, "", output, {});
}

/// From the gradient of what the mixer is added to, to that of the layer's input.
void TransformerStage::recurrent_backward(const std::string& at, const LayerTensors& t,
                                          TensorId d_middle, TensorId input_gradient) {
  const RecurrentMixer& r = *shape_.model.recurrent;
  const RecurrentTensors& x = t.recurrent;
  const RecurrentWidths w = recurrent_widths();
  const std::int64_t h = shape_.model.hidden;
  const std::int64_t n = shape_.tokens;
  const std::string name = at + "recurrent.";
  const auto v = static_cast<double>(w.values);
  const Gathered dy =
      gathered_for_product("layer.recurrent.gather_gradient", d_middle, Rows::kGradient);
  writer_.needs(LayerPart::kFirstNorm, t.layer);
  const Gathered input = gathered("layer.recurrent.gather", t.norm1, Rows::kInput);
  const TensorId d_gated = writer_.workspace("gradient.recurrent.gated", n, w.values, compute_);
  const TensorId d_in = gradient("gradient.recurrent.in", n, w.in);
  const TensorId d_convolved =
      writer_.workspace("gradient.recurrent.convolved", n, w.convolved, compute_);
  std::vector<TensorId> d_gates;
  const auto gates = r.narrow_gates(shape_.tensor);
  for (const RecurrentMixer::Columns& gate : gates) {
    d_gates.push_back(gradient(std::string("gradient.recurrent.") + gate.name, n, gate.columns));
  }
  const Linear out = linear("layer.recurrent.out", name + "out", n);
  gemm(gradient_of_input(out, dy.tensor, d_gated), dy);
  gemm(gradient_of_weight(out, x.gated, kept_rows(dy)));
  if (r.scans()) {
    const TensorId d_scanned =
        writer_.workspace("gradient.recurrent.scanned", n, w.values, compute_);
    const auto& gamma = parameter(name + "norm.gamma");
    recurrent_pass(
        OpKind::kNormBackward, "layer.recurrent.gated_norm_gradient", w.values,
        {d_gated, x.scanned, x.gates.empty() ? x.in : x.gates.back(), gamma.weight, x.statistics},
        {d_scanned, d_gates.empty() ? d_in : d_gates.back(), gamma.gradient}, 3 * v, 2 * v);
    TensorId convolved = x.convolved;
    if (r.rule == RecurrentRule::kMamba2) {
      convolved =
          convolve("layer.recurrent.convolution_again", at, x.in,
                   writer_.workspace("recurrent.convolved_again", n, w.convolved, compute_));
    }
    const auto& vectors = parameter(name + "vectors");
    std::vector<TensorId> in{convolved, x.in, d_scanned, vectors.weight};
    std::vector<TensorId> made{d_convolved, d_in, vectors.gradient};
    if (!x.gates.empty()) {
      in.push_back(x.gates.front());
      made.push_back(d_gates.front());
    }
    if (r.scan_rule() != ScanRule::kDecay) {
      in.push_back(x.inverse);
    }
    scan(OpKind::kScanBackward, "layer.recurrent.scan_gradient", in, made);
  } else {
    recurrent_pass(OpKind::kMultiplyBackward, "layer.recurrent.gate_out_gradient", w.values,
                   {d_gated, x.convolved, x.in}, {d_convolved, d_in}, 3 * v, 2 * v);
  }
  const auto& taps = parameter(name + "convolution.weight");
  const TensorId d_convolution_input =
      r.scans() ? d_in : writer_.workspace("gradient.recurrent.gated_in", n, w.values, compute_);
  const TensorId convolution_in = convolution_input(x);
  writer_
      .compute(OpKind::kCausalConvolutionBackward, "layer.recurrent.convolution_gradient",
               {n, w.convolved, r.kernel})
      .in({d_convolved, convolution_in, taps.weight})
      .out({d_convolution_input, taps.gradient});
  if (!r.scans()) {
    recurrent_pass(OpKind::kMultiplyBackward, "layer.recurrent.gate_in_gradient", w.values,
                   {d_convolution_input, x.in}, {d_in}, 3 * v, 2 * v);
  }
  const TensorId partial = writer_.workspace("partial", n, h, compute_);
  const Gathered sum = columns_backward(linear("layer.recurrent.in", name + "in", n), input, d_in,
                                        partial, "layer.recurrent.reduce_gradient");
  writer_.await(sum.ready);
  for (std::size_t i = 0; i < gates.size(); ++i) {
    narrow_gate_backward(name + gates[i].name, t, i, d_gates[i], sum.tensor);
  }
  norm_backward(
      "layer.norm1_gradient", at + "norm1",
      {sum.tensor, entered(t.first, t.input), t.norm1_statistics, d_middle, input_gradient});
}

/// Through both matrices of a gate; adds to the gradient of the norm's output, this rank's rows.
void TransformerStage::narrow_gate_backward(const std::string& of, const LayerTensors& t,
                                            std::size_t gate, TensorId d_gate, TensorId d_norm) {
  const TensorId narrow = t.recurrent.narrow_gates[gate];
  const TensorId d_narrow = writer_.workspace("gradient.recurrent.narrow", shape_.tokens,
                                              shape_.model.recurrent->gate_rank, compute_);
  const Gathered x = gathered("layer.recurrent.gather_gate", narrow, Rows::kQuery);
  const Gathered sum =
      columns_backward(linear("layer.recurrent.gate_up", of + "_up", shape_.tokens), x, d_gate,
                       d_narrow, "layer.recurrent.reduce_gate_gradient", "reduced.gate");
  writer_.await(sum.ready);
  both_gradients(whole_linear("layer.recurrent.gate_down", of + "_down"), t.norm1, sum.tensor,
                 d_norm, kAccumulate);
}

}  // namespace stepcast::workloads
