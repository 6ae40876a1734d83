#pragma once
#include <optional>
#include <vector>

#include "cli/data_table.h"
#include "core/job.h"
#include "core/program.h"
#include "studies/show_trace.h"

namespace stepcast::cli {

/// The sections of `stepcast show`, as tables. `job` is absent for a recorded graph whose job is
/// not known; `rank` picks the class of one rank.
using Tables = std::vector<DataTable>;
Tables summary_tables(const Job& job, const ExecutionGraph& graph);
Tables graph_tables(const ExecutionGraph& graph, std::optional<std::int32_t> rank);
Tables flops_tables(const Job* job, const ExecutionGraph& graph);
Tables bytes_tables(const Job* job, const ExecutionGraph& graph);
Tables memory_tables(const Job& job, const ExecutionGraph& graph, std::optional<std::int32_t> rank);
Tables recorded_tables(const studies::RecordedStep& step);

}  // namespace stepcast::cli
