#include "runtime/cuda/module.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

namespace stepcast::runtime::cuda {
namespace {

std::string version_text(int version) {  // 13000 -> 13.0
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

class CudaModule final : public Module {
 public:
  [[nodiscard]] Probe probe() const override {
    Probe found;
    int driver = 0;
    int toolkit = 0;
    int nccl = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&toolkit);
    ncclGetVersion(&nccl);
    found.versions =
        fmt::format("CUDA {}, driver for CUDA {}, cuBLASLt {}, NCCL {}", version_text(toolkit),
                    driver == 0 ? "none" : version_text(driver), cublasLtGetVersion(), nccl);
    const cudaError_t code = cudaGetDeviceCount(&found.devices);
    if (code != cudaSuccess) {
      found.devices = 0;
      found.missing =
          fmt::format("cudaGetDeviceCount: {} ({})", cudaGetErrorString(code), int{code});
    }
    return found;
  }
};

}  // namespace
}  // namespace stepcast::runtime::cuda

extern "C" __attribute__((visibility("default"))) const stepcast::runtime::cuda::Module*
stepcast_cuda_module() {
  static const stepcast::runtime::cuda::CudaModule module;
  return &module;
}
