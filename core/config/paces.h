#pragma once
#include <filesystem>
#include <string>

#include "core/config/config.h"
#include "core/job/pace.h"

namespace stepcast::config {

/// Paces as `stepcast validate published --out-pace FILE` writes them; those that ship are
/// `root`/models/stacks/paces.json. Errors: InputError naming file and JSON path.
PaceTable read_paces(const Source& source);
PaceTable load_paces(const Library& library);
std::string paces_to_json(const PaceTable& table);

}  // namespace stepcast::config
