// What the PTX of a kernel does, counted, beside what the models of its op say that it does.
#include "core/graph/op.h"
#include "runtime/cuda/kernels/activation.h"
#include "runtime/cuda/kernels/attention.h"
#include "runtime/cuda/kernels/elementwise.h"
#include "runtime/cuda/kernels/interaction.h"
#include "runtime/cuda/kernels/norm.h"
#include "runtime/cuda/kernels/quantise.h"
#include "tests/runtime/cuda/emulation/launcher.h"
#include "tests/runtime/cuda/kernels/kernel_fixture.h"
#include "tests/runtime/cuda/ptx/ptx_launcher.h"

namespace stepcast::runtime::cuda::kernels::test {
namespace {

using models::ptx::Counts;

template <class F>
Counts counted(F launch) {
  stepcast::test::PtxLauncher& launcher = stepcast::test::PtxLauncher::current();
  launcher.forget();
  launch();
  succeed(cudaDeviceSynchronize());
  return launcher.total();
}

Op op_of(OpKind kind, std::array<std::int64_t, 6> shape, Format format) {
  Op op;
  op.kind = kind;
  op.shape = shape;
  op.format = format;
  fill_work(op);
  return op;
}

void check_bytes(const Counts& c, const Op& op) {
  CAPTURE(name_of(op.kind), c.loads.distinct, op.bytes_read.base(), c.stores.distinct,
          op.bytes_written.base());
  CHECK(static_cast<double>(c.loads.distinct) == Approx(op.bytes_read.base()).epsilon(0.05));
  CHECK(static_cast<double>(c.stores.distinct) == Approx(op.bytes_written.base()).epsilon(0.05));
}

constexpr Index kRows = 256, kWidth = 1024;

TEST_CASE("counts: maps move the bytes that their models say", "[counts]") {
  const Matrix a(Format::kFp32, kRows, kWidth, Draw(1).values(kRows * kWidth));
  const Matrix b(Format::kFp32, kRows, kWidth, Draw(2).values(kRows * kWidth));
  const Matrix out(Format::kFp32, kRows, kWidth);
  const Counts sum = counted([&] { add(a.view(), b.view(), out.view(), nullptr); });
  check_bytes(sum, op_of(OpKind::kAdd, {kRows, kWidth}, Format::kFp32));
  // Packs of 16 bytes by whole warps: each sector is asked for once.
  CHECK(sum.loads.sectors * models::ptx::kSector == sum.loads.distinct);
  CHECK(sum.stores.sectors * models::ptx::kSector == sum.stores.distinct);

  const Counts zero = counted([&] { fill(out.view(), 0, nullptr); });
  check_bytes(zero, op_of(OpKind::kFill, {kRows * kWidth}, Format::kFp32));

  const Array<float> row(std::vector<float>(kWidth, 0.5F));
  const Matrix x0(Format::kFp32, kRows, kWidth, Draw(3).values(kRows * kWidth));
  const Counts cross = counted([&] {
    cross_forward(x0.view(), a.view(), {row.data(), Format::kFp32}, b.view(), out.view(), nullptr);
  });
  const Op op = op_of(OpKind::kCrossForward, {kRows, kWidth}, Format::kFp32);
  check_bytes(cross, op);
  CHECK(static_cast<double>(cross.flops) == Approx(op.flops.base()).epsilon(0.05));
}

TEST_CASE("counts: a norm reads its rows once and writes them once", "[counts]") {
  const Matrix x(Format::kBf16, kRows, kWidth, Draw(1).values(kRows * kWidth));
  const Matrix y(Format::kBf16, kRows, kWidth);
  const Array<float> weight(std::vector<float>(kWidth, 1.0F)), bias(std::vector<float>(kWidth, 0));
  const Array<float> statistics(static_cast<std::size_t>(2 * kRows));
  const Counts c = counted([&] {
    norm_forward(Norm::kLayerNorm, x.view(), {weight.data(), Format::kFp32},
                 {bias.data(), Format::kFp32}, 1e-5F, y.view(), statistics.data(), nullptr);
  });
  check_bytes(c, op_of(OpKind::kNormForward, {kRows, kWidth}, Format::kBf16));
}

TEST_CASE("counts: dots of fp32 features read them once", "[counts]") {
  const DotInteraction shape{27, 64};
  constexpr Index kSamples = 16;
  const Index wide = shape.features * shape.dim, dots = shape.output_width();
  const Matrix x(Format::kFp32, kSamples, wide, Draw(1).values(kSamples * wide));
  const Matrix dx(Format::kFp32, kSamples, wide);
  const Matrix out(Format::kFp32, kSamples, dots);
  const Matrix d_out(Format::kFp32, kSamples, dots, Draw(2).values(kSamples * dots));
  const std::array<std::int64_t, 6> sizes{kSamples, shape.features, shape.dim};
  const Counts forward =
      counted([&] { dot_interaction_forward(shape, x.view(), out.view(), nullptr); });
  check_bytes(forward, op_of(OpKind::kDotInteractionForward, sizes, Format::kFp32));
  // Tiles of 4 x 4 features hold the lower triangle of 28: 7 * 8 / 2 of them. A multiply-add is two
  // operations; 8 lanes add up 16 sums in halves, 8 + 4 + 2 additions each.
  constexpr double kTiles = 28;
  CHECK(static_cast<double>(forward.flops) ==
        Approx(kSamples * kTiles * (2 * 16 * 64 + 8 * 14)).epsilon(0.02));
  // Four numbers of each of 8 features serve 16 dots: half a word read for each multiply-add.
  CHECK(static_cast<double>(forward.shared_bytes) < 4 * 0.5 * 1.15 * kSamples * kTiles * 16 * 64);
  const Counts backward =
      counted([&] { dot_interaction_backward(shape, d_out.view(), x.view(), dx.view(), nullptr); });
  check_bytes(backward, op_of(OpKind::kDotInteractionBackward, sizes, Format::kFp32));
  CHECK(static_cast<double>(backward.flops) == Approx(2.0 * kSamples * 27 * 28 * 64).epsilon(0.02));
}

TEST_CASE("counts: dots of features on tensor cores read them once", "[counts]") {
  const DotInteraction shape{27, 64};
  constexpr Index kSamples = 16;
  const Index wide = shape.features * shape.dim, dots = shape.output_width();
  const Matrix x(Format::kBf16, kSamples, wide, Draw(1).values(kSamples * wide));
  const Matrix dx(Format::kBf16, kSamples, wide);
  const Matrix out(Format::kBf16, kSamples, dots);
  const Matrix d_out(Format::kBf16, kSamples, dots, Draw(2).values(kSamples * dots));
  const std::array<std::int64_t, 6> sizes{kSamples, shape.features, shape.dim};
  const Counts forward =
      counted([&] { dot_interaction_forward(shape, x.view(), out.view(), nullptr); });
  check_bytes(forward, op_of(OpKind::kDotInteractionForward, sizes, Format::kBf16));
  // Six tiles of 16 x 8 features hold the lower triangle of 32.
  CHECK(forward.tensor_flops == 2U * 6 * 16 * 8 * 64 * kSamples);
  const Counts backward =
      counted([&] { dot_interaction_backward(shape, d_out.view(), x.view(), dx.view(), nullptr); });
  check_bytes(backward, op_of(OpKind::kDotInteractionBackward, sizes, Format::kBf16));
  CHECK(backward.tensor_flops == 2U * 32 * 32 * 64 * kSamples);
}

TEST_CASE("counts: a norm's backward reads its rows once", "[counts]") {
  constexpr Index kManyRows = 2048;
  const Matrix x(Format::kBf16, kManyRows, kWidth, Draw(1).values(kManyRows * kWidth));
  const Matrix dy(Format::kBf16, kManyRows, kWidth, Draw(2).values(kManyRows * kWidth));
  const Matrix dx(Format::kBf16, kManyRows, kWidth);
  const Array<float> weight(std::vector<float>(kWidth, 1.0F)), d_weight(kWidth), d_bias(kWidth);
  const Array<float> statistics(std::vector<float>(static_cast<std::size_t>(2 * kManyRows), 1.0F));
  const Memory workspace(norm_backward_workspace(kManyRows, kWidth));
  const Counts c = counted([&] {
    norm_backward(Norm::kLayerNorm, dy.view(), x.view(), {weight.data(), Format::kFp32},
                  statistics.data(), {}, dx.view(), {d_weight.data(), Format::kFp32},
                  {d_bias.data(), Format::kFp32}, workspace.workspace(), nullptr);
  });
  const double rows = 2.0 * kManyRows * kWidth;  // bytes of a matrix
  CHECK(static_cast<double>(c.loads.distinct) == Approx(2 * rows).epsilon(0.05));
  CHECK(static_cast<double>(c.stores.distinct) == Approx(rows).epsilon(0.05));
}

TEST_CASE("counts: both fp8 layouts of a matrix are made in one pass", "[counts]") {
  const Matrix x(Format::kBf16, kRows, kWidth, Draw(1).values(kRows * kWidth));
  const Array<unsigned char> rows(static_cast<std::size_t>(kRows * kWidth)),
      columns(static_cast<std::size_t>(kRows * kWidth));
  const Memory workspace(kQuantiseWorkspace);
  const Counts c = counted([&] {
    quantise({x.view(), Fp8::kE4m3, {rows.data(), kWidth}, {columns.data(), kRows}},
             workspace.workspace(), nullptr);
  });
  const double elements = static_cast<double>(kRows) * kWidth;
  // Once for the largest value, once for both layouts.
  CHECK(static_cast<double>(c.loads.sectors) * models::ptx::kSector ==
        Approx(4 * elements).epsilon(0.05));
  CHECK(static_cast<double>(c.stores.distinct) == Approx(2 * elements).epsilon(0.05));
}

struct AttentionCase {
  AttentionShape shape{1, 2, 2, 128, 128, 64, false, 0, 0};
  Index wide = shape.heads * shape.head_dim;
  Index rows = shape.batch * shape.query_length;
  Matrix q{Format::kBf16, rows, wide, Draw(1).values(rows* wide)};
  Matrix k{Format::kBf16, rows, wide, Draw(2).values(rows* wide)};
  Matrix v{Format::kBf16, rows, wide, Draw(3).values(rows* wide)};
  Matrix d_out{Format::kBf16, rows, wide, Draw(4).values(rows* wide)};
  Matrix out{Format::kBf16, rows, wide}, d_q{Format::kBf16, rows, wide},
      d_k{Format::kBf16, rows, wide}, d_v{Format::kBf16, rows, wide};
  Array<float> log_sum_exp{static_cast<std::size_t>(shape.heads * rows)};
  Memory workspace{attention_backward_workspace(shape)};

