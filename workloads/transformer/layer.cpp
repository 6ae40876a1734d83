#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "workloads/transformer/stage.h"

// One decoder layer forward. y = x + attention(norm1(x)); out = y + mlp(norm2(y)).
namespace stepcast::workloads {

using op_flags::kAccumulate;

namespace {

std::string layer_name(std::int64_t layer) { return fmt::format("layer.{}.", layer); }

/// A fused kernel skips the masked half of the score matrix; the unfused one masks the whole
/// matrix.
std::uint8_t attention_flags(const Job& job) {
  return job.flash_attention ? op_flags::kCausal : op_flags::kUnfused;
}

std::int32_t window_of(const TransformerShape& shape, std::int64_t layer) {
  // Other masks have as many pairs of a query and a key as a window of some size.
  const std::int64_t own = shape.model.window_of(layer);
  const std::int64_t window =
      shape.sparse             ? shape.model.sparse->top_k
      : shape.model.compressed ? window_of_pairs(shape.positions, shape.compressed_pairs(layer))
      : shape.model.chunked && own > 0 ? window_like_chunks(shape.positions, own)
                                       : own;
  return window > 0 && window < shape.positions ? static_cast<std::int32_t>(window) : 0;
}

}  // namespace

TransformerStage::LayerTensors TransformerStage::layer_tensors(std::int64_t layer) {
  LayerTensors t;
  t.layer = layer;
  t.kind = shape_.model.kind_of(layer);
  t.window = window_of(shape_, layer);
  const bool experts = t.kind.feed_forward == FeedForwardKind::kExperts;
  const bool keep = !shape_.inference;
  const std::string at = layer_name(layer);
  const std::int64_t h = shape_.model.hidden;
  if (t.kind.mixer != MixerKind::kNone) {
    t.first = stream_block(at, "mixer");
    t.norm1 = kept(keep && keeps_input(&Lora::qkv), at + "norm1", shape_.rows, h, compute_);
    t.norm1_statistics = kept(keep, at + "norm1_statistics", shape_.rows, 2, Format::kFp32);
  }
  if (t.kind.attends()) {
    attention_tensors(at, keep, t);
  } else if (t.kind.mixer == MixerKind::kRecurrent) {
    t.recurrent = recurrent_tensors(at, keep);
  }
  if (shape_.model.parallel_block) {
    t.fc1 = kept(keep, at + "fc1", shape_.tokens, shape_.fc1_width, activation_);
    t.activated = kept(keep, at + "activated", shape_.tokens, shape_.ffn, compute_);
    return t;
  }
  if (t.kind.feed_forward == FeedForwardKind::kNone) {
    return t;
  }
  t.second = stream_block(at, "feed_forward");
  if (t.kind.mixer != MixerKind::kNone) {
    t.middle = kept(keep && shape_.model.residual_streams == 1, at + "middle", shape_.rows,
                    shape_.residual(), compute_);
  }
  t.norm2 =
      kept(keep && (experts || keeps_input(&Lora::fc1)), at + "norm2", shape_.rows, h, compute_);
  t.norm2_statistics = kept(keep, at + "norm2_statistics", shape_.rows, 2, Format::kFp32);
  adapter_tensors(at, keep, t);
  if (experts) {
    t.experts = expert_tensors(layer, at, keep);
    return t;
  }
  t.fc1 = kept(keep, at + "fc1", shape_.tokens, shape_.fc1_width, activation_);
  t.activated =
      kept(keep && keeps_input(&Lora::fc2), at + "activated", shape_.tokens, shape_.ffn, compute_);
  return t;
}

/// Tensors that attention and, with dropout, both branches leave for the backward pass.
void TransformerStage::attention_tensors(const std::string& at, bool keep, LayerTensors& t) {
  const std::int64_t h = shape_.model.hidden;
  t.qkv = kept(keep, at + "qkv", shape_.tokens, shape_.qkv_width, attention_);
  const std::int64_t score_rows = shape_.samples * shape_.heads;
  const auto mask = [&](const char* name, std::int64_t rows, std::int64_t columns) {
    return kept(keep, at + name, rows, columns, Format::kInt8);
  };
  if (dropout() && !shape_.model.parallel_block) {  // which has one branch, so one mask
    t.attention_masks = {mask("attention.mask", shape_.rows, h)};
  }
  if (dropout()) {
    t.mlp_masks = {mask("mlp.mask", shape_.rows, h)};
  }
  if (job_.flash_attention) {
    t.log_sum_exp = kept(keep, at + "log_sum_exp", score_rows, shape_.sequence, Format::kFp32);
  } else {
    const auto scores = [&](const char* name, Format format) {
      return kept(keep, at + name, score_rows * shape_.sequence, shape_.sequence, format);
    };
    t.scores = scores("scores", traits_.wide_scores ? Format::kFp32 : compute_);
    if (dropout()) {
      t.dropped_scores = {scores("scores.mask", Format::kInt8), scores("scores.dropped", compute_)};
    } else if (traits_.wide_scores) {
      t.dropped_scores = {scores("scores.narrow", compute_)};
    }
  }
  t.attention = kept(keep, at + "attention", shape_.tokens, shape_.query_width, compute_);
  if (shape_.model.output_gate) {
    t.gate = kept(keep, at + "attention.gate", shape_.tokens, shape_.query_width, compute_);
    t.gated = kept(keep, at + "attention.gated", shape_.tokens, shape_.query_width, compute_);
  }
  if (shape_.inference) {
    const std::int64_t all = shape_.sequence + shape_.cached;
    const std::int64_t held =
        t.window > 0 ? std::min(all, (t.window + shape_.context - 1) / shape_.context) : all;
    t.cache =
        writer_.builder().buffer(at + "cache", shape_.microbatches * shape_.held_sequences * held,
                                 shape_.cache_width, cached_);
    writer_.builder().set_purpose(t.cache, TensorPurpose::kKeyValueCache);
  }
  if (shape_.model.mla) {
    t.latent = latent_tensors(at, keep);
  } else if (shape_.model.compressed) {
    t.latent = compressed_tensors(at, t.kind.mixer);
  }
}

void TransformerStage::attention_forward(const LayerTensors& t) {
  if (shape_.context > 1 || shape_.inference) {
    context_forward(t);
    cast_attention("layer.attention.dequantise", t.attention, attention_, compute_);
    return;
  }
  std::vector<TensorId> out{attended(t), job_.flash_attention ? t.log_sum_exp : t.scores};
  out.insert(out.end(), t.dropped_scores.begin(), t.dropped_scores.end());
  attend_within({OpKind::kAttentionForward,
                 shape_.attention_batch,
                 shape_.heads,
                 shape_.kv_heads,
                 {t.qkv},
                 out},
                t.window);
  cast_attention("layer.attention.dequantise", attended(t), attention_, compute_);
  if (shape_.sparse) {
    absorbed_output(t, t.latent.attended);
  } else if (shape_.model.compressed) {
    grouped_output(layer_name(t.layer), t);
  }
}

void TransformerStage::cast_attention(const char* name, TensorId values, Format from, Format to) {
  if (from == to) {
    return;
  }
  const std::int64_t elements = writer_.builder().tensor_at(values).elements();
  const auto n = static_cast<double>(elements);
  auto op = writer_.compute(OpKind::kCast, name, {elements});
  op.in({values}).out({values}).format(attention_);
  op.work(Flops(2 * n), Bytes(n * bits_per_element(from) / 8), Bytes(n * bits_per_element(to) / 8));
}

/// Attention among the tokens of a sequence, or of a document in it.
void TransformerStage::attend_within(const Attend& a, std::int32_t window) {
  const bool backward = a.kind == OpKind::kAttentionBackward;
  auto op =
      writer_.compute(a.kind, backward ? "layer.attention.core_gradient" : "layer.attention.core",
                      {a.batch, a.heads, a.kv_heads, shape_.attention_length,
                       shape_.attention_length, shape_.core_dim});
  op.in(a.in)
      .out(a.out)
      .format(attention_)
      .flags(attention_flags(job_))
      .attributes(AttentionAttributes{.window = window, .dropout = dropout()});
  if (shape_.attended != 1) {
    op.work(op.op().flops * shape_.attended, op.op().bytes_read, op.op().bytes_written);
  }
}

void TransformerStage::qkv_forward(const std::string& at, const LayerTensors& t) {
  const TransformerWorkload& m = shape_.model;
  const std::int64_t n = shape_.tokens;
  if (m.mla) {
    latent_forward(at, t);
    return;
  }
  if (m.compressed) {
    compressed_forward(at, t);
    return;
  }
  const Gathered x = gathered_for_product("layer.attention.gather", t.norm1, Rows::kInput);
  const std::int64_t keys = shape_.kv_heads * shape_.core_dim;
  writer_.product("layer.attention",
                  {{"query", shape_.query_width}, {"key", keys}, {"value", keys}},
                  [&] { gemm(product(query_key_value(at), x.tensor, t.qkv), x); });
  if (m.output_gate) {
    writer_.product("layer.attention", {{"gate", shape_.query_width}}, [&] {
      gemm(product(linear("layer.attention.gate", at + "attention.gate", n), x.tensor, t.gate));
    });
  }
  adapter_forward(t.adapters.qkv, x.tensor, t.qkv);
  if (gpt_) {
    writer_.compute(OpKind::kBiasActivationForward, "layer.attention.bias", {n, shape_.qkv_width})
        .in({t.qkv, parameter(at + "attention.qkv.bias").weight})
        .out({t.qkv});
  } else {
    writer_
        .compute(OpKind::kRopeForward, "layer.attention.rope",
                 {n, shape_.heads + shape_.kv_heads, m.head_dim, m.head_dim})
        .in({t.qkv})
        .out({t.qkv});
  }
}

void TransformerStage::layer_forward(const LayerTensors& t, TensorId output) {
  const TransformerWorkload& m = shape_.model;
  const std::string at = layer_name(t.layer);
  const bool feeds = t.kind.feed_forward != FeedForwardKind::kNone;
  if (t.kind.mixer != MixerKind::kNone) {
    const TensorId input = enter(t.first, t.input);
    writer_.part(LayerPart::kFirstNorm, t.layer, [&] {
      norm_forward("layer.norm1", at + "norm1", input, t.norm1, t.norm1_statistics, true);
    });
  }
  if (t.kind.attends()) {
    attention_block(at, t, feeds && !m.parallel_block ? t.middle : output);
  } else if (t.kind.mixer == MixerKind::kRecurrent) {
    recurrent_forward(at, t, feeds ? t.middle : output);
  }
  if (m.parallel_block || !feeds) {
    return;
  }
  if (t.kind.feed_forward == FeedForwardKind::kDense) {
    writer_.part(LayerPart::kFeedForward, t.layer, [&] { feed_forward_forward(at, t, output); });
    return;
  }
  second_norm_forward(at, t);
  experts_forward(at, t, output);
  drop("layer.mlp.dropout", output, {}, t.mlp_masks);
}

/// Attention added to the residual stream; with a parallel block its feed-forward block too.
void TransformerStage::attention_block(const std::string& at, const LayerTensors& t,
                                       TensorId output) {
  const TransformerWorkload& m = shape_.model;
  const std::int64_t h = m.hidden;
  const std::int64_t n = shape_.tokens;
  const TensorId partial = writer_.workspace("partial", n, h, compute_);
  qkv_forward(at, t);
  writer_.part(LayerPart::kAttentionCore, t.layer, [&] { attention_forward(t); });
  if (m.output_gate) {
    writer_.compute(OpKind::kMultiplyForward, "layer.attention.apply_gate", {n, shape_.query_width})
        .in({t.attention, t.gate})
        .out({t.gated});
  }
  const Product projection =
      product(linear("layer.attention.projection", at + "attention.projection", n),
              m.output_gate ? t.gated : t.attention, partial);
  if (m.parallel_block) {  // both blocks add to one sum over tensor ranks
    gemm(projection);
    const TensorId y =
        shape_.sequence_parallel ? writer_.workspace("gathered", n, h, compute_) : t.norm1;
    const FeedForward f{"layer.mlp", at + "mlp", t.fc1, t.activated, shape_.ffn, gpt_, kAccumulate};
    mlp_in(f, {y});
    const Gathered sum = mlp_out(f, partial, "layer.reduce");
    writer_.await(sum.ready);
    add("layer.add", t.first, t.input, sum.tensor, at + "attention.projection.bias", output,
        t.mlp_masks);
    if (gpt_) {
      writer_.compute(OpKind::kBiasActivationForward, "layer.mlp.bias", {shape_.rows, h})
          .in({output, parameter(at + "mlp.fc2.bias").weight})
          .out({output});
    }
    return;
  }
  Gathered attended;
  writer_.product("layer.attention", {{"projection", h}},
                  [&] { attended = reduced("layer.attention.reduce", projection); });
  writer_.await(attended.ready);
  adapter_forward(t.adapters.projection, t.attention, attended.tensor);
  add("layer.attention.add", t.first, t.input, attended.tensor, at + "attention.projection.bias",
      output, t.attention_masks);
}

void TransformerStage::second_norm_forward(const std::string& at, const LayerTensors& t) {
  const TensorId input = enter(t.second, t.middle);
  writer_.part(LayerPart::kSecondNorm, t.layer, [&] {
    norm_forward("layer.norm2", at + "norm2", input, t.norm2, t.norm2_statistics,
                 t.kind.feed_forward == FeedForwardKind::kDense);
  });
}

void TransformerStage::feed_forward_forward(const std::string& at, const LayerTensors& t,
                                            TensorId output) {
  second_norm_forward(at, t);
  const TensorId partial =
      writer_.workspace("partial", shape_.tokens, shape_.model.hidden, compute_);
  const FeedForward f{"layer.mlp", at + "mlp", t.fc1, t.activated,
                      shape_.ffn,  gpt_,       0,     &t.adapters};
  mlp_in(f, gathered_for_product("layer.mlp.gather", t.norm2, Rows::kInput));
  const Gathered fed = mlp_out(f, partial, "layer.mlp.reduce");
  writer_.await(fed.ready);
  adapter_forward(t.adapters.fc2, t.activated, fed.tensor);
  add("layer.mlp.add", t.second, t.middle, fed.tensor, at + "mlp.fc2.bias", output, t.mlp_masks);
}

void TransformerStage::mlp_in(const FeedForward& f, const Gathered& input) {
  const TransformerWorkload& m = shape_.model;
  const std::int64_t n = shape_.tokens;
  const TensorId made = computed(f.fc1);
  std::vector<DependencyInfo::Product::Matrix> matrices{{"fc1", f.width}};
  if (m.gated()) {
    matrices.insert(matrices.begin(), {"gate", f.width});
  }
  writer_.product(f.name, std::move(matrices), [&] {
    gemm(product(linear(f.name + ".fc1", f.parameter + ".fc1", n), input.tensor, made), input);
  });
  if (f.adapters != nullptr) {
    adapter_forward(f.adapters->fc1, input.tensor, made);
  }
  std::vector<TensorId> in{made};
  if (f.biases) {
    in.push_back(parameter(f.parameter + ".fc1.bias").weight);
  }
  writer_.compute(OpKind::kActivationForward, f.name + ".activation", {n, f.width})
      .in(in)
      .out({f.activated})
      .attributes(ActivationAttributes{m.activation});
  keep(f.name + ".fc1.keep", made, f.fc1, n);
}

TransformerStage::Gathered TransformerStage::mlp_out(const FeedForward& f, TensorId partial,
                                                     const char* sum) {
  const Product fc2 = product(linear(f.name + ".fc2", f.parameter + ".fc2", shape_.tokens),
                              f.activated, partial, f.flags);
  Gathered made{partial};
  writer_.product(f.name, {{"fc2", fc2.n}}, [&] {
    if (sum != nullptr) {
      made = reduced(sum, fc2);
    } else {
      gemm(fc2);
    }
  });
  return made;
}

}  // namespace stepcast::workloads
