#include "cli/support/command_tree.h"

namespace stepcast::cli {
namespace {

/// The values an option allows, which CLI11 tells as "{a,b,c}" only.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t open = type.find('{');
  const std::size_t close = type.find('}', open);
  if (open == std::string::npos || close == std::string::npos) {
    return {};
  }
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

OptionNode node_of(const CLI::Option& option) {
  OptionNode node;
  for (const std::string& name : option.get_lnames()) {
    node.names.push_back("--" + name);
  }
  for (const std::string& name : option.get_snames()) {
    node.names.push_back("-" + name);
  }
  if (node.names.empty()) {
    node.place = option.get_name(true);
  }
  node.help = option.get_description();
  node.choices = choices_of(option);
  node.takes_value = option.get_items_expected_max() > 0;
  node.repeats = option.get_expected_max() > 1;
  return node;
}

}  // namespace

CommandNode command_tree(const CLI::App& app) {
  CommandNode node{
      .name = app.get_name(), .help = app.get_description(), .options = {}, .commands = {}};
  for (const CLI::Option* option : app.get_options()) {
    node.options.push_back(node_of(*option));
  }
  for (const CLI::App* part : app.get_subcommands([](const CLI::App*) { return true; })) {
    CommandNode below = command_tree(*part);
    if (part->get_name().empty()) {  // a group of options that exclude each other
      node.options.insert(node.options.end(), below.options.begin(), below.options.end());
    } else {
      node.commands.push_back(std::move(below));
    }
  }
  return node;
}

}  // namespace stepcast::cli
