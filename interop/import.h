#pragma once
#include <filesystem>
#include <string>

#include "core/config/config.h"

namespace stepcast::interop {

/// The library at `root` with every format of interop/formats.h.
config::Library library(std::filesystem::path root);

/// True if the content is another tool's description of a model.
bool describes_model(const config::Source& source);

/// Our JSON for such a file: a workload for config.json of Hugging Face, a job without a system for
/// the others. Also what load_job and load_workload do on their own with such a file.
/// docs/how-to/import-a-model.md and docs/reference/table-files.md list what is read and what is
/// left out; whatever else the file says is rejected, because it may change the cost. Errors:
/// InputError naming file, key and remedy.
std::string import_to_json(const config::Source& source, int indent = 2);

}  // namespace stepcast::interop
