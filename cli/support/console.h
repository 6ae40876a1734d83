#pragma once
#include <functional>
#include <map>
#include <ostream>
#include <sstream>
#include <string>

#include "cli/print/terminal.h"
#include "core/config/config.h"

namespace stepcast::cli {

/// Console that stands for standard output, the error stream, the terminal and files if a command
/// runs inside another program.
struct Console {
  std::ostream* answer = nullptr;  ///< what the command prints
  std::ostream* notes = nullptr;   ///< warnings, files written, errors
  std::ostream* screen = nullptr;  ///< what it prints for people where the answer is for programs
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

/// While it lives, what commands of this thread answer is kept, not printed.
class KeptAnswer {
 public:
  KeptAnswer();
  ~KeptAnswer();
  KeptAnswer(const KeptAnswer&) = delete;
  KeptAnswer& operator=(const KeptAnswer&) = delete;
  [[nodiscard]] std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::ostream* before_;
};

/// Choices of a command line about how commands of this thread talk.
struct Manners {
  bool quiet = false;  ///< errors alone besides the answer: no notes, no progress
  ColourWhen colour = ColourWhen::kAuto;
};
/// Manners of the command that runs.
Manners& manners();

/// Stream that a command of this thread prints to: standard output without a console.
std::ostream& answer();
/// Stream for what is no answer: the error stream without a console; nowhere if it is quiet.
std::ostream& notes();
/// Stream for errors, also of a quiet command.
std::ostream& errors();
/// The console of this thread; null without one.
const Console* console();
/// The document of that name, else the file. Errors: as config::file_source.
config::Source named_source(const std::string& name);

}  // namespace stepcast::cli
