#pragma once
#include <string>

#include "cli/command.h"
#include "runtime/calibration/device_sweep.h"
#include "runtime/cuda/module.h"
#include "runtime/trainer.h"
#include "studies/run/recorded_run.h"

namespace stepcast::cli {

/// The backend's module, its environment set: streams beyond the eighth get queues of their own,
/// so that a send that waits holds back no receive. Errors: EnvironmentError saying what this
/// machine lacks.
const runtime::cuda::Module& cuda_module(const Context& context);

/// Checks what every command with --backend cuda needs before it starts ranks, so that what is
/// missing is told once. Errors: EnvironmentError saying what this machine lacks.
void require_cuda(const Context& context);

/// Executors on this machine's devices, one rank each, for runs that are timed.
/// Errors: InputError when ranks would share a device: their times mean nothing.
runtime::ExecutorFactory timed_cuda_executors(const Context& context,
                                              const runtime::MpiSession& session);

/// Clock of the ops of a recorded run on devices: "auto" takes CUPTI if it can be had,
/// else events; all ranks decide alike. To be called before anything uses CUDA.
/// Errors: EnvironmentError saying why, when "cupti" was asked for and cannot be had.
studies::OpClock op_clock(const std::string& wanted, const Context& context,
                          runtime::MpiSession& session);

/// Runs the sweep of the module on this process's device.
runtime::calibration::DeviceSweep sweep_device(const Context& context,
                                               const runtime::calibration::SweepOptions& options);

}  // namespace stepcast::cli
