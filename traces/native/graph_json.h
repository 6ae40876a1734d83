#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "core/graph/op.h"
#include "core/graph/program_fwd.h"


namespace stepcast::traces {

/// An execution graph as JSON, whole: what `graph_from_json` makes of it is equal in every field.
/// A record is an object of the fields that differ from their defaults; a list of several records a
/// table, {"columns": [field, ...], "rows": [[value, ...], ...]}; enumerators are written by name.
/// Laws of lookups, orders of rows and draws of experts stand once in `laws`, `orders` and `draws`,
/// and elsewhere by their index there (schema: README.md here).
nlohmann::json graph_to_json(const ExecutionGraph& graph);
/// Errors: InputError naming `place` and the path in it for a field that is not known, has the
/// wrong type, or names what the graph does not hold.
ExecutionGraph graph_from_json(nlohmann::json graph, const std::string& place);

}  // namespace stepcast::traces
