#include "runtime/cuda/matmul_plan.h"

#include <algorithm>

#include "core/error.h"
#include "runtime/cuda/alignment.h"
#include "runtime/cuda/kernels/quantise.h"

namespace stepcast::runtime::cuda {
namespace {

std::uint32_t alignment_of(std::uintptr_t address) {
  std::uint32_t alignment = kAlignment;
  while (address % alignment != 0) {
    alignment /= 2;
  }
  return alignment;
}

/// The format in which operands are multiplied.
Format inside(Format compute) {
  switch (compute) {
    case Format::kFp32:
    case Format::kTf32:
      return Format::kFp32;
    case Format::kBf16:
    case Format::kFp16:
    case Format::kFp8:
      return compute;
    default:
      throw InputError("formats.compute",
                       fmt::format("found {}: the cuda backend multiplies fp32, tf32, bf16, fp16 "
                                   "and fp8; use one of them",
                                   name_of(compute)));
  }
}

Format stored(Format f) { return f == Format::kTf32 ? Format::kFp32 : f; }

/// A row-major matrix [rows, columns] is a column-major one [columns, rows].
MatmulPlan::Matrix seen_by_columns(std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                   std::int64_t step, Format format, std::uintptr_t address,
                                   Format wanted) {
  MatmulPlan::Matrix m;
  m.rows = columns;
  m.columns = rows;
  m.leading = stride == 0 ? columns : stride;
  m.step = step;
  m.converted = stored(format) != wanted;
  m.format = wanted;
  m.alignment = alignment_of(address);
  if (m.converted) {  // packed without gaps
    m.leading = columns;
    m.step = step == 0 ? 0 : rows * columns;
    m.alignment = kAlignment;
  }
  return m;
}

std::size_t bytes_if_converted(const MatmulPlan::Matrix& m, std::int64_t batch) {
  if (!m.converted) {
    return 0;
  }
  const std::int64_t matrices = m.step == 0 ? 1 : batch;
  return aligned(static_cast<std::size_t>(m.rows * m.columns * matrices) * stored_bytes(m.format));
}

/// A quantised operand: `columns` times `k`, the summed dimension innermost and padded.
MatmulPlan::Matrix quantised(std::int64_t columns, std::int64_t k, bool transpose, bool gradient) {
  MatmulPlan::Matrix m;
  m.format = Format::kFp8;
  m.rows = (k + kFp8Pack - 1) / kFp8Pack * kFp8Pack;
  m.columns = columns;
  m.leading = m.rows;
  m.transpose = transpose;
  m.converted = true;
  m.gradient = gradient;
  return m;
}

void require_fp8(const Product& p, const MatmulPlan& plan) {
  const auto out_bytes = static_cast<std::int64_t>(stored_bytes(plan.out.format));
  const bool aligned =
      p.n % kFp8Pack == 0 && plan.out.leading * out_bytes % 16 == 0 && plan.out.alignment >= 16;
  if (!aligned || p.batch != 1) {
    throw InputError(
        "formats.compute",
        fmt::format("found fp8 for a product of {} x {} x {}{}: fp8 products need results whose "
                    "rows are multiples of 16 elements, one product at a time; choose widths that "
                    "divide by 16 on every rank, or use bf16",
                    p.m, p.n, p.k, p.batch != 1 ? fmt::format(", {} of them", p.batch) : ""));
  }
  STEPCAST_CHECK(!(p.gradient_a && p.gradient_b), "a product of two gradients {} x {}", p.m, p.n);
}

}  // namespace

std::size_t stored_bytes(Format format) {
  switch (format) {
    case Format::kFp32:
    case Format::kTf32:
    case Format::kInt32:
      return 4;
    case Format::kBf16:
    case Format::kFp16:
      return 2;
    case Format::kInt64:
      return 8;
    case Format::kFp8:
      return 1;
    default:
      throw InputError("formats", fmt::format("found {}: the cuda backend stores fp32, tf32, bf16 "
                                              "and fp16; use one of them",
                                              name_of(format)));
  }
}

Product product_of(const Program& program, const Op& op) {
  Product p;
  p.m = op.shape[0];
  p.n = op.shape[1];
  p.k = op.shape[2];
  p.batch = std::max<std::int64_t>(1, op.shape[3]);
  p.transpose_a = (op.flags & op_flags::kTransposeA) != 0;
  p.transpose_b = (op.flags & op_flags::kTransposeB) != 0;
  p.beta = (op.flags & op_flags::kAccumulate) != 0 ? 1.0F : 0.0F;
  const Tensor& a = program.tensors[program.inputs(op)[0]];
  const Tensor& b = program.tensors[program.inputs(op)[1]];
  const Tensor& c = program.tensors[program.outputs(op)[0]];
  STEPCAST_CHECK(a.elements() >= p.batch * p.m * p.k && b.elements() >= p.batch * p.n * p.k &&
                     c.elements() >= p.batch * p.m * p.n,
                 "operands of '{}' are smaller than {} x [{}, {}, {}]", program.name(op), p.batch,
                 p.m, p.n, p.k);
  p.step_a = p.m * p.k;
  p.step_b = p.n * p.k;
  p.step_c = p.m * p.n;
  p.a = a.format;
  p.b = b.format;
  p.c = c.format;
  p.compute = op.format;
  p.epilogue = op.as<GemmAttributes>().epilogue;
  // Backward products have a gradient on one side: the left one but for those of weights, where
  // the input stands left, transposed.
  const bool backward = op.phase == Phase::kBackward;
  p.gradient_a = backward && !p.transpose_a;
  p.gradient_b = backward && p.transpose_a;
  return p;
}

MatmulPlan matmul_plan(const Product& product, std::uintptr_t a, std::uintptr_t b, std::uintptr_t c,
                       const EpilogueAddresses& epilogue) {
  const Format wanted = inside(product.compute);
  MatmulPlan plan;
  plan.m = product.n;
  plan.n = product.m;
  plan.k = product.k;
  plan.batch = product.batch;
  plan.alpha = product.alpha;
  plan.beta = product.beta;
  plan.tf32 = product.compute == Format::kTf32;
  plan.epilogue = product.epilogue;
  plan.row_alignment = alignment_of(epilogue.bias);
  plan.aux_alignment = alignment_of(epilogue.aux);
  if (keeps_gelu_input(product.epilogue) || reads_gelu_input(product.epilogue)) {
    plan.aux_leading = product.stride_aux;
    STEPCAST_CHECK(plan.aux_leading % 8 == 0 && plan.aux_leading >= plan.m,
                   "the input of a GELU {} wide with rows {} apart", plan.m, plan.aux_leading);
  } else if (product.epilogue == Epilogue::kBiasReluMask ||
             product.epilogue == Epilogue::kReluBackward) {
    plan.aux_leading = 32 * mask_words(plan.m);
  }
  plan.first = seen_by_columns(product.transpose_b ? product.n : product.k,
                               product.transpose_b ? product.k : product.n, product.stride_b,
                               product.step_b, product.b, b, wanted);
  plan.first.transpose = product.transpose_b;
  plan.second = seen_by_columns(product.transpose_a ? product.k : product.m,
                                product.transpose_a ? product.m : product.k, product.stride_a,
                                product.step_a, product.a, a, wanted);
  plan.second.transpose = product.transpose_a;
  plan.out = seen_by_columns(product.m, product.n, product.stride_c, product.step_c, product.c, c,
                             stored(product.c));
  if (wanted == Format::kFp8) {
    plan.first = quantised(product.n, product.k, true, product.gradient_b);
    plan.second = quantised(product.m, product.k, false, product.gradient_a);
    plan.k = plan.first.rows;
    require_fp8(product, plan);
  }
  // Every result format goes with narrow operands, but fp32 operands give fp32.
  STEPCAST_CHECK(wanted != Format::kFp32 || plan.out.format == Format::kFp32,
                 "a product of fp32 operands is stored as {}", name_of(product.c));
  return plan;
}

MatmulPlan with_rounded_rows(const Product& product, MatmulPlan plan) {
  constexpr std::int64_t kRows = 64;
  constexpr std::uint32_t kRead = 16;  // bytes at a time: no kernel reads more
  const auto round = [](std::int64_t& rows) { rows = (rows + kRows - 1) / kRows * kRows; };
  round(product.transpose_a ? plan.k : plan.n);
  round(plan.second.columns);
  round(product.transpose_a ? plan.first.columns : plan.out.columns);
  for (MatmulPlan::Matrix* m : {&plan.first, &plan.second, &plan.out}) {
    m->alignment = std::min(m->alignment, kRead);
    m->step = 0;
  }
  return plan;
}

std::size_t MatmulPlan::converted_bytes() const {
  // Behind quantised operands stand their scales and what their largest values are found with.
  const std::size_t scales = fp8() ? 2 * kernels::kQuantiseWorkspace : 0;
  const std::size_t added =
      sums() ? aligned(static_cast<std::size_t>(m) * stored_bytes(out.format)) : 0;
  return bytes_if_converted(first, batch) + bytes_if_converted(second, batch) + scales + added;
}

std::size_t MatmulPlan::hash() const {
  std::size_t h = 0;
  const auto mix = [&h](auto value) {
    h = (h ^ static_cast<std::size_t>(value)) * 0x9e3779b97f4a7c15ULL;
    h ^= h >> 29;
  };
  for (const Matrix* x : {&first, &second, &out}) {
    mix(x->format);
    mix(x->leading);
    mix(x->step);
    mix(x->transpose);
    mix(x->gradient);
    mix(x->alignment);
  }
  mix(m);
  mix(n);
  mix(k);
  mix(batch);
  mix(beta != 0);
  mix(tf32);
  mix(epilogue);
  mix(aux_leading);
  mix(row_alignment);
  mix(aux_alignment);
  return h;
}

}  // namespace stepcast::runtime::cuda
