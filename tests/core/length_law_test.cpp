#include "core/graph/length_law.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <vector>

#include "core/graph/program.h"

using namespace stepcast;

namespace {

const std::vector<LengthLaw> kLengthLaws{
    {LengthKind::kFixed, 4},        {LengthKind::kFixed, 5},        {LengthKind::kUniform, 1, 9},
    {LengthKind::kUniform, 3, 3},   {LengthKind::kGeometric, 1},    {LengthKind::kGeometric, 3.5},
    {LengthKind::kLogNormal, 3, 1}, {LengthKind::kLogNormal, 40, 2}};

double pairs_within(double n, bool causal) { return causal ? n * (n + 1) / 2 : n * n; }

/// Every way of cutting `rows` rows into sequences, each with its probability.
double by_every_cut(const LengthLaw& law, std::int64_t rows, bool causal) {
  double sum = 0;
  for (std::int64_t n = 1; n < rows; ++n) {
    const double p = law.at_most(n) - law.at_most(n - 1);
    sum += p == 0 ? 0
                  : p * (pairs_within(static_cast<double>(n), causal) +
                         by_every_cut(law, rows - n, causal));
  }
  return sum + (1 - law.at_most(rows - 1)) * pairs_within(static_cast<double>(rows), causal);
}

double drawn_pairs(const std::vector<std::int32_t>& offsets, bool causal) {
  double sum = 0;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    sum += pairs_within(static_cast<double>(offsets[i + 1] - offsets[i]), causal);
  }
  return sum;
}

}  // namespace

TEST_CASE("targets see those before them and themselves", "[core][lengths]") {
  // Two sequences of 5 with 2 targets: 3 rows before them see 1 + 2 + 3, each target 3 and itself.
  CHECK(expected_pairs({LengthKind::kFixed, 5}, 10, true, 2) == Approx(2 * (6 + 2 * 4)));
  // All rows are targets: each sees itself.
  CHECK(expected_pairs({LengthKind::kFixed, 5}, 10, true, 9) == Approx(10));
}

TEST_CASE("a law of lengths gives each length its share", "[core][lengths]") {
  CHECK(LengthLaw{LengthKind::kFixed, 4}.at_most(3) == 0);
  CHECK(LengthLaw{LengthKind::kFixed, 4}.at_most(4) == 1);
  CHECK(LengthLaw{LengthKind::kUniform, 3, 6}.at_most(4) == Approx(0.5));
  CHECK(LengthLaw{LengthKind::kGeometric, 4}.at_most(2) == Approx(1 - 0.75 * 0.75));
  // A length of at most the median; e^(1.5) = 4.48 times it is one standard deviation off.
  CHECK(LengthLaw{LengthKind::kLogNormal, 20, 1.5F}.at_most(20) == Approx(0.5));
  CHECK(LengthLaw{LengthKind::kLogNormal, 100, 1.5F}.at_most(448) == Approx(0.8413).margin(2e-4));
  for (const LengthLaw& law : kLengthLaws) {
    CHECK(law.at_most(0) == 0);
    CHECK(law.at_most(std::int64_t{1} << 40) == Approx(1));
  }
}

TEST_CASE("expected pairs are the mean over every cut of a sample", "[core][lengths]") {
  const bool causal = GENERATE(true, false);
  for (const LengthLaw& law : kLengthLaws) {
    for (const std::int64_t rows : {1, 2, 5, 12}) {
      CAPTURE(name_of(law.kind), law.first, rows);
      CHECK(expected_pairs(law, rows, causal, 0) == Approx(by_every_cut(law, rows, causal)));
    }
  }
  // 10 rows in fours are 4 + 4 + 2: 16 + 16 + 4 pairs, causal 10 + 10 + 3.
  CHECK(expected_pairs({LengthKind::kFixed, 4}, 10, causal, 0) == Approx(causal ? 23 : 36));
  // One sequence over the whole sample.
  CHECK(expected_pairs({LengthKind::kFixed, 4096}, 512, causal, 0) ==
        Approx(pairs_within(512, causal)));
}

