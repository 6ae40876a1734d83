#include "workloads/transformer/shape.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/job/job_rules.h"
#include "workloads/transformer/expert_routing.h"
#include "workloads/transformer/split_attention.h"

namespace stepcast::workloads {
namespace {

/// In expectation: all experts are alike, so are all machines and ranks.
ExpertMachines expert_machines_of(const Job& job, const TransformerShape& s, std::int64_t ranks) {
  const MixtureOfExperts& moe = *s.model.moe;
  ExpertMachines m;
  m.machines = *expert_machines(job);
  m.places = ranks / m.machines;
  const auto tokens = static_cast<double>(s.rows);
  m.to_machine = tokens * expert_reach(moe, 0, moe.experts / m.machines);
  m.to_rank = tokens * expert_reach(moe, 0, moe.experts / ranks);
  const auto rows = [](double expected) {
    return std::max<std::int64_t>(1, std::llround(expected));
  };
  m.received = rows(static_cast<double>(ranks) * m.to_rank);
  m.returned = rows(static_cast<double>(m.machines - 1) * m.to_machine +
                    static_cast<double>(m.places) * m.to_rank);
  return m;
}

ExpertShape expert_shape(const Job& job, const TransformerShape& s) {
  const Parallel& p = job.parallel;
  const MixtureOfExperts& moe = *s.model.moe;
  ExpertShape e;
  e.ranks = p.expert;
  e.tensor = p.expert_split().tensor;
  e.replicas = p.tensor * p.data * p.context / (e.ranks * e.tensor);
  e.local = moe.experts / e.ranks;
  e.width = s.model.expert_width();
  e.ffn = moe.ffn_hidden / e.tensor;
  e.fc1_width = e.ffn * (s.model.gated() ? 2 : 1);
  e.shared_ffn = moe.shared * moe.ffn_hidden / p.tensor;
  e.gathers = s.sequence_parallel && e.tensor > 1;
  const std::vector<double> shares = expert_shares(moe);
  const ExpertLoad load = expert_load(moe, shares, s.rows, e.ranks);
  e.capacity = expert_capacity(moe, s.rows);
  e.draw = std::make_shared<const ExpertDraw>(shares, moe.per_token);
  const std::int64_t sources = e.gathers ? e.tensor : 1;
  e.sent = std::max<std::int64_t>(1, std::llround(load.sent));
  e.received = std::max<std::int64_t>(1, std::llround(load.most));
  e.computed = e.received * sources;
  const ExpertRoom room = expert_room(*e.draw, s.rows, e.capacity, e.ranks);
  e.sent_room = std::max(e.sent, room.sent);
  e.received_room = std::max(e.received, room.received);
  e.computed_room = e.received_room * sources;
  if (!load.even()) {
    e.to = load.to;
  }
  if (p.expert_dispatch == ExpertDispatch::kPerMachine && e.ranks > 1) {
    e.once = expert_machines_of(job, s, e.ranks);
  }
  // Without an exchange there is nothing to cut; a chunk has a row at least.
  e.chunks =
      e.ranks > 1
          ? std::min({p.expert_chunks, e.sent, e.received, e.once ? e.once->received : e.received})
          : 1;
  const auto part = [&](double rows) {
    return rows * static_cast<double>(sources) / static_cast<double>(e.computed);
  };
  e.average = part(load.sent);
  e.nominal = part(static_cast<double>(s.rows * moe.per_token));
  return e;
}

/// Widths of latent attention: keys and values for each head, projected up; in decoding one latent
/// vector for all heads.
void latent_widths(const LatentAttention& a, JobPhase phase, TransformerShape& s) {
  s.sparse = s.model.sparse_over(s.positions);
  s.absorbs = phase == JobPhase::kDecode || s.sparse;
  const std::int64_t latent = a.kv_rank + a.rope_dim;
  const std::int64_t keys = s.absorbs ? latent : a.query_dim();
  const std::int64_t values = s.absorbs ? a.kv_rank : a.v_dim;
  s.kv_heads = s.absorbs ? 1 : s.heads;
  s.core_dim = (keys + values + 1) / 2;
  s.core_queries = s.heads * keys;
  s.core_outputs = s.heads * values;
  s.cache_width = latent;
  s.kv_width = s.absorbs ? latent : s.heads * (keys + values);
  s.query_width = s.heads * a.v_dim;
  s.qkv_width = s.core_queries + (phase == JobPhase::kDecode ? 0 : s.kv_width);
}

/// One vector of a token is the key and the value of all heads; groups of heads are split over
/// tensor ranks.
void compressed_widths(const CompressedAttention& a, std::int64_t tensor, TransformerShape& s) {
  s.kv_heads = 1;
  s.core_dim = s.kv_width = s.model.head_dim;
  s.core_queries = s.core_outputs = s.heads * s.model.head_dim;
  s.query_width = a.groups / tensor * a.output_rank;
  s.qkv_width = s.core_queries + s.kv_width;
}

}  // namespace

double TransformerShape::causal_share(std::int64_t window) const {
  const auto d = [](std::int64_t v) { return static_cast<double>(v); };
  const double keys = d(window > 0 ? std::min(window, positions) : positions);
  return causal_pairs(d(positions - fresh), d(fresh), d(window)) / (d(fresh) * keys);
}

double TransformerShape::compressed_pairs(std::int64_t layer) const {
  const CompressedAttention& a = *model.compressed;
  const auto n = static_cast<double>(positions);
  // Keys of r tokens: integral from 0 to n of min(t / r, at most).
  const auto keys_of = [n](std::int64_t ratio, std::int64_t at_most) {
    const auto r = static_cast<double>(ratio);
    return r * causal_pairs(0, n / r, static_cast<double>(at_most));
  };
  const MixerKind mixer = model.kind_of(layer).mixer;
  const double more = mixer == MixerKind::kCompressedSparse ? keys_of(a.ratio, model.sparse->top_k)
                      : mixer == MixerKind::kHeavilyCompressed ? keys_of(a.heavy_ratio, 0)
                                                               : 0;
  return causal_pairs(0, n, static_cast<double>(model.window)) + more;
}

TransformerShape transformer_shape(const Job& job) {
  STEPCAST_CHECK(job.workload.transformer() != nullptr, "'{}' is no transformer",
                 job.workload.name);
  if (const auto broken = broken_rule(job)) {
    throw InputError(broken->key, broken->what);
  }
  const Parallel& p = job.parallel;
  TransformerShape s;
  const TransformerWorkload& m = s.model = *job.workload.transformer();
  const std::int64_t t = s.tensor = p.tensor;
  s.pipeline = p.pipeline;
  s.data = p.data;
  s.replicas = p.data * p.context;
  s.shards = shard_ranks(job);
  s.chunks = p.virtual_stages;
  s.sequence_parallel = p.sequence_parallel && t > 1;
  s.samples = job.batch.micro;
  s.context = p.context;
  s.inference = job.phase != JobPhase::kTrain;
  s.predictions = s.inference ? 0 : m.predictions;
  s.algorithm = context_algorithm(job);
  s.sequence = job.batch.sequence / p.context;
  s.held_sequences = s.samples;
  if (job.phase == JobPhase::kDecode) {  // sequences are split, not their one token
    s.samples /= p.context;
    s.sequence = 1;
  }
  s.cached = (job.cached + p.context - 1) / p.context;
  s.fresh = job.batch.sequence;
  s.positions = s.fresh + job.cached;
  s.tokens = s.samples * s.sequence;
  s.rows = s.sequence_parallel ? s.tokens / t : s.tokens;
  s.attention_batch = s.samples;
  s.attention_length = s.sequence;
  if (job.sequence_lengths && job.sequence_lengths->packed && job.sequence_lengths->attend_within) {
    const double length = job.sequence_lengths->length_of_a_token();
    const auto tokens = static_cast<double>(s.tokens);
    s.attention_length = std::max<std::int64_t>(1, std::llround(length));
    s.attention_batch = std::max<std::int64_t>(1, std::llround(tokens / length));
    const auto square = static_cast<double>(s.attention_length * s.attention_length);
    s.attended = tokens * length / (static_cast<double>(s.attention_batch) * square);
  }
  s.heads = m.heads / t;
  if (m.mla) {
    latent_widths(*m.mla, job.phase, s);
  } else if (m.compressed) {
    compressed_widths(*m.compressed, t, s);
  } else {
    s.kv_copies = std::max<std::int64_t>(1, t / m.kv_heads);
    s.kv_heads = m.kv_heads * s.kv_copies / t;
    s.core_dim = m.head_dim;
    s.query_width = s.core_queries = s.core_outputs = s.heads * m.head_dim;
    s.kv_width = s.cache_width = 2 * s.kv_heads * m.head_dim;
    s.qkv_width = s.query_width + s.kv_width;
  }
  s.ffn = m.ffn_hidden / t;
  s.fc1_width = s.ffn * (m.gated() ? 2 : 1);
  s.vocabulary = m.vocabulary / t;
  s.microbatches = job.microbatches();
  if (m.moe) {
    s.experts = expert_shape(job, s);
  }
  s.stages = p.stages();
  s.ranges = split_layers(m.layers, s.pipeline * s.chunks, p.pipeline_split);
  return s;
}

}  // namespace stepcast::workloads
