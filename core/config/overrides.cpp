#include <algorithm>
#include <charconv>
#include <map>
#include <span>
#include <string>

#include "core/config/aliases.h"
#include "core/config/internal/frameworks.h"
#include "core/config/internal/loaders.h"

namespace stepcast::config {
namespace {

/// "tables[3].rows" -> {"tables", 3, "rows"}; "tables.3.rows" says the same.
struct Step {
  std::string key;
  std::optional<std::size_t> index;  ///< "[3]"
};

[[noreturn]] void bad_key(const std::string& text) {
  throw InputError("--set " + text.substr(0, 80),
                   "expected key=value with a dotted path, such as parallel.tensor=8 or "
                   "workload.tables[3].rows=1000");
}

std::vector<Step> steps_of(const std::string& path, const std::string& text) {
  std::vector<Step> steps;
  std::size_t i = 0;
  while (i < path.size()) {
    if (path[i] == '[') {
      const std::size_t close = path.find(']', i);
      std::size_t index = 0;
      const char* end = path.data() + std::min(close, path.size());
      const auto [stop, error] = std::from_chars(path.data() + i + 1, end, index);
      if (close == std::string::npos || error != std::errc() || stop != end || steps.empty()) {
        bad_key(text);
      }
      steps.push_back({"", index});
      i = close + 1;
      if (i < path.size() && path[i] == '.') {
        ++i;
      }
      continue;
    }
    const std::size_t end = std::min(path.find_first_of(".[", i), path.size());
    if (end == i) {
      bad_key(text);
    }
    steps.push_back({path.substr(i, end - i), std::nullopt});
    i = end < path.size() && path[end] == '.' ? end + 1 : end;
  }
  if (steps.empty() || steps.size() > 32 || path.back() == '.') {
    bad_key(text);
  }
  return steps;
}

std::string path_text(const std::vector<Step>& steps, std::size_t count) {
  std::string path;
  for (std::size_t i = 0; i < count; ++i) {
    path = steps[i].index ? path + fmt::format("[{}]", *steps[i].index)
                          : join_path(path, steps[i].key);
  }
  return path;
}

/// JSON when the text is JSON, else the text itself.
Json value_of(const std::string& text) {
  try {
    return parse_json(text, "--set");
  } catch (const InputError&) {
    return text;
  }
}

std::size_t list_index(const Step& s, const Json& list, const std::string& where) {
  std::size_t index = 0;
  if (s.index) {
    index = *s.index;
  } else {
    const char* end = s.key.data() + s.key.size();
    const auto [stop, error] = std::from_chars(s.key.data(), end, index);
    if (error != std::errc() || stop != end) {
      throw InputError(where,
                       fmt::format("a list has no key \"{}\"; use an index such as [0]", s.key));
    }
  }
  if (index >= list.size()) {
    throw InputError(where, fmt::format("index {} is outside a list of {} values; use 0 to {}",
                                        index, list.size(), list.empty() ? 0 : list.size() - 1));
  }
  return index;
}

/// Sets the value at steps[from..] below `node`. A text on the way ("calibration": "auto") gives
/// way to an object.
void assign(Json& node, const std::vector<Step>& steps, std::size_t from, Json value) {
  Json* at = &node;
  for (std::size_t i = from; i < steps.size(); ++i) {
    const std::string where = "--set " + path_text(steps, i + 1);
    if (at->is_array()) {
      at = &(*at)[list_index(steps[i], *at, where)];
      continue;
    }
    if (steps[i].index) {
      throw InputError(
          where, fmt::format("found {}, expected a list before [{}]", shown(*at), *steps[i].index));
    }
    if (at->is_null() || at->is_string()) {
      *at = Json::object();
    }
    if (!at->is_object()) {
      throw InputError(where, fmt::format("{} is {}, expected an object to set \"{}\" in",
                                          path_text(steps, i), shown(*at), steps[i].key));
    }
    at = &(*at)[steps[i].key];
  }
  *at = std::move(value);
}

/// The document behind a name, opened so that an override can reach into it; nullopt when the key
/// holds an object or nothing.
std::optional<Document> opened(const Document& in, const Json& holder, const char* key,
                               const std::string& job_path, FileKind kind, const Library& library) {
  const auto it = holder.find(key);
  if (it == holder.end() || !it->is_string()) {
    return std::nullopt;
  }
  const Value v(in, *it, key);
  Document d = open_named(it->get<std::string>(), kind, v.folder(), v.where(), library);
  d.job_path = job_path;
  return d;
}

/// Whether something is said at steps[from..] below `root`.
bool says(const Json& root, const std::vector<Step>& steps, std::size_t from = 0) {
  const Json* at = &root;
  for (const Step& s : std::span(steps).subspan(from)) {
    const auto it = at->is_object() && !s.index ? at->find(s.key) : at->end();
    if (it == at->end()) {
      return false;
    }
    at = &*it;
  }
  return true;
}

class Overrider {
 public:
  Overrider(Document job, const Library& library)
      : documents_{std::move(job), {}, {}, {}}, library_(library) {}
  Overrider(JobDocuments documents, const Library& library)
      : documents_(std::move(documents)), library_(library) {}

