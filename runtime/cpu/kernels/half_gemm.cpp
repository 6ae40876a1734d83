#include "runtime/cpu/kernels/half_gemm.h"

#include <dnnl.hpp>

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "runtime/cpu/kernels/data_movement.h"

namespace stepcast::runtime::kernels {
namespace {

using Key = std::tuple<Index, Index, Index, bool, bool, Index, bool>;

/// Rounds the stored matrix (rows x columns) into contiguous bfloat16.
void round_operand(const float* x, Index rows, Index columns, Index stride,
                   std::vector<std::uint16_t>& out) {
  if (out.size() < static_cast<std::size_t>(rows * columns)) {
    out.resize(static_cast<std::size_t>(rows * columns));
  }
  if (stride == columns) {
    to_bfloat16(x, out.data(), rows * columns);
    return;
  }
  for (Index i = 0; i < rows; ++i) {
    to_bfloat16(x + i * stride, out.data() + i * columns, columns);
  }
}

/// A logical rows x columns matrix stored row-major, or column-major if it is the transpose of what
/// is stored.
dnnl::memory::desc operand(Index rows, Index columns, bool transposed) {
  return {{rows, columns},
          dnnl::memory::data_type::bf16,
          transposed ? dnnl::memory::dims{1, rows} : dnnl::memory::dims{columns, 1}};
}

}  // namespace

struct Bfloat16Gemm::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, dnnl::matmul> primitives;
  std::vector<std::uint16_t> a;
  std::vector<std::uint16_t> b;

  const dnnl::matmul& primitive(const Gemm& shape, const dnnl::memory::desc& a_desc,
                                const dnnl::memory::desc& b_desc, const dnnl::memory::desc& c_desc,
                                Index stride_c) {
    const bool accumulate = shape.beta != 0;
    const Key key{shape.m,           shape.n,  shape.k,   shape.transpose_a,
                  shape.transpose_b, stride_c, accumulate};
    const auto found = primitives.find(key);
    if (found != primitives.end()) {
      return found->second;
    }
    dnnl::primitive_attr attributes;
    if (accumulate) {
      dnnl::post_ops operations;
      operations.append_sum(1.0F);
      attributes.set_post_ops(operations);
    }
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a_desc, b_desc, c_desc),
                                                   attributes, engine);
    return primitives.emplace(key, dnnl::matmul(description)).first->second;
  }
};

Bfloat16Gemm::Bfloat16Gemm() : state_(std::make_unique<State>()) {}
Bfloat16Gemm::~Bfloat16Gemm() = default;
Bfloat16Gemm::Bfloat16Gemm(Bfloat16Gemm&&) noexcept = default;
Bfloat16Gemm& Bfloat16Gemm::operator=(Bfloat16Gemm&&) noexcept = default;

void Bfloat16Gemm::operator()(const Gemm& shape, const float* a, const float* b, float* c) {
  STEPCAST_CHECK(shape.alpha == 1 && (shape.beta == 0 || shape.beta == 1),
                 "bfloat16 product: alpha {}, beta {}", shape.alpha, shape.beta);
  STEPCAST_CHECK(shape.m > 0 && shape.n > 0 && shape.k > 0, "bfloat16 product {}x{}x{}", shape.m,
                 shape.n, shape.k);
  const Index rows_a = shape.transpose_a ? shape.k : shape.m;
  const Index columns_a = shape.transpose_a ? shape.m : shape.k;
  const Index rows_b = shape.transpose_b ? shape.n : shape.k;
  const Index columns_b = shape.transpose_b ? shape.k : shape.n;
  const Index stride_c = shape.stride_c != 0 ? shape.stride_c : shape.n;
  round_operand(a, rows_a, columns_a, shape.stride_a != 0 ? shape.stride_a : columns_a, state_->a);
  round_operand(b, rows_b, columns_b, shape.stride_b != 0 ? shape.stride_b : columns_b, state_->b);
  try {
    const dnnl::memory::desc a_desc = operand(shape.m, shape.k, shape.transpose_a);
    const dnnl::memory::desc b_desc = operand(shape.k, shape.n, shape.transpose_b);
    const dnnl::memory::desc c_desc({shape.m, shape.n}, dnnl::memory::data_type::f32,
                                    dnnl::memory::dims{stride_c, 1});
    const dnnl::matmul& product = state_->primitive(shape, a_desc, b_desc, c_desc, stride_c);
    product.execute(state_->stream,
                    {{DNNL_ARG_SRC, dnnl::memory(a_desc, state_->engine, state_->a.data())},
                     {DNNL_ARG_WEIGHTS, dnnl::memory(b_desc, state_->engine, state_->b.data())},
                     {DNNL_ARG_DST, dnnl::memory(c_desc, state_->engine, c)}});
    state_->stream.wait();
  } catch (const dnnl::error& error) {
    STEPCAST_FAIL("bfloat16 product {}x{}x{}: oneDNN: {}", shape.m, shape.n, shape.k, error.what());
  }
}

bool has_bfloat16_products() {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  return __builtin_cpu_supports("avx512bf16") > 0;
#else
  return false;
#endif
}

}  // namespace stepcast::runtime::kernels
