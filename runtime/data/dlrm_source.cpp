#include "runtime/data/dlrm_source.h"

#include <algorithm>
#include <cmath>

#include "core/access/access.h"
#include "core/error.h"
#include "runtime/data/counter_random.h"

namespace stepcast::runtime {
namespace {

constexpr std::uint64_t kDenseKey = 1;
constexpr std::uint64_t kLabelKey = 2;
constexpr std::uint64_t kPoolingKey = 3;
constexpr std::uint64_t kPlantedKey = 4;
constexpr std::uint64_t kFirstTableKey = 16;
constexpr std::int64_t kBlock = 64;  // samples drawn from one seed

std::int64_t pooling_of(const EmbeddingTable& table, CounterRandom& random) {
  const double whole = std::floor(table.pooling);
  return table.pooling == whole ? static_cast<std::int64_t>(whole) : random.poisson(table.pooling);
}

}  // namespace

double planted_effect(std::size_t table, std::int64_t row) {
  return CounterRandom(key_of(key_of(kPlantedKey, table), static_cast<std::uint64_t>(row)))
      .symmetric();
}

DlrmSource::DlrmSource(const StepInputs& inputs, SampleRange range, std::uint64_t seed)
    : inputs_(inputs), range_(range), seed_(seed) {
  for (const EmbeddingTable& table : inputs.tables) {
    STEPCAST_CHECK(table.access != nullptr, "table '{}' has no access law", table.name);
    samplers_.emplace_back(*table.access, seed);
  }
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
  for (std::size_t t = 0; t < tables; ++t) {
    draw_table(t, step, batch);
  }
  for (std::size_t s = 0; s < samples; ++s) {
    const auto sample = static_cast<std::uint64_t>(range_.first) + s;
    CounterRandom random(key_of(key_of(step_key, kLabelKey), sample));
    batch.labels[s] = random.unit() < 1 / (1 + std::exp(-logits_[s])) ? 1.0F : 0.0F;
  }
}

/// Draws whole blocks of the global batch and keeps the samples of this rank.
void DlrmSource::draw_table(std::size_t t, std::int64_t step, HostBatch& batch) {
  const EmbeddingTable& table = inputs_.tables[t];
  const std::int64_t session =
      table.session ? std::max<std::int64_t>(1, std::llround(table.session->samples)) : 1;
  const double keep = table.session ? table.session->keep : 0;
  const std::int64_t block = session * std::max<std::int64_t>(1, kBlock / session);
  const std::uint64_t table_key =
      key_of(key_of(seed_, static_cast<std::uint64_t>(step)), kFirstTableKey + t);
  auto& rows = batch.lookups[t];
  auto& ranks = batch.ranks[t];
  auto& offsets = batch.offsets[t];
  rows.clear();
  ranks.clear();
  offsets.assign(1, 0);
  const double share =
      2 / std::sqrt(static_cast<double>(std::max<std::size_t>(1, inputs_.tables.size())));
  const std::int64_t last = range_.first + range_.count;
  std::vector<std::int64_t> values;  // popularity ranks of the sample at hand
  for (std::int64_t b = range_.first / block; b * block < last; ++b) {
    AccessSampler& sampler = samplers_[t];
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
        ranks.push_back(rank);
        rows.push_back(table.access->row_of_rank(rank));
        effect += planted_effect(t, rows.back());
      }
      if (!values.empty()) {
        logits_[static_cast<std::size_t>(sample - range_.first)] +=
            share * effect / std::sqrt(static_cast<double>(values.size()));
      }
      offsets.push_back(static_cast<std::int64_t>(rows.size()));
    }
  }
}

}  // namespace stepcast::runtime
