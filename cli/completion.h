#pragma once
#include "cli/command.h"

namespace stepcast::cli {

/// Prints the words that may stand at the end of a line, for `__complete WORDS...`, which the
/// scripts of `completion` call: one a line, those that begin as the last word does.
void complete(const CLI::App& app, const Context& context);

}  // namespace stepcast::cli
