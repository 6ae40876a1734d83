// Device kernels of embeddings, index lists and tokens one by one against sums in double.
#include "runtime/cuda/kernels/embedding.h"
#include "runtime/cuda/kernels/index_exchange.h"
#include "runtime/cuda/kernels/sequence_pool.h"
#include "runtime/cuda/kernels/token.h"
#include "tests/runtime/cuda/kernels/kernel_fixture.h"

namespace stepcast::runtime::cuda::kernels::test {
namespace {

/// Lookups of one table on host and device: bags of odd sizes, some empty, offsets that do not
/// begin at 0, one row that most bags hit.
struct Lookups {
  std::vector<std::int64_t> indices, offsets;
  std::unique_ptr<Array<std::int64_t>> on_device, offsets_on_device;

  Lookups(Draw& draw, Index rows, Index bags, Index most, bool hot) {
    const Index first = 3;
    indices.assign(static_cast<std::size_t>(first), 0);
    offsets.push_back(first);
    for (Index b = 0; b < bags; ++b) {
      const Index n = b % 7 == 2 ? 0 : draw.below(most + 1);
      for (Index i = 0; i < n; ++i) {
        indices.push_back(hot && draw.below(4) > 0 ? rows / 2 : draw.below(rows));
      }
      offsets.push_back(static_cast<std::int64_t>(indices.size()));
    }
    on_device = std::make_unique<Array<std::int64_t>>(indices);
    offsets_on_device = std::make_unique<Array<std::int64_t>>(offsets);
  }
  [[nodiscard]] Index count() const { return static_cast<Index>(offsets.size()) - 1; }
  [[nodiscard]] Index size(Index b) const {
    return offsets[static_cast<std::size_t>(b + 1)] - offsets[static_cast<std::size_t>(b)];
  }
  [[nodiscard]] Bags bags() const {
    return {on_device->data(), offsets_on_device->data(), count(), offsets.back() - offsets[0]};
  }
  /// f(bag, row) for all lookups in order.
  template <class F>
  void each(F f) const {
    for (Index b = 0; b < count(); ++b) {
      for (auto i = offsets[static_cast<std::size_t>(b)];
           i < offsets[static_cast<std::size_t>(b + 1)]; ++i) {
        f(b, indices[static_cast<std::size_t>(i)]);
      }
    }
  }
};

std::vector<float> floats(const Numbers& v) { return {v.begin(), v.end()}; }

}  // namespace

DEVICE_TEST_CASE("kernels: embedding forward, several tables in a launch", "[cuda][kernels][gpu]") {
  Draw draw(21);
  for (const Format f : stored_formats()) {
    for (const Index dim : {1, 4, 7, 16, 33, 64, 128, 260, 1024}) {
      CAPTURE(name_of(f), dim);
      std::vector<std::unique_ptr<Lookups>> lookups;
      std::vector<std::unique_ptr<Matrix>> weights, pooled;
      std::vector<std::unique_ptr<Array<float>>> factors;
      std::vector<Numbers> values, factor;
      std::vector<EmbeddingTable> tables;
      for (Index t = 0; t < 3; ++t) {
        const Index rows = t == 0 ? 1 : 50 + 37 * t;
        lookups.push_back(
            std::make_unique<Lookups>(draw, rows, 5 + 60 * t, t == 1 ? 40 : 3, false));
        values.push_back(draw.values(rows * dim));
        factor.push_back(draw.values(lookups.back()->count()));
        weights.push_back(std::make_unique<Matrix>(f, rows, dim, values.back()));
        pooled.push_back(
            std::make_unique<Matrix>(Format::kFp32, lookups.back()->count(), dim, t * 4));
        factors.push_back(std::make_unique<Array<float>>(floats(factor.back())));
        EmbeddingTable table;
        table.weights = weights.back()->view();
        table.bags = lookups.back()->bags();
        table.pooling = t == 2 ? Pooling::kMean : Pooling::kSum;
        table.factors = t == 1 ? factors.back()->data() : nullptr;
        table.pooled = pooled.back()->view();
        tables.push_back(table);
      }
      embedding_forward(tables.data(), 3, nullptr);
      for (std::size_t t = 0; t < 3; ++t) {
        Numbers expected(static_cast<std::size_t>(lookups[t]->count() * dim), 0.0);
        lookups[t]->each([&](Index b, Index row) {
          for (Index j = 0; j < dim; ++j) {
            const double w = values[t][static_cast<std::size_t>(row * dim + j)];
            const double scale = t == 1   ? factor[t][static_cast<std::size_t>(b)]
                                 : t == 2 ? 1.0 / static_cast<double>(lookups[t]->size(b))
                                          : 1.0;
            expected[static_cast<std::size_t>(b * dim + j)] += scale * w;
          }
        });
        CAPTURE(t);
        check_near(pooled[t]->read(), expected, 2e-5);
      }
    }
  }
}

DEVICE_TEST_CASE("kernels: rows gathered without pooling", "[cuda][kernels][gpu]") {
  Draw draw(22);
  constexpr Index kRows = 77, kCount = 301;
  std::vector<std::int64_t> ids;
  for (Index i = 0; i < kCount; ++i) {
    ids.push_back(draw.below(kRows));
  }
  const Array<std::int64_t> on_device(ids);
  for (const Format f : stored_formats()) {
    for (const Index dim : {3, 64, 100}) {
      const Numbers values = draw.values(kRows * dim);
      const Matrix weights(f, kRows, dim, values), out(f, kCount, dim, 8);
      EmbeddingTable table;
      table.weights = weights.view();
      table.bags = {on_device.data(), nullptr, kCount, kCount};
      table.pooled = out.view();
      embedding_forward(&table, 1, nullptr);
      Numbers expected;
      for (const std::int64_t id : ids) {
        expected.insert(expected.end(), values.begin() + id * dim, values.begin() + (id + 1) * dim);
      }
      check_near(out.read(), expected, 0);
    }
  }
}

DEVICE_TEST_CASE(
    "kernels: embedding backward with its optimizer, rows hit once and thousands of times",
    "[cuda][kernels][gpu][thousands]") {
  const auto kind = GENERATE(OptimizerKind::kSgd, OptimizerKind::kAdam,
                             OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdagrad);
  const bool hot = GENERATE(false, true);
  OptimizerSettings s;
  s.kind = kind;
  s.step = 2;
  s.learning_rate = 0.0625F;
  s.epsilon = 1e-2F;
  Draw draw(23);
  for (const Index dim : {1, 7, 32, 64, 130, 256}) {
    CAPTURE(int(kind), hot, dim);
    std::vector<std::unique_ptr<Lookups>> lookups;
    std::vector<std::unique_ptr<Matrix>> weights, pooled;
    std::vector<std::unique_ptr<Array<float>>> first, second;
    std::vector<Numbers> w, g, a, b;
    std::vector<EmbeddingTable> tables;
    for (Index t = 0; t < 2; ++t) {
      const Index rows = t == 0 ? 9 : 700;
      lookups.push_back(std::make_unique<Lookups>(draw, rows, 30 + 500 * t, 12, hot));
      w.push_back(draw.values(rows * dim));
      g.push_back(draw.values(lookups.back()->count() * dim));
      a.push_back(draw.positive(kind == OptimizerKind::kRowwiseAdagrad ? rows : rows * dim));
      b.push_back(draw.positive(rows * dim));
      weights.push_back(std::make_unique<Matrix>(Format::kFp32, rows, dim, w.back()));
      pooled.push_back(
          std::make_unique<Matrix>(Format::kFp32, lookups.back()->count(), dim, g.back()));
      first.push_back(std::make_unique<Array<float>>(floats(a.back())));
      second.push_back(std::make_unique<Array<float>>(floats(b.back())));
      EmbeddingTable table;
      table.weights = weights.back()->view();
      table.bags = lookups.back()->bags();
      table.pooling = t == 1 ? Pooling::kMean : Pooling::kSum;
      table.pooled = pooled.back()->view();
      table.first = first.back()->data();
      table.second = second.back()->data();
      tables.push_back(table);
    }
    Memory workspace(embedding_backward_workspace(tables.data(), 2));
    embedding_backward(tables.data(), 2, s, nullptr, workspace.workspace(), nullptr);
    for (std::size_t t = 0; t < 2; ++t) {
      const auto rows = static_cast<Index>(w[t].size()) / dim;
      Numbers gradient(w[t].size(), 0.0);
      std::vector<bool> touched(static_cast<std::size_t>(rows), false);
      lookups[t]->each([&](Index bag, Index row) {
        touched[static_cast<std::size_t>(row)] = true;
        for (Index j = 0; j < dim; ++j) {
          gradient[static_cast<std::size_t>(row * dim + j)] +=
              g[t][static_cast<std::size_t>(bag * dim + j)] /
              (t == 1 ? static_cast<double>(lookups[t]->size(bag)) : 1.0);
        }
      });
      Numbers expected = w[t];
      for (Index row = 0; row < rows; ++row) {
        double squares = 0;
        for (Index j = 0; j < dim; ++j) {
          squares += std::pow(gradient[static_cast<std::size_t>(row * dim + j)], 2);
        }
        for (Index j = 0; j < dim && touched[static_cast<std::size_t>(row)]; ++j) {
          const auto k = static_cast<std::size_t>(row * dim + j);
          const double x = gradient[k], lr = s.learning_rate, e = s.epsilon;
          if (kind == OptimizerKind::kSgd) {
            expected[k] -= lr * x;
          } else if (kind == OptimizerKind::kRowwiseAdagrad) {
            expected[k] -= lr * x /
                           (std::sqrt(a[t][static_cast<std::size_t>(row)] +
                                      squares / static_cast<double>(dim)) +
                            e);
          } else if (kind == OptimizerKind::kAdagrad) {
            expected[k] -= lr * x / (std::sqrt(a[t][k] + x * x) + e);
          } else {
            const double m = 0.9 * a[t][k] + 0.1 * x, v = 0.999 * b[t][k] + 0.001 * x * x;
            expected[k] -=
                lr * (m / (1 - std::pow(0.9, 2))) / (std::sqrt(v / (1 - std::pow(0.999, 2))) + e);
          }
        }
      }
      CAPTURE(t);
      check_near(weights[t]->read(), expected, 1e-4);
    }
  }
}

DEVICE_TEST_CASE("kernels: the same lookups give the same bits",
                 "[cuda][kernels][gpu][thousands]") {
  Draw draw(24);
  constexpr Index kRows = 300, kDim = 64;
  const Lookups lookups(draw, kRows, 3000, 20, true);
  const Numbers g = draw.values(lookups.count() * kDim);
  std::vector<Numbers> results;
  for (int run = 0; run < 2; ++run) {
    const Matrix gradient(Format::kFp32, lookups.count(), kDim, g),
        weights(Format::kFp32, kRows, kDim, Numbers(kRows * kDim, 0.0));
    EmbeddingTable table;
    table.weights = weights.view();
    table.bags = lookups.bags();
    table.pooled = gradient.view();
    Memory workspace(embedding_backward_workspace(&table, 1));
    embedding_gradient(&table, 1, workspace.workspace(), nullptr);
    results.push_back(weights.read());
  }
  CHECK(results[0] == results[1]);
  Numbers expected(kRows * kDim, 0.0);
  lookups.each([&](Index bag, Index row) {
    for (Index j = 0; j < kDim; ++j) {
      expected[static_cast<std::size_t>(row * kDim + j)] +=
          g[static_cast<std::size_t>(bag * kDim + j)];
    }
  });
  check_near(results[0], expected, 1e-4);
}

DEVICE_TEST_CASE("kernels: index lists sorted by owner", "[cuda][kernels][gpu]") {
  Draw draw(25);
  const bool ranges = GENERATE(true, false);
  constexpr Index kRows = 500, kParts = 5;
  const std::vector<std::int64_t> boundaries{0, 100, 100, 333, 480, 500};  // one is empty
  const Array<std::int64_t> on_device(boundaries);
  for (const Index bags : {1, 33, 1000}) {
    CAPTURE(ranges, bags);
    const Lookups lookups(draw, kRows, bags, 9, true);
    const RowSplit split{kParts, ranges ? on_device.data() : nullptr};
    const auto n = static_cast<std::size_t>(bags);
    Array<std::int32_t> lengths(n * kParts);
    count_by_owner(lookups.bags(), split, lengths.data(), nullptr);
    std::vector<std::int32_t> expected(n * kParts, 0);
    std::vector<std::vector<std::int64_t>> by_part(kParts);
    lookups.each([&](Index bag, Index row) {
      std::size_t part = static_cast<std::size_t>(row % kParts);
      std::int64_t local = row / kParts;
      if (ranges) {
        part = 0;
        while (row >= boundaries[part + 1]) {
          ++part;
        }
        local = row - boundaries[part];
      }
      ++expected[part * n + static_cast<std::size_t>(bag)];
      by_part[part].push_back(local);
    });
    CHECK(lengths.read() == expected);
    std::vector<std::int64_t> cursors, ids;
    for (std::size_t k = 0; k < expected.size(); ++k) {
      cursors.push_back(k == 0 ? 0 : cursors.back() + expected[k - 1]);
    }
    for (const auto& part : by_part) {
      ids.insert(ids.end(), part.begin(), part.end());
    }
    {
      Array<std::int64_t> where(cursors), out(std::max<std::size_t>(1, ids.size()));
      fill_by_owner(lookups.bags(), split, where.data(), out.data(), nullptr);
      std::vector<std::int64_t> found = out.read();
      found.resize(ids.size());
      CHECK(found == ids);
    }
    Array<std::int32_t> sizes(n);
    bag_lengths(lookups.bags(), sizes.data(), nullptr);
    std::vector<std::int32_t> expected_sizes;
    std::vector<float> factors;
    for (Index b = 0; b < bags; ++b) {
      expected_sizes.push_back(static_cast<std::int32_t>(lookups.size(b)));
      factors.push_back(1.0F / static_cast<float>(std::max<Index>(1, lookups.size(b))));
    }
    CHECK(sizes.read() == expected_sizes);
    Array<float> from_lengths(n), from_bags(n);
    mean_factors(sizes.data(), bags, from_lengths.data(), nullptr);
    mean_factors(lookups.bags(), from_bags.data(), nullptr);
    CHECK(from_lengths.read() == factors);
    CHECK(from_bags.read() == factors);
    Array<std::int64_t> offsets(n + 1);
    Memory workspace(lengths_to_offsets_workspace(bags));
    lengths_to_offsets(sizes.data(), bags, 3, offsets.data(), workspace.workspace(), nullptr);
    CHECK(offsets.read() == lookups.offsets);
    std::vector<std::int64_t> first, sums;
    for (Index p = 0; p < kParts; ++p) {
      first.push_back(p * bags);
      sums.push_back(static_cast<std::int64_t>(by_part[static_cast<std::size_t>(p)].size()));
    }
    const Array<std::int64_t> starts(first), totals(static_cast<std::size_t>(kParts)),
        there(static_cast<std::size_t>(kParts));
    segment_sums(lengths.data(), starts.data(), kParts, bags, totals.data(), there.data(), nullptr);
    CHECK(totals.read() == sums);
    CHECK(there.read() == std::vector<std::int64_t>(static_cast<std::size_t>(kParts), bags));
  }
}

DEVICE_TEST_CASE("kernels: means of consecutive rows", "[cuda][kernels][gpu]") {
  Draw draw(27);
  for (const Format f : stored_formats()) {
    for (const Index dim : {1, 7, 64, 130}) {
      for (const bool accumulate : {false, true}) {
        CAPTURE(name_of(f), dim, accumulate);
        std::vector<std::int64_t> offsets{0};
        for (Index b = 0; b < 45; ++b) {
          offsets.push_back(offsets.back() + (b % 6 == 1 ? 0 : draw.below(9)));
        }
        const auto bags = static_cast<Index>(offsets.size()) - 1, rows = offsets.back();
        const Numbers x = draw.values(rows * dim), before = draw.values(bags * dim);
        const Array<std::int64_t> on_device(offsets);
        const Matrix in(f, rows, dim, x, 2), out(f, bags, dim, 1), d_out(f, bags, dim, before),
            dx(f, rows, dim, 3);
        if (accumulate) {
          out.write(before);
        }
        sequence_mean_forward(in.view(), on_device.data(), nullptr, accumulate, out.view(),
                              nullptr);
        Numbers expected(static_cast<std::size_t>(bags * dim), 0.0), gradient;
        for (Index b = 0; b < bags; ++b) {
          const auto size = static_cast<double>(offsets[static_cast<std::size_t>(b + 1)] -
                                                offsets[static_cast<std::size_t>(b)]);
          for (Index i = offsets[static_cast<std::size_t>(b)];
               i < offsets[static_cast<std::size_t>(b + 1)]; ++i) {
            for (Index j = 0; j < dim; ++j) {
              expected[static_cast<std::size_t>(b * dim + j)] +=
                  x[static_cast<std::size_t>(i * dim + j)] / size;
              gradient.push_back(before[static_cast<std::size_t>(b * dim + j)] / size);
            }
          }
        }
        for (std::size_t k = 0; accumulate && k < expected.size(); ++k) {
          expected[k] += before[k];
        }
        check_near(out.read(), expected, tolerance_of(f));
        sequence_mean_backward(d_out.view(), on_device.data(), nullptr, dx.view(), nullptr);
        check_near(dx.read(), gradient, tolerance_of(f));
      }
    }
  }
}

DEVICE_TEST_CASE("kernels: token embeddings of one shard of the vocabulary",
                 "[cuda][kernels][gpu]") {
  Draw draw(28);
  constexpr Index kSamples = 7, kSequence = 29, kPitch = 30, kVocabulary = 64, kFirst = 16,
                  kLocal = 32;
  std::vector<std::int32_t> tokens;
  for (Index i = 0; i < kSamples * kPitch; ++i) {
    tokens.push_back(static_cast<std::int32_t>(i % 3 == 0 ? 20 : draw.below(kVocabulary)));
  }
  const Array<std::int32_t> on_device(tokens);
  const TokenRows rows{on_device.data(), kSequence, kPitch};
  const Index count = kSamples * kSequence;
  const auto token = [&](Index i) {
    return tokens[static_cast<std::size_t>(i / kSequence * kPitch + i % kSequence)];
  };
  for (const Format f : stored_formats()) {
    for (const Index hidden : {1, 24, 64, 200}) {
      CAPTURE(name_of(f), hidden);
      const Numbers w = draw.values(kLocal * hidden), dy = draw.values(count * hidden);
      const Matrix weights(f, kLocal, hidden, w), out(f, count, hidden, 8),
          d_out(f, count, hidden, dy), dw(Format::kFp32, kLocal, hidden, w);
      token_embedding_forward(weights.view(), kFirst, rows, out.view(), nullptr);
      Numbers expected, gradient = w;
      for (Index i = 0; i < count; ++i) {
        const Index local = token(i) - kFirst;
        for (Index j = 0; j < hidden; ++j) {
          const bool here = local >= 0 && local < kLocal;
          expected.push_back(here ? w[static_cast<std::size_t>(local * hidden + j)] : 0);
          if (here) {
            gradient[static_cast<std::size_t>(local * hidden + j)] +=
                dy[static_cast<std::size_t>(i * hidden + j)];
          }
        }
      }
      check_near(out.read(), expected, 0);
      Memory workspace(token_embedding_backward_workspace(count, kLocal, hidden));
      token_embedding_backward(d_out.view(), kFirst, rows, dw.view(), workspace.workspace(),
                               nullptr);
      check_near(dw.read(), gradient, 2e-5);
    }
  }
}

}  // namespace stepcast::runtime::cuda::kernels::test
