#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "core/config/catalogue.h"

namespace stepcast::host {

struct Command {
  const char* name;
  void (*add)(CLI::App&, cli::Context&);
};

/// A command as it is typed after the program's name, and texts in place of files by their names.
struct Request {
  std::vector<std::string> arguments;
  std::map<std::string, std::string, std::less<>> documents;
  bool screen = false;  ///< the answer for people is wanted besides
};

struct Answer {
  int code = 0;
  std::string text;   ///< what the command printed
  std::string notes;  ///< what it said beside that
  std::string screen;  ///< what it prints for people, where that was wanted and is another text
};

/// The command `export` JOB --to FRAMEWORK, of programs alone: a job with its plan, chosen where it
/// says none, as the framework reads it.
void add_export(CLI::App& app, cli::Context& context);

/// Commands called by another program. Keeps the data files it has read; safe for several threads.
///
///   Host host(folder, {{"predict", cli::add_predict}});
///   host.run(host.request(R"({"command": "predict", "inputs": [{"workload": ...}]})"), {});
class Host {
 public:
  Host(const std::filesystem::path& data, std::vector<Command> commands);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  /// Reads {"command", "inputs", "options"} or {"arguments"}, "documents" and "screen", or a list alone:
  /// docs/reference/c-interface.md. Errors: InputError.
  [[nodiscard]] Request request(const std::string& json) const;

  /// `progress` is told the share done and what is in hand, often; what it throws ends the command
  /// and comes through.
  [[nodiscard]] Answer run(Request request,
                           const std::function<void(double, const std::string&)>& progress) const;

  /// The command line: prints to standard output. Returns the exit code.
  [[nodiscard]] int run_on_terminal(std::vector<std::string> arguments) const {
    return run_command("", std::move(arguments));
  }

  /// The commands, their inputs and options as the parser has them.
  [[nodiscard]] std::string described() const;

 private:
  [[nodiscard]] int run_command(const std::string& name, std::vector<std::string> arguments) const;
  [[nodiscard]] Request read(const nlohmann::ordered_json& json) const;
  /// The command of that name; all for an empty one.
  void add_command(const std::string& name, CLI::App& app, cli::Context& context) const;

  config::Catalogue catalogue_;
  config::Library library_;
  std::vector<Command> commands_;
};

}  // namespace stepcast::host
