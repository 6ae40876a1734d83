#pragma once
#include <string>

#include "core/job/job.h"
#include "simulator/reports/memory_ledger.h"

namespace stepcast::studies {

/// Why a ledger is over the device's memory: the total, the capacity and the largest two lines.
std::string memory_reason(const simulator::MemoryLedger& ledger, const Device& device);

/// The change of a job, or the two together, that makes it fit and costs the least time, as the
/// user would write it, with the simulated seconds of its step: sequence parallelism, sharded
/// states, recomputation, smaller micro-batches, twice the tensor ranks, stages or context ranks
/// with half the replicas. Two only where they are 3 % faster than one. Beside it activations or
/// optimizer states in the memory of the host, where that fits. Where none fits, what needs
/// least. All are tried in closed form (planner::ClosedFormModel), the fastest is simulated.
/// `usual_stack`: what the job was put on because it names none ("" otherwise); a change to another
/// family of plans names it, as that family may have another default framework. Lists of layers get
/// another plan of their tables; without tables the largest batch that fits.
std::string memory_fix(const Job& job, const std::string& default_framework = "");

/// Text on a step that fits or does not by less than forecasts of memory err by; "" by more.
std::string tight_memory(Bytes used, const Device& device);

}  // namespace stepcast::studies
