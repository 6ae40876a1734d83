#pragma once
#include <optional>
#include <vector>

#include "studies/fit_rows.h"
#include "traces/trace.h"

namespace stepcast::studies::internal {

/// Pace of each rank of a trace, of the slowest, and of its exchange; the last is not known of
/// traces without a probe, and of transfers that leave the core alone.
struct Paces {
  std::vector<double> of_rank;
  double slowest = 1;
  std::optional<double> exchange = {};
};

/// By the trace's probes of its cores, relative to those of the first trace that had any
/// (`all.reference`), to whose paces they are added; ranks are distinguished by the ops they share.
Paces paces_of(FitRows& all, const ExecutionGraph& graph, const traces::GraphRun& trace);

}  // namespace stepcast::studies::internal
