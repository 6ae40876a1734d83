#include "workloads/transformer_shape.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "workloads/expert_routing.h"
#include "workloads/framework_traits.h"

namespace stepcast::workloads {
namespace {

void require_divides(const char* where, const char* what, std::int64_t amount, std::int64_t parts) {
  if (amount % parts != 0) {
    throw InputError(
        where, fmt::format("{} {} cannot be split over {} equal parts; choose a divisor of {}",
                           amount, what, parts, amount));
  }
}

void require_layer_types_fit(const TransformerWorkload& m) {
  if (m.mla && !m.llama_style()) {
    throw InputError("workload.mla",
                     "latent attention has rotary positions and no biases; use an activation other "
                     "than gelu");
  }
  if (m.parallel_block && (m.moe || m.mla)) {
    throw InputError("workload.parallel_block",
                     "a parallel block has one dense feed-forward block and multi-head or grouped "
                     "attention; leave it out, or moe and mla");
  }
}

void require_built(const Job& job) {
  const Parallel& p = job.parallel;
  if (p.virtual_stages > 1 && p.pipeline == 1) {
    throw InputError("parallel.virtual_stages",
                     "virtual stages need a pipeline; use 1 or raise parallel.pipeline");
  }
  if (p.schedule == ScheduleKind::kZbH1) {
    if (p.virtual_stages > 1) {
      throw InputError("parallel.schedule",
                       fmt::format("zb-h1 has one chunk per stage, not {}; use 1f1b, or "
                                   "virtual_stages 1",
                                   p.virtual_stages));
    }
    if (p.recompute.kind == RecomputeKind::kFull ||
        p.recompute.kind == RecomputeKind::kFirstLayers) {
      throw InputError("parallel.recompute",
                       "zb-h1 keeps what the weight gradients need until they are made, so whole "
                       "layers cannot be recomputed; use selective or none, or schedule 1f1b");
    }
    if (p.data * p.context > 1 && (p.zero == 2 || (p.zero == 3 && p.zero_reshard))) {
      throw InputError("parallel.zero",
                       fmt::format("zero {} frees gradients after each backward pass, but zb-h1 "
                                   "makes them later; use zero 1, {{\"stage\": 3, \"reshard\": "
                                   "false}}, or schedule 1f1b",
                                   p.zero));
    }
  }
  const TransformerWorkload& m = *job.workload.transformer();
  if (p.recompute.kind == RecomputeKind::kSelective &&
      framework_traits(job.system).selective_per_op) {
    const char* what = m.activation == Activation::kGelu ? "layers with biases"
                       : m.moe                           ? "layers with experts"
                       : m.mla                           ? "latent attention"
                       : m.parallel_block                ? "parallel blocks"
                       : p.schedule == ScheduleKind::kZbH1
                           ? "a schedule that makes weight gradients later"
                           : nullptr;
    if (what != nullptr) {
      throw InputError("parallel.recompute",
                       fmt::format("selective_per_op is for layers of plain products in order, not "
                                   "for {}; use full or none",
                                   what));
    }
  }
  if (job.dense_optimizer == OptimizerKind::kRowwiseAdagrad) {
    throw InputError("optimizer",
                     "rowwise_adagrad is for embedding tables; use adam, adagrad or sgd");
  }
}

/// What context parallelism and inference do not go with.
void require_context(const Job& job) {
  const Parallel& p = job.parallel;
  const TransformerWorkload& m = *job.workload.transformer();
  const bool inference = job.phase != JobPhase::kTrain;
  if (p.context == 1 && !inference) {
    return;
  }
  const char* key = inference ? "phase" : "parallel.context";
  const char* what = inference ? "inference" : "context parallelism";
  if (!job.flash_attention) {
    throw InputError("attention", fmt::format("{} has fused attention only; use flash", what));
  }
  if (m.mla || m.window > 0) {
    throw InputError(key, fmt::format("{} of {} is not implemented yet; use {}", what,
                                      m.mla ? "latent attention" : "a sliding window",
                                      inference ? "train" : "1"));
  }
  if (inference && (p.zero > 0 || p.schedule == ScheduleKind::kZbH1)) {
    throw InputError(p.zero > 0 ? "parallel.zero" : "parallel.schedule",
                     "inference has no gradients and no optimizer; use zero 0 and 1f1b");
  }
  if (p.context == 1) {
    return;
  }
  if (job.phase == JobPhase::kDecode) {
    if (p.context_algorithm != ContextAlgorithm::kAuto &&
        p.context_algorithm != ContextAlgorithm::kPassQ) {
      throw InputError("parallel.context_algorithm",
                       "decoding passes its few queries around; use pass_q or auto");
    }
    require_divides("batch.micro", "sequences of a micro-batch", job.batch.micro, p.context);
    return;
  }
  if (!inference && p.context_algorithm == ContextAlgorithm::kPassQ) {
    throw InputError("parallel.context_algorithm",
                     "pass_q has no backward pass; use ring, all_gather, all_to_all or auto");
  }
  if (job.batch.sequence % (2 * p.context) != 0) {
    const std::int64_t unit = 2 * p.context;
    throw InputError(
        "batch.sequence",
        fmt::format("{} tokens cannot be split into 2 * context = {} equal chunks; use "
                    "{} or {}",
                    job.batch.sequence, unit, std::max(unit, job.batch.sequence / unit * unit),
                    (job.batch.sequence / unit + 1) * unit));
  }
  if (p.context_algorithm == ContextAlgorithm::kAllToAll &&
      m.kv_heads / p.tensor % p.context != 0) {
    throw InputError("parallel.context_algorithm",
                     fmt::format("all_to_all splits the {} key and value heads of a tensor rank "
                                 "over context = {}; use ring or all_gather, or a context that "
                                 "divides them",
                                 m.kv_heads / p.tensor, p.context));
  }
}

ExpertShape expert_shape(const Job& job, const TransformerShape& s) {
  const Parallel& p = job.parallel;
  const MixtureOfExperts& moe = *s.model.moe;
  const std::int64_t replicas = p.data * p.context;
  require_divides("parallel.expert", "ranks of a pipeline stage", p.tensor * replicas, p.expert);
  require_divides("parallel.expert", "experts", moe.experts, p.expert);
  ExpertShape e;
  e.ranks = p.expert;
  e.tensor = p.expert_tensor > 0 ? p.expert_tensor : replicas % p.expert == 0 ? p.tensor : 1;
  if (e.tensor != p.tensor && !s.sequence_parallel) {
    throw InputError("parallel.sequence_parallel",
                     "tensor ranks that hold different experts must have tokens of their own; use "
                     "true, or an expert degree that divides data * context");
  }
  require_divides("parallel.expert", "ranks of a pipeline stage", p.tensor * replicas,
                  e.ranks * e.tensor);
  require_divides("parallel.tensor", "columns of an expert", moe.ffn_hidden, e.tensor);
  require_divides("parallel.tensor", "columns of the shared experts", moe.shared * moe.ffn_hidden,
                  p.tensor);
  e.replicas = p.tensor * replicas / (e.ranks * e.tensor);
  e.local = moe.experts / e.ranks;
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
  if (p.overlap.expert && e.ranks > 1 && p.tensor > 1 && !s.sequence_parallel) {
    throw InputError("parallel.overlap.expert",
                     "found true on several tensor ranks without sequence_parallel, where experts' "
                     "rows are partial sums; set parallel.sequence_parallel");
  }
  // Without an exchange there is nothing to cut; a chunk has a row at least.
  e.chunks = e.ranks > 1 ? std::min({p.expert_chunks, e.sent, e.received}) : 1;
  const auto part = [&](double rows) {
    return rows * static_cast<double>(sources) / static_cast<double>(e.computed);
  };
  e.average = part(load.sent);
  e.nominal = part(static_cast<double>(s.rows * moe.per_token));
  return e;
}

std::vector<LayerRange> split_layers(std::int64_t layers, std::int64_t parts) {
  if (layers < parts) {
    throw InputError("parallel.pipeline",
                     fmt::format("{} layers cannot fill {} virtual stages", layers, parts));
  }
  const std::int64_t extra = layers % parts;
  const std::int64_t first_long = (parts - extra) / 2;
  std::vector<LayerRange> ranges;
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < parts; ++i) {
    const bool is_long = i >= first_long && i < first_long + extra;
    ranges.push_back({next, layers / parts + (is_long ? 1 : 0)});
    next += ranges.back().count;
  }
  return ranges;
}

/// Ranks over which ZeRO shards: all replicas, or those inside one unit of a level of the fabric.
std::int64_t shard_ranks(const Job& job, std::int64_t replicas) {
  const Parallel& p = job.parallel;
  if (p.zero == 0) {
    return 1;
  }
  if (p.zero_level.empty()) {
    return replicas;
  }
  const std::int64_t inside = job.system.devices_in(p.zero_level).value_or(1);
  const std::int64_t split = p.mesh().stride(Axis::kData);
  if (inside % split != 0 || p.data % (inside / split) != 0) {
    throw InputError("parallel.zero.level",
                     fmt::format("{} joins {} devices, no whole number of replicas {} ranks "
                                 "apart that divides data = {}",
                                 p.zero_level, inside, split, p.data));
  }
  return inside / split * p.context;
}

/// Bandwidth of the widest hop between the ranks of a context group.
double context_bandwidth(const Job& job) {
  const System& system = job.system;
  const std::int64_t span = job.parallel.mesh().stride(Axis::kContext) * job.parallel.context;
  std::size_t level = 0;
  while (level + 1 < system.fabric.size() && system.devices_in_level(level) < span) {
    ++level;
  }
  return system.fabric.empty() ? 0 : system.fabric[level].bandwidth.base();
}

}  // namespace

