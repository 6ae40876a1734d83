#include "cli/support/cuda_backend.h"

#include <cstdlib>

#include "core/error.h"
#include "runtime/cuda/backend.h"
#include "runtime/loaded_module.h"

namespace stepcast::cli {

const runtime::cuda::Module& cuda_module(const Context& context) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);  // the most; read with the first CUDA call
  return runtime::cuda::usable_module(runtime::cuda::module_of(context.executable));
}

void require_cuda(const Context& context) { cuda_module(context); }

runtime::ExecutorFactory timed_cuda_executors(const Context& context,
                                              const runtime::MpiSession& session) {
  const auto& module = cuda_module(context);
  const int devices = module.probe().devices;
  if (session.local_size() > devices) {
    throw InputError(
        "--ranks",
        fmt::format("{} ranks on a machine with {} devices: ranks that share one take turns, and "
                    "their times mean nothing; use at most {}",
                    session.local_size(), devices, devices));
  }
  return runtime::cuda::executors(module, {});
}

studies::OpClock op_clock(const std::string& wanted, const Context& context,
                          runtime::MpiSession& session) {
  if (wanted == "events") {
    return {nullptr, "--op-clock events"};
  }
  const auto lib = context.executable.parent_path().parent_path() / "lib";
  studies::OpClock clock =
      studies::same_on_all_ranks(studies::start_cupti(lib / "libstepcast_cupti.so"), session);
  if (clock.cupti == nullptr && wanted == "cupti") {
    throw EnvironmentError(fmt::format(
        "--op-clock cupti: {}; or leave the option out to time ops by events", clock.reason));
  }
  return clock;
}

runtime::calibration::DeviceSweep sweep_device(const Context& context,
                                               const runtime::calibration::SweepOptions& options) {
  const runtime::LoadedModule library(runtime::cuda::module_of(context.executable));
  return library.function<runtime::calibration::DeviceSweepEntry>(
      runtime::calibration::kDeviceSweepEntry)(options);
}

}  // namespace stepcast::cli