  void apply(const std::string& text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      bad_key(text);
    }
    const std::string path = text.substr(0, equals);
    const std::vector<Step> steps = steps_of(path, text);
    set(steps, value_of(text.substr(equals + 1)));
    const std::string normal = path_text(steps, steps.size());
    for (Document* d : {&documents_.job, pointer(documents_.workload), pointer(documents_.system),
                        pointer(documents_.device)}) {
      if (d != nullptr) {
        d->overridden.push_back(normal);
      }
    }
  }

  /// Applies what a framework does with a plan of the job's shape. What `--set` says stays; so does
  /// what the job file says, unless `over_file`.
  void apply_framework(const FrameworkRecipe& recipe, bool over_file) {
    std::vector<std::string> settings =
        recipe.of(degree("tensor"), degree("pipeline"), degree("expert"));
    if (recipe.host_issue > 0) {
      settings.push_back(fmt::format("system.device.launch=\"{} us\"", recipe.host_issue * 1e6));
    }
    auto leaves = leaves_of(settings);
    std::erase_if(leaves, [&](const auto& leaf) {
      const auto& [path, value] = leaf;
      const bool free =
          !overridden(path) && (over_file || !says(documents_.job.root, steps_of(path, path)));
      return !free && !names_kernel(path, value);
    });
    for (const auto& [path, value] : leaves) {
      if (value == false || !lacks_need(path)) {
        set(steps_of(path, path), value);
      }
    }
  }

  JobDocuments take() { return std::move(documents_); }

 private:
  static Document* pointer(std::optional<Document>& d) { return d ? &*d : nullptr; }

  /// A degree of the job's plan; 1 where it is not said, or left to a search.
  [[nodiscard]] std::int64_t degree(const char* key) const {
    const Json& root = documents_.job.root;
    const auto parallel = root.find("parallel");
    if (parallel == root.end() || !parallel->is_object()) {
      return 1;
    }
    const auto n = parallel->find(key);
    return n != parallel->end() && n->is_number_integer() ? n->get<std::int64_t>() : 1;
  }

  /// Settings by path, a later one in place of an earlier one; those of objects whose keys stand
  /// alone, or of which an override says a part, one by one. "loss=copied" is the kind of a
  /// loss of which the job says other keys.
  [[nodiscard]] std::vector<std::pair<std::string, Json>> leaves_of(
      const std::vector<std::string>& settings) const {
    const Json& job = documents_.job.root;
    std::vector<std::pair<std::string, Json>> whole;
    for (const std::string& s : settings) {
      const std::size_t equals = s.find('=');
      const std::string path = s.substr(0, equals);
      std::erase_if(whole, [&path](const auto& w) { return w.first == path; });
      whole.emplace_back(path, value_of(s.substr(equals + 1)));
    }
    std::vector<std::pair<std::string, Json>> leaves;
    const auto add = [&leaves](const std::string& path, Json value) {
      std::erase_if(leaves, [&path](const auto& l) { return l.first == path; });
      leaves.emplace_back(path, std::move(value));
    };
    for (auto& [path, value] : whole) {
      if (path == "loss" && value.is_string() && job.contains(path) && job[path].is_object()) {
        add("loss.kind", std::move(value));
        continue;
      }
      const bool apart =
          path == "parallel.overlap" || path == "formats" || path == "system.framework_traits" ||
          std::any_of(documents_.job.overridden.begin(), documents_.job.overridden.end(),
                      [&path = path](const std::string& o) { return o.starts_with(path + "."); });
      if (!apart || !value.is_object()) {
        add(path, std::move(value));
        continue;
      }
      for (const auto& [key, leaf] : value.items()) {
        add(join_path(path, key), leaf);
      }
    }
    return leaves;
  }

