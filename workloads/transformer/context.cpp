#include <algorithm>

#include "workloads/transformer/stage.h"

// Attention of queries that are only the last, or only a part, of the tokens whose keys and values
// they see: context parallelism and cached tokens. Ranks hold chunks i and 2 c - 1 - i of each
// sequence, so that a causal mask leaves all of them the same work.
namespace stepcast::workloads {

/// Inference reads keys and values, or latent vectors, as they are kept.
void TransformerStage::attend(Attend a, const SplitAttention::Part& part, std::int32_t window) {
  const bool backward = a.kind == OpKind::kAttentionBackward;
  a.batch *= part.sequences;
  auto op =
      writer_.compute(a.kind, backward ? "layer.attention.core_gradient" : "layer.attention.core",
                      {a.batch, a.heads, a.kv_heads, part.queries, part.keys, shape_.core_dim});
  op.in(a.in)
      .out(a.out)
      .format(attention_)
      .flags(op_flags::kCausal)
      .attributes(AttentionAttributes{.window = window});
  const auto keys = static_cast<double>(part.keys);
  const double reach = window > 0 ? std::min(1.0, window / keys) : 1;
  const double counted = static_cast<double>(part.queries) * keys * reach * (1 - reach / 2);
  // Latent vectors are keys and values at once.
  const std::int64_t twice = 2 * shape_.kv_heads * shape_.core_dim - shape_.kv_width;
  const Bytes excess = format_bytes(attention_, a.batch * part.keys * a.kv_heads, twice) *
                       (1 / static_cast<double>(shape_.kv_heads));
  const bool as_kept = shape_.inference && (!shape_.model.mla || shape_.absorbs);
  const double wider = as_kept ? bits_per_element(attention_) - bits_per_element(cached_) : 0;
  const Bytes saved(static_cast<double>(a.batch * part.keys * a.kv_heads * shape_.kv_width) /
                    static_cast<double>(shape_.kv_heads) * wider / 8);
  op.work(op.op().flops * (part.pairs / counted), op.op().bytes_read - excess - saved,
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

void TransformerStage::merge_partial(TensorId partial, TensorId into, std::int64_t rows) {
  writer_.compute(OpKind::kAdd, "layer.attention.merge", {rows, shape_.core_outputs})
      .in({into, partial})
      .out({into});
}

void TransformerStage::context_forward(const LayerTensors& t) {
  const std::int64_t c = shape_.context;
  const SplitAttention split(shape_, t.window);
  const std::int64_t block =
      shape_.held_sequences * (shape_.sequence + split.cached()) * shape_.kv_width;
  const std::int64_t largest =
      shape_.held_sequences * (shape_.sequence + shape_.cached) * shape_.kv_width;
  TensorId store = t.qkv;
  if (shape_.model.mla) {
    store = shape_.absorbs ? t.cache : cached_keys_values(t, split);
  } else if (shape_.inference) {
    store = t.cache;
    auto op = writer_.compute(OpKind::kCopyColumns, "layer.attention.cache",
                              {shape_.tokens, shape_.kv_width});
    op.in({t.qkv}).out({store});
    op.work(op.op().flops, op.op().bytes_read,
            format_bytes(cached_, shape_.tokens, shape_.kv_width));
  }
  const TensorId attended = shape_.absorbs ? writer_.workspace("latent.attended", shape_.tokens,
                                                               shape_.core_outputs, attention_)
                                           : t.attention;
  Attend a{OpKind::kAttentionForward, shape_.samples, shape_.heads,
           shape_.kv_heads,           {t.qkv, store}, {attended, t.log_sum_exp}};
  if (c == 1) {
    attend(a, split.whole(), t.window);
  } else {
    switch (shape_.algorithm) {
      case ContextAlgorithm::kAuto:
      case ContextAlgorithm::kAllGather: {
        const Format kept = writer_.builder().tensor_at(store).format;
        const TensorId all = writer_.workspace("context.keys_values", c, largest, kept);
        exchange_context(OpKind::kAllGather, "layer.attention.gather_context", c * block, store,
                         all, kept);
        a.in = {t.qkv, all};
        attend(a, split.gathered(), t.window);
        break;
      }
      case ContextAlgorithm::kPassKv:
        for (std::int64_t s = 0; s <= split.blocks(); ++s) {
          const TensorId next =
              ring_block(s + 1, largest, writer_.builder().tensor_at(store).format);
          const auto arrived =
              s < split.blocks() ? shift("layer.attention.pass_kv", block, a.in[1], next) : -1;
          const SplitAttention::Part part = split.block(s);
          attend(a, part, t.window);
          if (s > 0) {
            merge_partial(attended, attended, shape_.samples * part.sequences * part.queries);
          }
          writer_.await(arrived);
          a.in[1] = next;
        }
        break;
      case ContextAlgorithm::kPassQ:
        pass_queries(a, split, t);
        break;
      case ContextAlgorithm::kAllToAll:
        exchange_heads(a, split, t);
        break;
    }
  }
  if (shape_.absorbs) {
    absorbed_output(t, attended);
  }
}

/// Each rank attends to its own keys for the queries of those that see some; partial sums return to
/// their rank.
void TransformerStage::pass_queries(Attend a, const SplitAttention& split, const LayerTensors& t) {
  const std::int64_t c = shape_.context;
  const std::int64_t queries = shape_.tokens * shape_.core_queries;
  const std::int64_t outputs = shape_.tokens * shape_.core_outputs;
  const TensorId partial = writer_.workspace("context.partial", c, outputs, attention_);
  const TensorId own = writer_.workspace("context.partial_own", c, outputs, attention_);
  const TensorId attended = a.out[0];
  a.out[0] = partial;
  for (std::int64_t s = 0; s <= split.blocks(); ++s) {
    const TensorId next = ring_block(s + 1, queries);
    const auto arrived =
        s < split.blocks() ? shift("layer.attention.pass_q", queries, a.in[0], next) : -1;
    attend(a, split.block(s), t.window);
    writer_.await(arrived);
    a.in[0] = next;
  }
  // An exchange sends all but one part in c.
  exchange_context(OpKind::kAllToAll, "layer.attention.return_partial",
                   split.blocks() * outputs * c / (c - 1), partial, own);
  merge_partial(own, attended, (split.blocks() + 1) * shape_.tokens);
}

/// Parts of sequences become parts of the heads, and back.
void TransformerStage::exchange_heads(Attend a, const SplitAttention& split,
                                      const LayerTensors& t) {
  const std::int64_t c = shape_.context;
  const std::int64_t n = shape_.tokens;
  const TensorId whole = writer_.workspace("context.qkv", n, shape_.qkv_width, attention_);
  const TensorId out = writer_.workspace("context.out", n, shape_.query_width, attention_);
  exchange_context(OpKind::kAllToAll, "layer.attention.scatter_heads", n * shape_.qkv_width, t.qkv,
                   whole);
  a.heads /= c;
  a.kv_heads /= c;
  a.in = {whole, whole};
  a.out[0] = out;
  attend(a, split.whole(), t.window);
  exchange_context(OpKind::kAllToAll, "layer.attention.gather_heads", n * shape_.query_width, out,
                   t.attention);
}

void TransformerStage::context_backward(const LayerTensors& t, TensorId d_attention,
                                        TensorId d_qkv) {
  const std::int64_t c = shape_.context;
  const std::int64_t n = shape_.tokens;
  const std::int64_t block = n * shape_.kv_width;
  const SplitAttention split(shape_, t.window);
  Attend a{OpKind::kAttentionBackward,
           shape_.samples,
           shape_.heads,
           shape_.kv_heads,
           {t.qkv, t.qkv, t.attention, t.log_sum_exp, d_attention},
           {d_qkv}};
  switch (shape_.algorithm) {
    case ContextAlgorithm::kAuto:
    case ContextAlgorithm::kPassQ:
    case ContextAlgorithm::kAllGather: {
      const TensorId all = writer_.workspace("context.keys_values", c, block, attention_);
      const TensorId gradients = writer_.workspace("context.kv_gradients", c, block, attention_);
      exchange_context(OpKind::kAllGather, "layer.attention.gather_context", c * block, t.qkv, all);
      a.in[1] = all;
      a.out = {d_qkv, gradients};
      attend(a, split.gathered(), t.window);
      exchange_context(OpKind::kReduceScatter, "layer.attention.reduce_context", c * block,
                       gradients, d_qkv);
      return;
    }
    case ContextAlgorithm::kPassKv: {
      // Gradients of a block follow it around the ring, a step behind, and come home.
      OpWriter::Event returned = -1;
      TensorId gradients = writer_.workspace("context.gradients.0", 1, block, attention_);
      a.out = {d_qkv, gradients};
      for (std::int64_t s = 0; s <= split.blocks(); ++s) {
        const TensorId next = ring_block(s + 1, block);
        const auto arrived =
            s < split.blocks() ? shift("layer.attention.pass_kv", block, a.in[1], next) : -1;
        writer_.await(returned);
        attend(a, split.block(s), t.window);
        if (split.blocks() == 0) {
          return;  // a window of one token
        }
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
      a.in[4] = out;
      a.out = {whole};
      attend(a, split.whole(), t.window);
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
