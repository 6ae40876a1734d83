#include "core/job/parameter_count.h"

#include "core/access/access.h"

// Parameters of whole models, in closed form; a test holds the graph to them.
namespace stepcast {

bool MixtureOfExperts::even() const { return !routing || routing->kind() == AccessKind::kUniform; }

namespace {

/// Two matrices, or three with a gate, from and to `inputs`; `biases` as in GPT's dense layers.
std::int64_t feed_forward(const TransformerWorkload& m, std::int64_t inputs, std::int64_t width,
                          bool biases) {
  const std::int64_t fc1 = width * (m.gated() ? 2 : 1);
  return inputs * fc1 + width * inputs + (biases ? fc1 + inputs : 0);
}

/// Keys of several tokens are sums of `columns` of them, weighed by as many: two projections of the
/// hidden state, a bias for each token's place, a norm. Chosen keys overlap and have twice the
/// columns.
std::int64_t compressor(const TransformerWorkload& m, std::int64_t ratio, std::int64_t columns,
                        std::int64_t dim) {
  return 2 * m.hidden * columns + ratio * columns + dim;
}

std::int64_t compressed_attention(const TransformerWorkload& m, MixerKind mixer) {
  const CompressedAttention& a = *m.compressed;
  const std::int64_t outputs = m.query_width() * a.output_rank;  // a group reads its own heads
  std::int64_t all = m.hidden * a.q_rank + a.q_rank + a.q_rank * m.query_width() +
                     m.hidden * m.head_dim + m.head_dim + m.heads + outputs +
                     a.groups * a.output_rank * m.hidden;
  if (mixer == MixerKind::kHeavilyCompressed) {
    all += compressor(m, a.heavy_ratio, m.head_dim, m.head_dim);
  } else if (mixer == MixerKind::kCompressedSparse) {
    const SparseAttention& s = *m.sparse;
    all += compressor(m, a.ratio, 2 * m.head_dim, m.head_dim) +
           compressor(m, a.ratio, 2 * s.index_head_dim, s.index_head_dim) +
           a.q_rank * s.index_heads * s.index_head_dim + m.hidden * s.index_heads;
  }
  return all;
}

std::int64_t attention(const TransformerWorkload& m, MixerKind mixer) {
  if (m.compressed) {
    return compressed_attention(m, mixer);
  }
  if (m.mla) {
    const LatentAttention& a = *m.mla;
    const std::int64_t queries = m.heads * a.query_dim();
    const std::int64_t query =
        a.q_rank > 0 ? m.hidden * a.q_rank + a.q_rank + a.q_rank * queries : m.hidden * queries;
    const std::int64_t index =
        m.sparse ? a.q_rank * m.sparse->index_heads * m.sparse->index_head_dim +
                       m.hidden * (m.sparse->index_head_dim + m.sparse->index_heads)
                 : 0;
    return query + index + m.hidden * (a.kv_rank + a.rope_dim) + a.kv_rank +
           a.kv_rank * m.heads * (a.nope_dim + a.v_dim) + m.heads * a.v_dim * m.hidden;
  }
  const std::int64_t qkv = m.query_width() + 2 * m.kv_width();
  const std::int64_t gate = m.output_gate ? m.hidden * m.query_width() : 0;
  return m.hidden * qkv + gate + m.query_width() * m.hidden +
         (m.llama_style() ? 0 : qkv + m.hidden);
}

/// A matrix that makes so many mappings of a token of its streams, their biases and scales.
std::int64_t streams(const TransformerWorkload& m, std::int64_t mappings, std::int64_t scales) {
  return m.residual_streams > 1 ? mappings * (m.residual_width() + 1) + scales : 0;
}

std::int64_t count(const TransformerWorkload& m, std::int64_t sequence, bool active) {
  const bool gpt = !m.llama_style();
  const std::int64_t norm = m.hidden * (gpt ? 2 : 1);
  // A projection from two vectors and their norms stand before a layer of predictions.
  std::int64_t layers = m.predictions * (2 * m.hidden * m.hidden + 2 * norm);
  for (std::int64_t i = 0; i < m.layers + m.predictions; ++i) {
    const BlockKind kind = m.kind_of(i);
    const std::int64_t blocks = (kind.mixer != MixerKind::kNone ? 1 : 0) +
                                (kind.feed_forward != FeedForwardKind::kNone ? 1 : 0);
    layers += blocks * streams(m, m.stream_mappings(), 3);
    if (kind.mixer != MixerKind::kNone) {
      layers +=
          norm + (kind.attends() ? attention(m, kind.mixer) : m.recurrent->parameters(m.hidden));
    }
    if (kind.feed_forward != FeedForwardKind::kNone) {
      layers += m.parallel_block ? 0 : norm;
    }
    if (kind.feed_forward == FeedForwardKind::kDense) {
      layers += feed_forward(m, m.hidden, m.ffn_hidden, gpt);
    } else if (kind.feed_forward == FeedForwardKind::kExperts) {
      const MixtureOfExperts& e = *m.moe;
      const std::int64_t used = active ? e.per_token : e.experts;
      layers += m.hidden * e.experts + 2 * m.hidden * e.latent +
                used * feed_forward(m, m.expert_width(), e.ffn_hidden, false) +
                e.shared * feed_forward(m, m.hidden, e.ffn_hidden, false);
    }
  }
  const std::int64_t vocabulary = m.vocabulary * m.hidden * (m.tied_embeddings ? 1 : 2);
  layers += streams(m, m.residual_streams, 1);  // before the head
  return layers + vocabulary + (gpt ? sequence * m.hidden : 0) + norm;
}

}  // namespace

std::int64_t transformer_parameters(const TransformerWorkload& m, std::int64_t sequence) {
  return count(m, sequence, false);
}

std::int64_t transformer_active_parameters(const TransformerWorkload& m, std::int64_t sequence) {
  return count(m, sequence, true);
}

}  // namespace stepcast
