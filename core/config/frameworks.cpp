#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>

#include "core/config/aliases.h"
#include "core/config/internal/frameworks.h"
#include "core/config/paces.h"
#include "core/lower.h"

namespace stepcast::config {
namespace {

/// The device that the runs of a framework on a generation ran on; the generation where there are
/// several.
std::string devices_of(const EfficiencyTable& table, const EfficiencyKeys& keys) {
  std::string devices;
  for (const EfficiencyGroup& g : table.groups) {
    if (g.of.generation == keys.generation && g.of.framework == keys.framework &&
        !g.of.device.empty() && g.of.device != devices) {
      devices = devices.empty() ? g.of.device : keys.generation + " GPUs";
    }
  }
  return devices.empty() ? keys.generation + " GPUs" : devices;
}

/// Whose runs give the efficiency, and whose are missing there.
std::string measured_text(const EfficiencyGroup& group, const EfficiencyKeys& keys,
                          const EfficiencyTable& table) {
  if (!group.of.device.empty()) {
    return fmt::format("the ratio of {} {} runs on {}", group.rows, keys.framework, keys.device);
  }
  if (!group.of.framework.empty()) {
    return fmt::format("the ratio of {} {} runs on {}; none on {}", group.rows, keys.framework,
                       devices_of(table, keys), keys.device);
  }
  if (!group.of.generation.empty()) {
    return fmt::format("the ratio of {} runs of other frameworks on {} GPUs; none of {}",
                       group.rows, keys.generation, keys.framework);
  }
  return fmt::format("the ratio of {} runs on other GPUs; none on {}",
                     group.rows, keys.generation.empty() ? keys.device : keys.generation + " GPUs");
}

/// The efficiencies of all kinds of training as the framework runs them.
void attach_efficiencies(Job& job, const std::string& framework, const Library& library) {
  const bool transformer = is_transformer(job);
  const auto measured = transformer ? std::optional(load_efficiencies(library))
                                    : load_recommender_efficiencies(library, framework);
  if (!measured) {
    return;
  }
  const EfficiencyTable& table = *measured;
  constexpr std::array kRecommenders{EfficiencyFamily::kRecommender};
  const std::string& device = job.system.device.name;
  EfficiencyKeys keys{load_origins(library).generation_of(device), device, framework, {}};
  for (const EfficiencyFamily family :
       transformer ? std::span<const EfficiencyFamily>(kEfficiencyFamilies) : kRecommenders) {
    keys.family = name_of(family);
    const EfficiencyGroup* group = nearest_efficiency(table, keys);
    if (group == nullptr) {
      continue;
    }
    const double width = std::exp(efficiency_width(table, *group, keys));
    const Efficiency efficiency{.factor = group->factor,
                                .low = group->factor / width,
                                .high = group->factor * width,
                                .rows = group->rows,
                                .sources = group->sources,
                                .own = !group->of.device.empty(),
                                .generation = !group->of.generation.empty(),
                                .scatter = table.scatter,
                                .measured = measured_text(*group, keys, table)};
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
  if (named && lower(named->name) != kNoFramework) {
    const PublishedNames names = load_published_names(library);
    const FrameworkRecipe recipe = names.named(framework_called(named->name, library),
                                               named->where);  // always with a framework
    documents = with_framework(std::move(documents), recipe, named->over_file, library);
    Job job = read_job(documents, library, plan_open);
    if (efficiency_family(job) && job.phase == JobPhase::kTrain) {
      attach_efficiencies(job, recipe.framework->product, library);
    }
    return job;
  }
  return read_job(documents, library, plan_open);
}

}  // namespace stepcast::config
