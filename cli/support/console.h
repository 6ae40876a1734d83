#pragma once
#include <functional>
#include <map>
#include <ostream>
#include <string>

#include "core/config/config.h"

namespace stepcast::cli {

/// Console that stands for standard output, the error stream, the terminal and files if a command
/// runs inside another program.
struct Console {
  std::ostream* answer = nullptr;  ///< what the command prints
  std::ostream* notes = nullptr;   ///< warnings, files written, errors
  /// The share of a long command that is done and what is in hand, often. What it throws ends the
  /// command.
  std::function<void(double share, const std::string& note)> progress;
  /// Texts by the names that a command is given in place of files.
  std::map<std::string, std::string, std::less<>> documents;
};

/// While it lives, commands of this thread use `console`.
class ConsoleScope {
 public:
  explicit ConsoleScope(const Console& console);
  ~ConsoleScope();
  ConsoleScope(const ConsoleScope&) = delete;
  ConsoleScope& operator=(const ConsoleScope&) = delete;
};

/// Stream that a command of this thread prints to: standard output without a console.
std::ostream& answer();
/// Stream for what is no answer: the error stream without a console.
std::ostream& notes();
/// The console of this thread; null without one.
const Console* console();
/// The document of that name, else the file. Errors: as config::file_source.
config::Source named_source(const std::string& name);

}  // namespace stepcast::cli
