#include "core/config/default_framework.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/config/aliases.h"
#include "core/config/internal/frameworks.h"
#include "core/config/internal/job_tables.h"
#include "core/error.h"
#include "core/job/efficiency.h"
#include "core/lower.h"

namespace stepcast::config {
namespace {

/// True if the job's system carries its efficiency: it was resolved on a framework, which has said
/// what it says. Another system carries none.
bool carries_efficiency(const JobDocuments& documents) {
  const Json& job = documents.job.root;
  const Json system = job.is_object() ? job.value("system", Json()) : Json();
  const Json fitted = system.is_object() ? system.value("fitted", Json()) : Json();
  const std::string key = efficiency_key(EfficiencyFamily::kDense);  // a framework brings all kinds
  return fitted.is_object() && fitted.contains(key);
}

/// The efficiency that a step at the hardware's own rate would have; a scalar of the user's own
/// takes its place, on the same stack.
bool has_efficiency(Job job) {
  if (job.calibration.kind == Calibration::Kind::kScale) {
    job.calibration = {};
  }
  return efficiency_of(job).has_value();
}

/// GPUs that the library describes; a CPU has no peak in 16 bits.
bool known_gpu(const Device& device, const Library& library) {
  const bool narrow = device.peak.contains(Format::kBf16) || device.peak.contains(Format::kFp16);
  return narrow && std::filesystem::exists(built_in_folder(FileKind::kDevice, library) /
                                           (device.name + ".json"));
}

/// True for what the efficiencies are of: training of a transformer on a known GPU.
bool may_have_efficiency(const Job& job, const Library& library) {
  return plan_family(job) && job.phase == JobPhase::kTrain && known_gpu(job.system.device, library);
}

/// The framework of a job that names none: that of plans that are not split. Keys of the plan do
/// not change it.
const Framework* usual_framework(const PublishedNames& names) {
  return names.default_framework(name_of(PlanFamily::kTensorPipeline));
}

/// Puts the job of the documents on `framework`, or on the usual one, where it trains a transformer
/// on a known GPU whose efficiency there is known.
void take_default_framework(JobOnFramework& on, std::string_view framework, JobDocuments documents,
                            const Library& library, bool plan_open) {
  if (!may_have_efficiency(on.job, library)) {
    return;
  }
  const PublishedNames names = load_published_names(library);
  const Framework* usual =
      framework.empty() ? usual_framework(names) : names.find_framework(framework);
  if (usual == nullptr) {
    return;
  }
  try {
    const NamedFramework named{usual->name, "framework", false};
    Job job = read_job_on_framework(std::move(documents), named, library, plan_open);
    if (has_efficiency(job)) {
      on = {std::move(job), names.shortest_name(*usual), {}};
    }
  } catch (const InputError& error) {  // legal, but not on this framework
    on.rejected =
        fmt::format("{} cannot run it as it is ({})", names.shortest_name(*usual), error.what());
  }
}

/// The name of a framework with its release, as the library spells it; "" of none.
std::string full_name(const std::string& name, const Library& library) {
  if (lower(name) == kNoFramework) {
    return "";
  }
  const PublishedNames names = load_published_names(library);
  const Framework* framework = names.find_framework(name);
  return framework == nullptr ? name : names.shortest_name(*framework);
}

/// The job of documents that name no framework. Where one may be taken (`open`), a job is legal if
/// it is on the usual one, which may say sequence parallelism for it.
JobOnFramework read_without_framework(const JobDocuments& documents, const Library& library,
                                      bool open) {
  try {
    return {read_job_on_framework(documents, std::nullopt, library, false), {}, {}};
  } catch (const InputError&) {
    const PublishedNames names = load_published_names(library);
    const Framework* usual = usual_framework(names);
    if (!open || usual == nullptr) {
      throw;
    }
    try {
      const NamedFramework framework{usual->name, "framework", false};
      JobOnFramework on{read_job_on_framework(documents, framework, library, false),
                        names.shortest_name(*usual),
                        {}};
      if (may_have_efficiency(on.job, library) && has_efficiency(on.job)) {
        return on;
      }
    } catch (const InputError&) {  // illegal there too
    }
    throw;
  }
}

/// Models as they are compared: efficiencies multiply a step as a whole.
FittedModels without_efficiency(FittedModels models) {
  for (const EfficiencyFamily family : kEfficiencyFamilies) {
    models.erase(std::string(efficiency_key(family)));
  }
  return models;
}

/// Equal models, compared as they are: as text they are hundreds of kilobytes.
bool same(const FittedModels& a, const FittedModels& b) {
  const auto points = [](const FittedModel::Point& p, const FittedModel::Point& q) {
    return p.features == q.features && p.log_ratio == q.log_ratio;
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const auto& x, const auto& y) {
    const FittedModel &m = x.second, &n = y.second;
    return x.first == y.first && m.form == n.form && m.constants == n.constants &&
           m.range == n.range && m.samples == n.samples && m.log_sigma == n.log_sigma &&
           m.source == n.source &&
           std::equal(m.points.begin(), m.points.end(), n.points.begin(), n.points.end(), points);
  });
}

}  // namespace

std::vector<std::string> plan_keys() {
  std::vector<std::string> paths;
  for (const auto& [object, table] :
       {std::pair{"parallel.", parallel_table()}, {"batch.", batch_table()}}) {
    for (const KeyFacts& key : table) {
      if (key.searched && key.name != "order" && key.name != "context_algorithm") {
        paths.push_back(fmt::format("{}{}", object, key.name));
      }
    }
  }
  return paths;
}

