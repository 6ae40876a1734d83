#pragma once
#include "core/graph/program.h"

namespace stepcast::workloads {

/// A graph on its way through the passes.
struct GraphDraft {
  ExecutionGraph graph;
};

}  // namespace stepcast::workloads
