#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config.h"

namespace stepcast::config {

/// What a name in a table of published runs stands for: overrides of a job, as `--set` takes them.
struct NamedSettings {
  std::string name;                   ///< ours
  std::vector<std::string> aliases;   ///< as sources spell it
  std::vector<std::string> settings;  ///< "formats.compute=\"fp16\"", in order
};

/// A publication and what is documented of the software it ran. The first that fits a row counts.
struct PublishedStack {
  std::string source;     ///< short name of the publication, for groups
  std::string family;     ///< stacks of one family share the scalar that other sources calibrate
  std::string begins;     ///< what a row's `source` begins with
  std::string framework;  ///< what a row's `framework` is; empty: any
  std::vector<std::string> models;  ///< which of a row's `model`, where recipes differ; empty: any
  std::vector<std::string> settings;
  std::vector<std::string>
      pipelined;  ///< further ones of rows with a pipeline, after the row's own
  /// Host seconds to issue one op; 0: what the device says. Where it is given, the scalar that a
  /// regime calibrates multiplies it, not the step.
  double host_issue = 0;
  std::string evidence;  ///< where the settings are documented

  /// How a job names it: the source, and the framework where a source has several.
  [[nodiscard]] std::string name() const {
    return framework.empty() ? source : source + ": " + framework;
  }
};

/// How published tables name GPUs, number formats and software stacks: the one alias file,
/// `root`/workloads/published/names.json.
struct PublishedNames {
  std::vector<NamedSettings> gpus, precisions;
  std::vector<PublishedStack> stacks;

  /// Null where no alias is `name`.
  [[nodiscard]] const NamedSettings* gpu(std::string_view name) const;
  [[nodiscard]] const NamedSettings* precision(std::string_view name) const;
  [[nodiscard]] const PublishedStack* stack(std::string_view source, std::string_view framework,
                                            std::string_view model) const;
  /// By its name(), whatever the case; of recipes for some models and for all, that for all.
  /// Errors: InputError at `where` listing the names.
  [[nodiscard]] const PublishedStack& stack_named(std::string_view name,
                                                  const std::string& where) const;
};

/// Errors: InputError naming file and JSON path.
PublishedNames read_published_names(const Source& source);
PublishedNames load_published_names(const Library& library);

}  // namespace stepcast::config
