#include <fmt/format.h>

#include <algorithm>

#include "workloads/transformer/stage.h"

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1.2; the down projections
// are whole on every tensor rank, as Megatron-LM has them). Queries, keys and values of all heads
// are then formed like those of multi-head attention:
//
//   norm1 -> query_down -> norm -> [gather] -> query_up ----------------> rope -+-> q | k | v
//   norm1 -> latent_down -> norm of kv_rank columns -> [gather] -> latent_up ---+
//
// The core is costed at the mean width of its two products, (query_dim + v_dim) / 2: the same FLOPs
// and bytes.
//
// A cache keeps kv_rank + rope_dim columns of a token, whole on every tensor rank. Prompts are
// worked on as above. Decoding, the up projection is absorbed (section 2.1.2 there): a head's query
// becomes kv_rank + rope_dim wide, all heads read the cached vectors themselves as their keys (all
// columns) and values (kv_rank of them), and outputs are projected up afterwards: 2 heads (2
// kv_rank + rope_dim) FLOPs for each pair of a query and a key, as FlashMLA counts them.
namespace stepcast::workloads {

using op_flags::kAccumulate;

TransformerStage::LatentTensors TransformerStage::latent_tensors(const std::string& at, bool keep) {
  const LatentAttention& a = *shape_.model.mla;
  const std::int64_t n = shape_.rows;
  LatentTensors t;
  if (a.q_rank > 0) {
    query_tensors(at, keep, a.q_rank, t);
  }
  t.key = kept(keep, at + "latent.key", n, a.kv_rank + a.rope_dim, compute_);
  t.key_norm = kept(keep, at + "latent.key_norm", n, a.kv_rank + a.rope_dim, compute_);
  t.key_statistics = kept(keep, at + "latent.key_statistics", n, 2, Format::kFp32);
  if (shape_.sparse) {
    t.queries =
        kept(keep, at + "latent.queries", shape_.tokens, shape_.heads * a.query_dim(), compute_);
    t.attended = kept(keep, at + "attended", shape_.tokens, shape_.core_outputs, compute_);
    index_tensors(at, keep, t);
  }
  return t;
}

void TransformerStage::query_tensors(const std::string& at, bool keep, std::int64_t rank,
                                     LatentTensors& t) {
  const std::int64_t n = shape_.rows;
  t.query = kept(keep, at + "latent.query", n, rank, compute_);
  t.query_norm = kept(keep, at + "latent.query_norm", n, rank, compute_);
  t.query_statistics = kept(keep, at + "latent.query_statistics", n, 2, Format::kFp32);
}

void TransformerStage::query_down_forward(const std::string& at, const LayerTensors& t) {
  const std::int64_t rank = columns_of(t.latent.query);
  writer_.product("layer.attention", {{"query_down", rank}},
                  [&] { gemm(product(query_down(at), t.norm1, t.latent.query)); });
  norm_forward("layer.attention.query_norm", at + "attention.query_norm", t.latent.query,
               t.latent.query_norm, t.latent.query_statistics);
}

void TransformerStage::query_up_forward(const std::string& at, const Gathered& from,
                                        TensorId queries) {
  const std::int64_t columns = columns_of(queries);
  writer_.product("layer.attention", {{"query_up", columns}},
                  [&] { gemm(product(query_up(at), from.tensor, queries)); });
}

void TransformerStage::latent_forward(const std::string& at, const LayerTensors& t) {
  const LatentAttention& a = *shape_.model.mla;
  const std::int64_t n = shape_.tokens;
  const std::int64_t queries = shape_.heads * a.query_dim();
  const std::int64_t keys = shape_.heads * (a.nope_dim + a.v_dim);
  const std::int64_t latent = a.kv_rank + a.rope_dim;
  const TensorId query =
      shape_.sparse ? t.latent.queries : writer_.workspace("latent.queries", n, queries, compute_);
  const TensorId key_value = shape_.inference && shape_.absorbs
                                 ? t.cache
                                 : writer_.workspace("latent.keys_values", n, keys, compute_);
  if (a.q_rank > 0) {
    query_down_forward(at, t);
  }
  writer_.part(LayerPart::kLatentUp, t.layer, [&] {
    const Gathered from =
        a.q_rank > 0 ? gathered("layer.attention.gather_query", t.latent.query_norm, Rows::kQuery)
                     : gathered("layer.attention.gather", t.norm1, Rows::kInput);
    writer_.await(from.ready);
    query_up_forward(at, from, query);
    if (shape_.sparse) {
      index_forward(at, t, from.tensor);
    }
  });
  writer_.product("layer.attention", {{"latent_down", latent}},
                  [&] { gemm(product(latent_down(at), t.norm1, t.latent.key)); });
  norm_forward("layer.attention.latent_norm", at + "attention.latent_norm", t.latent.key,
               t.latent.key_norm, t.latent.key_statistics);
  const auto keys_and_values = [&] {
    const Gathered key =
        gathered("layer.attention.gather_latent", t.latent.key_norm, Rows::kLatent);
    writer_.await(key.ready);
    if (!shape_.absorbs) {
      writer_.product("layer.attention", {{"latent_up", keys}},
                      [&] { gemm(product(latent_up(at), key.tensor, key_value)); });
    }
    writer_
        .compute(OpKind::kRopeForward, "layer.attention.rope",
                 {n, shape_.heads + 1, a.rope_dim, a.rope_dim})
        .in({query, key.tensor})
        .out({query, key.tensor});
    if (shape_.inference) {
      writer_.compute(OpKind::kCopyColumns, "layer.attention.cache", {n, latent})
          .in({key.tensor})
          .out({t.cache});
    }
    if (shape_.absorbs) {
      absorb_queries(t, query, key.tensor);
      return;
    }
    // Keys get the rotary columns that all heads share; queries stay where they are.
    writer_
        .compute(OpKind::kCopyColumns, "layer.attention.assemble", {n, shape_.qkv_width - queries})
        .in({query, key_value, key.tensor})
        .out({t.qkv});
  };
  writer_.part(LayerPart::kLatentUp, t.layer, keys_and_values, 1);
}

/// A product of each head's rows with its columns of the up projection, in the format of
/// activations.
void TransformerStage::gemm_of_heads(const char* name, std::int64_t n, std::int64_t k,
                                     TensorId rows, const LayerTensors& t, TensorId out) {
  writer_.compute(OpKind::kGemm, name, {shape_.tokens, n, k, shape_.heads})
      .in({rows, latent_up(t).weight})
      .out({out});
}

/// Keys are never made while decoding: q (W c) = (q W) c, so a head's query is projected onto the
/// latent vectors that the cache holds.
void TransformerStage::absorb_queries(const LayerTensors& t, TensorId query, TensorId key) {
  const LatentAttention& a = *shape_.model.mla;
  const TensorId latent =
      writer_.workspace("latent.absorbed", shape_.tokens, shape_.heads * a.kv_rank, compute_);
  gemm_of_heads("layer.attention.query_absorb", a.kv_rank, a.nope_dim, query, t, latent);
  writer_
      .compute(OpKind::kCopyColumns, "layer.attention.assemble", {shape_.tokens, shape_.qkv_width})
      .in(shape_.inference ? std::vector<TensorId>{latent, query}
                           : std::vector<TensorId>{latent, query, key})
      .out({t.qkv});
}

/// Values are made of the attended latent vectors.
void TransformerStage::absorbed_output(const LayerTensors& t, TensorId attended) {
  const LatentAttention& a = *shape_.model.mla;
  gemm_of_heads("layer.attention.value_up", a.v_dim, a.kv_rank, attended, t, t.attention);
}

/// Keys and values of the cached tokens before a prompt are made again, so many at a time (as vLLM
/// has it); where they are.
TensorId TransformerStage::cached_keys_values(const LayerTensors& t, const SplitAttention& split) {
  constexpr std::int64_t kTokensAtOnce = 64 * 1024;
  const LatentAttention& a = *shape_.model.mla;
  const std::int64_t rows = shape_.held_sequences * split.cached();
  if (rows == 0) {
    return t.qkv;
  }
  const std::int64_t keys = shape_.heads * (a.nope_dim + a.v_dim);
  const std::int64_t held = std::min(shape_.held_sequences * shape_.cached, kTokensAtOnce);
  const TensorId made = writer_.workspace("latent.cached_up", held, keys, compute_);
  const TensorId all = writer_.workspace("latent.cached", held, shape_.kv_width, compute_);
  gemm({"layer.attention.cached_latent_up", rows, keys, a.kv_rank, t.cache, latent_up(t).weight,
        made});
  writer_.compute(OpKind::kCopyColumns, "layer.attention.cached_assemble", {rows, shape_.kv_width})
      .in({made, t.cache})
      .out({all});
  return all;
}

/// From the gradient of queries to that of the norm's output that they come from.
TensorId TransformerStage::query_backward(const std::string& at, const LayerTensors& t,
                                          TensorId d_query) {
  const TensorId d_narrow = writer_.workspace("latent.gradient.query", shape_.tokens,
                                              columns_of(t.latent.query_norm), compute_);
  const Gathered x = gathered("layer.attention.gather_query", t.latent.query_norm, Rows::kQuery);
  const Gathered sum = columns_backward(query_up(at), x, d_query, d_narrow,
                                        "layer.attention.reduce_query_gradient", "reduced.query");
  if (shape_.sparse || t.kind.mixer == MixerKind::kCompressedSparse) {
    const Gathered hidden = gathered("layer.attention.gather_index", t.norm1, Rows::kInput);
    writer_.await(hidden.ready);
    index_backward(at, t, x.tensor, hidden.tensor);
  }
  writer_.await(sum.ready);
  norm_backward("layer.attention.query_norm_gradient", at + "attention.query_norm",
                {sum.tensor, t.latent.query, t.latent.query_statistics, sum.tensor, sum.tensor});
  const TensorId d_norm =
      writer_.workspace("latent.gradient.hidden", shape_.rows, shape_.model.hidden, compute_);
  both_gradients(query_down(at), t.norm1, sum.tensor, d_norm);
  return d_norm;
}

/// From the gradient of q, k and v to that of the norm's output, this rank's rows of it.
TensorId TransformerStage::latent_backward(const std::string& at, const LayerTensors& t,
                                           TensorId d_qkv) {
  const LatentAttention& a = *shape_.model.mla;
  const std::int64_t h = shape_.model.hidden;
  const std::int64_t n = shape_.tokens;
  const std::int64_t queries = shape_.heads * a.query_dim();
  const std::int64_t keys = shape_.heads * (a.nope_dim + a.v_dim);
  const std::int64_t latent = a.kv_rank + a.rope_dim;
  const TensorId d_query = writer_.workspace("latent.queries", n, queries, compute_);
  const TensorId d_key_value = writer_.workspace("latent.keys_values", n, keys, compute_);
  const TensorId d_latent = writer_.workspace("latent.gradient.key", n, latent, compute_);
  if (shape_.sparse) {
    absorbed_queries_backward(t, d_qkv, d_query, d_latent);
  } else {
    writer_
        .compute(OpKind::kCopyColumns, "layer.attention.assemble_gradient",
                 {n, shape_.qkv_width - queries})
        .in({d_qkv})
        .out({d_query, d_key_value, d_latent});
  }
  writer_
      .compute(OpKind::kRopeBackward, "layer.attention.rope_gradient",
               {n, shape_.heads + 1, a.rope_dim, a.rope_dim})
      .in({d_query, d_latent})
      .out({d_query, d_latent});

  TensorId d_norm = 0;
  if (a.q_rank > 0) {
    d_norm = query_backward(at, t, d_query);
  } else {
    const TensorId partial = writer_.workspace("partial", n, h, compute_);
    const Gathered x = gathered("layer.attention.gather", t.norm1, Rows::kInput);
    const Gathered sum =
        columns_backward(query_up(at), x, d_query, partial, "layer.attention.reduce_gradient");
    writer_.await(sum.ready);
    d_norm = sum.tensor;
  }

  const Gathered x = gathered("layer.attention.gather_latent", t.latent.key_norm, Rows::kLatent);
  if (!shape_.sparse) {
    gemm(gradient_of_input(latent_up(at), d_key_value, d_latent));
  }
  const Gathered sum =
      reduced("layer.attention.reduce_latent_gradient", d_latent, "reduced.latent");
  writer_.await(x.ready);
  if (!shape_.sparse) {
    gemm(gradient_of_weight(latent_up(at), x.tensor, d_key_value));
  }
  writer_.await(sum.ready);
  norm_backward("layer.attention.latent_norm_gradient", at + "attention.latent_norm",
                {sum.tensor, t.latent.key, t.latent.key_statistics, sum.tensor, sum.tensor});
  both_gradients(latent_down(at), t.norm1, sum.tensor, d_norm, kAccumulate);
  return d_norm;
}

}  // namespace stepcast::workloads