ContextAlgorithm context_algorithm(const Job& job) {
  const Parallel& p = job.parallel;
  if (p.context_algorithm != ContextAlgorithm::kAuto) {
    return p.context_algorithm;
  }
  if (job.phase == JobPhase::kDecode) {
    return ContextAlgorithm::kPassQ;
  }
  const TransformerWorkload& m = *job.workload.transformer();
  const auto peak = job.system.device.peak_of(job.formats.compute);
  const double bandwidth = context_bandwidth(job);
  const auto tokens = static_cast<double>(job.batch.sequence);
  const double heads = static_cast<double>(m.kv_heads) / static_cast<double>(m.heads);
  const double bytes = bits_per_element(job.formats.compute) / 8;
  const bool hidden =
      peak && bandwidth > 0 &&
      tokens >= static_cast<double>(p.context) * peak->base() * heads * bytes / (2 * bandwidth);
  if (job.phase == JobPhase::kTrain) {
    return hidden ? ContextAlgorithm::kPassKv : ContextAlgorithm::kAllGather;
  }
  const bool smaller = tokens / (tokens + static_cast<double>(job.cached)) >= 2 * heads;
  return hidden || smaller ? ContextAlgorithm::kPassKv : ContextAlgorithm::kPassQ;
}

TransformerShape transformer_shape(const Job& job) {
  STEPCAST_CHECK(job.workload.transformer() != nullptr, "'{}' is no transformer",
                 job.workload.name);
  require_built(job);
  require_context(job);
  require_layer_types_fit(*job.workload.transformer());
  const Parallel& p = job.parallel;
  TransformerShape s;
  const TransformerWorkload& m = s.model = *job.workload.transformer();
  const std::int64_t t = s.tensor = p.tensor;
  require_divides("parallel.tensor", "attention heads", m.heads, t);
  if (t % m.kv_heads != 0) {  // else each rank has a whole one, several ranks the same
    require_divides("parallel.tensor", "key and value heads", m.kv_heads, t);
  }
  require_divides("workload.kv_heads", "attention heads", m.heads, m.kv_heads);
  require_divides("parallel.tensor", "columns of the feed-forward layer", m.ffn_hidden, t);
  require_divides("parallel.tensor", "rows of the vocabulary", m.vocabulary, t);
  require_divides("parallel.tensor", "columns of the hidden state", m.hidden, t);
  if (m.llama_style() && m.head_dim % 2 != 0) {
    throw InputError("workload.head_dim",
                     fmt::format("rotary positions need an even width, not {}", m.head_dim));
  }
  require_divides("batch.global", "samples", job.batch.global, p.data * job.batch.micro);
  s.pipeline = p.pipeline;
  s.data = p.data;
  s.replicas = p.data * p.context;
  s.shards = shard_ranks(job, s.replicas);
  s.chunks = p.virtual_stages;
  s.sequence_parallel = p.sequence_parallel && t > 1;
  s.samples = job.batch.micro;
  s.context = p.context;
  s.inference = job.phase != JobPhase::kTrain;
  s.algorithm = context_algorithm(job);
  s.sequence = job.batch.sequence / p.context;
  s.held_sequences = s.samples;
  if (job.phase == JobPhase::kDecode) {  // sequences are split, not their one token
    s.samples /= p.context;
    s.sequence = 1;
  }
  s.cached = (job.cached + p.context - 1) / p.context;
  s.positions = job.batch.sequence + job.cached;
  s.tokens = s.samples * s.sequence;
  if (s.sequence_parallel) {
    require_divides("parallel.sequence_parallel", "tokens of a micro-batch", s.tokens, t);
  }
  s.rows = s.sequence_parallel ? s.tokens / t : s.tokens;
  s.heads = m.heads / t;
  if (m.mla) {  // as many keys and values as queries once projected up
    s.kv_heads = s.heads;
    s.core_dim = (m.mla->query_dim() + m.mla->v_dim + 1) / 2;
    s.query_width = s.heads * m.mla->v_dim;
    s.qkv_width = s.heads * (2 * m.mla->query_dim() + m.mla->v_dim);
  } else {
    s.kv_copies = std::max<std::int64_t>(1, t / m.kv_heads);
    s.kv_heads = m.kv_heads * s.kv_copies / t;
    s.core_dim = m.head_dim;
    s.query_width = s.heads * m.head_dim;
    s.qkv_width = (s.heads + 2 * s.kv_heads) * m.head_dim;
  }
  s.ffn = m.ffn_hidden / t;
  s.fc1_width = s.ffn * (m.gated() ? 2 : 1);
  s.vocabulary = m.vocabulary / t;
  s.microbatches = job.microbatches();
  if (m.moe) {
    s.experts = expert_shape(job, s);
  } else if (p.expert > 1) {
    throw InputError("parallel.expert", "a dense transformer has no experts; use 1");
  }
  s.ranges = split_layers(m.layers, s.pipeline * s.chunks);
  return s;
}

}  // namespace stepcast::workloads
