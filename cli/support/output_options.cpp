#include "cli/support/output_options.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/report/chapters.h"
#include "cli/report/style.h"
#include "cli/support/output_files.h"
#include "core/error.h"

namespace stepcast::cli {
namespace {

constexpr const char* kGroup = "Output";

/// Says a value of an option in place of what was said before.
void say(CLI::Option& option, const std::string& value) {
  option.clear();
  option.add_result(value);
  option.run_callback();
}

/// "json", "csv", "html" or "text" for a file of that name; "" for another kind of file.
std::string format_of(const std::string& file) {
  const std::string extension = CLI::detail::to_lower(std::filesystem::path(file).extension());
  for (const char* known : {"json", "csv", "html"}) {
    if (extension == std::string(".") + known) {
      return known;
    }
  }
  return extension.empty() || extension == ".txt" || file.starts_with("/dev/") ? "text" : "";
}

}  // namespace

OutputOptions::OutputOptions() : before_(std::exchange(manners(), {})) {}
OutputOptions::~OutputOptions() { manners() = before_; }

void OutputOptions::keep(const std::string& file, bool page) {
  if (kept_ != nullptr) {
    throw InputError(file, fmt::format("the answer goes to {}; name one file", file_));
  }
  file_ = file;
  page_ = page;
  kept_ = std::make_unique<KeptAnswer>();
}

void OutputOptions::add_to_commands(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands(nullptr)) {
    add_to(*command);
  }
}

void OutputOptions::add_to(CLI::App& command) {
  CLI::Option* format = command.get_option_no_throw("--format");
  if (format == nullptr) {
    return;
  }
  format->group(kGroup);
  const auto is_free = [&command](const char* name) {
    return command.get_option_no_throw(name) == nullptr;
  };
  for (const char* name : {"json", "csv"}) {
    command
        .add_flag_callback(
            std::string("--") + name, [format, name] { say(*format, name); },
            fmt::format("Same as --format {}", name))
        ->group(kGroup);
  }
  if (is_free("--html")) {
    command
        .add_option_function<std::string>(
            "--html",
            [this, format](const std::string& file) {
              keep(file, true);
              say(*format, "json");
            },
            "Write a page of pictures to this file")
        ->check(output_file())
        ->type_name("FILE")
        ->group(kGroup);
  }
  CLI::Option* script = command.get_option_no_throw(kScriptOption);
  CLI::Option* out = command.get_option_no_throw("--out");
  const bool own = out != nullptr && script == nullptr && out->get_required();
  if (is_free("-o")) {
    command
        .add_option_function<std::string>(
            "-o",
            [this, format, script, own = own ? out : nullptr](const std::string& file) {
              const std::string kind = format_of(file);
              if (file == "-") {  // standard output, as without the option
                return;
              }
              if (own != nullptr) {
                say(*own, file);
              } else if (kind.empty() && script != nullptr) {
                say(*script, file);
              } else {
                keep(file, kind == "html");
                say(*format, kind == "html" ? "json" : kind.empty() ? "text" : kind);
              }
            },
            own                 ? "Same as --out"
            : script != nullptr ? "Write the answer to this file: .json, .csv, .html, .txt; or the "
                                  "best plan as its framework is started: train.sh"
                                : "Write the answer to this file: .json, .csv, .html, else text")
        ->check(output_file())
        ->type_name("FILE")
        ->group(kGroup);
  }
  if (is_free("-q")) {
    command
        .add_flag_callback(
            "-q,--quiet", [] { manners().quiet = true; },
            "No notes and no progress besides the answer")
        ->group(kGroup);
  }
  if (CLI::Option* details = command.get_option_no_throw("--details")) {
    details->group(kGroup);
  }
  command
      .add_option_function<std::string>(
          "--color",
          [](const std::string& when) {
            manners().colour = when == "always"  ? ColourWhen::kAlways
                               : when == "never" ? ColourWhen::kNever
                                                 : ColourWhen::kAuto;
          },
          "Colour of the text")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->group(kGroup);
}

void OutputOptions::write(const std::string& title) const {
  if (kept_ == nullptr) {
    return;
  }
  std::string text = kept_->text();
  if (page_) {
    report::Document document{title, nlohmann::ordered_json::parse(text, nullptr, false)};
    if (document.json.is_array()) {  // of `list`
      auto entries = std::exchange(document.json, nlohmann::ordered_json::object());
      document.json["entries"] = std::move(entries);
    }
    try {
      text = report::page(title, report::chapters_of({&document, 1}));
    } catch (const InputError&) {
      throw InputError("--html " + file_,
                       "no page is made of what this command answers; write it as .json or .csv");
    }
  }
  write_output(file_, text);
}

}  // namespace stepcast::cli
