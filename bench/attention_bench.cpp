// Attention on one core over sequences of very different lengths: padded to the longest, and
// jagged. Sequences of a lognormal law (median 40, deviation 1.2) fill 8 samples of 1,024 rows; 4
// heads of 64.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "core/graph/length_law.h"
#include "runtime/cpu/kernels/jagged_attention.h"

namespace {

using namespace stepcast;
using namespace stepcast::runtime::kernels;

constexpr Index kRows = 1024, kSamples = 8, kHeads = 4, kDim = 64;

std::vector<std::int32_t> sequences() {
  return draw_offsets({LengthKind::kLogNormal, 40, 1.2F}, kRows, 0, 0, kSamples);
}

struct Operands {
  explicit Operands(Index rows)
      : q(size(rows), 0.5F),
        k(size(rows), 0.25F),
        v(size(rows), 1.0F),
        out(size(rows)),
        sums(static_cast<std::size_t>(rows * kHeads)) {}
  static std::size_t size(Index rows) { return static_cast<std::size_t>(rows * kHeads * kDim); }
  std::vector<float> q, k, v, out, sums;
};

void padded(benchmark::State& state) {
  const auto offsets = sequences();
  Index longest = 0;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    longest = std::max<Index>(longest, offsets[i + 1] - offsets[i]);
  }
  const auto count = static_cast<Index>(offsets.size()) - 1;
  const AttentionShape shape{count, kHeads, kHeads, longest, longest, kDim, true};
  Operands o(count * longest);
  std::vector<float> scratch(static_cast<std::size_t>(shape.scratch_floats()));
  const Index width = kHeads * kDim;
  for (auto _ : state) {
    attention_forward(shape, {o.q.data(), count * longest, width},
                      {o.k.data(), count * longest, width}, {o.v.data(), count * longest, width},
                      {o.out.data(), count * longest, width}, o.sums.data(), scratch.data());
  }
  state.counters["sequences"] = static_cast<double>(count);
  state.counters["longest"] = static_cast<double>(longest);
}

void jagged(benchmark::State& state) {
  const auto offsets = sequences();
  const JaggedShape shape{offsets, kRows, kHeads, kHeads, kDim, true};
  constexpr Index kAll = kRows * kSamples, kWidth = kHeads * kDim;
  Operands o(kAll);
  std::vector<float> scratch(static_cast<std::size_t>(shape.scratch_floats()));
  for (auto _ : state) {
    jagged_attention_forward(shape, {o.q.data(), kAll, kWidth}, {o.k.data(), kAll, kWidth},
                             {o.v.data(), kAll, kWidth}, {o.out.data(), kAll, kWidth},
                             o.sums.data(), scratch.data());
  }
  double pairs = 0;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const auto n = static_cast<double>(offsets[i + 1] - offsets[i]);
    pairs += n * (n + 1) / 2;
  }
  state.counters["GFLOP/s"] = benchmark::Counter(4e-9 * kHeads * kDim * pairs,
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK(padded)->Unit(benchmark::kMillisecond);
BENCHMARK(jagged)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
