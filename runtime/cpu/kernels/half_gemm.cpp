#include "runtime/cpu/kernels/half_gemm.h"

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "runtime/cpu/kernels/data_movement.h"
#include "runtime/cpu/kernels/internal/one_dnn.h"

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

/// `create(Handle*)` made the object; `destroy` ends it.
template <typename Handle, typename Create>
DnnlObject<Handle> made(const char* call, dnnl_status_t (*destroy)(Handle), const Create& create) {
  Handle handle = nullptr;
  check_dnnl(create(&handle), call);
  return {handle, destroy};
}

dnnl_memory_desc_t matrix(Index rows, Index columns, dnnl_data_type_t type, Index row_stride,
                          Index column_stride) {
  const dnnl_dims_t sizes{rows, columns};
  const dnnl_dims_t strides{row_stride, column_stride};
  dnnl_memory_desc_t description;
  check_dnnl(one_dnn().memory_desc_init_by_strides(&description, 2, sizes, type, strides),
             "memory_desc_init_by_strides");
  return description;
}

/// A logical rows x columns matrix stored row-major, or column-major if it is the transpose of what
/// is stored.
dnnl_memory_desc_t operand(Index rows, Index columns, bool transposed) {
  return transposed ? matrix(rows, columns, dnnl_bf16, 1, rows)
                    : matrix(rows, columns, dnnl_bf16, columns, 1);
}

}  // namespace

struct Bfloat16Gemm::State {
  const OneDnn& dnnl = one_dnn();
  DnnlObject<dnnl_engine_t> engine = made<dnnl_engine_t>(
      "engine_create", dnnl.engine_destroy,
      [&](dnnl_engine_t* e) { return dnnl.engine_create(e, dnnl_cpu, 0); });
  DnnlObject<dnnl_stream_t> stream =
      made<dnnl_stream_t>("stream_create", dnnl.stream_destroy, [&](dnnl_stream_t* s) {
        return dnnl.stream_create(s, engine.get(), dnnl_stream_default_flags);
      });
  std::map<Key, DnnlObject<dnnl_primitive_t>> primitives;
  std::vector<std::uint16_t> a;
  std::vector<std::uint16_t> b;

  DnnlObject<dnnl_primitive_attr_t> attributes(bool accumulate) const {
    auto attributes =
        made<dnnl_primitive_attr_t>("primitive_attr_create", dnnl.primitive_attr_destroy,
                                    dnnl.primitive_attr_create);
    if (accumulate) {
      const auto operations =
          made<dnnl_post_ops_t>("post_ops_create", dnnl.post_ops_destroy, dnnl.post_ops_create);
      check_dnnl(dnnl.post_ops_append_sum(operations.get(), 1.0F), "post_ops_append_sum");
      check_dnnl(dnnl.primitive_attr_set_post_ops(attributes.get(), operations.get()),
                 "primitive_attr_set_post_ops");
    }
    return attributes;
  }

  dnnl_primitive_t primitive(const Gemm& shape, const dnnl_memory_desc_t& a_desc,
                             const dnnl_memory_desc_t& b_desc, const dnnl_memory_desc_t& c_desc,
                             Index stride_c) {
    const bool accumulate = shape.beta != 0;
    const Key key{shape.m,           shape.n,  shape.k,   shape.transpose_a,
                  shape.transpose_b, stride_c, accumulate};
    const auto found = primitives.find(key);
    if (found != primitives.end()) {
      return found->second.get();
    }
    dnnl_matmul_desc_t product;
    check_dnnl(dnnl.matmul_desc_init(&product, &a_desc, &b_desc, nullptr, &c_desc),
               "matmul_desc_init");
    const auto options = attributes(accumulate);
    const auto description = made<dnnl_primitive_desc_t>(
        "primitive_desc_create", dnnl.primitive_desc_destroy, [&](dnnl_primitive_desc_t* d) {
          return dnnl.primitive_desc_create(d, &product, options.get(), engine.get(), nullptr);
        });
    return primitives
        .emplace(key, made<dnnl_primitive_t>("primitive_create", dnnl.primitive_destroy,
                                             [&](dnnl_primitive_t* p) {
                                               return dnnl.primitive_create(p, description.get());
                                             }))
        .first->second.get();
  }

  DnnlObject<dnnl_memory_t> memory(const dnnl_memory_desc_t& description, void* data) const {
    return made<dnnl_memory_t>("memory_create", dnnl.memory_destroy, [&](dnnl_memory_t* m) {
      return dnnl.memory_create(m, &description, engine.get(), data);
    });
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
  const dnnl_memory_desc_t a_desc = operand(shape.m, shape.k, shape.transpose_a);
  const dnnl_memory_desc_t b_desc = operand(shape.k, shape.n, shape.transpose_b);
  const dnnl_memory_desc_t c_desc = matrix(shape.m, shape.n, dnnl_f32, stride_c, 1);
  const auto a_memory = state_->memory(a_desc, state_->a.data());
  const auto b_memory = state_->memory(b_desc, state_->b.data());
  const auto c_memory = state_->memory(c_desc, c);
  const dnnl_exec_arg_t operands[] = {{DNNL_ARG_SRC, a_memory.get()},
                                      {DNNL_ARG_WEIGHTS, b_memory.get()},
                                      {DNNL_ARG_DST, c_memory.get()}};
  const OneDnn& dnnl = state_->dnnl;
  check_dnnl(dnnl.primitive_execute(state_->primitive(shape, a_desc, b_desc, c_desc, stride_c),
                                    state_->stream.get(), 3, operands),
             "primitive_execute");
  check_dnnl(dnnl.stream_wait(state_->stream.get()), "stream_wait");
}

bool has_bfloat16_products() {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  return __builtin_cpu_supports("avx512bf16") > 0;
#else
  return false;
#endif
}

}  // namespace stepcast::runtime::kernels
