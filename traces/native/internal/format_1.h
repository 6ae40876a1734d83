#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace stepcast::traces::internal {

/// The graph in the manifest of a trace of format 1, as format 2 writes it (graph_json.h). It has
/// ops, segments, calls and communicators alone: no tensors, tables, exchanges and placement.
/// Errors: InputError naming `file` and the place for rows that are not of that format.
nlohmann::json graph_of_format_1(const nlohmann::json& manifest, const std::string& file);

}  // namespace stepcast::traces::internal
