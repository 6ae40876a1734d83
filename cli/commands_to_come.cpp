#include <array>
#include <utility>

#include "cli/command.h"
#include "core/error.h"

namespace stepcast::cli {

/// Commands of the fixed command line that this version does not have: known by name, refused in
/// words.
void add_commands_to_come(CLI::App& app) {
  constexpr std::array<std::pair<const char*, const char*>, 1> kCommands{{
      {"report", "One page of pictures (not implemented in this version)"},
  }};
  for (const auto& [name, description] : kCommands) {
    CLI::App* command = app.add_subcommand(name, description);
    command->allow_extras();
    command->callback([name = std::string(name)] {
      throw InputError(name, "is not implemented in this version; `stepcast --help` lists what is");
    });
  }
}

}  // namespace stepcast::cli
