#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/cuda/module.h"
#include "runtime/trainer.h"

namespace stepcast::runtime::cuda {

/// Path of the module of a program at `executable`: ../lib/libstepcast_cuda.so next to its folder.
std::filesystem::path module_of(const std::filesystem::path& executable);

/// Loads the module and makes sure that this machine has a device.
/// Errors: EnvironmentError saying what is missing (module, driver, device) and how to get it.
const Module& usable_module(const std::filesystem::path& file);

/// The same without asking for a device.
const Module& loaded_module(const std::filesystem::path& file);

/// Tells the devices of all machines of a run apart: a number below 2^52 of the device that the
/// rank with this local rank takes, by the boot of its machine and the device's identity. A
/// launcher that shows each rank one device makes them all device 0, yet of different identities.
double device_key(const Probe& probe, int local_rank);

/// Environment that rank `rank` needs so that NCCL lets several ranks share a device, as
/// NAME=value; empty when no two of `keys` (of all ranks) are equal. For correctness runs on one
/// machine: kernels of ranks that share a device take turns, so times mean nothing. From NCCL 2.30
/// on there is a switch for it; before, ranks pretend to be on different machines and talk through
/// sockets. Errors: InputError for ranks of several machines.
std::vector<std::string> shared_device_environment(int nccl, int rank, int local_ranks,
                                                   std::vector<double> keys);

/// Executors that run_training needs to run on CUDA devices, one per rank.
ExecutorFactory executors(const Module& module, Options options);

}  // namespace stepcast::runtime::cuda
