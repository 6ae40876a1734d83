#pragma once
#include <vector>

#include "cli/print/show_tables.h"
#include "simulator/reports/memory_ledger.h"
#include "traces/memory/memory_record.h"

namespace stepcast::cli {

/// For each device: its peak and what held memory then, by place; why it ran out, if it did.
Tables recorded_memory_tables(const std::vector<traces::MemoryRecord>& records);

/// A ledger beside the peak of a recording that used most.
DataTable ledger_beside(const simulator::MemoryLedger& ledger,
                        const std::vector<traces::MemoryRecord>& records);

}  // namespace stepcast::cli
