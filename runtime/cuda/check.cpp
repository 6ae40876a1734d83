#include "runtime/cuda/check.h"

#include "core/error.h"

namespace stepcast::runtime::cuda {

std::string text_of(cudaError_t code) {
  return fmt::format("{} ({}): {}", cudaGetErrorName(code), int{code}, cudaGetErrorString(code));
}

std::string text_of(ncclResult_t code) {
  const char* last = ncclGetLastError(nullptr);
  return fmt::format("{} ({}){}{}", ncclGetErrorString(code), int{code},
                     last == nullptr || *last == '\0' ? "" : ": ", last == nullptr ? "" : last);
}

void check(cudaError_t code, std::string_view call) {
  if (code != cudaSuccess) {
    let_go(cudaGetLastError());  // or the next call would report it again
    throw RunError(fmt::format("{}: {}", call, text_of(code)));
  }
}

void check(cublasStatus_t code, std::string_view call) {
  if (code != CUBLAS_STATUS_SUCCESS) {
    throw RunError(fmt::format("{}: {} ({}): {}", call, cublasLtGetStatusName(code), int{code},
                               cublasLtGetStatusString(code)));
  }
}

void check(ncclResult_t code, std::string_view call) {
  if (code != ncclSuccess && code != ncclInProgress) {
    throw RunError(fmt::format("{}: {}", call, text_of(code)));
  }
}

}  // namespace stepcast::runtime::cuda
