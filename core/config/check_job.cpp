#include <algorithm>

#include "core/config/internal/loaders.h"
#include "core/config/internal/unsupported.h"

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

void check_divides(std::int64_t degree, std::int64_t size, std::string_view what,
                   const std::string& where) {
  if (size % degree != 0) {
    throw InputError(where, fmt::format("{} does not divide {} = {}; use {}", degree, what, size,
                                        divisors(size, std::min<std::int64_t>(size, 4096))));
  }
}

void check_tensor(const Job& job, const TransformerWorkload& w, const Value& v) {
  const std::int64_t t = job.parallel.tensor;
  const std::string where = v.where("parallel.tensor");
  check_divides(t, w.heads, "workload.heads", where);
  if (t % w.kv_heads == 0 && t > w.kv_heads) {
    not_implemented(v.at("parallel", "").at("tensor", ""), "kv_replication");
  }
  check_divides(t, w.kv_heads, "workload.kv_heads", where);
  check_divides(t, w.ffn_hidden, "workload.ffn_hidden", where);
  check_divides(t, w.hidden, "workload.hidden", where);
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
                                 (job.batch.global / unit + 1) * unit));
  }
  if (p.pipeline * p.virtual_stages > w.layers) {
    throw InputError(v.where("parallel.pipeline"),
                     fmt::format("pipeline * virtual_stages = {} * {} leaves stages of "
                                 "workload.layers = {} empty; use at most {} stages",
                                 p.pipeline, p.virtual_stages, w.layers, w.layers));
  }
}

void check_batch(const Job& job, const Value& v) {
  const std::int64_t unit = job.parallel.data * job.batch.micro;
  if (job.batch.global % unit != 0) {
    const std::int64_t down = job.batch.global / unit * unit;
    throw InputError(v.where("batch.global"),
                     fmt::format("{} is not divisible by data * micro = {} * {} = {}; use {}",
                                 job.batch.global, job.parallel.data, job.batch.micro, unit,
                                 down > 0 ? fmt::format("{} or {}", down, down + unit)
                                          : fmt::format("{}", unit)));
  }
}

}  // namespace

void check_job(const Job& job, const Value& v) {
  const TransformerWorkload* w = job.workload.transformer();
  if (w != nullptr) {
    check_tensor(job, *w, v);
  }
  check_batch(job, v);
  if (w != nullptr) {
    check_pipeline(job, *w, v);
  }
}

}  // namespace stepcast::config
