#include "bindings/c/host.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/support/command_line.h"
#include "cli/support/console.h"
#include "cli/support/framework_export.h"
#include "core/error.h"
#include "interop/import.h"
#include "studies/predict/chosen_plan.h"

namespace stepcast::host {
namespace {

using Json = nlohmann::ordered_json;

/// A value as it is typed; a list with commas, as sweeps take it.
std::string typed(const Json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (!value.is_array()) {
    return value.dump();
  }
  std::string all;
  for (const Json& entry : value) {
    all += (all.empty() ? "" : ",") + typed(entry);
  }
  return all;
}

void add_option(const CLI::App& command, const std::string& key, const Json& value,
                std::vector<std::string>& to) {
  const std::string name = (key.size() > 1 ? "--" : "-") + key;
  const CLI::Option* option = command.get_option_no_throw(name);
  const bool flag = option != nullptr && option->get_items_expected_max() == 0;
  if (value.is_null() || (flag && value == false)) {
    return;
  }
  const auto put = [&](const std::string& text) { to.insert(to.end(), {name, text}); };
  if (flag && value == true) {
    to.push_back(name);
  } else if (value.is_object()) {
    for (const auto& [entry, of] : value.items()) {
      put(entry + '=' + typed(of));
    }
  } else if (value.is_array() && option != nullptr && option->get_expected_max() > 1) {
    for (const Json& entry : value) {
      put(typed(entry));
    }
  } else {
    put(typed(value));
  }
}

Json described_option(const CLI::Option& option) {
  Json j = {{"name", option.get_single_name()}, {"help", option.get_description()}};
  j["type"] = option.get_items_expected_max() == 0 ? "FLAG" : option.get_type_name();
  j["input"] = option.get_lnames().empty() && option.get_snames().empty();
  j["repeats"] = option.get_expected_max() > 1;
  j["required"] = option.get_required();
  j["group"] = option.get_group();
  return j;
}

/// Groups of options that exclude each other are commands without a name.
void describe_options(const CLI::App& command, Json& to) {
  for (const CLI::Option* option : command.get_options()) {
    to.push_back(described_option(*option));
  }
  for (const CLI::App* group : command.get_subcommands([](const CLI::App*) { return true; })) {
    describe_options(*group, to);
  }
}

}  // namespace

void add_export(CLI::App& app, cli::Context& context) {
  struct Options {
    cli::JobOptions job;
    std::string to;
  };
  CLI::App* command = app.add_subcommand("export", "Write a plan as a framework reads it");
  auto options = std::make_shared<Options>();
  add_job_options(*command, options->job);
  command->add_option("--to", options->to, "The framework")->required();
  command->callback([options, &context] {
    cli::answer() << cli::text_for(
        cli::framework_export(options->to).framework,
        studies::choose_plan(job_source(options->job), options->job.overrides, {context.library})
            .job);
  });
}

Host::Host(const std::filesystem::path& data, std::vector<Command> commands)
    : library_(interop::library(data)), commands_(std::move(commands)) {
  library_.catalogue = &catalogue_;
}

void Host::add_command(const std::string& name, CLI::App& app, cli::Context& context) const {
  for (const Command& command : commands_) {
    // One command may have two names.
    const auto known = app.get_subcommands(
        [&](const CLI::App* other) { return other->check_name(command.name); });
    if (command.name == name || (name.empty() && known.empty())) {
      command.add(app, context);
    }
  }
}

Request Host::request(const std::string& json) const {
  try {
    return read(Json::parse(json));
  } catch (const Json::exception& e) {
    throw InputError("request", e.what());
  }
}

Request Host::read(const nlohmann::ordered_json& json) const {
  Request request;
  if (json.is_array()) {
    request.arguments = json.get<std::vector<std::string>>();
    return request;
  }
  const Json documents = json.value("documents", Json::object());
  for (const auto& [name, document] : documents.items()) {
    request.documents.emplace(name, document.is_string() ? typed(document) : document.dump());
  }
  request.screen = json.value("screen", false);
  request.arguments = json.value("arguments", std::vector<std::string>{});
  const std::string name = json.value("command", "");
  if (name.empty()) {
    return request;
  }
  request.arguments = {name};
  const Json inputs = json.value("inputs", Json::array());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::string input = typed(inputs[i]);
    if (inputs[i].is_object()) {
      std::string document = "job";
      if (inputs.size() > 1) {
        document += ' ';
        document += static_cast<char>('A' + i);
      }
      request.documents.emplace(document, std::exchange(input, document));
    }
    request.arguments.push_back(input);
  }
  CLI::App app;
  cli::Context context;
  add_command(name, app, context);
  const auto commands = app.get_subcommands(nullptr);
  Json options = json.value("options", Json::object());
  if (!commands.empty() && commands.front()->get_option_no_throw("--format") != nullptr &&
      !options.contains("format")) {
    options["format"] = "json";
  }
  for (const auto& [key, value] : options.items()) {
    add_option(commands.empty() ? app : *commands.front(), key, value, request.arguments);
  }
  return request;
}

Answer Host::run(Request request,
                 const std::function<void(double, const std::string&)>& progress) const {
  if (request.arguments == std::vector<std::string>{"describe"}) {
    return {0, described(), {}, {}};
  }
  std::ostringstream answer, notes, screen;
  const cli::Console console{&answer, &notes, request.screen ? &screen : nullptr, progress,
                             std::move(request.documents)};
  const cli::ConsoleScope scope(console);
  const auto named = std::find_if(commands_.begin(), commands_.end(), [&](const Command& c) {
    return !request.arguments.empty() && request.arguments.front() == c.name;
  });
  const std::string command = named == commands_.end() ? "" : named->name;  // else all
  const int code = run_command(command, std::move(request.arguments));
  return {code, answer.str(), notes.str(), screen.str()};
}

int Host::run_command(const std::string& name, std::vector<std::string> arguments) const {
  CLI::App app{"Forecast a training step before you run it", "stepcast"};
  app.require_subcommand(1);
  cli::Context context{library_, {}, std::move(arguments)};
  add_command(name, app, context);
  return cli::run_command_line(app, context);
}

std::string Host::described() const {
  Json all = Json::object();
  for (const Command& command : commands_) {
    CLI::App app;
    cli::Context context;
    command.add(app, context);
    const CLI::App& added = *app.get_subcommands(nullptr).front();
    Json& j = all[command.name];
    j["help"] = added.get_description();
    j["options"] = Json::array();
    describe_options(added, j["options"]);
  }
  return all.dump(2);
}

}  // namespace stepcast::host
