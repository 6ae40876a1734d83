#include "core/config/published_names.h"

#include <algorithm>
#include <cctype>

#include "core/config/catalogue.h"
#include "core/config/document.h"
#include "core/config/suggest.h"
#include "core/lower.h"

namespace stepcast::config {
namespace {

std::vector<std::string> settings_of(const Value& holder, const char* name = "set") {
  std::vector<std::string> settings;
  if (const auto set = holder.find(name)) {
    for (const auto& [key, value] : set->members()) {
      settings.push_back(key + "=" + value.json().dump());
    }
  }
  return settings;
}

ShapedSettings shaped(const Value& holder) {
  return {settings_of(holder), settings_of(holder, "tensor"), settings_of(holder, "pipelined"),
          settings_of(holder, "experts")};
}

std::vector<std::string> texts(const Value& holder, const char* name) {
  std::vector<std::string> all;
  if (const auto list = holder.find(name)) {
    for (const Value& item : list->items("a list of names", 1)) {
      all.push_back(item.text("a name"));
    }
  }
  return all;
}

std::vector<NamedSettings> aliases_of(const Value& list) {
  std::vector<NamedSettings> all;
  for (const Value& item : list.items("a list of {\"name\", \"aliases\", \"set\"}")) {
    item.keys({"name", "aliases", "set"});
    (void)item.at("aliases", "names that sources use");
    all.push_back({item.at("name", "our name").name(), texts(item, "aliases"), settings_of(item)});
  }
  return all;
}

std::vector<Framework> frameworks_of(const Source& source) {
  const Document document = parse_document(source);
  const Value root = Value::root_of(document);
  root.keys({"stacks"});
  std::vector<Framework> frameworks;
  for (const Value& item : root.at("stacks", "a list").items("a list of training frameworks")) {
    item.keys({"name", "framework", "aliases", "default_of", "set", "tensor", "pipelined",
               "experts", "evidence"});
    frameworks.push_back({item.at("name", "a short name").name(),
                          item.at("framework", "a short name").name(), texts(item, "aliases"),
                          texts(item, "default_of"), shaped(item),
                          item.at("evidence", "where this is documented").name()});
  }
  return frameworks;
}

std::vector<std::string> names_of(const std::vector<Framework>& frameworks) {
  std::vector<std::string> names;
  for (const Framework& s : frameworks) {
    names.push_back(s.name);
  }
  return names;
}

void append(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

FrameworkRecipe recipe_of(const Framework* framework, const PublishedSource* source) {
  FrameworkRecipe recipe;
  recipe.framework = framework;
  recipe.settings = framework->settings;
  if (source != nullptr) {
    recipe.source = source->source;
    recipe.host_issue = source->host_issue;
    append(recipe.settings.always, source->settings.always);
    append(recipe.settings.tensor, source->settings.tensor);
    append(recipe.settings.pipelined, source->settings.pipelined);
    append(recipe.settings.experts, source->settings.experts);
  }
  return recipe;
}

}  // namespace

std::vector<std::string> ShapedSettings::of(std::int64_t tensor_ranks, std::int64_t stages,
                                            std::int64_t expert_ranks) const {
  std::vector<std::string> all = always;
  if (tensor_ranks > 1) {
    append(all, tensor);
  }
  if (stages > 1) {
    append(all, pipelined);
  }
  if (expert_ranks > 1) {
    append(all, experts);
  }
  return all;
}

const NamedSettings* PublishedNames::gpu(std::string_view name) const {
  const auto it = std::find_if(gpus.begin(), gpus.end(), [name](const NamedSettings& n) {
    return std::any_of(n.aliases.begin(), n.aliases.end(),
                       [name](const std::string& a) { return lower(a) == lower(name); });
  });
  return it == gpus.end() ? nullptr : &*it;
}

const NamedSettings* PublishedNames::precision(std::string_view name) const {
  const std::string low = lower(name);
  const auto it =
      std::find_if(precisions.begin(), precisions.end(), [&low](const NamedSettings& n) {
        return std::any_of(n.aliases.begin(), n.aliases.end(),
                           [&low](const std::string& a) { return low.starts_with(a); });
      });
  return it == precisions.end() ? nullptr : &*it;
}

const Framework* PublishedNames::find_framework(std::string_view name) const {
  const auto it = std::find_if(frameworks.begin(), frameworks.end(),
                               [&](const Framework& s) { return lower(s.name) == lower(name); });
  return it == frameworks.end() ? nullptr : &*it;
}

const Framework* PublishedNames::default_framework(std::string_view family) const {
  const auto it = std::find_if(frameworks.begin(), frameworks.end(), [family](const Framework& s) {
    return std::find(s.default_of.begin(), s.default_of.end(), family) != s.default_of.end();
  });
  return it == frameworks.end() ? nullptr : &*it;
}

FrameworkRecipe PublishedNames::recipe(std::string_view source, std::string_view framework,
                                       std::string_view model, std::string_view gpu,
                                       std::string_view family) const {
  const auto it = std::find_if(sources.begin(), sources.end(), [&](const PublishedSource& s) {
    return source.starts_with(s.begins) &&
           (s.row_framework.empty() || s.row_framework == framework) &&
           (s.models.empty() ||
            std::find(s.models.begin(), s.models.end(), model) != s.models.end()) &&
           (s.gpus.empty() || std::any_of(s.gpus.begin(), s.gpus.end(), [&](const std::string& g) {
              return lower(gpu).starts_with(lower(g));
            }));
  });
  if (it != sources.end()) {
    return recipe_of(find_framework(it->framework), &*it);
  }
  const Framework* best = default_framework(family);
  std::size_t longest = 0;
  const std::string low = lower(framework);
  for (const Framework& s : frameworks) {
    for (const std::string& alias : s.aliases) {
      if (low.starts_with(alias) && alias.size() > longest) {
        best = &s;
        longest = alias.size();
      }
    }
  }
  if (best == nullptr) {
    return {};
  }
  FrameworkRecipe recipe = recipe_of(best, nullptr);
  recipe.source = source;
  return recipe;
}

FrameworkRecipe PublishedNames::named(std::string_view name, const std::string& where) const {
  if (const Framework* s = find_framework(name)) {
    return recipe_of(s, nullptr);
  }
  const PublishedSource* found = nullptr;
  for (const PublishedSource& s : sources) {
    if (lower(s.source) == lower(name) && s.row_framework.empty() &&
        (found == nullptr || (s.models.empty() && s.gpus.empty()))) {
      found = &s;
    }
  }
  if (found == nullptr) {
    const std::vector<std::string> names = names_of(frameworks);
    throw InputError(where,
                     fmt::format("found \"{}\"; {}", name.substr(0, 80), suggestion(name, names)));
  }
  return recipe_of(find_framework(found->framework), found);
}

PublishedNames read_published_names(const Source& source, const Source& frameworks) {
  const Document document = parse_document(source);
  const Value root = Value::root_of(document);
  root.keys({"gpus", "precisions", "notes", "releases", "sources"});
  PublishedNames names;
  names.frameworks = frameworks_of(frameworks);
  names.gpus = aliases_of(root.at("gpus", "a list"));
  names.precisions = aliases_of(root.at("precisions", "a list"));
  for (const auto& [key, into] :
       {std::pair{"notes", &names.notes}, {"releases", &names.releases}}) {
    if (const auto list = root.find(key)) {
      *into = aliases_of(*list);
    }
  }
  for (const Value& item : root.at("sources", "a list").items("a list of publications")) {
    item.keys({"source", "begins", "framework", "models", "gpus", "stack", "set", "tensor",
               "pipelined", "experts", "host_issue", "evidence"});
    PublishedSource published;
    published.source = item.at("source", "a short name").name();
    published.begins = item.at("begins", "what the column source begins with").name();
    if (const auto framework = item.find("framework")) {
      published.row_framework = framework->name();
    }
    published.models = texts(item, "models");
    published.gpus = texts(item, "gpus");
    const Value framework = item.at("stack", "a stack of models/stacks/stacks.json");
    published.framework = framework.name();
    if (names.find_framework(published.framework) == nullptr) {
      const std::vector<std::string> known = names_of(names.frameworks);
      framework.reject(fmt::format("found \"{}\"; {}", published.framework,
                                   suggestion(published.framework, known)));
    }
    published.settings = shaped(item);
    if (const auto issue = item.find("host_issue")) {
      published.host_issue = issue->amount<Seconds>().base();
    }
    published.evidence = item.at("evidence", "where this is documented").name();
    names.sources.push_back(std::move(published));
  }
  return names;
}

PublishedNames load_published_names(const Library& library) {
  return read_once<PublishedNames>(library, "names", [&] {
    return read_published_names(
        file_source(library.root / "workloads" / "published" / "names.json"),
        file_source(library.root / "models" / "stacks" / "stacks.json"));
  });
}

}  // namespace stepcast::config
