#include <algorithm>
#include <numeric>

#include "core/config/internal/loaders.h"
#include "core/limits.h"

namespace stepcast::config {
namespace {

/// The divisors of n up to `limit`, at most eight, the largest kept.
std::string divisors(std::int64_t n, std::int64_t limit) {
  std::vector<std::string> all;
  for (std::int64_t d = 1; d <= std::min(n, limit); ++d) {
    if (n % d == 0) {
      all.push_back(fmt::format("{}", d));
    }
  }
  if (all.size() > 8) {
    all.erase(all.begin() + 1, all.end() - 7);
  }
  return list_of(all);
}

/// The multiples of `unit` on both sides of n, which is none: "8 or 16".
std::string around(std::int64_t n, std::int64_t unit) {
  const std::int64_t down = n / unit * unit;
  return down > 0 ? fmt::format("{} or {}", down, down + unit) : fmt::format("{}", unit);
}

void check_divides(std::int64_t degree, std::int64_t size, std::string_view what,
                   const std::string& where, const std::string& legal) {
  if (size % degree != 0) {
    throw InputError(where,
                     fmt::format("{} does not divide {} = {}; use {}", degree, what, size, legal));
  }
}

/// Tensor degrees that divide everything they split.
std::string tensor_degrees(const TransformerWorkload& w) {
  std::vector<std::string> legal;
  for (std::int64_t t = 1; t <= w.heads && legal.size() < 12; ++t) {
    const bool heads = w.mla || t % w.kv_heads == 0 || w.kv_heads % t == 0;
    if (w.heads % t == 0 && heads && w.ffn_hidden % t == 0 && w.hidden % t == 0 &&
        w.vocabulary % t == 0) {
      legal.push_back(fmt::format("{}", t));
    }
  }
  return list_of(legal);
}

void check_tensor(const Job& job, const TransformerWorkload& w, const Value& v) {
  const std::int64_t t = job.parallel.tensor;
  const std::string where = v.where("parallel.tensor");
  const std::string legal = tensor_degrees(w);
  check_divides(t, w.heads, "workload.heads", where, legal);
  if (!w.mla && t % w.kv_heads != 0) {  // else ranks share a head
    check_divides(t, w.kv_heads, "workload.kv_heads", where, legal);
  }
  check_divides(t, w.ffn_hidden, "workload.ffn_hidden", where, legal);
  check_divides(t, w.hidden, "workload.hidden", where, legal);
  if (w.vocabulary % t != 0) {
    throw InputError(
        where, fmt::format("{} does not divide workload.vocabulary = {}; pad the vocabulary to {}",
                           t, w.vocabulary, (w.vocabulary / t + 1) * t));
  }
  if (job.parallel.sequence_parallel && job.batch.sequence % t != 0) {
    throw InputError(
        v.where("parallel.sequence_parallel"),
        fmt::format("batch.sequence = {} does not divide over tensor = {}; use {} or false",
                    job.batch.sequence, t, (job.batch.sequence / t + 1) * t));
  }
}

/// Experts are spread over ranks of one pipeline stage.
void check_experts(const Job& job, const TransformerWorkload& w, const Value& v) {
  const Parallel& p = job.parallel;
  const std::string where = v.where("parallel.expert");
  if (!w.moe) {
    for (const auto& [key, degree] :
         {std::pair{"expert", p.expert}, std::pair{"expert_tensor", p.expert_tensor}}) {
      if (degree > 1) {
        throw InputError(v.where(fmt::format("parallel.{}", key)),
                         fmt::format("{}, but workload {} has no experts; use 1, or give "
                                     "workload.moe",
                                     degree, job.workload.name));
      }
    }
    return;
  }
  const std::int64_t replicas = p.data * p.context;
  if ((p.tensor * replicas) % p.expert != 0 || w.moe->experts % p.expert != 0) {
    throw InputError(
        where,
        fmt::format("{} must divide tensor * context * data = {} * {} * {} = {} and "
                    "workload.moe.experts = {}; use {}",
                    p.expert, p.tensor, p.context, p.data, p.tensor * replicas, w.moe->experts,
                    divisors(std::gcd(p.tensor * replicas, w.moe->experts), 1 << 20)));
  }
  if (p.expert_tensor > 1 && p.expert_tensor != p.tensor) {
    throw InputError(v.where("parallel.expert_tensor"),
                     fmt::format("{}: an expert is split over the {} tensor ranks or not at all; "
                                 "use {} or 1",
                                 p.expert_tensor, p.tensor, p.tensor));
  }
  const bool split = p.expert_tensor == 0 ? replicas % p.expert == 0 : p.expert_tensor > 1;
  if (p.expert_tensor > 1 && replicas % p.expert != 0) {
    throw InputError(
        where,
        fmt::format("{} does not divide context * data = {}, as it must when tensor "
                    "ranks share their experts; use {}, or expert_tensor 1",
                    p.expert, replicas, divisors(std::gcd(replicas, w.moe->experts), 1 << 20)));
  }
  if (p.tensor > 1 && !split && !p.sequence_parallel) {
    throw InputError(v.where("parallel.sequence_parallel"),
                     fmt::format("false, but with expert = {} the {} tensor ranks hold different "
                                 "experts and need tokens of their own; use true, or an expert "
                                 "degree that divides context * data = {}",
                                 p.expert, p.tensor, replicas));
  }
  const std::string columns = v.where("parallel.tensor");
  if (split) {
    check_divides(p.tensor, w.moe->ffn_hidden, "workload.moe.ffn_hidden", columns,
                  divisors(w.moe->ffn_hidden, p.tensor));
  }
  check_divides(p.tensor, std::max<std::int64_t>(p.tensor, w.moe->shared * w.moe->ffn_hidden),
                "workload.moe.shared * ffn_hidden", columns,
                divisors(w.moe->shared * w.moe->ffn_hidden, p.tensor));
}

void check_pipeline(const Job& job, const TransformerWorkload& w, const Value& v) {
  const Parallel& p = job.parallel;
  if (p.virtual_stages > 1 && p.pipeline == 1) {
    throw InputError(
        v.where("parallel.virtual_stages"),
        fmt::format("{} needs a pipeline, but parallel.pipeline = 1; use 1", p.virtual_stages));
  }
  if (p.virtual_stages > 1 && p.schedule != ScheduleKind::kOneFOneB) {
    throw InputError(
        v.where("parallel.schedule"),
        fmt::format(
            "virtual_stages = {} interleaves the 1f1b schedule; use 1f1b or virtual_stages 1",
            p.virtual_stages));
  }
  if (p.virtual_stages > 1 && job.microbatches() % p.pipeline != 0) {
    const std::int64_t unit = p.data * job.batch.micro * p.pipeline;
    throw InputError(v.where("batch.global"),
                     fmt::format("{} makes {} micro-batches, but virtual_stages = {} needs a "
                                 "multiple of pipeline = {}; use {}",
                                 job.batch.global, job.microbatches(), p.virtual_stages, p.pipeline,
                                 around(job.batch.global, unit)));
  }
  if (p.virtual_stages > 1 && p.pipeline <= w.layers && p.pipeline * p.virtual_stages > w.layers) {
    throw InputError(v.where("parallel.virtual_stages"),
                     fmt::format("{} on {} pipeline stages leaves some of {} virtual stages empty, "
                                 "as workload.layers = {}; use at most {}",
                                 p.virtual_stages, p.pipeline, p.pipeline * p.virtual_stages,
                                 w.layers, w.layers / p.pipeline));
  }
  if (p.pipeline * p.virtual_stages > w.layers) {
    throw InputError(v.where("parallel.pipeline"),
                     fmt::format("pipeline * virtual_stages = {} * {} leaves stages of "
                                 "workload.layers = {} empty; use at most {} stages",
                                 p.pipeline, p.virtual_stages, w.layers, w.layers));
  }
  const std::int64_t stages = p.pipeline * p.virtual_stages;
  const std::int64_t most = (w.layers + stages - 1) / stages * p.virtual_stages;
  if (p.recompute.kind == RecomputeKind::kFirstLayers && p.recompute.layers > most) {
    throw InputError(v.where("parallel.recompute.layers"),
                     fmt::format("found {}, but a stage has at most {} of {} layers; use {} or "
                                 "less, or full",
                                 p.recompute.layers, most, w.layers, most));
  }
}

void check_batch(const Job& job, const Value& v) {
  const std::int64_t unit = job.parallel.data * job.batch.micro;
  if (job.batch.global % unit != 0) {
    throw InputError(
        v.where("batch.global"),
        fmt::format("{} is not divisible by data * micro = {} * {} = {}; use {}", job.batch.global,
                    job.parallel.data, job.batch.micro, unit, around(job.batch.global, unit)));
  }
  if (job.microbatches() > kMostMicrobatches) {
    throw InputError(
        v.where("batch.global"),
        fmt::format("{} makes {} micro-batches of each replica, of which at most {} can be "
                    "simulated; use batch.global = {} at most (each further micro-batch only adds "
                    "the same time again), or a larger batch.micro",
                    job.batch.global, job.microbatches(), kMostMicrobatches,
                    kMostMicrobatches * unit));
  }
}

/// Shards inside a level of the fabric: it must hold several whole replicas, and data many times
/// them.
void check_zero_level(const Job& job, const Value& v) {
  const Parallel& p = job.parallel;
  if (p.zero == 0 || p.zero_level.empty()) {
    return;
  }
  const std::string where = v.where("parallel.zero.level");
  const auto inside = job.system.devices_in(p.zero_level);
  if (!inside) {
    std::vector<std::string> names{"node"};
    for (const FabricLevel& level : job.system.fabric) {
      names.push_back(level.name);
    }
    throw InputError(
        where, fmt::format("found \"{}\"; {}", p.zero_level, suggestion(p.zero_level, names)));
  }
  const std::int64_t split = p.mesh().stride(Axis::kData);
  const std::int64_t members = *inside / split;
  if (*inside % split != 0 || members < 2) {
    throw InputError(
        where,
        fmt::format("{} joins {} devices, but one replica of the model takes tensor * context * "
                    "pipeline = {}: no two lie inside to shard over; use zero {} without a level",
                    p.zero_level, *inside, split, p.zero));
  }
  if (p.data % members != 0) {
    throw InputError(where,
                     fmt::format("{} joins {} replicas, which do not divide data = {}; use "
                                 "data = {} or zero {} without a level",
                                 p.zero_level, members, p.data,
                                 std::max<std::int64_t>(1, p.data / members) * members, p.zero));
  }
}

}  // namespace

void check_job(const Job& job, const Value& v) {
  const TransformerWorkload* w = job.workload.transformer();
  if (w != nullptr) {
    check_tensor(job, *w, v);
    check_experts(job, *w, v);
  }
  check_batch(job, v);
  if (w != nullptr) {
    check_pipeline(job, *w, v);
    check_zero_level(job, v);
  }
}

}  // namespace stepcast::config
