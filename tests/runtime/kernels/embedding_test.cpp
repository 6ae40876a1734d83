#include "runtime/cpu/kernels/embedding.h"

#include "runtime/cpu/kernels/data_movement.h"
#include "runtime/cpu/kernels/elementwise.h"
#include "runtime/cpu/kernels/internal/radix_sort.h"
#include "runtime/cpu/kernels/sequence_pool.h"
#include "tests/runtime/kernels/gradient_check.h"

namespace stepcast::runtime::kernels {
namespace {

struct Lookups {
  std::vector<std::int64_t> indices, offsets;
  [[nodiscard]] Bags bags() const {
    return {indices.data(), offsets.data(), static_cast<Index>(offsets.size()) - 1};
  }
};

/// Bags of 0 .. longest lookups; rows drawn from a few hot ones half of the time, so that
/// duplicates abound.
Lookups random_lookups(Index bags, Index longest, Index rows, unsigned seed) {
  std::mt19937_64 engine(seed);
  Lookups out;
  out.offsets.push_back(0);
  for (Index b = 0; b < bags; ++b) {
    for (auto left = static_cast<Index>(engine() % static_cast<unsigned>(longest + 1)); left > 0;
         --left) {
      const Index range = engine() % 2 == 0 ? std::min<Index>(rows, 3) : rows;
      out.indices.push_back(
          static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(range)));
    }
    out.offsets.push_back(static_cast<std::int64_t>(out.indices.size()));
  }
  return out;
}

Floats pooled(const Floats& weights, Index dim, const Bags& bags, Pooling pooling) {
  Floats out(static_cast<std::size_t>(bags.count * dim));
  for (Index b = 0; b < bags.count; ++b) {
    for (Index j = 0; j < dim; ++j) {
      double sum = 0;
      for (Index i = bags.begin(b); i < bags.end(b); ++i) {
        sum += static_cast<double>(weights[static_cast<std::size_t>(bags.indices[i] * dim + j)]);
      }
      const auto size = static_cast<double>(std::max<Index>(1, bags.end(b) - bags.begin(b)));
      out[static_cast<std::size_t>(b * dim + j)] =
          static_cast<float>(pooling == Pooling::kMean ? sum / size : sum);
    }
  }
  return out;
}

Floats dense_gradient(const Floats& grad, Index rows, Index dim, const Bags& bags,
                      Pooling pooling) {
  std::vector<double> sum(static_cast<std::size_t>(rows * dim));
  for (Index b = 0; b < bags.count; ++b) {
    for (Index i = bags.begin(b); i < bags.end(b); ++i) {
      for (Index j = 0; j < dim; ++j) {
        const double g = static_cast<double>(grad[static_cast<std::size_t>(b * dim + j)]);
        sum[static_cast<std::size_t>(bags.indices[i] * dim + j)] +=
            pooling == Pooling::kMean ? g / static_cast<double>(bags.end(b) - bags.begin(b)) : g;
      }
    }
  }
  return {sum.begin(), sum.end()};
}

/// The definition of each optimizer applied to the rows that were looked up, from the dense
/// gradient.
void update_rows(const OptimizerSettings& s, const Floats& gradient, Index rows, Index dim,
                 const Bags& bags, Floats& weights, Floats& first, Floats& second) {
  std::vector<bool> touched(static_cast<std::size_t>(rows));
  for (Index i = 0; i < bags.lookups(); ++i) {
    touched[static_cast<std::size_t>(bags.indices[bags.begin(0) + i])] = true;
  }
  for (Index row = 0; row < rows; ++row) {
    if (!touched[static_cast<std::size_t>(row)]) {
      continue;
    }
    double squares = 0;
    for (Index j = 0; j < dim; ++j) {
      const double g = static_cast<double>(gradient[static_cast<std::size_t>(row * dim + j)]);
      squares += g * g;
    }
    if (s.kind == OptimizerKind::kRowwiseAdagrad) {
      first[static_cast<std::size_t>(row)] +=
          static_cast<float>(squares / static_cast<double>(dim));
    }
    for (Index j = 0; j < dim; ++j) {
      const auto at = static_cast<std::size_t>(row * dim + j);
      const float g = gradient[at];
      if (s.kind == OptimizerKind::kSgd) {
        weights[at] -= s.learning_rate * g;
      } else if (s.kind == OptimizerKind::kRowwiseAdagrad) {
        weights[at] -=
            s.learning_rate * g / (std::sqrt(first[static_cast<std::size_t>(row)]) + s.epsilon);
      } else if (s.kind == OptimizerKind::kAdagrad) {
        first[at] += g * g;
        weights[at] -= s.learning_rate * g / (std::sqrt(first[at]) + s.epsilon);
      } else {
        first[at] = s.beta1 * first[at] + (1 - s.beta1) * g;
        second[at] = s.beta2 * second[at] + (1 - s.beta2) * g * g;
        const float corrected = first[at] / (1 - std::pow(s.beta1, static_cast<float>(s.step)));
        const float variance = second[at] / (1 - std::pow(s.beta2, static_cast<float>(s.step)));
        weights[at] -= s.learning_rate * corrected / (std::sqrt(variance) + s.epsilon);
      }
    }
  }
}

}  // namespace

