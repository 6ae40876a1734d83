#pragma once
#include <string>

#include "core/job.h"
#include "simulator/reports/memory_ledger.h"

namespace stepcast::studies {

/// Why a ledger is over the device's memory: the total, the capacity and the largest two lines.
std::string memory_reason(const simulator::MemoryLedger& ledger, const Device& device);

/// The nearest single change of a job that makes it fit, as the user would write it; tried in the
/// order of what they cost in time: sequence parallelism, sharded states, recomputation, smaller
/// micro-batches, more tensor ranks, more stages. Else what the states alone need. Builds a graph
/// per change tried.
std::string memory_remedy(const Job& job);

/// What to say of a step that fits with less room than memory predictions may be off by; "" with
/// more.
std::string tight_memory(Bytes used, Bytes capacity);

}  // namespace stepcast::studies
