#pragma once
#include <dnnl.h>

#include <memory>

namespace stepcast::runtime::kernels {

#define STEPCAST_ONE_DNN_FUNCTIONS(X)                                                             \
  X(version) X(sgemm) X(engine_create) X(engine_destroy) X(stream_create) X(stream_wait)          \
  X(stream_destroy) X(memory_desc_init_by_strides) X(memory_create) X(memory_destroy)             \
  X(matmul_desc_init) X(post_ops_create) X(post_ops_append_sum) X(post_ops_destroy)               \
  X(primitive_attr_create) X(primitive_attr_set_post_ops) X(primitive_attr_destroy)               \
  X(primitive_desc_create) X(primitive_desc_destroy) X(primitive_create) X(primitive_execute)     \
  X(primitive_destroy)

/// The functions of oneDNN 2 that kernels call. The library is loaded on the first call: most
/// commands multiply no matrices, and a machine without it runs them.
struct OneDnn {
#define STEPCAST_DECLARE(name) decltype(&::dnnl_##name) name = nullptr;
  STEPCAST_ONE_DNN_FUNCTIONS(STEPCAST_DECLARE)
#undef STEPCAST_DECLARE
  /// From the OpenMP library that this oneDNN runs on.
  void (*set_threads)(int) = nullptr;
};

/// Errors: EnvironmentError when libdnnl.so.2 is not there or lacks a function.
const OneDnn& one_dnn();

/// Errors: InternalError naming `call`, where oneDNN returned another status than success.
void check_dnnl(dnnl_status_t status, const char* call);

/// An object of oneDNN and the function that ends it.
template <typename Handle>
using DnnlObject = std::unique_ptr<std::remove_pointer_t<Handle>, dnnl_status_t (*)(Handle)>;

}  // namespace stepcast::runtime::kernels
