#include "runtime/data/dlrm_source.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/error.h"
#include "core/portable.h"
#include "runtime/data/counter_random.h"

namespace stepcast::runtime {
namespace {

constexpr std::uint64_t kDenseKey = 1;
constexpr std::uint64_t kLabelKey = 2;
constexpr std::uint64_t kPoolingKey = 3;
constexpr std::uint64_t kPlantedKey = 4;
constexpr std::uint64_t kFirstTableKey = 16;
constexpr std::int64_t kBlock = 64;           // samples drawn from one seed
constexpr double kLookupsOfPart = 32 * 1024;  // a millisecond or two of one thread

std::int64_t pooling_of(const EmbeddingTable& table, CounterRandom& random) {
  const double whole = std::floor(table.pooling);
  return table.pooling == whole ? static_cast<std::int64_t>(whole) : random.poisson(table.pooling);
}

std::int64_t session_of(const EmbeddingTable& table) {
  return table.session ? std::max<std::int64_t>(1, std::llround(table.session->samples)) : 1;
}

/// Whole sessions.
std::int64_t block_of(const EmbeddingTable& table) {
  const std::int64_t session = session_of(table);
  return session * std::max<std::int64_t>(1, kBlock / session);
}

}  // namespace

double planted_effect(std::size_t table, std::int64_t row) {
  return CounterRandom(key_of(key_of(kPlantedKey, table), static_cast<std::uint64_t>(row)))
      .symmetric();
}

/// Samples of one table that one thread draws.
struct DlrmSource::Part {
  std::size_t table = 0;
  std::int64_t first = 0, last = 0;  ///< blocks of the global batch
  std::vector<std::int64_t> rows = {}, ranks = {};
  std::vector<std::int64_t> ends = {};  ///< by sample of this rank, from the part's first lookup
  std::vector<double> effects = {};     ///< of each on its logit
};

DlrmSource::DlrmSource(const StepInputs& inputs, SampleRange range, std::uint64_t seed, int threads)
    : inputs_(inputs), range_(range), seed_(seed), threads_(threads) {
  for (const EmbeddingTable& table : inputs.tables) {
    STEPCAST_CHECK(table.access != nullptr, "table '{}' has no access law", table.name);
    samplers_.emplace_back(*table.access, seed);
  }
  divide();
}

DlrmSource::~DlrmSource() = default;

void DlrmSource::divide() {
  for (std::size_t t = 0; t < inputs_.tables.size(); ++t) {
    const std::int64_t block = block_of(inputs_.tables[t]);
    const double lookups = static_cast<double>(block) * std::max(1.0, inputs_.tables[t].pooling);
    const auto together = static_cast<std::int64_t>(std::ceil(kLookupsOfPart / lookups));
    const std::int64_t end = (range_.first + range_.count + block - 1) / block;
    for (std::int64_t b = range_.first / block; b < end; b += together) {
      parts_.push_back({.table = t, .first = b, .last = std::min(end, b + together)});
    }
  }
}

template <class F>
void DlrmSource::on_threads(std::size_t count, F f) const {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      f(i);
    }
  };
  JoinedThreads threads;
  for (std::size_t t = 1; t < std::min(count, static_cast<std::size_t>(threads_)); ++t) {
    threads.start(work);
  }
  work();
}

