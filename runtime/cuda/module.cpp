#include "runtime/cuda/module.h"

#include "core/error.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/executor.h"

namespace stepcast::runtime::cuda {
namespace {

std::string version_text(int version) {  // 13000 -> 13.0
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// Says what is missing, and what to do about it.
std::string missing(cudaError_t code, int devices, int driver, int toolkit) {
  if (driver == 0) {
    return "no NVIDIA driver on this machine (libcuda.so.1 not found); install one, or run where "
           "nvidia-smi lists a device";
  }
  if (code == cudaErrorInsufficientDriver) {
    return fmt::format(
        "the driver supports CUDA {}, this build needs {}; update the driver, or "
        "build with an older CUDA Toolkit",
        version_text(driver), version_text(toolkit));
  }
  if (code == cudaErrorNoDevice || (code == cudaSuccess && devices == 0)) {
    return "no CUDA device on this machine; run where nvidia-smi lists one, and look at "
           "CUDA_VISIBLE_DEVICES";
  }
  return fmt::format("the CUDA devices of this machine cannot be used: cudaGetDeviceCount: {}",
                     text_of(code));
}

/// Differs between the instances of one device, too. A driver that knows none gives zeros.
std::string identity(const cudaDeviceProp& p) {
  std::string text = fmt::format("{:04x}:{:02x}:{:02x}", p.pciDomainID, p.pciBusID, p.pciDeviceID);
  for (const char byte : p.uuid.bytes) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

class CudaModule final : public Module {
 public:
  [[nodiscard]] Probe probe() const override {
    Probe found;
    int driver = 0;
    int toolkit = 0;
    check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    check(cudaRuntimeGetVersion(&toolkit), "cudaRuntimeGetVersion");
    check(ncclGetVersion(&found.nccl), "ncclGetVersion");
    found.versions = fmt::format("CUDA {}, driver {}, cuBLASLt {}, NCCL {}", version_text(toolkit),
                                 driver == 0 ? "none" : "for CUDA " + version_text(driver),
                                 cublasLtGetVersion(), found.nccl);
    int devices = 0;  // left alone by a failing call
    const cudaError_t code = cudaGetDeviceCount(&devices);
    let_go(cudaGetLastError());
    if (code == cudaSuccess && devices > 0) {
      found.devices = devices;
      for (int d = 0; d < devices; ++d) {
        cudaDeviceProp properties{};
        check(cudaGetDeviceProperties(&properties, d), "cudaGetDeviceProperties");
        found.identities.push_back(identity(properties));
      }
    } else {
      found.missing = missing(code, devices, driver, toolkit);
    }
    return found;
  }

  [[nodiscard]] std::unique_ptr<DeviceExecutor> executor(const ExecutionGraph& graph, Ranks ranks,
                                                         Options options,
                                                         Observer* observer) const override {
    return std::make_unique<Executor>(graph, std::move(ranks), options, observer);
  }
};

}  // namespace
}  // namespace stepcast::runtime::cuda

extern "C" __attribute__((visibility("default"))) const stepcast::runtime::cuda::Module*
stepcast_cuda_module(const stepcast::runtime::cuda::Stamp& stamp) {
  static const stepcast::runtime::cuda::CudaModule module;
  return stamp == stepcast::runtime::cuda::Stamp{} ? &module : nullptr;
}
