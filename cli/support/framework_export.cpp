#include "cli/support/framework_export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/error.h"
#include "interop/frameworks/configs.h"
#include "interop/megatron/arguments.h"

namespace stepcast::cli {
namespace {

struct Framework {
  const char* name;
  TrainingFramework framework;
  const char*
      defaults;  ///< the stack of models/stacks whose overlaps, formats and efficiency it has
};
constexpr std::array<Framework, 4> kFrameworks{
    {{"megatron", TrainingFramework::kMegatron, "megatron-core"},
     {"nemo", TrainingFramework::kNemo, "nemo"},
     {"torchtitan", TrainingFramework::kTorchtitan, "torchtitan"},
     {"deepspeed", TrainingFramework::kDeepspeed, "deepspeed"}}};

std::string short_name(TrainingFramework framework) {
  return std::find_if(kFrameworks.begin(), kFrameworks.end(),
                      [&](const auto& f) { return f.framework == framework; })
      ->name;
}

const Framework& known_framework(std::string_view name) {
  const auto* const found = std::find_if(kFrameworks.begin(), kFrameworks.end(),
                                         [&](const auto& f) { return f.name == name; });
  STEPCAST_CHECK(found != kFrameworks.end(), "no framework is called '{}'", name);
  return *found;
}

}  // namespace

std::vector<std::string> framework_names() {
  std::vector<std::string> names;
  for (const Framework& framework : kFrameworks) {
    names.emplace_back(framework.name);
  }
  return names;
}

TrainingFramework framework_named(const std::string& name) {
  return known_framework(name).framework;
}

std::optional<TrainingFramework> framework_running(const std::string& runs_on) {
  const std::string product = runs_on.substr(0, runs_on.find('@'));
  const auto* const own = std::find_if(kFrameworks.begin(), kFrameworks.end(),
                                       [&](const auto& f) { return product == f.defaults; });
  return own == kFrameworks.end() ? std::nullopt : std::optional(own->framework);
}

std::string defaults_of(const std::string& framework, const std::string& exported) {
  const std::string name = framework.empty()
                               ? exported.substr(0, std::min(exported.find('='), exported.size()))
                               : framework;
  const auto names = framework_names();
  const bool known = std::find(names.begin(), names.end(), name) != names.end();
  return known ? known_framework(name).defaults : std::string();
}

FrameworkExport framework_export(const std::string& text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string name = text.substr(0, equals);
  const std::vector<std::string> names = framework_names();
  const bool named = std::find(names.begin(), names.end(), name) != names.end();
  if (!named || equals + 1 == text.size()) {
    throw InputError("--export", fmt::format("found '{}', expected NAME or NAME=FILE for a "
                                             "transformer, with {} as NAME",
                                             text, fmt::join(names, ", ")));
  }
  return {framework_named(name), equals < text.size() ? text.substr(equals + 1) : std::string()};
}

std::string script_export(const std::string& file, const std::string& asked,
                          const std::string& runs_on) {
  std::string name = asked;
  if (name.empty() && file.ends_with(".toml")) {
    name = "torchtitan";
  } else if (name.empty() && (file.ends_with(".yaml") || file.ends_with(".yml"))) {
    name = "nemo";
  } else if (name.empty()) {
    const auto own = framework_running(runs_on);
    if (!own) {
      throw InputError(
          "-o " + file,
          fmt::format("plans are exported to {}, and this one runs on {}; name one of "
                      "them with --for",
                      fmt::join(framework_names(), ", "),
                      runs_on.empty() ? "none" : runs_on.substr(0, runs_on.find('@'))));
    }
    name = short_name(*own);
  }
  return name + "=" + file;
}

void expect_script(TrainingFramework framework, const Job& job) {
  if (framework == TrainingFramework::kMegatron) {
    interop::expect_written(job.workload);
  }
}

std::string scripts_missing(const std::vector<const Job*>& plans, const std::string& runs_on) {
  const auto framework = framework_running(runs_on);
  std::vector<std::size_t> numbers;
  std::string why;
  for (std::size_t i = 0; framework && i < plans.size(); ++i) {
    if (const auto broken = broken_rule(*plans[i], *framework)) {
      numbers.push_back(i + 1);
      why = why.empty() ? broken->what.substr(0, broken->what.find(';')) : why;
    }
  }
  return numbers.empty()
             ? std::string()
             : fmt::format("No script in {}: plan {} ({}); --for {} leaves such plans out.",
                           name_of(*framework), fmt::join(numbers, ", "), why,
                           short_name(*framework));
}

std::string text_for(TrainingFramework framework, const Job& job) {
  switch (framework) {
    case TrainingFramework::kMegatron:
      return interop::text_of(interop::megatron_arguments(job));
    case TrainingFramework::kNemo:
      return interop::nemo_config(job);
    case TrainingFramework::kTorchtitan:
      return interop::torchtitan_config(job);
    case TrainingFramework::kDeepspeed:
      break;
  }
  return interop::deepspeed_config(job);
}

}  // namespace stepcast::cli
