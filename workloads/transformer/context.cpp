#include <algorithm>

#include "workloads/transformer/stage.h"

// Attention of queries that are only the last, or only a part, of the tokens whose keys and values
// they see: context parallelism and cached tokens. Ranks hold chunks i and 2 c - 1 - i of each
// sequence, so that a causal mask leaves all of them the same work.
namespace stepcast::workloads {

/// A causal core whose queries are the last of its keys: q (k - q) + q^2 / 2 scores. Inference
/// reads keys and values as they are kept.
void TransformerStage::attend(const Attend& a) {
  const bool backward = a.kind == OpKind::kAttentionBackward;
  auto op =
      writer_.compute(a.kind, backward ? "layer.attention.core_gradient" : "layer.attention.core",
                      {a.batch, a.heads, a.kv_heads, a.queries, a.keys, shape_.core_dim});
  op.in(a.in).out(a.out).format(attention_).flags(op_flags::kCausal);
  const auto q = static_cast<double>(a.queries);
  const auto k = static_cast<double>(a.keys);
  const double wider =
      shape_.inference ? bits_per_element(attention_) - bits_per_element(cached_) : 0;
  const Bytes saved(2 * static_cast<double>(a.batch * a.kv_heads * shape_.core_dim) * k * wider /
                    8);
  op.work(op.op().flops * ((k - q / 2) / (k / 2)), op.op().bytes_read - saved,
          op.op().bytes_written);
}

/// To the next rank of the ring. Pairs half a ring apart stand for its neighbours: as many bytes
/// over the widest hop there is.
OpWriter::Event TransformerStage::shift(const char* name, std::int64_t elements, TensorId from,
                                        TensorId to) {
  OpWriter::Transfer t;
  t.kind = OpKind::kAllToAll;
  t.name = name;
  const std::int64_t c = shape_.context;
  t.elements = c % 2 == 0 ? 2 * elements : elements * c / (c - 1);
  t.in = {from};
  t.out = {to};
  t.communicator = communicators_.ring;
  t.format = writer_.builder().tensor_at(from).format;
  return writer_.transfer(Channel::kContext, t);
}

void TransformerStage::exchange_context(OpKind kind, const char* name, std::int64_t elements,
                                        TensorId from, TensorId to, std::optional<Format> format) {
  OpWriter::Transfer t;
  t.kind = kind;
  t.name = name;
  t.elements = elements;
  t.in = {from};
  t.out = {to};
  t.communicator = communicators_.context;
  t.format = format.value_or(attention_);
  writer_.transfer(Channel::kCompute, t);
}

void TransformerStage::merge_partial(TensorId partial, TensorId into, std::int64_t parts) {
  writer_
      .compute(OpKind::kAdd, "layer.attention.merge", {parts * shape_.tokens, shape_.query_width})
      .in({into, partial})
      .out({into});
}

void TransformerStage::context_forward(const LayerTensors& t) {
  const std::int64_t c = shape_.context;
  const std::int64_t n = shape_.tokens;
  const std::int64_t kv = 2 * shape_.kv_heads * shape_.core_dim;
  const std::int64_t cached = shape_.cached;  // of this rank
  const TensorId store = shape_.inference ? t.cache : t.qkv;
  const std::int64_t block = shape_.held_sequences * (shape_.sequence + cached) * kv;
  Attend a{OpKind::kAttentionForward,
           shape_.samples,
           shape_.heads,
           shape_.kv_heads,
           shape_.sequence,
           shape_.sequence + cached,
           {t.qkv, store},
           {t.attention, t.log_sum_exp}};
  if (shape_.inference) {
    auto op = writer_.compute(OpKind::kCopyColumns, "layer.attention.cache", {n, kv});
    op.in({t.qkv}).out({store});
    op.work(op.op().flops, op.op().bytes_read, format_bytes(cached_, n, kv));
  }
  if (c == 1) {
    attend(a);
    return;
  }
  switch (shape_.algorithm) {
    case ContextAlgorithm::kAuto:
    case ContextAlgorithm::kAllGather: {
      const Format kept = writer_.builder().tensor_at(store).format;
      const TensorId all = writer_.workspace("context.keys_values", c, block, kept);
      exchange_context(OpKind::kAllGather, "layer.attention.gather_context", c * block, store, all,
                       kept);
      a.batch *= 2;  // both chunks; their keys are 2 c + 1 chunks together, whichever they are
      a.queries = shape_.sequence / 2;
      a.keys = cached * c + (2 * c + 1) * a.queries / 2;
      a.in = {t.qkv, all};
      attend(a);
      return;
    }
    case ContextAlgorithm::kPassKv: {
      for (std::int64_t s = 0; s < c; ++s) {
        const TensorId next = ring_block(s + 1, block, writer_.builder().tensor_at(store).format);
        const auto arrived =
            s + 1 < c ? shift("layer.attention.pass_kv", block, a.in[1], next) : -1;
        attend(a);
        if (s > 0) {
          merge_partial(t.attention, t.attention, 1);
        }
        writer_.await(arrived);
        a.in[1] = next;
      }
      return;
    }
    case ContextAlgorithm::kPassQ:
      pass_queries(a, t);
      return;
    case ContextAlgorithm::kAllToAll:
      exchange_heads(a, t);
      return;
  }
}

/// Each rank attends to its own keys for the queries of all; partial sums return to their rank.
void TransformerStage::pass_queries(Attend a, const LayerTensors& t) {
  const std::int64_t c = shape_.context;
  const std::int64_t queries = shape_.tokens * shape_.query_width;
  const TensorId partial = writer_.workspace("context.partial", c, queries, attention_);
  const TensorId own = writer_.workspace("context.partial_own", c, queries, attention_);
  a.out[0] = partial;
  for (std::int64_t s = 0; s < c; ++s) {
    const TensorId next = ring_block(s + 1, queries);
    const auto arrived = s + 1 < c ? shift("layer.attention.pass_q", queries, a.in[0], next) : -1;
    attend(a);
    writer_.await(arrived);
    a.in[0] = next;
  }
  exchange_context(OpKind::kAllToAll, "layer.attention.return_partial", c * queries, partial, own);
  merge_partial(own, t.attention, c);
}

/// Parts of sequences become parts of the heads, and back.
void TransformerStage::exchange_heads(Attend a, const LayerTensors& t) {
  const std::int64_t c = shape_.context;
  const std::int64_t n = shape_.tokens;
  const TensorId whole = writer_.workspace("context.qkv", n, shape_.qkv_width, attention_);
  const TensorId out = writer_.workspace("context.out", n, shape_.query_width, attention_);
  exchange_context(OpKind::kAllToAll, "layer.attention.scatter_heads", n * shape_.qkv_width, t.qkv,
                   whole);
  a.heads /= c;
  a.kv_heads /= c;
  a.queries *= c;
  a.keys *= c;
  a.in = {whole, whole};
  a.out[0] = out;
  attend(a);
  exchange_context(OpKind::kAllToAll, "layer.attention.gather_heads", n * shape_.query_width, out,
                   t.attention);
}

void TransformerStage::context_backward(const LayerTensors& t, TensorId d_attention,
                                        TensorId d_qkv) {
  const std::int64_t c = shape_.context;
  const std::int64_t n = shape_.tokens;
  const std::int64_t block = n * 2 * shape_.kv_heads * shape_.core_dim;
  Attend a{OpKind::kAttentionBackward,
           shape_.samples,
           shape_.heads,
           shape_.kv_heads,
           shape_.sequence,
           shape_.sequence,
           {t.qkv, t.qkv, t.attention, t.log_sum_exp, d_attention},
           {d_qkv}};
  switch (shape_.algorithm) {
    case ContextAlgorithm::kAuto:
    case ContextAlgorithm::kPassQ:
    case ContextAlgorithm::kAllGather: {
      const TensorId all = writer_.workspace("context.keys_values", c, block, attention_);
      const TensorId gradients = writer_.workspace("context.kv_gradients", c, block, attention_);
      exchange_context(OpKind::kAllGather, "layer.attention.gather_context", c * block, t.qkv, all);
      a.batch *= 2;
      a.queries = shape_.sequence / 2;
      a.keys = (2 * c + 1) * a.queries / 2;
      a.in[1] = all;
      a.out = {d_qkv, gradients};
      attend(a);
      exchange_context(OpKind::kReduceScatter, "layer.attention.reduce_context", c * block,
                       gradients, d_qkv);
      return;
    }
    case ContextAlgorithm::kPassKv: {
      // Gradients of a block follow it around the ring, a step behind, and come home.
      OpWriter::Event returned = -1;
      TensorId gradients = writer_.workspace("context.gradients.0", 1, block, attention_);
      a.out = {d_qkv, gradients};
      for (std::int64_t s = 0; s < c; ++s) {
        const TensorId next = ring_block(s + 1, block);
        const auto arrived =
            s + 1 < c ? shift("layer.attention.pass_kv", block, a.in[1], next) : -1;
        writer_.await(returned);
        attend(a);
        const TensorId onward = writer_.workspace(
            s % 2 == 0 ? "context.gradients.1" : "context.gradients.0", 1, block, attention_);
        returned = shift("layer.attention.pass_kv_gradient", block, a.out[1], onward);
        writer_.await(arrived);
        a.in[1] = next;
        a.out[1] = onward;
      }
      writer_.await(returned);
      return;
    }
    case ContextAlgorithm::kAllToAll: {
      const TensorId whole = writer_.workspace("context.qkv", n, shape_.qkv_width, attention_);
      const TensorId out = writer_.workspace("context.out", n, shape_.query_width, attention_);
      exchange_context(OpKind::kAllToAll, "layer.attention.scatter_gradients",
                       n * shape_.query_width, d_attention, out);
      a.heads /= c;
      a.kv_heads /= c;
      a.queries *= c;
      a.keys *= c;
      a.in[4] = out;
      a.out = {whole};
      attend(a);
      exchange_context(OpKind::kAllToAll, "layer.attention.gather_gradients", n * shape_.qkv_width,
                       whole, d_qkv);
      return;
    }
  }
}

/// The blocks of a ring: one at work, one on its way.
TensorId TransformerStage::ring_block(std::int64_t step, std::int64_t elements,
                                      std::optional<Format> format) {
  return writer_.workspace(step % 2 == 0 ? "context.block.0" : "context.block.1", 1, elements,
                           format.value_or(attention_));
}

}  // namespace stepcast::workloads
