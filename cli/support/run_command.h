#pragma once
#include <string>
#include <vector>

namespace stepcast::cli {

/// How a command ended.
struct CommandEnd {
  int code = 0;    ///< its exit code
  int signal = 0;  ///< that killed it; 0: none
  [[nodiscard]] bool well() const { return code == 0 && signal == 0; }
  [[nodiscard]] std::string text() const;
};

/// The file that a command's name stands for: as given, or found in PATH. Errors: InputError where
/// there is none that can be run.
std::string find_program(const std::string& name);

/// Runs a command with these variables set on top of our own environment, or, where one is a name
/// alone, unset, and waits. The terminal's
/// interrupt reaches the command alone; SIGTERM and SIGUSR2 are passed on to it. Errors: RunError
/// when it cannot be started.
CommandEnd run_command(const std::vector<std::string>& command,
                       const std::vector<std::string>& variables);

}  // namespace stepcast::cli
