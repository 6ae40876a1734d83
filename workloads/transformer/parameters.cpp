#include <fmt/format.h>

#include <cmath>

#include "workloads/transformer/stage.h"

// Which parameters a stage has, how they are split over tensor ranks and what they start from.
// Weights are stored [in, out].
namespace stepcast::workloads {
namespace {

/// Standard deviation of a uniform distribution in [-a, a] is a / sqrt(3).
double uniform_bound(double deviation) { return std::sqrt(3.0) * deviation; }

constexpr double kEmbeddingDeviation = 0.02;  // Radford et al. 2019

ParameterPiece piece(const std::string& key, std::int64_t columns, double scale,
                     double constant = 0) {
  ParameterPiece p;
  p.key = parameter_key(key);
  p.columns = columns;
  p.scale = scale;
  p.constant = constant;
  return p;
}

ParameterSpec constant(const std::string& name, std::int64_t columns, double value,
                       GradientSum sum) {
  return {name, 1, columns, {piece(name, columns, 0, value)}, sum, Replicas::kData, kHeadUnit};
}

/// Columns split over tensor ranks.
ParameterSpec column_parallel(const std::string& name, std::int64_t rows, std::int64_t columns,
                              double scale) {
  ParameterPiece p = piece(name, columns, scale);
  p.tensor_column_step = columns;
  return {name, rows, columns, {p}, GradientSum::kNone, Replicas::kData, kHeadUnit, true};
}

ParameterSpec row_parallel(const std::string& name, std::int64_t rows, std::int64_t columns,
                           double scale) {
  ParameterPiece p = piece(name, columns, scale);
  p.tensor_row_step = rows;
  return {name, rows, columns, {p}, GradientSum::kNone, Replicas::kData, kHeadUnit, true};
}

/// Several column-parallel matrices side by side in one: each rank holds a part of each.
ParameterSpec fused_columns(const std::string& name, std::int64_t rows,
                            const std::vector<std::pair<const char*, std::int64_t>>& blocks,
                            double scale) {
  ParameterSpec spec{name, rows, 0, {}, GradientSum::kNone, Replicas::kData, kHeadUnit, true};
  for (const auto& [part, columns] : blocks) {
    ParameterPiece p = piece(name + "." + part, columns, scale);
    p.local_column = spec.columns;
    p.tensor_column_step = columns;
    spec.pieces.push_back(p);
    spec.columns += columns;
  }
  return spec;
}

}  // namespace

void TransformerStage::declare_parameters() {
  for (std::int64_t chunk = 0; chunk < shape_.chunks; ++chunk) {
    parameters_.declare(chunk_parameters(chunk));
  }
}

std::vector<ParameterSpec> TransformerStage::chunk_parameters(std::int64_t chunk) const {
  const std::int64_t h = shape_.model.hidden;
  const GradientSum replicated =
      shape_.sequence_parallel ? GradientSum::kOverTensor : GradientSum::kNone;
  const bool tied = shape_.model.tied_embeddings;
  std::vector<ParameterSpec> specs;
  if (has_head(chunk)) {
    if (!tied || shape_.ends_apart()) {
      specs.push_back(
          row_parallel(head_weight(), shape_.vocabulary, h, uniform_bound(kEmbeddingDeviation)));
      specs.back().sum = tied ? GradientSum::kOverEnds : GradientSum::kNone;
    }
    specs.push_back(constant("head.norm.gamma", h, 1, replicated));
    add_stream_parameters("head.streams", shape_.model.residual_streams, 1, specs);
    if (gpt_) {
      specs.push_back(constant("head.norm.beta", h, 0, replicated));
    }
  }
  for (ParameterSpec& spec : specs) {
    spec.unit = head_unit();
  }
  freeze(specs, 0, false);
  const LayerRange& range = shape_.range(stage_, chunk);
  const std::int64_t predictions = has_head(chunk) ? shape_.predictions : 0;
  for (std::int64_t layer = range.first + range.count + predictions - 1; layer >= range.first;
       --layer) {
    const std::size_t first = specs.size();
    add_layer_parameters(layer, specs);
    if (layer >= shape_.model.layers) {
      add_prediction_parameters(layer, specs);
    }
    freeze(specs, first, true);
    if (job_.lora) {
      add_adapter_parameters(fmt::format("layer.{}.", layer), specs);
    }
    for (std::size_t i = first; i < specs.size(); ++i) {
      specs[i].unit = layer;
      const bool trained_narrow = gathers_narrow() && specs[i].sum == GradientSum::kNone;
      if (specs[i].of_product && (trained_narrow || keeps_narrow())) {
        specs[i].sum = GradientSum::kNarrow;
        specs[i].stored = products_;
      }
    }
  }
  const bool copies = predictions > 0 && shape_.ends_apart() && !tied;  // what they look up
  if (has_embedding(chunk) || copies) {
    const std::size_t first = specs.size();
    add_embedding_parameters(specs);
    freeze(specs, first, false);
    for (std::size_t i = first; i < specs.size(); ++i) {
      specs[i].unit = copies ? kHeadUnit : kEmbeddingUnit;
    }
  }
  return specs;
}

void TransformerStage::add_layer_parameters(std::int64_t layer,
                                            std::vector<ParameterSpec>& specs) const {
  const TransformerWorkload& m = shape_.model;
  const std::int64_t h = m.hidden;
  const GradientSum replicated =
      shape_.sequence_parallel ? GradientSum::kOverTensor : GradientSum::kNone;
  const std::string at = fmt::format("layer.{}.", layer);
  // Variance 1 / inputs; the products that end on the residual stream start smaller by sqrt(2
  // layers), one share each.
  const double in = uniform_bound(1 / std::sqrt(static_cast<double>(h)));
  const double share = 1 / std::sqrt(2.0 * static_cast<double>(m.layers));
  const double from_heads =
      share * uniform_bound(1 / std::sqrt(static_cast<double>(m.query_width())));
  const double from_ffn = share * uniform_bound(1 / std::sqrt(static_cast<double>(m.ffn_hidden)));
  const std::int64_t kv = shape_.kv_heads * m.head_dim;
  std::vector<std::pair<const char*, std::int64_t>> fc1{{"up", shape_.ffn}};
  if (m.gated()) {
    fc1.insert(fc1.begin(), {"gate", shape_.ffn});
  }
  const std::vector<std::pair<const char*, std::int64_t>> qkv{
      {"query", shape_.query_width}, {"key", kv}, {"value", kv}};

  // Tensor ranks that share a key and value head hold its columns alike and sum their gradients.
  const auto share_key_value = [&](ParameterSpec& spec) {
    if (shape_.kv_copies > 1) {
      spec.sum = GradientSum::kOverKeyValue;
      for (std::size_t part = 1; part < spec.pieces.size(); ++part) {
        spec.pieces[part].tensor_column_ranks = shape_.kv_copies;
      }
    }
  };
  const BlockKind kind = m.kind_of(layer);
  const bool experts = kind.feed_forward == FeedForwardKind::kExperts;
  if (experts) {
    add_expert_parameters(at, specs);
  } else if (kind.feed_forward == FeedForwardKind::kDense) {
    specs.push_back(row_parallel(at + "mlp.fc2.weight", shape_.ffn, h, from_ffn));
    specs.push_back(fused_columns(at + "mlp.fc1.weight", h, fc1, in));
  }
  if (!m.parallel_block && kind.feed_forward != FeedForwardKind::kNone) {
    specs.push_back(constant(at + "norm2.gamma", h, 1, replicated));
    add_stream_parameters(at + "streams.feed_forward", m.stream_mappings(), 3, specs);
  }
  if (kind.mixer == MixerKind::kNone) {
    return;
  }
  add_stream_parameters(at + "streams.mixer", m.stream_mappings(), 3, specs);
  if (kind.mixer == MixerKind::kRecurrent) {
    add_recurrent_parameters(at, specs);
    specs.push_back(constant(at + "norm1.gamma", h, 1, replicated));
    return;
  }
  specs.push_back(
      row_parallel(at + "attention.projection.weight", shape_.query_width, h, from_heads));
  if (m.mla) {
    add_latent_parameters(at, specs);
  } else if (m.compressed) {
    add_compressed_parameters(at, kind.mixer, specs);
  } else {
    specs.push_back(fused_columns(at + "attention.qkv.weight", h, qkv, in));
    specs.back().apart = true;
    share_key_value(specs.back());
  }
  if (m.output_gate) {
    specs.push_back(column_parallel(at + "attention.gate.weight", h, shape_.query_width, in));
  }
  specs.push_back(constant(at + "norm1.gamma", h, 1, replicated));
  if (gpt_) {
    if (!experts) {
      specs.push_back(constant(at + "mlp.fc2.bias", h, 0, replicated));
      specs.push_back(fused_columns(at + "mlp.fc1.bias", 1, fc1, 0));
    }
    if (!m.parallel_block) {
      specs.push_back(constant(at + "norm2.beta", h, 0, replicated));
    }
    specs.push_back(constant(at + "attention.projection.bias", h, 0, replicated));
    specs.push_back(fused_columns(at + "attention.qkv.bias", 1, qkv, 0));
    share_key_value(specs.back());
    specs.push_back(constant(at + "norm1.beta", h, 0, replicated));
  }
}

void TransformerStage::add_query_parameters(const std::string& at, std::int64_t rank,
                                            std::int64_t queries,
                                            std::vector<ParameterSpec>& specs) const {
  const std::string query = at + "attention.query_";
  add_columns(query + "up.weight", rank, queries, specs);
  add_norm(query + "norm.gamma", rank, specs);
  add_whole_matrix(query + "down.weight", shape_.model.hidden, rank, specs);
}

void TransformerStage::add_latent_parameters(const std::string& at,
                                             std::vector<ParameterSpec>& specs) const {
  const LatentAttention& a = *shape_.model.mla;
  const std::int64_t h = shape_.model.hidden;
  const std::int64_t queries = shape_.heads * a.query_dim();
  if (a.q_rank > 0) {
    add_query_parameters(at, a.q_rank, queries, specs);
  } else {
    add_columns(at + "attention.query_up.weight", h, queries, specs);
  }
  const std::string latent = at + "attention.latent_";
  add_columns(latent + "up.weight", a.kv_rank, shape_.heads * (a.nope_dim + a.v_dim), specs);
  add_norm(latent + "norm.gamma", a.kv_rank, specs);
  add_whole_matrix(latent + "down.weight", h, a.kv_rank + a.rope_dim, specs);
  if (shape_.sparse) {
    add_index_parameters(at, specs);
  }
}

void TransformerStage::add_recurrent_parameters(const std::string& at,
                                                std::vector<ParameterSpec>& specs) const {
  const RecurrentMixer& r = *shape_.model.recurrent;
  const std::int64_t h = shape_.model.hidden;
  const std::int64_t t = shape_.tensor;
  const double share = 1 / std::sqrt(2.0 * static_cast<double>(shape_.model.layers));
  const auto scale = [](std::int64_t inputs) {
    return uniform_bound(1 / std::sqrt(static_cast<double>(inputs)));
  };
  const auto columns = [&](const std::string& name, std::int64_t rows,
                           const std::vector<RecurrentMixer::Columns>& parts, bool of_product) {
    std::vector<std::pair<const char*, std::int64_t>> blocks;
    for (const RecurrentMixer::Columns& part : parts) {
      blocks.emplace_back(part.name, part.columns);
    }
    specs.push_back(fused_columns(name, rows, blocks, scale(rows)));
    specs.back().of_product = of_product;
  };
  const std::string name = at + "recurrent.";
  specs.push_back(row_parallel(name + "out.weight", r.values() / t, h, share * scale(r.values())));
  if (r.scans()) {  // a norm of each head's columns has one vector for all heads
    const bool of_all = r.norm_columns(t) == r.norm_columns(1) && t > 1;
    specs.push_back(constant(name + "norm.gamma", r.norm_columns(t), 1,
                             of_all ? GradientSum::kOverTensor : GradientSum::kNone));
    columns(name + "vectors", 1, r.vectors(t), false);
  }
  columns(name + "convolution.weight", r.kernel + (r.convolution_bias() ? 1 : 0), r.convolved(t),
          false);
  for (const RecurrentMixer::Columns& gate : r.narrow_gates(t)) {
    const std::string of = name + gate.name;
    add_columns(of + "_up.weight", r.gate_rank, gate.columns, specs);
    add_whole_matrix(of + "_down.weight", h, r.gate_rank, specs);
  }
  columns(name + "in.weight", h, r.inputs(t), true);
}

/// The experts held here lie one below the other; a router is whole on every rank, which sees only
/// part of what its gradient sums.
void TransformerStage::add_expert_parameters(const std::string& at,
                                             std::vector<ParameterSpec>& specs) const {
  const TransformerWorkload& m = shape_.model;
  const ExpertShape& e = *shape_.experts;
  const std::int64_t h = m.hidden;
  const std::int64_t in_width = e.width;
  const double in = uniform_bound(1 / std::sqrt(static_cast<double>(h)));
  const double share = 1 / std::sqrt(2.0 * static_cast<double>(m.layers));
  const auto out = [&](std::int64_t width) {
    return share * uniform_bound(1 / std::sqrt(static_cast<double>(width)));
  };
  const auto fc1 = [&](std::int64_t width) {
    std::vector<std::pair<const char*, std::int64_t>> blocks{{"up", width}};
    if (m.gated()) {
      blocks.insert(blocks.begin(), {"gate", width});
    }
    return blocks;
  };
  const GradientSum partial = shape_.tensor > 1 ? GradientSum::kOverTensor : GradientSum::kNone;
  // Each expert's matrix is split over tensor ranks, or whole on one of them.
  const std::int64_t columns_step = e.tensor > 1 ? 1 : 0;
  specs.push_back(
      row_parallel(at + "moe.fc2.weight", e.local * e.ffn, in_width, out(m.moe->ffn_hidden)));
  specs.back().replicas = Replicas::kExperts;
  specs.back().matrices = e.local;
  for (ParameterPiece& p : specs.back().pieces) {
    p.tensor_row_step = columns_step * e.ffn;
    p.row_group = e.ffn;
    p.row_group_step = m.moe->ffn_hidden;
    p.expert_row_step = e.local * m.moe->ffn_hidden;
  }
  specs.push_back(fused_columns(at + "moe.fc1.weight", e.local * in_width, fc1(e.ffn), in));
  specs.back().replicas = Replicas::kExperts;
  specs.back().matrices = e.local;
  for (ParameterPiece& p : specs.back().pieces) {
    p.tensor_column_step *= columns_step;
    p.expert_row_step = e.local * in_width;
  }
  specs.push_back({at + "moe.router.weight",
                   h,
                   m.moe->experts,
                   {piece(at + "moe.router.weight", m.moe->experts, in)},
                   partial});
  specs.back().matrices = 1;
  if (has_latent_experts()) {
    add_whole_matrix(at + "moe.latent_up.weight", in_width, h, specs);
    specs.back().sum = partial;
    add_whole_matrix(at + "moe.latent_down.weight", h, in_width, specs);
    specs.back().sum = partial;
  }
  if (e.shared_ffn > 0) {
    specs.push_back(row_parallel(at + "moe.shared.fc2.weight", e.shared_ffn, h,
                                 out(m.moe->shared * m.moe->ffn_hidden)));
    specs.push_back(fused_columns(at + "moe.shared.fc1.weight", h, fc1(e.shared_ffn), in));
  }
}

void TransformerStage::add_norm(const std::string& name, std::int64_t columns,
                                std::vector<ParameterSpec>& specs) const {
  specs.push_back(constant(
      name, columns, 1, shape_.sequence_parallel ? GradientSum::kOverTensor : GradientSum::kNone));
}

void TransformerStage::add_columns(const std::string& name, std::int64_t rows, std::int64_t columns,
                                   std::vector<ParameterSpec>& specs) const {
  specs.push_back(column_parallel(name, rows, columns,
                                  uniform_bound(1 / std::sqrt(static_cast<double>(rows)))));
}

void TransformerStage::add_group_matrices(const std::string& name, std::int64_t groups,
                                          std::int64_t rows, std::int64_t columns,
                                          std::vector<ParameterSpec>& specs) const {
  specs.push_back(row_parallel(name, groups * rows, columns,
                               uniform_bound(1 / std::sqrt(static_cast<double>(rows)))));
  specs.back().of_product = false;
  specs.back().matrices = groups;
  specs.back().whole = true;
}

void TransformerStage::add_whole_matrix(const std::string& name, std::int64_t rows,
                                        std::int64_t columns,
                                        std::vector<ParameterSpec>& specs) const {
  const double scale = uniform_bound(1 / std::sqrt(static_cast<double>(rows)));
  specs.push_back({name,
                   rows,
                   columns,
                   {piece(name, columns, scale)},
                   shape_.sequence_parallel ? GradientSum::kOverTensor : GradientSum::kNone});
  specs.back().of_product = true;
}

void TransformerStage::add_embedding_parameters(std::vector<ParameterSpec>& specs) const {
  const std::int64_t h = shape_.model.hidden;
  const double scale = uniform_bound(kEmbeddingDeviation);
  if (gpt_) {  // each tensor rank adds its columns before the sum over ranks
    specs.push_back(
        column_parallel("embedding.positions", shape_.positions, h / shape_.tensor, scale));
  }
  specs.push_back(row_parallel("embedding.weight", shape_.vocabulary, h, scale));
  const bool copied =
      (shape_.model.tied_embeddings || shape_.predictions > 0) && shape_.ends_apart();
  specs.back().sum = copied ? GradientSum::kOverEnds : GradientSum::kNone;
}

}  // namespace stepcast::workloads
