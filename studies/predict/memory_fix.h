#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "simulator/reports/memory_ledger.h"

namespace stepcast::studies {

/// Why a ledger is over the device's memory: the total, the capacity and the largest two lines.
std::string memory_reason(const simulator::MemoryLedger& ledger, const Device& device);

/// Changes of a job that does not fit, after which it does.
struct Fix {
  std::vector<std::string> set;  ///< as `--set` takes them after what the job says
  Seconds step;                  ///< of the job that they load
  Bytes memory;                  ///< of its fullest device
};
/// The job with settings after what it says itself. Errors: InputError.
using LoadWith = std::function<Job(const std::vector<std::string>& settings)>;

/// Fixes of a job that does not fit, the fastest first; each was loaded and simulated.
/// Training: the change of the plan, or the two together, that costs least: sequence parallelism,
/// sharded states, recomputation, smaller micro-batches, more ranks that share experts, twice the
/// tensor ranks, stages or context ranks with half the replicas; two only where they are 3 % faster
/// than one; found in closed form (planner::ClosedFormModel). Beside it activations or optimizer
/// states in the memory of the host. Where neither is enough, the fastest recipe
/// (studies/predict/recipes.h) on the same devices, else on twice, four times, ... as many.
/// Inference: smaller micro-batches, more tensor ranks. Lists of layers: a searched plan of the
/// tables, more ranks to a sample, a smaller batch, more devices. Empty: nothing that was tried
/// helps.
std::vector<Fix> memory_fixes(const Job& job, const LoadWith& load);

/// True where the model and the states that every rank of a list of layers holds, at a sample
/// each, fill a device: no number of devices and no placement of tables helps. For models that split
/// no layers.
bool replica_fills_device(const Job& job);

/// Text on a step that fits or does not by less than forecasts of memory err by; "" by more.
std::string tight_memory(Bytes used, const Device& device);

}  // namespace stepcast::studies