TEST_CASE("drawn sequences fill samples and have the expected pairs", "[core][lengths]") {
  constexpr std::int64_t kRows = 60, kSamples = 4000;
  const bool causal = GENERATE(true, false);
  for (const LengthLaw& law : kLengthLaws) {
    CAPTURE(name_of(law.kind), law.first, causal);
    double sum = 0;
    double squares = 0;
    for (std::int64_t s = 0; s < kSamples; ++s) {
      const auto offsets = draw_offsets(law, kRows, 3, s, 1);
      CHECK(offsets.front() == 0);
      CHECK(offsets.back() == kRows);
      const double drawn = drawn_pairs(offsets, causal);
      sum += drawn;
      squares += drawn * drawn;
    }
    const double mean = sum / kSamples;
    const double error = std::sqrt(std::max(0.0, squares / kSamples - mean * mean) / kSamples);
    // Five standard errors of the mean of 4,000 samples; none where every sample is alike.
    CHECK(std::abs(mean - expected_pairs(law, kRows, causal, 0)) <= 5 * error + 1e-6 * mean);
  }
}

TEST_CASE("a sample has its sequences whoever draws them", "[core][lengths]") {
  const LengthLaw law{LengthKind::kGeometric, 5};
  const auto whole = draw_offsets(law, 40, 7, 0, 6);
  std::vector<std::int32_t> joined;
  for (std::int32_t first = 0; first < 6; first += 2) {
    for (const std::int32_t at : draw_offsets(law, 40, 7, first, 2)) {
      joined.push_back(at + first * 40);
    }
    joined.pop_back();  // the end, where the next begins
  }
  joined.push_back(240);
  CHECK(joined == whole);
  CHECK(draw_offsets(law, 40, 8, 0, 6) != whole);

  // Rank 1 of 2, second micro-batch of two samples: samples 6 and 7 of a batch of 8.
  ExecutionGraph graph;
  graph.mesh.data = 2;
  graph.inputs.batch.global = 8;
  Op op;
  op.kind = OpKind::kJaggedAttentionForward;
  op.shape = {2, 1, 1, 40, 0, 8};
  op.attributes = JaggedAttributes{law};
  CHECK(draw_offsets(graph, op, 1, 1, 7) == draw_offsets(law, 40, 7, 6, 2));
}

TEST_CASE("work of jagged attention follows from rows and pairs", "[core][lengths]") {
  Op op;
  op.kind = OpKind::kJaggedAttentionForward;
  op.format = Format::kBf16;
  op.shape = {3, 4, 2, 100, 9000, 16};
  op.attributes = JaggedAttributes{{LengthKind::kUniform, 1, 50}};
  fill_work(op);
  // Q K^T and P V: 2 products of 2 FLOPs for 4 heads, 9,000 pairs, 16 columns. 300 rows of 4 * 16
  // query elements, 2 * 2 * 16 of keys and values; out and a fp32 log-sum-exp for each head.
  CHECK(op.flops.base() == 2 * 2 * 4 * 9000 * 16);
  CHECK(op.bytes_read.base() == 300 * (64 + 64) * 2);
  CHECK(op.bytes_written.base() == 300 * 64 * 2 + 300 * 4 * 4);
  op.kind = OpKind::kJaggedAttentionBackward;
  fill_work(op);
  // The scores again, dV, dP, dQ, dK; reads q, out and d_out, writes gradients of q, k and v.
  CHECK(op.flops.base() == 5 * 2 * 4 * 9000 * 16);
  CHECK(op.bytes_read.base() == 300 * (3 * 64 + 64) * 2 + 300 * 4 * 4);
  CHECK(op.bytes_written.base() == 300 * (64 + 64) * 2);
}
