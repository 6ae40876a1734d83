#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/config/internal/loaders.h"
#include "core/config/published_names.h"

namespace stepcast::config {

/// The name that asks for the simulation alone: no framework's settings, no efficiency.
constexpr std::string_view kNoFramework = "none";
/// The framework a job names itself, in its file or by the last of its overrides.
struct NamedFramework {
  std::string name;
  std::string where;       ///< of the name, for errors
  bool over_file = false;  ///< an override: it goes before what the file says
};
/// Keys of a job that name it.
inline const std::array<std::string, 2> kFrameworkKeys{"stack", "framework"};
/// The one that a setting `key=value` is of.
std::optional<std::string> framework_key(const std::string& setting);
std::optional<NamedFramework> framework_named_by(const Document& job,
                                                 const std::vector<std::string>& overrides);
/// Applies what a framework does with a plan of the job's shape; what the job says itself stays.
JobDocuments with_framework(JobDocuments documents, const FrameworkRecipe& recipe, bool over_file,
                            const Library& library);

/// The job of documents whose overrides are applied, under the framework it names, if any.
/// For a transformer in training the system carries the efficiencies measured for the device and
/// that framework.
Job read_job_on_framework(JobDocuments documents, const std::optional<NamedFramework>& named,
                          const Library& library, bool plan_open);

/// The documents of a job whose plan is open: searched keys that say "auto" are left out.
JobDocuments open_plan(JobDocuments documents);
/// The request of a job as it was read from such documents: what they say of its plan is fixed.
PlanRequest plan_request_of(const JobDocuments& documents, Job job);

}  // namespace stepcast::config