TEST_CASE("bags pool their rows", "[runtime][kernels][embedding]") {
  const Index dim = GENERATE(1, 4, 15, 16, 17, 32, 64, 100, 128, 260), rows = GENERATE(1, 50);
  const auto pooling = GENERATE(Pooling::kSum, Pooling::kMean);
  CAPTURE(dim, rows);
  const Lookups lookups = random_lookups(23, 9, rows, 3);
  Floats weights = random_floats(rows * dim, 1);
  const Index width = dim + 5;  // a column block of a wider matrix
  Floats out(static_cast<std::size_t>(23 * width), 9);
  embedding_bag_forward(view(weights, rows, dim), lookups.bags(), pooling,
                        view(out, 23, width).block(2, dim));
  const Floats expected = pooled(weights, dim, lookups.bags(), pooling);
  for (Index b = 0; b < 23; ++b) {
    const float* row = out.data() + b * width;
    check_close({row + 2, row + 2 + dim},
                {expected.begin() + b * dim, expected.begin() + (b + 1) * dim});
    CHECK((row[0] == 9 && row[1] == 9 && row[2 + dim] == 9));
  }
}

TEST_CASE("empty bags, no bags and offsets that start late", "[runtime][kernels][embedding]") {
  Floats weights{1, 2, 3, 4}, out(4, 9);
  const std::vector<std::int64_t> indices{0, 1, 1},
      offsets{1, 1, 3};  // an empty bag, then rows 1 and 1
  embedding_bag_forward(view(weights, 2, 2), {indices.data(), offsets.data(), 2}, Pooling::kMean,
                        view(out, 2, 2));
  CHECK(out == Floats{0, 0, 3, 4});
  EmbeddingWorkspace workspace;
  embedding_bag_forward(view(weights, 2, 2), {}, Pooling::kSum, view(out, 0, 2));
  embedding_bag_backward(view(out, 0, 2), {}, Pooling::kSum, {}, view(weights, 2, 2), {},
                         workspace);
  embedding_bag_gradient(view(out, 0, 2), {}, Pooling::kSum, view(weights, 2, 2));
  const std::vector<std::int64_t> empty{0, 0, 0};
  embedding_bag_backward(view(out, 2, 2), {indices.data(), empty.data(), 2}, Pooling::kMean, {},
                         view(weights, 2, 2), {}, workspace);
  CHECK(weights == Floats{1, 2, 3, 4});
}

TEST_CASE("backward fused with each optimizer equals its definition over three steps",
          "[runtime][kernels][embedding]") {
  const auto kind = GENERATE(OptimizerKind::kSgd, OptimizerKind::kAdam,
                             OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdagrad);
  const auto pooling = GENERATE(Pooling::kSum, Pooling::kMean);
  const Index dim = GENERATE(1, 16, 21, 64), rows = GENERATE(1, 300, 70000);
  CAPTURE(name_of(kind), dim, rows);
  OptimizerSettings settings;
  settings.kind = kind;
  settings.learning_rate = 0.1F;
  Floats weights = random_floats(rows * dim, 1), first(weights.size()), second(weights.size());
  Floats expected = weights, expected_first = first, expected_second = second;
  EmbeddingWorkspace workspace;
  for (unsigned step = 1; step <= 3; ++step) {
    settings.step = step;
    const Lookups lookups = random_lookups(40, 12, rows, step);
    Floats grad = random_floats(40 * dim, 10 + step);
    const Floats dense = dense_gradient(grad, rows, dim, lookups.bags(), pooling);
    update_rows(settings, dense, rows, dim, lookups.bags(), expected, expected_first,
                expected_second);
    embedding_bag_backward(view(grad, 40, dim), lookups.bags(), pooling, settings,
                           view(weights, rows, dim), {first.data(), second.data()}, workspace);
  }
  // One dimension and Adagrad-like rules move by lr * sign(g): a sum that cancels to ~1e-7
  // amplifies rounding, hence the tolerance.
  check_close(weights, expected, 1e-3);
  check_close(first, expected_first, 1e-4);
  check_close(second, expected_second, 1e-4);
}

TEST_CASE("the dense gradient is the derivative of the pooled output",
          "[runtime][kernels][embedding][gradient]") {
  const auto pooling = GENERATE(Pooling::kSum, Pooling::kMean);
  const Index rows = 6, dim = 5;
  const Lookups lookups = random_lookups(8, 4, rows, 2);
  Floats weights = random_floats(rows * dim, 1), d_out = random_floats(8 * dim, 2),
         gradient(weights.size()), out(40);
  embedding_bag_gradient(view(d_out, 8, dim), lookups.bags(), pooling, view(gradient, rows, dim));
  check_gradient(weights, gradient, [&] {
    embedding_bag_forward(view(weights, rows, dim), lookups.bags(), pooling, view(out, 8, dim));
    return dot(out, d_out);
  });
}

