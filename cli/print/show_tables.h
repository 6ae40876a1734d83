#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli/print/data_table.h"
#include "core/graph/program_fwd.h"
#include "core/job/job.h"
#include "studies/traces/recorded_step.h"
#include "studies/traces/show_measured.h"
#include "traces/events/recording.h"

namespace stepcast::cli {

/// "0-3, 8, 16-31", at most three pieces.
std::string rank_list(const std::vector<std::int32_t>& ranks);

/// The sections of `stepcast show`, as tables. `job` is absent for a recorded graph whose job is
/// not known; `rank` picks the class of one rank; `usual_stack` is that of config::JobOnStack.
using Tables = std::vector<DataTable>;
Tables summary_tables(const Job& job, const ExecutionGraph& graph,
                      const std::string& default_framework);
Tables graph_tables(const ExecutionGraph& graph, std::optional<std::int32_t> rank);
Tables flops_tables(const Job* job, const ExecutionGraph& graph);
Tables bytes_tables(const Job* job, const ExecutionGraph& graph);
Tables memory_tables(const Job& job, const ExecutionGraph& graph,
                     std::optional<std::int32_t> rank);
/// `show`: of a capture, what bounds it.
Tables recorded_tables(const studies::RecordedStep& step, const studies::MeasuredShow* show);
/// Tables of a recorded run of any program; warnings go to stderr. `name` stands for the trace
/// there.
Tables run_tables(const traces::Recording& recording, const std::string& name, std::int32_t skip,
                  const std::string& mark);

/// Tables of an execution graph without times: nodes, edges, operators and collectives.
Tables execution_graph_tables(const traces::Recording& recording);
/// Device time of a capture by "kind", "module" or "stream".
DataTable device_time_table(const traces::Recording& recording, const std::string& by,
                            const std::string& mark, std::optional<std::int32_t> rank);

}  // namespace stepcast::cli
