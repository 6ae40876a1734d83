#pragma once
#include <filesystem>
#include <string>

#include "core/config/config.h"
#include "core/job/efficiency.h"

namespace stepcast::config {

/// Efficiencies as `stepcast validate published --out-pace FILE` writes them; those that ship are
/// `root`/models/stacks/paces.json. Errors: InputError naming file and JSON path.
EfficiencyTable read_efficiencies(const Source& source);
EfficiencyTable load_efficiencies(const Library& library);
std::string efficiencies_to_json(const EfficiencyTable& table);

}  // namespace stepcast::config
