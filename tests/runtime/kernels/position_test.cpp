#include "runtime/cpu/kernels/position.h"

#include "tests/runtime/kernels/gradient_check.h"

namespace stepcast::runtime::kernels {

TEST_CASE("position 1 turns the first pair by one radian", "[runtime][kernels][position]") {
  const RotaryTable table(2, 2);
  Floats x{1, 0, 1, 0};  // two positions, one head of two dims; theta^0 = 1
  rotary_forward(table, view(x, 2, 2));
  check_close(x, {1, 0, 0.5403023F, 0.8414710F});
}

TEST_CASE("rotary scores depend on the distance of two positions only",
          "[runtime][kernels][position][property]") {
  const Index dim = 16;
  const Floats q = random_floats(dim, 1), k = random_floats(dim, 2);
  const auto score = [&](Index at, Index distance) {
    Floats a = q, b = k;
    rotary_forward(RotaryTable(1, dim, 10000, at + distance), view(a, 1, dim));
    rotary_forward(RotaryTable(1, dim, 10000, at), view(b, 1, dim));
    return dot(a, b);
  };
  CHECK(score(0, 3) == Approx(score(40, 3)).epsilon(1e-4));
  CHECK(std::abs(score(0, 3) - score(0, 4)) > 1e-3);
}

TEST_CASE("rotary backward is the derivative and the inverse",
          "[runtime][kernels][position][gradient]") {
  const Index sequence = 3, heads = 2, dim = 6, rows = 2 * sequence, width = heads * dim;
  const RotaryTable table(sequence, dim, 100, 2);
  Floats x = random_floats(rows * width, 1), weights = random_floats(rows * width, 2), dx = weights;
  rotary_backward(table, view(dx, rows, width));
  check_gradient(x, dx, [&] {
    Floats y = x;
    rotary_forward(table, view(y, rows, width));
    return dot(y, weights);
  });
  Floats back = x;
  rotary_forward(table, view(back, rows, width));
  CHECK(back != x);
  rotary_backward(table, view(back, rows, width));
  check_close(back, x, 1e-6);
}

TEST_CASE("learned positions are added per sequence and collect its gradients",
          "[runtime][kernels][position]") {
  Floats positions{1, 2, 3, 4}, x{0, 0, 0, 0, 10, 10, 10, 10},
      gradient(4, 1);  // 2 positions, 2 sequences
  add_positions(view(positions, 2, 2), view(x, 4, 2));
  CHECK(x == Floats{1, 2, 3, 4, 11, 12, 13, 14});
  add_positions_backward(view(x, 4, 2), view(gradient, 2, 2));
  CHECK(gradient == Floats{13, 15, 17, 19});
}

}  // namespace stepcast::runtime::kernels
