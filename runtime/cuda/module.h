#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/graph/observer.h"
#include "core/graph/program.h"
#include "runtime/step_executor.h"

namespace stepcast::runtime::cuda {

/// Offer of this machine to the module.
struct Probe {
  int devices = 0;       ///< that can be used now
  std::string missing;   ///< empty when there is a device; else what is missing and the remedy
  std::string versions;  ///< of toolkit, driver and libraries, for people
  std::vector<std::string> identities;  ///< of each device, whoever sees it under which number
  int nccl = 0;                         ///< version as NCCL counts it: 22809 is 2.28.9
};

/// Functions that the module asks of the ranks it runs among. MPI stays outside the module.
struct Ranks {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  ///< among the ranks of this machine
  /// Rank 0's bytes reach all ranks; all call it together. May be empty for one rank.
  std::function<void(void* data, std::size_t bytes)> broadcast;
  /// Tells the error and ends the run on all ranks; does not return. A rank alone throws what its
  /// own thread meets. Empty: errors are thrown, and only threads that wait notice what hangs.
  std::function<void(const std::exception&)> abort;
};

struct Options {
  std::chrono::duration<double> timeout{20};  ///< of one collective
  /// Limit of setting up NCCL: ranks come when they have loaded what they need.
  [[nodiscard]] std::chrono::duration<double> setup_timeout() const {
    return std::max(timeout, std::chrono::duration<double>(120));
  }
  bool graph = false;         ///< capture the step into one CUDA graph and replay it
  std::int64_t epoch_ns = 0;  ///< steady clock at the beginning of the run
};

/// An executor on one device of this machine.
class DeviceExecutor : public StepExecutor {
 public:
  /// The numbers of a tensor, whatever its format, and putting others in their place. For tests;
  /// not while a step runs.
  [[nodiscard]] virtual std::vector<float> read(TensorId id, std::int32_t microbatch) const = 0;
  virtual void write(TensorId id, std::int32_t microbatch, std::span<const float> values) = 0;

 protected:
  using StepExecutor::StepExecutor;
};

/// Interface of libstepcast_cuda.so for the program that loads it.
class Module {
 public:
  virtual ~Module() = default;
  /// Never throws for what the machine lacks: that is its answer.
  [[nodiscard]] virtual Probe probe() const = 0;
  /// The executor of this rank's program on device local_rank mod devices. `graph` and `observer`
  /// (may be null) outlive it.
  /// Errors: InputError for ops or formats this backend does not execute; EnvironmentError for
  /// fused attention without cuDNN; RunError for too little memory (with the ledger) and for
  /// failures of CUDA or NCCL.
  [[nodiscard]] virtual std::unique_ptr<DeviceExecutor> executor(const ExecutionGraph& graph,
                                                                 Ranks ranks, Options options,
                                                                 Observer* observer) const = 0;
};

/// Both sides must have been built from the same headers: the module rejects a caller with another
/// stamp.
struct Stamp {
  std::uint32_t interface = 6;
  std::uint32_t program = sizeof(Program), op = sizeof(Op), tensor = sizeof(Tensor),
                graph = sizeof(ExecutionGraph), ranks = sizeof(Ranks), options = sizeof(Options),
                step = sizeof(StepExecutor);
  bool operator==(const Stamp&) const = default;
};

/// The one symbol of the module: `extern "C" const Module* stepcast_cuda_module(const Stamp&)`;
/// null for a stamp that is not the module's own.
using ModuleEntry = const Module*(const Stamp&);
constexpr const char* kModuleEntry = "stepcast_cuda_module";

}  // namespace stepcast::runtime::cuda
