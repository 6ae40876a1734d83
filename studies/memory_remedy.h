#pragma once
#include <string>

#include "core/job.h"
#include "simulator/reports/memory_ledger.h"

namespace stepcast::studies {

/// Why a ledger is over the device's memory: the total, the capacity and the largest two lines.
std::string memory_reason(const simulator::MemoryLedger& ledger, const Device& device);

/// The single change of a job that makes it fit and costs the least time, as the user would write
/// it, with the simulated seconds of its step: sequence parallelism, sharded states, recomputation,
/// smaller micro-batches, twice the tensor ranks, stages or context ranks with half the replicas.
/// Where none fits, the one that needs least. Builds a graph per change, and simulates those that
/// fit.
std::string memory_remedy(const Job& job);

/// What to say of a step that fits with less room than memory predictions may be off by; "" with
/// more.
std::string tight_memory(Bytes used, Bytes capacity);

}  // namespace stepcast::studies
