#include "runtime/cpu/kernels/internal/one_dnn.h"

#include "core/error.h"
#include "runtime/loaded_module.h"

namespace stepcast::runtime::kernels {
namespace {

OneDnn load() {
  const LoadedModule library(
      "libdnnl.so.2", "training on the CPU multiplies matrices with oneDNN 2: install libdnnl2");
  OneDnn d;
#define STEPCAST_LOAD(name) \
  d.name = library.function<std::remove_pointer_t<decltype(d.name)>>("dnnl_" #name);
  STEPCAST_ONE_DNN_FUNCTIONS(STEPCAST_LOAD)
#undef STEPCAST_LOAD
  d.set_threads = library.function<void(int)>("omp_set_num_threads");
  return d;
}

}  // namespace

const OneDnn& one_dnn() {
  static const OneDnn functions = load();
  return functions;
}

void check_dnnl(dnnl_status_t status, const char* call) {
  STEPCAST_CHECK(status == dnnl_success, "oneDNN: {}: status {}", call, static_cast<int>(status));
}

}  // namespace stepcast::runtime::kernels