  void forward() const {
    attention_forward(shape, q.view(), k.view(), v.view(), out.view(), log_sum_exp.data(), nullptr);
  }
  void backward() const {
    attention_backward(shape,
                       {q.view(), k.view(), v.view(), out.view(), d_out.view(), log_sum_exp.data(),
                        d_q.view(), d_k.view(), d_v.view()},
                       workspace.workspace(), nullptr);
  }
};

TEST_CASE("counts: attention on tensor cores does the products of its model", "[counts]") {
  const AttentionCase a;
  const auto shape = std::array<std::int64_t, 6>{1, 2, 2, 128, 128, 64};
  const Op forward = op_of(OpKind::kAttentionForward, shape, Format::kBf16);
  const Counts there = counted([&] { a.forward(); });
  check_bytes(there, forward);
  CHECK(static_cast<double>(there.tensor_flops) == forward.flops.base());
  // Two kernels without atomics: each makes the scores and their gradients anew, 7 products for 5.
  const Counts back = counted([&] { a.backward(); });
  const Op backward = op_of(OpKind::kAttentionBackward, shape, Format::kBf16);
  CHECK(static_cast<double>(back.tensor_flops) == Approx(backward.flops.base() * 7 / 5));
  // Rows of 64 numbers lie 72 apart: no two lanes of an ldmatrix meet in a bank.
  CHECK(static_cast<double>(there.shared_conflicts) <=
        0.01 * static_cast<double>(there.shared_passes));
}

TEST_CASE("counts: attention through PTX and through emulated blocks is one", "[counts]") {
  const AttentionCase ptx, emulated;
  ptx.forward();
  ptx.backward();
  succeed(cudaDeviceSynchronize());
  emulation::set_launcher({});
  emulated.forward();
  emulated.backward();
  succeed(cudaDeviceSynchronize());
  stepcast::test::use_ptx();
  const double tolerance = tolerance_of(Format::kBf16);
  check_near(ptx.out.read(), emulated.out.read(), tolerance);
  check_near(ptx.d_q.read(), emulated.d_q.read(), tolerance);
  check_near(ptx.d_k.read(), emulated.d_k.read(), tolerance);
  check_near(ptx.d_v.read(), emulated.d_v.read(), tolerance);
}

}  // namespace
}  // namespace stepcast::runtime::cuda::kernels::test
