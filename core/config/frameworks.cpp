#include <algorithm>

#include "core/config/internal/frameworks.h"
#include "core/config/paces.h"

namespace stepcast::config {
namespace {

std::string measured_text(const EfficiencyGroup& group, const std::string& device,
                          const std::string& framework) {
  if (!group.device.empty() && !group.framework.empty()) {
    return fmt::format("{} on {}", framework, group.device);
  }
  const std::string whose = !group.framework.empty() ? framework + " on other GPUs"
                            : !group.device.empty()
                                ? group.family + " plans of other frameworks on " + group.device
                            : !group.family.empty() ? group.family + " plans of other frameworks"
                                                    : "other plans and frameworks";
  return fmt::format("{} ({} was not measured)", whose,
                     group.framework.empty() ? framework + " on " + device : device);
}

/// The efficiencies of all families of plans as the framework runs them.
void attach_paces(Job& job, const std::string& framework, const Library& library) {
  const EfficiencyTable table = load_efficiencies(library);
  for (const PlanFamily family : kPlanFamilies) {
    const EfficiencyGroup* group =
        nearest_efficiency(table, job.system.device.name, framework, name_of(family));
    if (group == nullptr) {
      continue;
    }
    const Efficiency efficiency{
        .factor = group->factor,
        .low = group->low,
        .high = group->high,
        .rows = group->rows,
        .sources = group->sources,
        .own = !group->device.empty() && !group->framework.empty(),
        .measured = measured_text(*group, job.system.device.name, framework)};
    // A resolved job says its own.
    job.system.fitted.try_emplace(efficiency_key(family), fitted_efficiency(efficiency));
  }
}

}  // namespace

std::optional<std::string> framework_key(const std::string& setting) {
  for (const std::string& key : kFrameworkKeys) {
    if (setting.starts_with(key + "=")) {
      return key;
    }
  }
  return std::nullopt;
}

std::optional<NamedFramework> framework_named_by(const Document& job,
                                                 const std::vector<std::string>& overrides) {
  std::optional<NamedFramework> named;
  for (const std::string& key : kFrameworkKeys) {
    if (const auto it = job.root.is_object() ? job.root.find(key) : job.root.end();
        it != job.root.end()) {
      named = {Value(job, *it, key).name(), job.label + ": " + key, false};
    }
  }
  for (const std::string& o : overrides) {
    if (const auto key = framework_key(o)) {
      named = {o.substr(key->size() + 1), "--set " + *key, true};
    }
  }
  return named;
}

Job read_job_on_framework(JobDocuments documents, const std::optional<NamedFramework>& named,
                          const Library& library, bool plan_open) {
  if (named) {
    const PublishedNames names = load_published_names(library);
    const FrameworkRecipe recipe =
        names.named(named->name, named->where);  // always with a framework
    documents = with_framework(std::move(documents), recipe, named->over_file, library);
    Job job = read_job(documents, library, plan_open);
    if (is_transformer(job) && job.phase == JobPhase::kTrain) {
      attach_paces(job, recipe.framework->product, library);
    }
    return job;
  }
  return read_job(documents, library, plan_open);
}

}  // namespace stepcast::config
