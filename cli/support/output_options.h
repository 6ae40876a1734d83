#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/support/console.h"

namespace stepcast::cli {

/// Place that the answer of a command goes to, by --json, --csv, --html FILE, -o FILE, and how it
/// talks, by -q, --details and --color: options of every command that has --format, made in one
/// place.
class OutputOptions {
 public:
  OutputOptions();
  ~OutputOptions();
  OutputOptions(const OutputOptions&) = delete;
  OutputOptions& operator=(const OutputOptions&) = delete;

  void add_to_commands(CLI::App& app);
  /// Writes the file that was asked for, whole; `title` of a page.
  void write(const std::string& title) const;

 private:
  void add_to(CLI::App& command);
  void keep(const std::string& file, bool page);

  Manners before_;
  std::string file_;
  bool page_ = false;
  std::unique_ptr<KeptAnswer> kept_;
};

/// Name of the hidden option of a command that takes a file of another kind that -o names.
inline constexpr const char* kScriptOption = "--script";

}  // namespace stepcast::cli
