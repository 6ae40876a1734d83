#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace stepcast::cli {

/// Options of the command line, read from the parser itself: completion is made of this, so
/// that it names what there is.
struct OptionNode {
  std::vector<std::string> names;  ///< "--format", "-f"; empty for what is given by its place
  std::string place;               ///< name of what is given by its place
  std::string help;
  std::vector<std::string> choices;  ///< all values there are; empty: any text or file
  bool takes_value = false;
  bool repeats = false;
};

struct CommandNode {
  std::string name;  ///< "stepcast" for the program itself
  std::string help;
  std::vector<OptionNode> options;
  std::vector<CommandNode> commands;
};

CommandNode command_tree(const CLI::App& app);

/// Completion for a shell: "bash", "zsh" or "fish".
std::string completion_for(const std::string& shell, const CommandNode& program);

}  // namespace stepcast::cli