void DlrmSource::draw(std::int64_t step, HostBatch& batch) {
  const auto samples = static_cast<std::size_t>(range_.count);
  const auto features = static_cast<std::size_t>(inputs_.dense_features);
  const std::size_t tables = inputs_.tables.size();
  batch.dense.resize(samples * features);
  batch.labels.resize(samples);
  batch.lookups.resize(tables);
  batch.offsets.resize(tables);
  batch.ranks.resize(tables);
  logits_.assign(samples, 0.0);
  const std::uint64_t step_key = key_of(seed_, static_cast<std::uint64_t>(step));
  const double feature_share = features > 0 ? 2 / std::sqrt(static_cast<double>(features)) : 0;
  for (std::size_t s = 0; s < samples; ++s) {
    const auto sample = static_cast<std::uint64_t>(range_.first) + s;
    CounterRandom random(key_of(key_of(step_key, kDenseKey), sample));
    for (std::size_t f = 0; f < features; ++f) {
      const double x = random.symmetric() + random.symmetric();
      batch.dense[s * features + f] = static_cast<float>(x);
      logits_[s] += feature_share * x * planted_effect(SIZE_MAX, static_cast<std::int64_t>(f));
    }
  }
  on_threads(parts_.size(), [&](std::size_t i) { draw_part(step, parts_[i]); });
  on_threads(tables, [&](std::size_t t) { join(t, batch); });
  for (const Part& part : parts_) {
    const std::int64_t first = part.first * block_of(inputs_.tables[part.table]) - range_.first;
    auto logit = logits_.begin() + std::max<std::int64_t>(0, first);
    for (const double effect : part.effects) {
      *logit++ += effect;
    }
  }
  for (std::size_t s = 0; s < samples; ++s) {
    const auto sample = static_cast<std::uint64_t>(range_.first) + s;
    CounterRandom random(key_of(key_of(step_key, kLabelKey), sample));
    batch.labels[s] = random.unit() < 1 / (1 + std::exp(-logits_[s])) ? 1.0F : 0.0F;
  }
}

/// Draws whole blocks of the global batch and keeps the samples of this rank.
void DlrmSource::draw_part(std::int64_t step, Part& part) const {
  const std::size_t t = part.table;
  const EmbeddingTable& table = inputs_.tables[t];
  const std::int64_t session = session_of(table);
  const std::int64_t block = block_of(table);
  const double keep = table.session ? table.session->keep : 0;
  const std::uint64_t table_key =
      key_of(key_of(seed_, static_cast<std::uint64_t>(step)), kFirstTableKey + t);
  part.rows.clear();
  part.ranks.clear();
  part.ends.clear();
  part.effects.clear();
  const double share = 2 / std::sqrt(static_cast<double>(inputs_.tables.size()));
  const std::int64_t last = std::min(range_.first + range_.count, part.last * block);
  std::vector<std::int64_t> values;  // popularity ranks of the sample at hand
  AccessSampler sampler = samplers_[t];
  for (std::int64_t b = part.first; b < part.last; ++b) {
    sampler.reseed(key_of(table_key, static_cast<std::uint64_t>(b)));
    for (std::int64_t sample = b * block; sample < std::min(last, (b + 1) * block); ++sample) {
      CounterRandom random(
          key_of(key_of(table_key, kPoolingKey), static_cast<std::uint64_t>(sample)));
      const bool kept = sample % session != 0 && random.unit() < keep;
      if (!kept) {
        values.resize(static_cast<std::size_t>(pooling_of(table, random)));
        std::generate(values.begin(), values.end(), [&sampler] { return sampler.next_rank(); });
      }
      if (sample < range_.first) {
        continue;
      }
      double effect = 0;
      for (const std::int64_t rank : values) {
        part.ranks.push_back(rank);
        part.rows.push_back(table.access->row_of_rank(rank));
        effect += planted_effect(t, part.rows.back());
      }
      const auto pooled = static_cast<double>(std::max<std::size_t>(1, values.size()));
      part.effects.push_back(share * effect / std::sqrt(pooled));
      part.ends.push_back(static_cast<std::int64_t>(part.rows.size()));
    }
  }
}

/// Puts the parts of a table one behind the other.
void DlrmSource::join(std::size_t table, HostBatch& batch) const {
  auto& rows = batch.lookups[table];
  auto& ranks = batch.ranks[table];
  auto& offsets = batch.offsets[table];
  rows.clear();
  ranks.clear();
  offsets.assign(1, 0);
  for (const Part& part : parts_) {
    if (part.table != table) {
      continue;
    }
    const auto before = static_cast<std::int64_t>(rows.size());
    rows.insert(rows.end(), part.rows.begin(), part.rows.end());
    ranks.insert(ranks.end(), part.ranks.begin(), part.ranks.end());
    for (const std::int64_t end : part.ends) {
      offsets.push_back(before + end);
    }
  }
}

}  // namespace stepcast::runtime
