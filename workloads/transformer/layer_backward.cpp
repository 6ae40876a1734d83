#include <fmt/format.h>

#include "workloads/transformer/stage.h"

// One decoder layer backward, in the order in which gradients are known.
namespace stepcast::workloads {

using op_flags::kAccumulate;

void TransformerStage::layer_backward(const LayerTensors& t, TensorId output_gradient,
                                      TensorId input_gradient) {
  const std::string at = fmt::format("layer.{}.", t.layer);
  writer_.needs(LayerPart::kLayer, t.layer);
  scope_ = at;
  if (shape_.model.parallel_block) {
    parallel_backward(at, t, output_gradient, input_gradient);
    scope_.clear();
    return;
  }
  const bool mixes = t.kind.mixer != MixerKind::kNone;
  const TensorId d_middle = !mixes ? input_gradient
                            : t.kind.feed_forward == FeedForwardKind::kNone
                                ? output_gradient
                                : gradient("gradient", shape_.rows, shape_.residual());
  streams_again(t);
  if (t.kind.feed_forward != FeedForwardKind::kNone) {
    around_block(t.second, t.middle, output_gradient, d_middle, [&](TensorId out, TensorId in) {
      if (t.kind.feed_forward == FeedForwardKind::kExperts) {
        drop("layer.mlp.dropout_gradient", out, t.mlp_masks, {});
        experts_backward(at, t, out, in);
      } else {
        feed_forward_backward(at, t, out, in);
      }
    });
  }
  if (mixes) {
    around_block(t.first, t.input, d_middle, input_gradient, [&](TensorId out, TensorId in) {
      if (t.kind.attends()) {
        attention_backward(at, t, out, in);
      } else {
        recurrent_backward(at, t, out, in);
      }
    });
  }
  scope_.clear();
}

/// From the gradient of the layer's output to that of its middle.
void TransformerStage::feed_forward_backward(const std::string& at, const LayerTensors& t,
                                             TensorId output_gradient, TensorId d_middle) {
  const std::int64_t h = shape_.model.hidden;
  const TensorId partial = writer_.workspace("partial", shape_.tokens, h, compute_);
  const Gathered dy =
      gathered_for_product("layer.mlp.gather_gradient", output_gradient, Rows::kGradient);
  if (gpt_) {
    bias_gradient("layer.mlp.fc2_bias_gradient", at + "mlp.fc2.bias", output_gradient, shape_.rows,
                  h, t.mlp_masks);
  } else {
    drop("layer.mlp.dropout_gradient", output_gradient, t.mlp_masks, {});
  }
  writer_.needs(LayerPart::kFeedForward, t.layer);
  Gathered x{t.norm2};
  if (trains(at + "mlp.fc1.weight") || (t.adapters.fc1 && job_.lora->dropout == 0)) {
    writer_.needs(LayerPart::kSecondNorm, t.layer);
    x = gathered("layer.mlp.gather", t.norm2, Rows::kInput);
  }
  const Gathered d_norm = mlp_backward({"layer.mlp", at + "mlp", t.fc1, t.activated, shape_.ffn,
                                        gpt_, 0, &t.adapters, output_gradient},
                                       dy, x, partial);
  writer_.await(d_norm.ready);
  norm_backward(
      "layer.norm2_gradient", at + "norm2",
      {d_norm.tensor, entered(t.second, t.middle), t.norm2_statistics, output_gradient, d_middle});
}

TransformerStage::Gathered TransformerStage::mlp_backward(const FeedForward& f, const Gathered& dy,
                                                          const Gathered& x, TensorId partial) {
  mlp_out_backward(f, dy);
  return mlp_in_backward(f, x, partial);
}

/// The gradient of the first product's output, in a workspace of the block.
TensorId TransformerStage::mlp_middle_gradient(const FeedForward& f) {
  const std::string suffix = f.name.substr(f.name.rfind('.'));
  return gradient("gradient" + suffix + ".fc1", shape_.tokens,
                  f.width * (shape_.model.gated() ? 2 : 1));
}

void TransformerStage::mlp_out_backward(const FeedForward& f, const Gathered& dy) {
  const std::int64_t n = shape_.tokens;
  const std::string suffix = f.name.substr(f.name.rfind('.'));
  const TensorId d_activated =
      writer_.workspace("gradient" + suffix + ".activated", n, f.width, compute_);
  const TensorId d_fc1 = mlp_middle_gradient(f);
  const Linear fc2 = linear(f.name + ".fc2", f.parameter + ".fc2", n);
  gemm(gradient_of_input(fc2, dy.tensor, d_activated), dy);
  if (f.adapters != nullptr) {
    adapter_backward(f.adapters->fc2, f.activated, f.own_gradient, d_activated);
  }
  gemm(gradient_of_weight(fc2, f.activated, kept_rows(dy)));
  const TensorId made = computed(f.fc1);
  keep(f.name + ".fc1.read", f.fc1, made, n);
  std::vector<TensorId> in{d_activated, made};
  std::vector<TensorId> out{d_fc1};
  if (f.biases) {
    in.push_back(parameter(f.parameter + ".fc1.bias").weight);
  }
  if (f.biases && trains(f.parameter + ".fc1.bias")) {
    out.push_back(parameter(f.parameter + ".fc1.bias").gradient);
  }
  writer_.compute(OpKind::kActivationBackward, f.name + ".activation_gradient", {n, f.width})
      .in(in)
      .out(out)
      .attributes(ActivationAttributes{shape_.model.activation});
}

/// Sums the gradient of its input over tensor ranks while the last weight gradient is made.
TransformerStage::Gathered TransformerStage::mlp_in_backward(const FeedForward& f,
                                                             const Gathered& x, TensorId partial) {
  const TensorId d_fc1 = mlp_middle_gradient(f);
  const Linear fc1 = linear(f.name + ".fc1", f.parameter + ".fc1", shape_.tokens);
  gemm(gradient_of_input(fc1, d_fc1, partial, f.flags));
  if (f.adapters != nullptr) {
    adapter_backward(f.adapters->fc1, x.tensor, d_fc1, partial);
  }
  const Gathered d_input = reduced((f.name + ".reduce_gradient").c_str(), partial);
  writer_.await(x.ready);
  gemm(gradient_of_weight(fc1, x.tensor, d_fc1));
  return d_input;
}

/// Both blocks read one norm: their gradients of it are one sum.
void TransformerStage::parallel_backward(const std::string& at, const LayerTensors& t,
                                         TensorId output_gradient, TensorId input_gradient) {
  const std::int64_t h = shape_.model.hidden;
  const TensorId partial = writer_.workspace("partial", shape_.tokens, h, compute_);
  const Gathered dy =
      gathered_for_product("layer.gather_gradient", output_gradient, Rows::kGradient);
  if (gpt_) {
    bias_gradient("layer.mlp.fc2_bias_gradient", at + "mlp.fc2.bias", output_gradient, shape_.rows,
                  h, t.mlp_masks);
    bias_gradient("layer.attention.projection_bias_gradient", at + "attention.projection.bias",
                  output_gradient, shape_.rows, h);
  } else {
    drop("layer.dropout_gradient", output_gradient, t.mlp_masks, {});
  }
  const Gathered x = gathered("layer.gather", t.norm1, Rows::kInput);
  const TensorId d_qkv = core_backward(at, t, dy, output_gradient);
  qkv_backward(at, d_qkv, x, partial, nullptr);
  const Gathered d_norm =
      mlp_backward({"layer.mlp", at + "mlp", t.fc1, t.activated, shape_.ffn, gpt_, kAccumulate},
                   {dy.tensor, -1, {}, dy.own}, {x.tensor, -1}, partial);
  writer_.await(d_norm.ready);
  norm_backward("layer.norm1_gradient", at + "norm1",
                {d_norm.tensor, entered(t.first, t.input), t.norm1_statistics, output_gradient,
                 input_gradient});
}

/// From the gradient of the layer's middle to that of its input. An adapter with dropout reads the
/// copy of the norm that it kept, not the norm.
void TransformerStage::attention_backward(const std::string& at, const LayerTensors& t,
                                          TensorId d_middle, TensorId input_gradient) {
  const std::int64_t h = shape_.model.hidden;
  const Gathered dy =
      gathered_for_product("layer.attention.gather_gradient", d_middle, Rows::kGradient);
  if (gpt_) {
    bias_gradient("layer.attention.projection_bias_gradient", at + "attention.projection.bias",
                  d_middle, shape_.rows, h, t.attention_masks);
  } else {
    drop("layer.attention.dropout_gradient", d_middle, t.attention_masks, {});
  }
  TensorId d_norm = 0;
  if (shape_.model.mla) {
    if (trains(at + "attention.latent_down.weight")) {
      writer_.needs(LayerPart::kFirstNorm, t.layer);
    }
    writer_.needs(LayerPart::kLatentUp, t.layer);
    writer_.needs(LayerPart::kLatentUp, t.layer, 1);
    d_norm = latent_backward(at, t, core_backward(at, t, dy, d_middle));
  } else if (shape_.model.compressed) {
    writer_.needs(LayerPart::kFirstNorm, t.layer);
    d_norm = compressed_backward(at, t, core_backward(at, t, dy, d_middle));
  } else {
    Gathered x{t.norm1};
    if (trains(at + "attention.qkv.weight") || (t.adapters.qkv && job_.lora->dropout == 0)) {
      writer_.needs(LayerPart::kFirstNorm, t.layer);
      x = gathered("layer.attention.gather", t.norm1, Rows::kInput);
    }
    const TensorId d_qkv = core_backward(at, t, dy, d_middle);
    const TensorId partial = writer_.workspace("partial", shape_.tokens, h, compute_);
    const Gathered sum = qkv_backward(at, d_qkv, x, partial, &t.adapters);
    writer_.await(sum.ready);
    d_norm = sum.tensor;
  }
  norm_backward("layer.norm1_gradient", at + "norm1",
                {d_norm, entered(t.first, t.input), t.norm1_statistics, d_middle, input_gradient});
}

TensorId TransformerStage::core_backward(const std::string& at, const LayerTensors& t,
                                         const Gathered& dy, TensorId d_middle) {
  const std::int64_t n = shape_.tokens;
  const TensorId d_attention =
      writer_.workspace("gradient.attention", n, shape_.query_width, compute_);
  const bool gates = shape_.model.output_gate;
  const TensorId d_projected =
      gates ? writer_.workspace("gradient.gated", n, shape_.query_width, compute_) : d_attention;
  const TensorId d_qkv = gradient("gradient.qkv", n, shape_.qkv_width);
  const Linear projection = linear("layer.attention.projection", at + "attention.projection", n);
  writer_.needs(LayerPart::kAttentionCore, t.layer);
  gemm(gradient_of_input(projection, dy.tensor, d_projected), dy);
  if (t.adapters.projection) {
    adapter_backward(t.adapters.projection, t.attention, d_middle, d_attention);
  }
  gemm(gradient_of_weight(projection, gates ? t.gated : t.attention, kept_rows(dy)));
  if (gates) {
    writer_
        .compute(OpKind::kMultiplyBackward, "layer.attention.apply_gate_gradient",
                 {n, shape_.query_width})
        .in({d_projected, t.attention, t.gate})
        .out({d_attention, gate_gradient()});
  }
  cast_attention("layer.attention.quantise_gradient", d_attention, compute_, attention_);
  if (shape_.context > 1) {
    context_backward(t, d_attention, d_qkv);
    cast_attention("layer.attention.dequantise_gradient", d_qkv, attention_, compute_);
    return d_qkv;
  }
  const TensorId d_core = shape_.sparse             ? absorbed_output_backward(t, d_attention)
                          : shape_.model.compressed ? grouped_output_backward(at, t, d_attention)
                                                    : d_attention;
  std::vector<TensorId> in{t.qkv, attended(t), job_.flash_attention ? t.log_sum_exp : t.scores,
                           d_core};
  in.insert(in.end(), t.dropped_scores.begin(), t.dropped_scores.end());
  attend_within({OpKind::kAttentionBackward,
                 shape_.attention_batch,
                 shape_.heads,
                 shape_.kv_heads,
                 in,
                 {d_qkv}},
                t.window);
  cast_attention("layer.attention.dequantise_gradient", d_qkv, attention_, compute_);
  return d_qkv;
}

TransformerStage::Gathered TransformerStage::qkv_backward(const std::string& at, TensorId d_qkv,
                                                          const Gathered& x, TensorId partial,
                                                          const Adapters* reduces) {
  const TransformerWorkload& m = shape_.model;
  const std::int64_t n = shape_.tokens;
  const Linear qkv = query_key_value(at);
  const std::optional<Linear> gate =
      m.output_gate ? std::optional(linear("layer.attention.gate", at + "attention.gate", n))
                    : std::nullopt;
  if (gpt_) {
    bias_gradient("layer.attention.qkv_bias_gradient", at + "attention.qkv.bias", d_qkv, n,
                  shape_.qkv_width);
  } else {
    writer_
        .compute(OpKind::kRopeBackward, "layer.attention.rope_gradient",
                 {n, shape_.heads + shape_.kv_heads, m.head_dim, m.head_dim})
        .in({d_qkv})
        .out({d_qkv});
  }
  gemm(gradient_of_input(qkv, d_qkv, partial));
  if (gate) {
    gemm(gradient_of_input(*gate, gate_gradient(), partial, kAccumulate));
  }
  if (reduces != nullptr) {
    adapter_backward(reduces->qkv, x.tensor, d_qkv, partial);
  }
  const Gathered d_norm = reduces != nullptr ? reduced("layer.attention.reduce_gradient", partial)
                                             : Gathered{partial, -1};
  writer_.await(x.ready);
  gemm(gradient_of_weight(qkv, x.tensor, d_qkv));
  if (gate) {
    gemm(gradient_of_weight(*gate, x.tensor, gate_gradient()));
  }
  return d_norm;
}

}  // namespace stepcast::workloads
