#include "runtime/cpu/kernels/loss.h"

#include "runtime/cpu/kernels/token.h"
#include "tests/runtime/kernels/gradient_check.h"

namespace stepcast::runtime::kernels {
namespace {

struct Reduced {
  Floats maximum, sum, target_logit;
};

/// The three steps over vocabulary shards of the given widths, with the all-reduces done by hand.
/// Returns the loss of every shard.
std::vector<double> sharded_loss(ConstMatrixView logits, const std::vector<Index>& widths,
                                 const std::vector<std::int32_t>& targets, float factor,
                                 MatrixView d_logits) {
  const auto rows = static_cast<std::size_t>(logits.rows);
  Reduced all{Floats(rows, -1e30F), Floats(rows, 0), Floats(rows, 0)};
  const auto for_each_shard = [&](const auto& action) {
    Index first = 0;
    for (const Index width : widths) {
      action(first, width);
      first += width;
    }
  };
  for_each_shard([&](Index first, Index width) {
    Floats maximum(rows);
    cross_entropy_maximum(logits.block(first, width), maximum.data());
    for (std::size_t i = 0; i < rows; ++i) {
      all.maximum[i] = std::max(all.maximum[i], maximum[i]);
    }
  });
  for_each_shard([&](Index first, Index width) {
    Floats sum(rows), target_logit(rows);
    cross_entropy_sum(logits.block(first, width), first, targets.data(), all.maximum.data(),
                      sum.data(), target_logit.data());
    for (std::size_t i = 0; i < rows; ++i) {
      all.sum[i] += sum[i];
      all.target_logit[i] += target_logit[i];
    }
  });
  std::vector<double> losses;
  for_each_shard([&](Index first, Index width) {
    const MatrixView d = d_logits.data != nullptr ? d_logits.block(first, width) : MatrixView{};
    losses.push_back(cross_entropy_loss(logits.block(first, width), first, targets.data(),
                                        all.maximum.data(), all.sum.data(), all.target_logit.data(),
                                        factor, d));
  });
  return losses;
}

}  // namespace

TEST_CASE("cross-entropy of equal logits is the logarithm of the vocabulary",
          "[runtime][kernels][loss]") {
  Floats logits(2 * 8, 3), gradient(2 * 8);
  const auto loss = sharded_loss(view(logits, 2, 8), {8}, {1, 7}, 0.5F, view(gradient, 2, 8));
  CHECK(loss[0] == Approx(std::log(8.0)));            // mean of two equal rows
  CHECK(gradient[0] == Approx(0.5 / 8));              // factor * softmax
  CHECK(gradient[1] == Approx(0.5 * (1.0 / 8 - 1)));  // the target
}

TEST_CASE("cross-entropy gradients are derivatives, whole and sharded",
          "[runtime][kernels][loss][gradient]") {
  const Index rows = 4, vocabulary = 37;
  const auto widths =
      GENERATE(std::vector<Index>{37}, std::vector<Index>{20, 17}, std::vector<Index>{1, 16, 20});
  const std::vector<std::int32_t> targets{0, 36, -1, 20};  // first, last, ignored, on a border
  Floats logits = random_floats(rows * vocabulary, 1, -4, 4), gradient(logits.size());
  sharded_loss(view(logits, rows, vocabulary), widths, targets, 0.25F,
               view(gradient, rows, vocabulary));
  check_gradient(
      logits, gradient,
      [&] { return sharded_loss(view(logits, rows, vocabulary), widths, targets, 0.25F, {})[0]; },
      1e-4);
  CHECK(gradient[2 * 37 + 5] == 0);  // the ignored row
}

TEST_CASE("two vocabulary shards equal the whole", "[runtime][kernels][loss]") {
  const Index rows = 9, vocabulary = 50;
  const std::vector<std::int32_t> targets{3, 49, 24, 25, -1, 0, 31, 12, 26};
  Floats logits = random_floats(rows * vocabulary, 5, -30, 30);
  Floats whole(logits.size()), sharded = logits;
  const double loss = sharded_loss(view(logits, rows, vocabulary), {50}, targets, 0.125F,
                                   view(whole, rows, vocabulary))[0];
  // In place: the gradient replaces the logits.
  const auto losses = sharded_loss(view(sharded, rows, vocabulary), {25, 25}, targets, 0.125F,
                                   view(sharded, rows, vocabulary));
  CHECK(losses[0] == Approx(loss).epsilon(1e-6));
  CHECK(losses[0] == losses[1]);
  check_close(sharded, whole, 1e-6);
}

TEST_CASE("logits of a thousand do not overflow", "[runtime][kernels][loss]") {
  Floats logits{1000, 0, -1000}, gradient(3);
  const auto loss = sharded_loss(view(logits, 1, 3), {3}, {1}, 1, view(gradient, 1, 3));
  CHECK(loss[0] == Approx(1000));  // log(e^1000 + 1 + e^-1000) - 0
  CHECK(gradient == Floats{1, -1, 0});
}

TEST_CASE("a NaN logit reaches the loss", "[runtime][kernels][loss]") {
  Floats logits{0, std::nanf(""), 0};
  CHECK(std::isnan(sharded_loss(view(logits, 1, 3), {3}, {0}, 1, {})[0]));
}

TEST_CASE("binary cross-entropy: values and derivatives", "[runtime][kernels][loss][gradient]") {
  // z = 0: log 2 whatever the label. z = 100, y = 0: 100. z = -100, y = 1: 100. z = 100, y = 1: 0.
  const Floats labels{0, 1, 0, 1, 1}, extremes{0, 0, 100, -100, 100};
  CHECK(binary_cross_entropy(extremes.data(), labels.data(), 5, 0.5F, nullptr) ==
        Approx(std::log(2.0) + 100));
  Floats logits = random_floats(71, 1, -3, 3), gradient(71);
  Floats targets = random_floats(71, 2, 0, 1);
  binary_cross_entropy(logits.data(), targets.data(), 71, 0.1F, gradient.data());
  check_gradient(
      logits, gradient,
      [&] { return binary_cross_entropy(logits.data(), targets.data(), 71, 0.1F, nullptr); }, 1e-5);
  double expected = 0;
  for (std::size_t i = 0; i < 71; ++i) {
    const double p = 1 / (1 + std::exp(-static_cast<double>(logits[i])));
    const auto y = static_cast<double>(targets[i]);
    expected -= y * std::log(p) + (1 - y) * std::log(1 - p);
  }
  CHECK(binary_cross_entropy(logits.data(), targets.data(), 71, 1, nullptr) ==
        Approx(expected).epsilon(1e-6));
  CHECK(binary_cross_entropy(nullptr, nullptr, 0, 1, nullptr) == 0);
}

TEST_CASE("token shards add up to the whole lookup and its gradient", "[runtime][kernels][loss]") {
  const Index vocabulary = 11, hidden = 18, tokens = 7;
  const std::vector<std::int32_t> ids{0, 10, 5, 4, 5, 5, 6};
  Floats weights = random_floats(vocabulary * hidden, 1), d_out = random_floats(tokens * hidden, 2);
  Floats sum(static_cast<std::size_t>(tokens * hidden)), gradient(weights.size());
  const MatrixView table = view(weights, vocabulary, hidden);
  for (const auto& [first, count] :
       {std::pair<Index, Index>{0, 5}, std::pair<Index, Index>{5, 6}}) {
    Floats part(sum.size(), 9);
    token_embedding_forward(table.slice(first, count), first, ids.data(),
                            view(part, tokens, hidden));
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += part[i];
    }
    token_embedding_backward(view(d_out, tokens, hidden), first, ids.data(),
                             view(gradient, vocabulary, hidden).slice(first, count));
  }
  Floats expected(sum.size()), expected_gradient(gradient.size());
  for (std::size_t t = 0; t < ids.size(); ++t) {
    for (std::size_t j = 0; j < 18; ++j) {
      expected[t * 18 + j] = weights[static_cast<std::size_t>(ids[t]) * 18 + j];
      expected_gradient[static_cast<std::size_t>(ids[t]) * 18 + j] += d_out[t * 18 + j];
    }
  }
  CHECK(sum == expected);
  CHECK(gradient == expected_gradient);
}

}  // namespace stepcast::runtime::kernels
