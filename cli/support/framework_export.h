#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/job/framework_rules.h"
#include "core/job/job.h"

namespace stepcast::cli {

/// Value of `--export` for a transformer's plan: "megatron" prints it, "nemo=FILE" writes it.
struct FrameworkExport {
  TrainingFramework framework = TrainingFramework::kMegatron;
  std::string file;  ///< empty: printed
};
/// Errors: InputError for anything but NAME or NAME=FILE with a name of `framework_names`.
FrameworkExport framework_export(const std::string& text);

/// Names that `--for` and `--export` take.
std::vector<std::string> framework_names();
TrainingFramework framework_named(const std::string& name);
/// The one that a job runs on ("nemo@26.02"); nullopt where no script is written for it.
std::optional<TrainingFramework> framework_running(const std::string& runs_on);
/// The framework whose defaults plans have `--for` a framework, or to be `--export`ed to it; "" of
/// none.
std::string defaults_of(const std::string& framework, const std::string& exported);

/// Value of `--export` that writes a plan to `file` as the framework starts it: that of `--for`
/// (`asked`), else of the file's kind (.toml, .yaml), else the one that the job runs on (`runs_on`,
/// "nemo@26.02"). Errors: InputError where that framework has no such file.
std::string script_export(const std::string& file, const std::string& asked,
                          const std::string& runs_on);

/// Errors: InputError for a model that the framework's file is not written for.
void expect_script(TrainingFramework framework, const Job& job);
/// Plans, numbered from 1, that the framework that they run on cannot start, and why the first;
/// "" of none.
std::string scripts_missing(const std::vector<const Job*>& plans, const std::string& runs_on);
/// The plan as a file of the framework.
std::string text_for(TrainingFramework framework, const Job& job);

}  // namespace stepcast::cli
