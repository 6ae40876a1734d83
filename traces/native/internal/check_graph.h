#pragma once
#include <string>

#include "core/graph/program_fwd.h"


namespace stepcast::traces::internal {

/// Checks what a graph that came from a file must hold for the rest of the toolkit to walk it: a
/// mesh of at most 2^20 ranks, every rank in one class, collectives that have a group and partners
/// in it, and records that name what the graph holds. Errors: InputError naming `file` and the
/// place in it.
void check_graph(const ExecutionGraph& graph, const std::string& file);

}  // namespace stepcast::traces::internal
