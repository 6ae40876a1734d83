#include <algorithm>

#include "core/config/internal/stacks.h"
#include "core/config/paces.h"

namespace stepcast::config {
namespace {

std::string measured_text(const PaceGroup& group, const std::string& device,
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

/// The paces of all families of plans as the framework runs them.
void attach_paces(Job& job, const std::string& framework, const Library& library) {
  const PaceTable table = load_paces(library);
  for (const PlanFamily family : kPlanFamilies) {
    const PaceGroup* group =
        nearest_pace(table, job.system.device.name, framework, name_of(family));
    if (group == nullptr) {
      continue;
    }
    const Pace pace{.factor = group->factor,
                    .low = group->low,
                    .high = group->high,
                    .rows = group->rows,
                    .sources = group->sources,
                    .own = !group->device.empty() && !group->framework.empty(),
                    .measured = measured_text(*group, job.system.device.name, framework)};
    // A resolved job says its own.
    job.system.fitted.try_emplace(pace_key(family), fitted_pace(pace));
  }
}

}  // namespace

std::optional<NamedStack> stack_named_by(const Document& job,
                                         const std::vector<std::string>& overrides) {
  constexpr std::string_view kStack = "stack=";
  std::optional<NamedStack> named;
  if (job.root.is_object()) {
    if (const auto it = job.root.find("stack"); it != job.root.end()) {
      named = {Value(job, *it, "stack").name(), job.label + ": stack", false};
    }
  }
  for (const std::string& o : overrides) {
    if (o.starts_with(kStack)) {
      named = {o.substr(kStack.size()), "--set stack", true};
    }
  }
  return named;
}

Job read_job_on_stack(JobDocuments documents, const std::optional<NamedStack>& named,
                      const Library& library, bool plan_open) {
  if (named) {
    const PublishedNames names = load_published_names(library);
    const StackRecipe recipe = names.named(named->name, named->where);  // always with a stack
    documents = with_stack(std::move(documents), recipe, named->over_file, library);
    Job job = read_job(documents, library, plan_open);
    if (is_transformer(job) && job.phase == JobPhase::kTrain) {
      attach_paces(job, recipe.stack->framework, library);
    }
    return job;
  }
  return read_job(documents, library, plan_open);
}

}  // namespace stepcast::config
