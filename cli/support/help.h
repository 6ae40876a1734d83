#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace stepcast::cli {

/// Puts the commands into groups, with examples, and wraps all help to the terminal; 80 characters
/// where there is none.
void arrange_help(CLI::App& app);
/// The words of `stepcast` alone: ten lines that show the way.
std::string tour();

}  // namespace stepcast::cli
