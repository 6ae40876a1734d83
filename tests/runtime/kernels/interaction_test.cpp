#include "runtime/cpu/kernels/interaction.h"

#include "runtime/cpu/kernels/gemm.h"
#include "tests/runtime/kernels/gradient_check.h"

namespace stepcast::runtime::kernels {

TEST_CASE("three features of width 2 interact in three pairs", "[runtime][kernels][interaction]") {
  // x0 = (1, 2), x1 = (3, 4), x2 = (5, 6): x1.x0 = 11, x2.x0 = 17, x2.x1 = 39
  Floats x{1, 2, 3, 4, 5, 6}, out(5), scratch(9);
  const DotInteraction shape{3, 2};
  dot_interaction_forward(shape, view(x, 1, 6), view(out, 1, 5), scratch.data());
  CHECK(out == Floats{1, 2, 11, 17, 39});
}

TEST_CASE("dot interaction gradients are derivatives",
          "[runtime][kernels][interaction][gradient]") {
  const DotInteraction shape{GENERATE(1, 2, 5, 8), GENERATE(1, 4, 19)};
  const Index batch = 3, width = shape.features * shape.dim;
  Floats x = random_floats(batch * width, 1),
         d_out = random_floats(batch * shape.output_width(), 2);
  Floats out(d_out.size()), dx(x.size(), 9),
      scratch(static_cast<std::size_t>(shape.scratch_floats()));
  dot_interaction_backward(shape, view(d_out, batch, shape.output_width()), view(x, batch, width),
                           view(dx, batch, width), scratch.data());
  check_gradient(x, dx, [&] {
    dot_interaction_forward(shape, view(x, batch, width), view(out, batch, shape.output_width()),
                            scratch.data());
    return dot(out, d_out);
  });
}

TEST_CASE("a low-rank cross layer of products and elementwise pieces differentiates",
          "[runtime][kernels][interaction][gradient]") {
  // out = x0 * (x V^T U^T + b) + x with x = x0 for the first layer and x its own input otherwise.
  const Index batch = 4, width = 18, rank = 3;
  Floats x0 = random_floats(batch * width, 1), x = random_floats(batch * width, 2),
         bias = random_floats(width, 3);
  Floats v = random_floats(rank * width, 4), u = random_floats(width * rank, 5),
         d_out = random_floats(batch * width, 6);
  Floats low(12), mixed(72), out(72);
  const auto loss = [&] {
    gemm({batch, rank, width, false, true}, x.data(), v.data(), low.data());
    gemm({batch, width, rank, false, true}, low.data(), u.data(), mixed.data());
    cross_forward(view(x0, batch, width), view(mixed, batch, width), bias.data(),
                  view(x, batch, width), view(out, batch, width));
    return dot(out, d_out);
  };
  loss();
  Floats d_mixed(72), d_bias(18, 2), d_x0(72, 2), d_x(72), d_low(12);
  cross_backward(view(d_out, batch, width), view(x0, batch, width), view(mixed, batch, width),
                 bias.data(), view(d_mixed, batch, width), d_bias.data(), view(d_x0, batch, width),
                 view(d_x, batch, width));
  gemm({batch, rank, width}, d_mixed.data(), u.data(), d_low.data());
  gemm({batch, width, rank, false, false, 1, 1}, d_low.data(), v.data(), d_x.data());
  for (float& value : d_bias) {
    value -= 2;
  }
  for (float& value : d_x0) {
    value -= 2;
  }
  check_gradient(x0, d_x0, loss);
  check_gradient(bias, d_bias, loss);
  check_gradient(x, d_x, loss);
}

}  // namespace stepcast::runtime::kernels
