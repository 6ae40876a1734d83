#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "core/job/internal/rules.h"

namespace stepcast::internal {
namespace {

/// Tensor degrees that divide everything they split.
Values tensor_degrees(const TransformerWorkload& w) {
  Values legal;
  for (std::int64_t t = 1; t <= w.heads && legal.size() < 12; ++t) {
    const bool heads = w.compressed ? w.compressed->groups % t == 0
                                    : w.mla || t % w.kv_heads == 0 || w.kv_heads % t == 0;
    if (w.heads % t == 0 && heads && w.ffn_hidden % t == 0 && w.hidden % t == 0 &&
        w.vocabulary % t == 0) {
      legal.push_back(t);
    }
  }
  return legal;
}

/// Checks a model made in memory; files are checked where they are read.
Broken layers(const Job& job, const TransformerWorkload& w) {
  if (!w.mla && w.heads % w.kv_heads != 0) {
    return remedied("workload.kv_heads",
                    fmt::format("{} does not divide workload.heads = {}", w.kv_heads, w.heads),
                    divisors(w.heads, w.heads));
  }
  if (!w.mla && w.llama_style() && w.head_dim % 2 != 0) {
    return BrokenRule{"workload.head_dim",
                      fmt::format("rotary positions need an even width, not {}", w.head_dim)};
  }
  if ((w.mla || w.compressed) && !w.llama_style()) {
    return BrokenRule{w.mla ? "workload.mla" : "workload.compressed",
                      "this attention has rotary positions and no biases; use an activation "
                      "other than gelu"};
  }
  if (w.output_gate && (job.phase != JobPhase::kTrain || job.parallel.context > 1 || job.lora)) {
    return BrokenRule{"workload.output_gate",
                      "a gate of attention is modelled in training without adapters, whole "
                      "sequences on a rank; use train, parallel.context 1 and no lora"};
  }
  const bool chooses = std::any_of(w.pattern.begin(), w.pattern.end(), [](const BlockKind& kind) {
    return kind.mixer == MixerKind::kCompressedSparse;
  });
  if (w.compressed &&
      (w.pattern.empty() || w.parallel_block || w.predictions > 0 || (chooses && !w.sparse))) {
    return BrokenRule{"workload.compressed",
                      "attention to compressed keys needs a pattern, an indexer (sparse) for its "
                      "layers csa, and no parallel blocks and multi-token prediction"};
  }
  if (w.compressed && (job.phase != JobPhase::kTrain || job.parallel.context > 1 || job.lora ||
                       w.dropout || job.sequence_lengths || !job.flash_attention)) {
    return BrokenRule{
        "workload.compressed",
        "attention to compressed keys is modelled in training, of whole sequences of one document "
        "on a rank, by a fused kernel; use phase train, parallel.context 1 and attention flash, "
        "without lora, dropout and sequence_lengths"};
  }
  if (w.residual_streams > 1 && (job.phase != JobPhase::kTrain || w.dropout || w.predictions > 0 ||
                                 job.lora || w.parallel_block || !w.llama_style())) {
    return BrokenRule{"workload.residual_streams",
                      "several residual streams are modelled in training of layers without biases, "
                      "dropout, adapters, parallel blocks and multi-token prediction; use 1"};
  }
  if (w.sparse && !w.compressed &&
      (job.parallel.context > 1 || job.lora || job.sequence_lengths || w.window > 0 ||
       !job.flash_attention)) {
    return BrokenRule{
        "workload.sparse",
        "sparse attention is modelled of whole sequences of one document on a rank, "
        "by a fused kernel in all layers; use parallel.context 1 and attention flash, "
        "without lora, sequence_lengths and window, or leave it out: then every query "
        "sees all keys"};
  }
  if (w.parallel_block && (w.moe || w.mla)) {
    return BrokenRule{"workload.parallel_block",
                      "a parallel block has one dense feed-forward block and multi-head or grouped "
                      "attention; leave it out, or moe and mla"};
  }
  if (job.dense_optimizer == OptimizerKind::kRowwiseAdagrad) {
    return BrokenRule{"optimizer",
                      "rowwise_adagrad is for embedding tables; use adam, adagrad or sgd"};
  }
  return std::nullopt;
}

/// Mixers with a state are modelled in training, whole sequences on a rank.
Broken recurrent(const Job& job, const TransformerWorkload& w) {
  if (!w.recurrent) {
    return std::nullopt;
  }
  const RecurrentMixer& r = *w.recurrent;
  const Parallel& p = job.parallel;
  if (job.phase != JobPhase::kTrain) {
    return BrokenRule{"phase", "layers with a state are modelled in training only; use train"};
  }
  if (p.context > 1) {
    return BrokenRule{"parallel.context",
                      fmt::format("{}, but layers with a state are modelled with whole sequences "
                                  "on a rank; use 1",
                                  p.context)};
  }
  if (job.lora) {
    return BrokenRule{"lora", "adapters of layers with a state are not modelled; leave lora out"};
  }
  if (w.dropout) {
    return BrokenRule{"workload.dropout", "layers with a state have none; use false"};
  }
  const std::int64_t shared = std::gcd(r.heads, r.scans() ? r.key_heads : r.heads);
  if (shared % p.tensor != 0) {
    return remedied("parallel.tensor",
                    fmt::format("{} does not divide the {} heads of keys and {} of values of "
                                "layers with a state",
                                p.tensor, r.key_heads, r.heads),
                    divisors(shared, shared));
  }
  return std::nullopt;
}

Broken tensor(const Job& job, const TransformerWorkload& w) {
  const std::int64_t t = job.parallel.tensor;
  const std::pair<const char*, std::int64_t> split[] = {
      {"heads", w.heads},
      {"kv_heads", !w.mla && t % w.kv_heads != 0 ? w.kv_heads : t},  // else ranks share a head
      {"compressed.groups", w.compressed ? w.compressed->groups : t},
      {"ffn_hidden", w.ffn_hidden},
      {"hidden", w.hidden}};
  for (const auto& [what, size] : split) {
    if (size % t != 0) {
      return remedied("parallel.tensor",
                      fmt::format("{} does not divide workload.{} = {}", t, what, size),
                      tensor_degrees(w));
    }
  }
  if (w.vocabulary % t != 0) {
    return BrokenRule{
        "parallel.tensor",
        fmt::format("{} does not divide workload.vocabulary = {}; pad the vocabulary to {}", t,
                    w.vocabulary, (w.vocabulary / t + 1) * t)};
  }
  return std::nullopt;
}

Broken context(const Job& job, const TransformerWorkload& w) {
  const Parallel& p = job.parallel;
  const bool inference = job.phase != JobPhase::kTrain;
  if (p.context == 1 && !inference) {
    return std::nullopt;
  }
  const char* what = inference ? "inference" : "context parallelism";
  if (!job.flash_attention) {
    return BrokenRule{"attention", fmt::format("{} has fused attention only; use flash", what)};
  }
  if (inference && (p.zero > 0 || splits_weights(p.schedule))) {
    return BrokenRule{p.zero > 0 ? "parallel.zero" : "parallel.schedule",
                      "inference has no gradients and no optimizer; use zero 0 and 1f1b"};
  }
  if (p.context == 1) {
    return std::nullopt;
  }
  const ContextAlgorithm algorithm = p.context_algorithm;
  if (job.phase == JobPhase::kDecode) {
    if (algorithm != ContextAlgorithm::kAuto && algorithm != ContextAlgorithm::kPassQ) {
      return BrokenRule{"parallel.context_algorithm",
                        "decoding passes its few queries around; use pass_q or auto"};
    }
    if (job.batch.micro % p.context != 0) {
      return remedied("batch.micro",
                      fmt::format("{} sequences cannot be divided over context = {}",
                                  job.batch.micro, p.context),
                      around(job.batch.micro, p.context));
    }
    return std::nullopt;
  }
  if (!inference && algorithm == ContextAlgorithm::kPassQ) {
    return BrokenRule{"parallel.context_algorithm",
                      "pass_q has no backward pass; use ring, all_gather, all_to_all or auto"};
  }
  if (job.batch.sequence % (2 * p.context) != 0) {
    const std::int64_t unit = 2 * p.context * (p.sequence_parallel ? p.tensor : 1);
    return remedied("batch.sequence",
                    fmt::format("{} tokens cannot be split into 2 * context = {} equal chunks",
                                job.batch.sequence, 2 * p.context),
                    around(job.batch.sequence, unit));
  }
  if (algorithm == ContextAlgorithm::kAllToAll && w.mla && job.cached > 0) {
    return BrokenRule{"parallel.context_algorithm",
                      "all_to_all splits heads, and all heads read the same cached latent vectors; "
                      "use ring, all_gather or pass_q"};
  }
  const std::int64_t heads = std::max<std::int64_t>(1, (w.mla ? w.heads : w.kv_heads) / p.tensor);
  if (algorithm == ContextAlgorithm::kAllToAll && heads % p.context != 0) {
    return BrokenRule{"parallel.context_algorithm",
                      fmt::format("all_to_all splits the {} key and value heads of a tensor rank "
                                  "over context = {}; use ring or all_gather, or a context that "
                                  "divides them",
                                  heads, p.context)};
  }
  return std::nullopt;
}

/// Rows between a gather and a reduction are the tokens of a micro-batch on a context rank: they
/// are split, not each sequence.
Broken sequence_parallel(const Job& job, const TransformerWorkload&) {
  const Parallel& p = job.parallel;
  if (!p.sequence_parallel) {
    return std::nullopt;
  }
  const bool decode = job.phase == JobPhase::kDecode;
  const std::int64_t tokens =
      decode ? job.batch.micro / p.context : job.batch.micro * (job.batch.sequence / p.context);
  if (tokens % p.tensor == 0) {
    return std::nullopt;
  }
  // A multiple of this, times the other amount, always divides; 2 context is what context asks.
  const std::int64_t unit = p.tensor * (decode || p.context == 1 ? p.context : 2 * p.context);
  const std::int64_t found = decode ? job.batch.micro : job.batch.sequence;
  return remedied(decode ? "batch.micro" : "batch.sequence",
                  fmt::format("{} tokens of a micro-batch do not divide over tensor = {}, as "
                              "sequence_parallel asks",
                              tokens, p.tensor),
                  around(found, unit));
}

Broken dense(const Job& job, const TransformerWorkload& w) {
  const Parallel& p = job.parallel;
  for (const auto& [key, degree] :
       {std::pair{"expert", p.expert}, std::pair{"expert_tensor", p.expert_tensor}}) {
    if (!w.moe && degree > 1) {
      return BrokenRule{
          fmt::format("parallel.{}", key),
          fmt::format("{}, but workload {} has no experts; use 1, or give workload.moe", degree,
                      job.workload.name)};
    }
  }
  return std::nullopt;
}

/// Experts are spread over ranks of one pipeline stage.
Broken experts(const Job& job, const TransformerWorkload& w) {
  if (!w.moe) {
    return std::nullopt;
  }
  const Parallel& p = job.parallel;
  const std::int64_t replicas = p.data * p.context;
  if ((p.tensor * replicas) % p.expert != 0 || w.moe->experts % p.expert != 0) {
    return remedied(
        "parallel.expert",
        fmt::format("{} must divide tensor * context * data = {} * {} * {} = {} and "
                    "workload.moe.experts = {}",
                    p.expert, p.tensor, p.context, p.data, p.tensor * replicas, w.moe->experts),
        divisors(std::gcd(p.tensor * replicas, w.moe->experts), 1 << 20));
  }
  if (p.expert_tensor > 1 && p.expert_tensor != p.tensor) {
    return BrokenRule{
        "parallel.expert_tensor",
        fmt::format("{}: an expert is split over the {} tensor ranks or not at all; use {} or 1",
                    p.expert_tensor, p.tensor, p.tensor)};
  }
  const bool even = replicas % p.expert == 0;
  if (p.expert_tensor > 1 && !even) {
    return BrokenRule{
        "parallel.expert",
        fmt::format("{} does not divide context * data = {}, as it must when tensor ranks share "
                    "their experts; use {}, or expert_tensor 1",
                    p.expert, replicas,
                    listed(divisors(std::gcd(replicas, w.moe->experts), 1 << 20)))};
  }
  const bool by_columns = p.expert_tensor > 1 || (p.expert_tensor == 0 && even);
  if (p.tensor > 1 && !by_columns && !p.sequence_parallel) {
    return BrokenRule{"parallel.sequence_parallel",
                      fmt::format("false, but with expert = {} the {} tensor ranks hold different "
                                  "experts and need tokens of their own; use true, or an expert "
                                  "degree that divides context * data = {}",
                                  p.expert, p.tensor, replicas)};
  }
  const std::pair<const char*, std::int64_t> columns[] = {
      {"ffn_hidden", by_columns ? w.moe->ffn_hidden : 0},
      {"shared * ffn_hidden", w.moe->shared * w.moe->ffn_hidden}};
  for (const auto& [what, size] : columns) {
    if (size % p.tensor != 0) {
      return remedied("parallel.tensor",
                      fmt::format("{} does not divide workload.moe.{} = {}", p.tensor, what, size),
                      divisors(size, p.tensor));
    }
  }
  return std::nullopt;
}

/// Which experts go together is known where all are alike.
Broken grouped_experts(const Job&, const TransformerWorkload& w) {
  if (!w.moe || w.moe->groups == 1) {
    return std::nullopt;
  }
  const MixtureOfExperts& m = *w.moe;
  if (m.experts % m.groups != 0) {
    return remedied(
        "workload.moe.groups",
        fmt::format("{} does not divide workload.moe.experts = {}", m.groups, m.experts),
        divisors(m.experts, m.experts));
  }
  const std::int64_t least = (m.per_token * m.groups + m.experts - 1) / m.experts;
  if (m.groups_per_token > m.groups || m.groups_per_token < least) {
    return BrokenRule{
        "workload.moe.groups_per_token",
        fmt::format("{} groups of {} experts do not hold the {} experts of a token; "
                    "use {} to {}",
                    m.groups_per_token, m.experts / m.groups, m.per_token, least, m.groups)};
  }
  if (m.limits_groups() && !m.even()) {
    return BrokenRule{"workload.moe.groups_per_token",
                      fmt::format("{} of {} groups with a popularity of single experts is not "
                                  "implemented; remove workload.moe.routing, or use {}",
                                  m.groups_per_token, m.groups, m.groups)};
  }
  return std::nullopt;
}

/// Narrow attention is that of fused training kernels.
Broken narrow_attention(const Job& job, const TransformerWorkload&) {
  if (!job.system.framework.fp8_attention) {
    return std::nullopt;
  }
  const auto reject = [](const std::string& why) {
    return BrokenRule{"formats.attention", fmt::format("found fp8, but {}", why)};
  };
  if (!job.flash_attention) {
    return reject("attention is unfused; use attention flash, or leave it out");
  }
  if (job.phase != JobPhase::kTrain) {
    return reject("the job does not train; leave it out");
  }
  if (!job.system.device.peak.contains(Format::kFp8)) {
    return reject(
        fmt::format("device {} has no fp8 peak; leave it out, or add "
                    "system.device.peak.fp8",
                    job.system.device.name));
  }
  return std::nullopt;
}

/// Conditions for a token to go to each machine once.
Broken dispatched_experts(const Job& job, const TransformerWorkload& w) {
  const Parallel& p = job.parallel;
  if (!w.moe) {
    if (job.formats.expert_dispatch) {
      return BrokenRule{"formats.expert_dispatch",
                        fmt::format("found {}, but workload {} has no experts; leave it out",
                                    name_of(*job.formats.expert_dispatch), job.workload.name)};
    }
    return p.expert_dispatch == ExpertDispatch::kCopies
               ? Broken()
               : BrokenRule{"parallel.expert_dispatch",
                            fmt::format("per_machine, but workload {} has no experts; use "
                                        "all_to_all, or give workload.moe",
                                        job.workload.name)};
  }
  if (p.expert_dispatch == ExpertDispatch::kCopies || p.expert == 1) {
    return std::nullopt;
  }
  const bool plain = p.dispatcher == ExpertDispatcher::kPlain;
  const auto reject = [plain](const std::string& why) {
    return BrokenRule{
        plain ? "parallel.expert_dispatch" : "parallel.dispatcher",
        fmt::format("{} {}, or {}", plain ? "per_machine" : "a token once to each machine", why,
                    plain ? "all_to_all" : "plain")};
  };
  const ExpertSplit split = p.expert_split();
  if (split.tensor > 1) {
    return reject(
        fmt::format("where {} tensor ranks share each expert by columns is not "
                    "implemented; use parallel.expert_tensor = 1 with sequence_parallel",
                    split.tensor));
  }
  if (!w.moe->even() || (w.moe->capacity_factor > 0 && w.moe->capacity_factor < 1)) {
    return reject(
        fmt::format("needs to know which experts go together, which {} leaves open; "
                    "remove it",
                    w.moe->even() ? "a capacity_factor below 1" : "workload.moe.routing"));
  }
  const auto machines = expert_machines(job);
  if (!machines) {
    return reject(
        fmt::format("needs as many of the {} ranks with different experts in each "
                    "machine of {}; use another expert degree or parallel.order",
                    p.expert, job.system.devices_in_level(0)));
  }
  const std::int64_t group = w.moe->experts / w.moe->groups;
  for (const std::int64_t block : {w.moe->experts / *machines, w.moe->experts / p.expert}) {
    if (w.moe->limits_groups() && group % block != 0 && block % group != 0) {
      return reject(
          fmt::format("where groups of {} experts lie across machines or ranks of {} is "
                      "not implemented; use another expert degree",
                      group, block));
    }
  }
  return std::nullopt;
}

Broken hidden_experts(const Job& job, const TransformerWorkload& w) {
  const Parallel& p = job.parallel;
  if (w.moe && p.overlap.expert && p.expert > 1 && p.tensor > 1 && !p.sequence_parallel) {
    return BrokenRule{
        "parallel.overlap.expert",
        "found true on several tensor ranks without sequence_parallel, where experts' rows are "
        "partial sums; set parallel.sequence_parallel"};
  }
  if (p.expert_chunks > 1 && !p.overlap.expert) {
    return BrokenRule{"parallel.expert_chunks",
                      fmt::format("found {} without overlap.expert: parts gain only where one "
                                  "travels while another is computed; set overlap.expert, or use 1",
                                  p.expert_chunks)};
  }
  return std::nullopt;
}

constexpr std::array<TransformerRule, 11> kSplitRules{
    layers,           tensor, recurrent, context,         sequence_parallel,
    narrow_attention, dense,  experts,   grouped_experts, dispatched_experts,
    hidden_experts};

}  // namespace

std::span<const TransformerRule> split_rules() { return kSplitRules; }

}  // namespace stepcast::internal

namespace stepcast {

std::optional<std::int64_t> expert_machines(const Job& job) {
  if (job.parallel.expert_machines > 0) {
    return job.parallel.expert_machines;
  }
  if (job.system.fabric.empty()) {
    return 1;
  }
  return expert_units(job.parallel.mesh(), job.parallel.expert_split(),
                      job.system.devices_in_level(0));
}

}  // namespace stepcast