GivenKeys given_keys(const Source& source, const std::vector<std::string>& given_overrides,
                     const Library& library) {
  const std::vector<std::string> overrides = spelled_out(given_overrides);
  const JobDocuments documents =
      open_plan(apply_overrides(job_document(source, overrides, library), overrides, library));
  const Json& root = documents.job.root;
  const auto has = [&root](const std::string& path) {
    const std::size_t dot = path.find('.');
    const auto in = root.is_object() ? root.find(path.substr(0, dot)) : root.end();
    return in != root.end() && in->is_object() && in->contains(path.substr(dot + 1));
  };
  GivenKeys given;
  given.devices = root.is_object() && root.contains("devices");
  given.global = has("batch.global");
  const std::vector<std::string> plan = plan_keys();
  given.plan = std::any_of(plan.begin(), plan.end(), has);
  return given;
}

JobOnFramework load_job_on_default_framework(const Source& source,
                                             const std::vector<std::string>& given,
                                             const Library& library) {
  const std::vector<std::string> overrides = spelled_out(given);
  Document document = job_document(source, overrides, library);
  const auto named = framework_named_by(document, overrides);
  JobDocuments documents = apply_overrides(std::move(document), overrides, library);
  const bool open = !named && !carries_efficiency(documents);
  JobOnFramework on =
      named ? JobOnFramework{read_job_on_framework(documents, named, library, false), {}, {}}
            : read_without_framework(documents, library, open);
  if (open) {
    take_default_framework(on, {}, std::move(documents), library, false);
  }
  on.framework = named ? full_name(named->name, library) : on.default_framework;
  return on;
}

PlanRequestOnFramework load_plan_request_on_framework(const Source& source,
                                                      const std::vector<std::string>& given,
                                                      const Library& library,
                                                      std::string_view framework) {
  const std::vector<std::string> overrides = spelled_out(given);
  Document document = job_document(source, overrides, library);
  const auto named = framework_named_by(document, overrides);
  const JobDocuments documents =
      open_plan(apply_overrides(std::move(document), overrides, library));
  const bool open = !named && (!framework.empty() || !carries_efficiency(documents));
  JobOnFramework on{read_job_on_framework(documents, named, library, true), {}, {}};
  if (open) {
    take_default_framework(on, framework, documents, library, true);
  }
  return {plan_request_of(documents, std::move(on.job)), on.default_framework, on.rejected,
          named ? framework_called(named->name, library) : on.default_framework};
}

std::string job_on_framework_to_json(const Job& job, const std::string& framework, int indent) {
  OrderedJson j = job_json(job, true);
  j["framework"] = framework.empty() ? std::string(kNoFramework) : framework;
  return pretty(j, indent);
}

std::string short_job_to_json(const Job& job, const std::string& framework,
                              const Library& library) {
  Job bare = job;
  const FittedModels own = without_efficiency(std::exchange(bare.system.fitted, {}));
  const FittedModels of_device = std::exchange(bare.system.device.fitted, {});
  OrderedJson j = job_json(bare, !framework.empty());
  j["framework"] = framework.empty() ? std::string(kNoFramework) : framework;
  j["system"] = job.system.name;
  try {
    Job loaded = load_job(text_source(j.dump(), "job"), {}, library);
    if (same(own, without_efficiency(std::exchange(loaded.system.fitted, {}))) &&
        same(of_device, std::exchange(loaded.system.device.fitted, {})) &&
        differences(bare, loaded).empty()) {
      return pretty(j, -1);
    }
  } catch (const InputError&) {  // no built-in system of that name
  }
  return job_to_json(job, -1);
}

std::string quoted_setting(const std::string& setting) {
  const bool plain = !setting.empty() && setting.find_first_of("{}[]()\"' $&|;<>*?#~`\\!") == std::string::npos;
  if (plain) {
    return setting;
  }
  std::string quoted;
  for (const char c : setting) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return fmt::format("'{}'", quoted);
}

PlanAsSet plan_command_line(const Source& source, const std::vector<std::string>& overrides,
                            const Library& library, const PlanRequestOnFramework& request,
                            const Job& plan) {
  PlanAsSet as;
  const std::string& taken = request.default_framework;
  const PublishedNames names = load_published_names(library);
  const Framework* usual = usual_framework(names);
  if (!taken.empty() && (usual == nullptr || taken != names.shortest_name(*usual))) {
    as.settings.push_back("framework=" + taken);
  }
  const auto add_what_differs = [&](const Job& from) {
    const std::size_t before = as.settings.size();
    for (const Difference& d : differences(from, plan)) {
      const bool of_framework =
          d.key.starts_with("system") || d.key.starts_with("parallel.overlap");
      const bool text = d.after.front() == '"';
      if (!of_framework) {
        as.settings.push_back(d.key + "=" +
                              (text ? d.after.substr(1, d.after.size() - 2) : d.after));
      }
    }
    return as.settings.size() > before;
  };
  const auto load = [&] {
    std::vector<std::string> all = overrides;
    all.insert(all.end(), as.settings.begin(), as.settings.end());
    as.job = load_job_on_default_framework(source, all, library).job;
  };
  Job before = request.request.job;
  if (!request.request.fixed.micro) {  // its default depends on the plan's shape, so it is said
    before.batch.micro = 0;
  }
  add_what_differs(before);
  load();
  if (add_what_differs(
          as.job)) {  // defaults of the framework or the job that the plan does without
    load();
  }
  return as;
}

}  // namespace stepcast::config
