#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "workloads/transformer/split_attention.h"
#include "workloads/transformer/stage.h"

// Sparse attention (DeepSeek-V3.2, arXiv 2512.02556, section 2.1), over sequences longer than
// top_k:
//
//   query norm -> index_query -+
//   hidden --> index_down ---> rope -> scores -> select -> core over the chosen keys
//
// The indexer scores each pair of a query and a key before it, as a product of its heads' width, 2
// index_heads index_head_dim FLOPs; every tensor rank does all of it. The core has one latent
// vector of a token as the key and value of all heads (section 2.1.2 there), so queries are
// projected onto it before and values made after it, as in decoding: 2 heads (2 kv_rank + rope_dim)
// FLOPs a pair, of min(keys before it, top_k) for each query. What the indexer reads has no
// gradient from it: its loss, over the chosen keys, trains its own matrices. Not counted: that
// loss's attention weights, and the norm of its keys.
namespace stepcast::workloads {

using op_flags::kAccumulate;
using op_flags::kTransposeA;
using op_flags::kTransposeB;

namespace {

/// Queries whose scores are held at a time.
constexpr std::int64_t kScoredAtOnce = 1024;

std::int64_t index_width(const SparseAttention& s) { return s.index_heads * s.index_head_dim; }

}  // namespace

TransformerStage::IndexInputs TransformerStage::index_inputs() const {
  const SparseAttention& s = *shape_.model.sparse;
  if (const auto& a = shape_.model.compressed) {  // overlapping groups, each token weighed
    return {a->q_rank, a->rope_dim, s.index_heads + 4 * s.index_head_dim, a->ratio};
  }
  const LatentAttention& a = *shape_.model.mla;
  return {a.q_rank, a.rope_dim, s.index_heads + s.index_head_dim, 1};
}

double TransformerStage::IndexInputs::pairs(std::int64_t positions, std::int64_t at_most) const {
  const auto tokens = static_cast<double>(ratio);
  return tokens *
         causal_pairs(0, static_cast<double>(positions) / tokens, static_cast<double>(at_most));
}

void TransformerStage::index_tensors(const std::string& at, bool keep, LatentTensors& t) {
  const SparseAttention& s = *shape_.model.sparse;
  const std::int64_t n = shape_.tokens;
  t.index_query = kept(keep, at + "index.query", n, index_width(s), compute_);
  t.index_key = kept(keep, at + "index.key", n, index_inputs().columns, compute_);
  t.chosen = kept(keep, at + "index.chosen", n, s.top_k, Format::kInt32);
}

void TransformerStage::add_index_parameters(const std::string& at,
                                            std::vector<ParameterSpec>& specs) const {
  const SparseAttention& s = *shape_.model.sparse;
  const auto add = [&](const char* name, std::int64_t rows, std::int64_t columns) {
    add_whole_matrix(at + name, rows, columns, specs);
    specs.back().sum = GradientSum::kNone;  // each tensor rank reads the rows of all
  };
  add("attention.index_query.weight", index_inputs().rank, index_width(s));
  add("attention.index_down.weight", shape_.model.hidden, index_inputs().columns);
}

/// Products of the indexer's queries with its keys, for so many pairs, so many times.
void TransformerStage::index_product(const char* name, double pairs, double times,
                                     std::vector<TensorId> in, std::vector<TensorId> out) {
  const SparseAttention& s = *shape_.model.sparse;
  const auto n = static_cast<double>(shape_.tokens);
  const double e = bits_per_element(compute_) / 8;
  auto op = writer_.compute(
      OpKind::kGemm, name,
      {shape_.tokens, std::max<std::int64_t>(1, std::llround(pairs / n)), index_width(s), 1});
  op.in(in).out(out).attributes(
      GemmAttributes{.repeated = shape_.tensor > 1 ? Repeated::kAll : Repeated::kNothing});
  op.work(Flops(times * 2 * pairs * static_cast<double>(index_width(s))),
          Bytes(times * n * static_cast<double>(index_width(s) + index_inputs().columns) * e),
          Bytes(times * pairs * 4));
}

void TransformerStage::index_forward(const std::string& at, const LayerTensors& t,
                                     TensorId query_norm) {
  const SparseAttention& s = *shape_.model.sparse;
  const IndexInputs from = index_inputs();
  const std::int64_t n = shape_.tokens;
  const Gathered hidden = gathered("layer.attention.gather_index", t.norm1, Rows::kInput);
  writer_.await(hidden.ready);
  gemm(product(index_matrix(at, "index_query"), query_norm, t.latent.index_query));
  gemm(product(index_matrix(at, "index_down"), hidden.tensor, t.latent.index_key));
  if (shape_.model.compressed) {
    compress_index(at, t.latent.index_key, false);
  }
  writer_
      .compute(OpKind::kRopeForward, "layer.attention.index_rope",
               {n, s.index_heads + 1, from.rope_dim, from.rope_dim})
      .in({t.latent.index_query, t.latent.index_key})
      .out({t.latent.index_query, t.latent.index_key});
  const double pairs = static_cast<double>(shape_.samples) * from.pairs(shape_.positions, 0);
  const TensorId scores =
      writer_.workspace("index.scores", std::min(n, kScoredAtOnce),
                        std::max<std::int64_t>(1, shape_.positions / from.ratio), Format::kFp32);
  index_product("layer.attention.index_scores", pairs, 1,
                {t.latent.index_query, t.latent.index_key}, {scores});
  writer_
      .compute(
          OpKind::kSelectKeys, "layer.attention.index_select",
          {n, std::max<std::int64_t>(1, std::llround(pairs / static_cast<double>(n))), s.top_k})
      .in({scores})
      .out({t.latent.chosen});
}

/// Scores of the chosen keys again, their gradients of queries and of keys, and of both matrices.
void TransformerStage::index_backward(const std::string& at, const LayerTensors& t,
                                      TensorId query_norm, TensorId hidden) {
  const SparseAttention& s = *shape_.model.sparse;
  const IndexInputs from = index_inputs();
  const std::int64_t n = shape_.tokens;
  const TensorId d_query = writer_.workspace("index.gradient.query", n, index_width(s), compute_);
  const TensorId d_key = writer_.workspace("index.gradient.key", n, from.columns, compute_);
  const double pairs = static_cast<double>(shape_.samples) * from.pairs(shape_.positions, s.top_k);
  index_product("layer.attention.index_scores_gradient", pairs, 3,
                {t.latent.index_query, t.latent.index_key, t.latent.chosen}, {d_query, d_key});
  writer_
      .compute(OpKind::kRopeBackward, "layer.attention.index_rope_gradient",
               {n, s.index_heads + 1, from.rope_dim, from.rope_dim})
      .in({d_query, d_key})
      .out({d_query, d_key});
  if (shape_.model.compressed) {
    compress_index(at, d_key, true);
  }
  gemm(gradient_of_weight(index_matrix(at, "index_query"), query_norm, d_query));
  gemm(gradient_of_weight(index_matrix(at, "index_down"), hidden, d_key));
}

/// From the gradient of each head's values to that of the latent vectors it attended to.
TensorId TransformerStage::absorbed_output_backward(const LayerTensors& t, TensorId d_attention) {
  const LatentAttention& a = *shape_.model.mla;
  const TensorId d_attended =
      writer_.workspace("latent.gradient.attended", shape_.tokens, shape_.core_outputs, compute_);
  gradient_of_parts("layer.attention.value_up", latent_up(t), shape_.heads, a.kv_rank, a.v_dim,
                    t.latent.attended, d_attention, d_attended);
  return d_attended;
}

/// From the gradient of latent queries and of the vectors they met to that of queries.
void TransformerStage::absorbed_queries_backward(const LayerTensors& t, TensorId d_qkv,
                                                 TensorId d_query, TensorId d_latent) {
  const LatentAttention& a = *shape_.model.mla;
  const TensorId d_absorbed =
      writer_.workspace("latent.absorbed", shape_.tokens, shape_.heads * a.kv_rank, compute_);
  writer_
      .compute(OpKind::kCopyColumns, "layer.attention.assemble_gradient",
               {shape_.tokens, shape_.qkv_width})
      .in({d_qkv})
      .out({d_absorbed, d_query, d_latent});
  gradient_of_parts("layer.attention.query_absorb", latent_up(t), shape_.heads, a.nope_dim,
                    a.kv_rank, t.latent.queries, d_absorbed, d_query);
}

void TransformerStage::gradient_of_parts(const std::string& name,
                                         const ProgramBuilder::Parameter& weight,
                                         std::int64_t parts, std::int64_t n, std::int64_t k,
                                         TensorId rows, TensorId d_out, TensorId d_rows) {
  writer_.compute(OpKind::kGemm, name + "_weight_gradient", {n, k, shape_.tokens, parts})
      .in({rows, d_out})
      .out({weight.gradient})
      .flags(kTransposeA | kAccumulate);
  writer_.compute(OpKind::kGemm, name + "_input_gradient", {shape_.tokens, n, k, parts})
      .in({d_out, weight.weight})
      .out({d_rows})
      .flags(kTransposeB);
}

}  // namespace stepcast::workloads