TEST_CASE("a table split by rows is updated to the same bits",
          "[runtime][kernels][embedding][property]") {
  const Index rows = 40, dim = 24, cut = 13;
  const Lookups lookups = random_lookups(64, 10, rows, 5);
  Floats grad = random_floats(64 * dim, 6), whole = random_floats(rows * dim, 7), state(40);
  Floats split = whole, split_state = state;
  const OptimizerSettings settings{OptimizerKind::kRowwiseAdagrad, 0.05F};
  EmbeddingWorkspace workspace;
  embedding_bag_backward(view(grad, 64, dim), lookups.bags(), Pooling::kSum, settings,
                         view(whole, rows, dim), {state.data()}, workspace);
  for (const auto& [first, last] :
       {std::pair<Index, Index>{0, cut}, std::pair<Index, Index>{cut, rows}}) {
    Lookups part;
    part.offsets.push_back(0);
    for (Index b = 0; b < 64; ++b) {
      for (Index i = lookups.bags().begin(b); i < lookups.bags().end(b); ++i) {
        const std::int64_t row = lookups.indices[static_cast<std::size_t>(i)];
        if (row >= first && row < last) {
          part.indices.push_back(row - first);
        }
      }
      part.offsets.push_back(static_cast<std::int64_t>(part.indices.size()));
    }
    embedding_bag_backward(view(grad, 64, dim), part.bags(), Pooling::kSum, settings,
                           view(split, rows, dim).slice(first, last - first),
                           {split_state.data() + first}, workspace);
  }
  CHECK(split == whole);
  CHECK(split_state == state);
}

TEST_CASE("sequence mode gathers rows and updates each lookup's row",
          "[runtime][kernels][embedding]") {
  const std::vector<std::int64_t> indices{2, 0, 2};
  Floats weights{1, 2, 3, 4, 5, 6}, out(6);
  const Bags bags{indices.data(), nullptr, 3};
  embedding_bag_forward(view(weights, 3, 2), bags, Pooling::kSum, view(out, 3, 2));
  CHECK(out == Floats{5, 6, 1, 2, 5, 6});
  EmbeddingWorkspace workspace;
  Floats grad{1, 1, 2, 2, 3, 3};
  embedding_bag_backward(view(grad, 3, 2), bags, Pooling::kSum, {OptimizerKind::kSgd, 1},
                         view(weights, 3, 2), {}, workspace);
  CHECK(weights == Floats{-1, 0, 3, 4, 1, 2});  // row 2 gets 1 + 3
}

TEST_CASE("gather then sequence mean equals mean pooling, both ways",
          "[runtime][kernels][embedding]") {
  const Index rows = 20, dim = 18;
  const Lookups lookups = random_lookups(12, 5, rows, 8);
  const Bags bags = lookups.bags();
  const Bags unpooled{lookups.indices.data(), nullptr, bags.lookups()};
  Floats weights = random_floats(rows * dim, 1), d_out = random_floats(12 * dim, 2);
  Floats sequence(static_cast<std::size_t>(bags.lookups() * dim)), mean(12 * 18),
      d_sequence(sequence.size());
  embedding_bag_forward(view(weights, rows, dim), unpooled, Pooling::kSum,
                        view(sequence, bags.lookups(), dim));
  sequence_mean_forward(view(sequence, bags.lookups(), dim), bags.offsets, view(mean, 12, dim));
  check_close(mean, pooled(weights, dim, bags, Pooling::kMean));
  sequence_mean_backward(view(d_out, 12, dim), bags.offsets, view(d_sequence, bags.lookups(), dim));
  Floats gradient(weights.size());
  embedding_bag_gradient(view(d_sequence, bags.lookups(), dim), unpooled, Pooling::kSum,
                         view(gradient, rows, dim));
  check_close(gradient, dense_gradient(d_out, rows, dim, bags, Pooling::kMean));
}

TEST_CASE("the radix sort is a stable sort by key", "[runtime][kernels][embedding][property]") {
  const int bits = GENERATE(0, 1, 7, 8, 9, 16, 23, 32);
  const Index count = GENERATE(0, 1, 1000, 40000);
  std::mt19937_64 engine(static_cast<unsigned>(bits));
  std::vector<std::uint64_t> words, scratch(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i) {
    const std::uint64_t key = bits == 0 ? 0 : engine() >> (64 - bits);
    words.push_back(key << 32U | (engine() & 0xFFFFFFFFU));
  }
  auto expected = words;
  std::stable_sort(expected.begin(), expected.end(),
                   [](auto a, auto b) { return (a >> 32U) < (b >> 32U); });
  const std::uint64_t* sorted = internal::radix_sort(words.data(), scratch.data(), count, bits);
  CHECK(std::equal(expected.begin(), expected.end(), sorted));
}

}  // namespace stepcast::runtime::kernels
