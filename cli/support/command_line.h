#pragma once
#include "cli/command.h"

namespace stepcast::cli {

/// Parses `context.arguments`, runs the command they name and tells what went wrong: the one place
/// that turns an error into an exit code.
int run_command_line(CLI::App& app, const Context& context);

}  // namespace stepcast::cli
