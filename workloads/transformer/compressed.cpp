#include <fmt/format.h>

#include <algorithm>

#include "workloads/transformer/stage.h"

// Attention to compressed keys (DeepSeek-V4 technical report, section 2.3; transformers,
// models/deepseek_v4). One vector of a token is the key and the value of all heads:
//
//   norm1 -> query_down -> norm -> [gather] -> query_up -> norm of each head -> rope -+
//   norm1 -> latent_down -+-> norm -> [gather] ------------------------------> rope -+-> core
//                         +-> compress, norm: a key of several tokens -> [gather] ---+
//   core -> rope back -> output_groups (a product for each group of heads) -> projection
//
// Beside the keys of its window, a query t sees those of min(t / ratio, top_k) groups of tokens
// that an indexer chose (csa, whose groups overlap: twice the columns), or of t / heavy_ratio
// (hca). The core is costed as over a window with as many pairs; what is whole on every tensor rank
// in latent attention is so here.
namespace stepcast::workloads {

using op_flags::kAccumulate;

TransformerStage::Compressor TransformerStage::compressor(MixerKind mixer) const {
  const CompressedAttention& a = *shape_.model.compressed;
  const std::int64_t d = shape_.model.head_dim;
  switch (mixer) {
    case MixerKind::kCompressedSparse:
      return {a.ratio, 2 * d, d + 4 * d};
    case MixerKind::kHeavilyCompressed:
      return {a.heavy_ratio, d, d + 2 * d};
    default:
      return {0, 0, d};
  }
}

/// Keys of several tokens for so many tokens.
std::int64_t TransformerStage::Compressor::keys(std::int64_t tokens) const {
  return std::max<std::int64_t>(1, tokens / ratio);
}

TransformerStage::LatentTensors TransformerStage::compressed_tensors(const std::string& at,
                                                                     MixerKind mixer) {
  const TransformerWorkload& m = shape_.model;
  const Compressor c = compressor(mixer);
  const std::int64_t n = shape_.rows;
  LatentTensors t;
  query_tensors(at, true, m.compressed->q_rank, t);
  const std::string of = fmt::format("of_{}", c.inputs);  // temporaries of a name have one size
  t.key = kept(true, at + "latent.key." + of, n, c.inputs, compute_);
  t.key_norm = kept(true, at + "latent.key_norm", n, m.head_dim, compute_);
  t.key_statistics = kept(true, at + "latent.key_statistics", n, 2, Format::kFp32);
  if (c.ratio > 0) {
    t.summary = kept(true, at + "latent.summary." + of, c.keys(n), m.head_dim, compute_);
  }
  t.attended = kept(true, at + "attended", shape_.tokens, shape_.core_outputs, compute_);
  if (mixer == MixerKind::kCompressedSparse) {
    index_tensors(at, true, t);
  }
  return t;
}

void TransformerStage::add_compressed_parameters(const std::string& at, MixerKind mixer,
                                                 std::vector<ParameterSpec>& specs) const {
  const TransformerWorkload& m = shape_.model;
  const CompressedAttention& a = *m.compressed;
  const Compressor c = compressor(mixer);
  const std::string name = at + "attention.";
  add_group_matrices(name + "output_groups.weight", a.groups / shape_.tensor,
                     m.query_width() / a.groups, a.output_rank, specs);
  add_columns(name + "sinks", 1, shape_.heads, specs);
  specs.back().of_product = false;
  add_query_parameters(at, a.q_rank, shape_.core_queries, specs);
  add_norm(name + "latent_norm.gamma", m.head_dim, specs);
  add_whole_matrix(name + "latent_down.weight", m.hidden, c.inputs, specs);
  if (c.ratio > 0) {
    add_norm(name + "compress_norm.gamma", m.head_dim, specs);
    add_whole_matrix(name + "compress_places", c.ratio, c.columns, specs);
    specs.back().of_product = false;
  }
  if (mixer == MixerKind::kCompressedSparse) {
    add_index_parameters(at, specs);
    add_norm(name + "index_norm.gamma", m.sparse->index_head_dim, specs);
    specs.back().sum = GradientSum::kNone;  // each tensor rank reads the rows of all
    add_whole_matrix(name + "index_places", c.ratio, 2 * m.sparse->index_head_dim, specs);
    specs.back().sum = GradientSum::kNone;
    specs.back().of_product = false;
  }
}

/// A sum or gather of keys of several tokens over tensor ranks, in a buffer of its own.
TensorId TransformerStage::exchange_summary(OpKind kind, const std::string& name, TensorId from,
                                            std::int64_t rows) {
  OpWriter::Transfer t;
  t.kind = kind;
  t.name = name;
  t.elements = std::max(rows, rows_of(from)) * columns_of(from);
  const std::string buffer = fmt::format("{}.{}", name, rows);
  t.in = {from};
  t.out = {writer_.workspace(buffer, rows, columns_of(from), compute_)};
  t.communicator = communicators_.tensor;
  t.format = compute_;
  writer_.await(writer_.transfer(Channel::kTensor, t));
  return t.out.front();
}

void TransformerStage::compressed_forward(const std::string& at, const LayerTensors& t) {
  const TransformerWorkload& m = shape_.model;
  const CompressedAttention& a = *m.compressed;
  const Compressor c = compressor(t.kind.mixer);
  const std::int64_t n = shape_.tokens;
  const double each = bits_per_element(compute_) / 8;
  const TensorId query = writer_.workspace("compressed.queries", n, shape_.core_queries, compute_);
  query_down_forward(at, t);
  const Gathered from = gathered("layer.attention.gather_query", t.latent.query_norm, Rows::kQuery);
  writer_.await(from.ready);
  query_up_forward(at, from, query);
  if (t.kind.mixer == MixerKind::kCompressedSparse) {
    index_forward(at, t, from.tensor);
  }
  writer_.product("layer.attention", {{"latent_down", c.inputs}},
                  [&] { gemm(product(latent_down(at), t.norm1, t.latent.key)); });
  norm_forward("layer.attention.latent_norm", at + "attention.latent_norm", t.latent.key,
               t.latent.key_norm, t.latent.key_statistics);
  const Gathered key = gathered("layer.attention.gather_latent", t.latent.key_norm, Rows::kLatent);
  std::vector<TensorId> seen{query, key.tensor, parameter(at + "attention.sinks").weight};
  if (c.ratio > 0) {
    pass_over("layer.attention.compress", shape_.rows, c.columns,
              {t.latent.key, parameter(at + "attention.compress_places").weight,
               parameter(at + "attention.compress_norm.gamma").weight},
              {t.latent.summary}, 2 * each, each / static_cast<double>(c.ratio));
    seen.push_back(shape_.sequence_parallel
                       ? exchange_summary(OpKind::kAllGather, "layer.attention.gather_summary",
                                          t.latent.summary, c.keys(n))
                       : t.latent.summary);
  }
  writer_.await(key.ready);
  writer_
      .compute(OpKind::kRopeForward, "layer.attention.rope",
               {n, shape_.heads + 1, a.rope_dim, a.rope_dim})
      .in({query, key.tensor})
      .out({query, key.tensor});
  // With the norm of each head's query.
  pass_over("layer.attention.assemble", n, shape_.qkv_width, seen, {t.qkv}, each, each);
}

/// Keys of an indexer that stand for several tokens.
void TransformerStage::compress_index(const std::string& at, TensorId keys, bool backward) {
  const double each = bits_per_element(compute_) / 8;
  const auto& places = parameter(at + "attention.index_places");
  const auto& gamma = parameter(at + "attention.index_norm.gamma");
  const std::int64_t columns = 2 * shape_.model.sparse->index_head_dim;
  std::vector<TensorId> out{keys};
  if (backward) {
    out.insert(out.end(), {places.gradient, gamma.gradient});
  }
  const double keys_written = backward ? 2 : 1 / static_cast<double>(index_inputs().ratio);
  pass_over(backward ? "layer.attention.index_compress_gradient" : "layer.attention.index_compress",
            shape_.tokens, columns, {keys, places.weight, gamma.weight}, out, 2 * each,
            keys_written * each);
}

/// Outputs turned back to the query's place, then a product for each group of heads.
void TransformerStage::grouped_output(const std::string& at, const LayerTensors& t) {
  const CompressedAttention& a = *shape_.model.compressed;
  const std::int64_t groups = a.groups / shape_.tensor;
  writer_
      .compute(OpKind::kRopeForward, "layer.attention.rope_back",
               {shape_.tokens, shape_.heads, a.rope_dim, a.rope_dim})
      .in({t.latent.attended})
      .out({t.latent.attended});
  writer_
      .compute(OpKind::kGemm, "layer.attention.output_groups",
               {shape_.tokens, a.output_rank, shape_.core_outputs / groups, groups})
      .in({t.latent.attended, parameter(at + "attention.output_groups.weight").weight})
      .out({t.attention});
}

TensorId TransformerStage::grouped_output_backward(const std::string& at, const LayerTensors& t,
                                                   TensorId d_attention) {
  const CompressedAttention& a = *shape_.model.compressed;
  const std::int64_t groups = a.groups / shape_.tensor;
  const TensorId d_attended = writer_.workspace("compressed.gradient.attended", shape_.tokens,
                                                shape_.core_outputs, compute_);
  gradient_of_parts(
      "layer.attention.output_groups", parameter(at + "attention.output_groups.weight"), groups,
      shape_.core_outputs / groups, a.output_rank, t.latent.attended, d_attention, d_attended);
  writer_
      .compute(OpKind::kRopeBackward, "layer.attention.rope_back_gradient",
               {shape_.tokens, shape_.heads, a.rope_dim, a.rope_dim})
      .in({d_attended})
      .out({d_attended});
  return d_attended;
}

/// From the gradient of queries and keys to that of the norm's output, this rank's rows of it.
TensorId TransformerStage::compressed_backward(const std::string& at, const LayerTensors& t,
                                               TensorId d_qkv) {
  const TransformerWorkload& m = shape_.model;
  const CompressedAttention& a = *m.compressed;
  const Compressor c = compressor(t.kind.mixer);
  const std::int64_t n = shape_.tokens;
  const double each = bits_per_element(compute_) / 8;
  const TensorId d_query =
      writer_.workspace("compressed.queries", n, shape_.core_queries, compute_);
  const TensorId d_key = writer_.workspace("compressed.gradient.key", n, m.head_dim, compute_);
  const TensorId d_down = writer_.workspace(fmt::format("compressed.gradient.down.{}", c.inputs),
                                            shape_.rows, c.inputs, compute_);
  std::vector<TensorId> parts{d_query, d_key, parameter(at + "attention.sinks").gradient};
  TensorId d_summary = 0;
  if (c.ratio > 0) {
    d_summary = writer_.workspace(fmt::format("compressed.gradient.summary.{}", c.ratio), c.keys(n),
                                  m.head_dim, compute_);
    parts.push_back(d_summary);
  }
  pass_over("layer.attention.assemble_gradient", n, shape_.qkv_width, {d_qkv, t.qkv}, parts,
            2 * each, each);
  writer_
      .compute(OpKind::kRopeBackward, "layer.attention.rope_gradient",
               {n, shape_.heads + 1, a.rope_dim, a.rope_dim})
      .in({d_query, d_key})
      .out({d_query, d_key});
  const TensorId d_norm = query_backward(at, t, d_query);
  const Gathered sum = reduced("layer.attention.reduce_latent_gradient", d_key, "reduced.latent");
  writer_.await(sum.ready);
  norm_backward("layer.attention.latent_norm_gradient", at + "attention.latent_norm",
                {sum.tensor, t.latent.key, t.latent.key_statistics, sum.tensor, d_down});
  if (c.ratio > 0) {
    if (shape_.tensor > 1) {
      d_summary = exchange_summary(
          shape_.sequence_parallel ? OpKind::kReduceScatter : OpKind::kAllReduce,
          "layer.attention.reduce_summary_gradient", d_summary, c.keys(shape_.rows));
    }
    const auto& places = parameter(at + "attention.compress_places");
    const auto& gamma = parameter(at + "attention.compress_norm.gamma");
    pass_over("layer.attention.compress_gradient", shape_.rows, c.columns,
              {t.latent.key, t.latent.summary, d_summary, places.weight, gamma.weight},
              {d_down, places.gradient, gamma.gradient}, 2 * each, 2 * each);
  }
  both_gradients(latent_down(at), t.norm1, d_down, d_norm, kAccumulate);
  return d_norm;
}

}  // namespace stepcast::workloads