  /// True for the kernel of fused attention, of a job that says no more than that it is fused.
  [[nodiscard]] bool names_kernel(const std::string& path, const Json& value) const {
    const Json& job = documents_.job.root;
    return path == "attention" && value.is_object() && job.is_object() &&
           job.value("attention", Json("flash")) == "flash";
  }

  /// True for an overlap that builds on another one, which the job does without.
  [[nodiscard]] bool lacks_need(const std::string& path) const {
    static const std::map<std::string, std::string> needs{
        {"parallel.overlap.tensor_products", "tensor"}, {"parallel.overlap.parameters", "data"}};
    const auto need = needs.find(path);
    if (need == needs.end()) {
      return false;
    }
    const Json::json_pointer at("/parallel/overlap/" + need->second);
    const Json& job = documents_.job.root;
    return job.contains(at) && job.at(at) == false;
  }

  /// True if an override said this or a part of it, or said an object that holds it: what an object
  /// leaves out is not said.
  [[nodiscard]] bool overridden(const std::string& path) const {
    const auto& all = documents_.job.overridden;
    return std::any_of(all.begin(), all.end(), [&](const std::string& o) {
      const bool file = o == "workload" || o == "system" || o == "system.device";
      return o == path || o.starts_with(path + ".") ||
             (!file && path.starts_with(o + ".") && said(steps_of(path, path)));
    });
  }

  /// True if the job, or the file of it that an override opened, says something there.
  [[nodiscard]] bool said(const std::vector<Step>& steps) const {
    const auto& [job, workload, system, device] = documents_;
    return steps[0].key == "workload" && workload                   ? says(workload->root, steps, 1)
           : steps[0].key != "system" || !system                    ? says(job.root, steps)
           : steps.size() > 1 && steps[1].key == "device" && device ? says(device->root, steps, 2)
                                                                    : says(system->root, steps, 1);
  }

  void set(const std::vector<Step>& steps, Json value) {
    Document& job = documents_.job;
    if (steps[0].key == "workload") {
      if (steps.size() == 1) {
        documents_.workload.reset();
      } else if (open(documents_.workload, job, job.root, "workload", "workload",
                      FileKind::kWorkload)) {
        return assign(documents_.workload->root, steps, 1, std::move(value));
      }
    }
    if (steps[0].key == "system") {
      if (steps.size() == 1) {
        documents_.system.reset();
        documents_.device.reset();
      } else if (set_in_system(steps, value)) {
        return;
      }
    }
    assign(job.root, steps, 0, std::move(value));
  }

  bool set_in_system(const std::vector<Step>& steps, const Json& value) {
    Document& job = documents_.job;
    const bool separate =
        open(documents_.system, job, job.root, "system", "system", FileKind::kSystem);
    if (steps[1].key == "device") {
      if (steps.size() == 2) {
        documents_.device.reset();
      } else {
        const Document& in = separate ? *documents_.system : job;
        const auto holder = separate ? in.root : in.root.value("system", Json::object());
        if (open(documents_.device, in, holder, "device", "system.device", FileKind::kDevice)) {
          assign(documents_.device->root, steps, 2, value);
          return true;
        }
      }
    }
    if (separate) {
      assign(documents_.system->root, steps, 1, value);
    }
    return separate;
  }

  bool open(std::optional<Document>& slot, const Document& in, const Json& holder, const char* key,
            const std::string& job_path, FileKind kind) {
    if (!slot) {
      slot = opened(in, holder, key, job_path, kind, library_);
      if (slot) {
        slot->overridden = documents_.job.overridden;
      }
    }
    return slot.has_value();
  }

  JobDocuments documents_;
  const Library& library_;
};

}  // namespace

JobDocuments apply_overrides(Document job, const std::vector<std::string>& overrides,
                             const Library& library) {
  if (job.root.is_object()) {
    for (const std::string& key : kFrameworkKeys) {
      job.root.erase(key);
    }
  }
  const bool named = std::any_of(overrides.begin(), overrides.end(),
                                 [](const std::string& o) { return o.starts_with("system="); });
  if (job.root.is_object() && !job.root.contains("system") && !named) {
    job.root["system"] = kDefaultSystem;
  }
  Overrider overrider(std::move(job), library);
  for (const std::string& o : overrides) {
    if (!framework_key(o)) {
      overrider.apply(o);
    }
  }
  return overrider.take();
}

JobDocuments with_framework(JobDocuments documents, const FrameworkRecipe& recipe, bool over_file,
                            const Library& library) {
  Overrider overrider(std::move(documents), library);
  overrider.apply_framework(recipe, over_file);
  return overrider.take();
}

}  // namespace stepcast::config
