#pragma once
#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/print/show_tables.h"

namespace stepcast::cli {

/// `stepcast show FILE` of a file that is no job and no trace: a device or system (its facts, which
/// constants are measured, by whom, and which are not) or an embedding plan (its summary). nullopt
/// for jobs and parallel plans, which are shown as a step. Errors: InputError for a JSON file of
/// ours that another command reads (a baseline, what --format json printed), naming it.
std::optional<Tables> file_tables(const std::string& file, const Context& context);

}  // namespace stepcast::cli
