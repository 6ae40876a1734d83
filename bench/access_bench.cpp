// Cost of access queries and draws. The bar: any query on a zipf table of 10^9 rows under 1 ms, in
// O(bins) memory.
#include <benchmark/benchmark.h>

#include <cstdint>

#include "core/access/access.h"

namespace {

using stepcast::Access;
using stepcast::AccessSampler;
using stepcast::CachePolicy;

Access law(const benchmark::State& state) {
  return Access::zipf(state.range(0), static_cast<double>(state.range(1)) / 100);
}

void build(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(law(state));
  }
}

void unique(benchmark::State& state) {
  const Access access = law(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(access.unique(2e6));
  }
}

void cdf(benchmark::State& state) {
  const Access access = law(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(access.cdf(1e5));
  }
}

void hit_rate_lru(benchmark::State& state) {
  const Access access = law(state);
  const auto capacity = static_cast<double>(state.range(0)) / 100;
  for (auto _ : state) {
    benchmark::DoNotOptimize(access.hit_rate(capacity, CachePolicy::kLru));
  }
}

void hash_into_buckets(benchmark::State& state) {
  const Access access = law(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(access.remapped(state.range(0) / 10, Access::Remap::kMod));
  }
}

void shard(benchmark::State& state) {
  const Access access = law(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(access.random_subset(state.range(0) / 8));
  }
}

void draw_rank(benchmark::State& state) {
  AccessSampler sampler(law(state), 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler.next_rank());
  }
}

void draw_row(benchmark::State& state) {
  AccessSampler sampler(law(state), 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(sampler.next_row());
  }
}

/// Rows, and the exponent in hundredths.
void tables(benchmark::internal::Benchmark* b) {
  b->Args({1'000'000, 105})->Args({1'000'000'000, 80})->Args({1'000'000'000, 105});
}

BENCHMARK(build)->Apply(tables)->Unit(benchmark::kMicrosecond);
BENCHMARK(unique)->Apply(tables)->Unit(benchmark::kMicrosecond);
BENCHMARK(cdf)->Apply(tables)->Unit(benchmark::kMicrosecond);
BENCHMARK(hit_rate_lru)->Apply(tables)->Unit(benchmark::kMicrosecond);
BENCHMARK(hash_into_buckets)->Apply(tables)->Unit(benchmark::kMicrosecond);
BENCHMARK(shard)->Apply(tables)->Unit(benchmark::kMicrosecond);
BENCHMARK(draw_rank)->Apply(tables);
BENCHMARK(draw_row)->Apply(tables);

}  // namespace

BENCHMARK_MAIN();
