#include "runtime/cpu/kernels/activation.h"

#include "runtime/cpu/kernels/elementwise.h"
#include "tests/runtime/kernels/gradient_check.h"

namespace stepcast::runtime::kernels {
namespace {

bool gated(Activation a) { return a == Activation::kSwiGlu || a == Activation::kGeGlu; }

double reference(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kSquaredRelu:
      return std::max(x, 0.0) * std::max(x, 0.0);
    case Activation::kSwiGlu:
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kGelu:
    case Activation::kGeGlu:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  return 0;
}

}  // namespace

TEST_CASE("activations equal their formulas, large arguments included",
          "[runtime][kernels][activation]") {
  const auto activation =
      GENERATE(Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kSquaredRelu,
               Activation::kSwiGlu, Activation::kGeGlu, Activation::kSilu, Activation::kTanh,
               Activation::kSigmoid);
  Floats x{-200, -88, -20, -3, -1, -0.25F, -1e-4F, 0, 1e-4F, 0.5F, 1, 4, 30, 88.5F, 120, 300, 0.1F};
  const auto width = static_cast<Index>(x.size());
  const Floats gate = x;
  const Floats up = random_floats(width, 7);
  if (gated(activation)) {
    x.insert(x.end(), up.begin(), up.end());
  }
  Floats y(gate.size());
  activation_forward(activation, view(x, 1, static_cast<Index>(x.size())), view(y, 1, width));
  for (std::size_t i = 0; i < y.size(); ++i) {
    const auto value = reference(activation, static_cast<double>(gate[i]));
    const double expected = gated(activation) ? value * static_cast<double>(up[i]) : value;
    CAPTURE(name_of(activation), gate[i]);
    REQUIRE(std::abs(static_cast<double>(y[i]) - expected) <=
            1e-6 * std::max(1.0, std::abs(expected)));
  }
}

TEST_CASE("activation gradients are derivatives", "[runtime][kernels][activation][gradient]") {
  const auto activation =
      GENERATE(Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kSquaredRelu,
               Activation::kSwiGlu, Activation::kGeGlu, Activation::kSilu, Activation::kTanh,
               Activation::kSigmoid);
  const Index rows = 3, width = 21, in_width = gated(activation) ? 2 * width : width;
  Floats x = random_floats(rows * in_width, 1, -2, 2);
  for (float& value : x) {  // away from the kinks of relu
    value += value < 0 ? -0.2F : 0.2F;
  }
  const Floats weights = random_floats(rows * width, 2);
  Floats y(weights.size()), dy = weights, dx(x.size());
  activation_backward(activation, view(x, rows, in_width), view(dy, rows, width),
                      view(dx, rows, in_width));
  check_gradient(x, dx, [&] {
    activation_forward(activation, view(x, rows, in_width), view(y, rows, width));
    return dot(y, weights);
  });
  Floats in_place = x;
  activation_backward(activation, view(in_place, rows, in_width), view(dy, rows, width),
                      view(in_place, rows, in_width));
  CHECK(in_place == dx);
}

TEST_CASE("bias and activation: gradients are derivatives and bias gradients accumulate",
          "[runtime][kernels][activation][gradient]") {
  const auto activation = GENERATE(Activation::kNone, Activation::kRelu);
  const Index rows = GENERATE(1, 4), width = GENERATE(1, 16, 19);
  Floats x = random_floats(rows * width, 1), bias = random_floats(width, 2, -0.1F, 0.1F);
  for (float& value : x) {
    value += value < 0 ? -0.5F : 0.5F;
  }
  const Floats weights = random_floats(rows * width, 3);
  Floats y(x.size()), dx(x.size()), dy = weights, d_bias(bias.size(), 10);
  const auto loss = [&] {
    bias_activation_forward(view(x, rows, width), bias.data(), activation, view(y, rows, width));
    return dot(y, weights);
  };
  loss();
  bias_activation_backward(view(dy, rows, width), view(y, rows, width), activation,
                           view(dx, rows, width), d_bias.data());
  for (float& value : d_bias) {
    value -= 10;  // what was there before
  }
  check_gradient(x, dx, loss);
  check_gradient(bias, d_bias, loss);
  loss();
  bias_activation_backward(view(dy, rows, width), view(y, rows, width), activation,
                           view(dy, rows, width), nullptr);
  CHECK(dy == dx);  // in place, without a bias
}

TEST_CASE("bias in place on a column block leaves its neighbours alone",
          "[runtime][kernels][activation]") {
  Floats x{1, -1, 7, 2, -2, 7};  // 2 x 3, block = first two columns
  const Floats bias{1, 0};
  const MatrixView block = view(x, 2, 3).block(0, 2);
  bias_activation_forward(block, bias.data(), Activation::kRelu, block);
  CHECK(x == Floats{2, 0, 7, 3, 0, 7});
}

TEST_CASE("bias and activation refuses kinds it cannot differentiate from their output",
          "[runtime][kernels][activation]") {
  Floats x{1};
  CHECK_THROWS(bias_activation_forward(view(x, 1, 1), nullptr, Activation::kGelu, view(x, 1, 1)));
}

}  // namespace stepcast::runtime::kernels
