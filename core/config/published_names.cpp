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

void append(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}
void append(ShapedSettings& to, const ShapedSettings& more) {
  append(to.always, more.always);
  append(to.tensor, more.tensor);
  append(to.pipelined, more.pipelined);
  append(to.experts, more.experts);
}

/// A release is what it does otherwise than the one before it ("after").
void read_frameworks(const Source& source, PublishedNames& names) {
  const Document document = parse_document(source);
  const Value root = Value::root_of(document);
  root.keys({"attention_kernels", "stacks"});
  const auto kernels = root.find("attention_kernels");
  for (const Value& item :
       kernels ? kernels->items("a list of attention kernels") : std::vector<Value>{}) {
    item.keys({"name", "ratio", "fp8_devices", "nvfp4_devices", "source"});
    const auto ratio = [&item](const char* key) {
      return item.at(key, "time over that of the measured kernels").number(0.1, 100);
    };
    names.attention_kernels.push_back({item.at("name", "a short name").name(), ratio("ratio"),
                                       ratio("fp8_devices"), ratio("nvfp4_devices"),
                                       item.at("source", "where the ratios are from").name()});
  }
  for (const Value& item : root.at("stacks", "a list").items("a list of training frameworks")) {
    item.keys({"name", "after", "framework", "aliases", "default_of", "set", "tensor", "pipelined",
               "experts", "evidence"});
    Framework framework{
        .name = item.at("name", "a short name").name(),
        .product = {},
        .aliases = texts(item, "aliases"),
        .default_of = texts(item, "default_of"),
        .settings = {},
        .evidence = item.at("evidence", "where this is documented").text("a sentence")};
    if (const auto after = item.find("after")) {
      const Framework* before = names.find_framework(after->name());
      if (before == nullptr) {
        after->reject(fmt::format("found \"{}\", expected a release above", after->name()));
      }
      framework.product = before->product;
      framework.settings = before->settings;
    } else {
      framework.product = item.at("framework", "a short name").name();
    }
    append(framework.settings, shaped(item));
    names.frameworks.push_back(std::move(framework));
  }
}

template <class T>
std::vector<std::string> names_of(const std::vector<T>& all) {
  std::vector<std::string> names;
  for (const T& one : all) {
    names.push_back(one.name);
  }
  return names;
}

/// "amp_bf16/DEFAULT" is "amp", "bf16", "default".
std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> all(1);
  for (const char c : lower(text)) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      all.back() += c;
    } else if (!all.back().empty()) {
      all.emplace_back();
    }
  }
  if (all.back().empty()) {
    all.pop_back();
  }
  return all;
}

/// Names to offer for one that no framework has: the releases of the framework it names, else all
/// frameworks.
std::vector<std::string> meant_by(std::string_view name, const std::vector<Framework>& frameworks) {
  std::vector<std::string> releases;
  std::vector<std::string> names;
  const std::string asked = lower(name.substr(0, name.find('@')));
  for (const Framework& f : frameworks) {
    const std::string own = f.name.substr(0, f.name.find('@'));
    if (lower(own) == asked) {
      releases.push_back(f.name);
    }
    if (names.empty() || names.back() != own) {
      names.push_back(own);
    }
  }
  return releases.empty() ? names : releases;
}

FrameworkRecipe recipe_of(const Framework* framework, const PublishedSource* source) {
  FrameworkRecipe recipe;
  recipe.framework = framework;
  recipe.settings = framework->settings;
  if (source != nullptr) {
    recipe.source = source->source;
    recipe.host_issue = source->host_issue;
    append(recipe.settings, source->settings);
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
  const std::vector<std::string> said = words(name.substr(0, name.find('(')));
  const auto begins = [](const std::string& word, const std::string& alias) {
    return word.starts_with(alias);
  };
  const auto it = std::find_if(precisions.begin(), precisions.end(), [&](const NamedSettings& n) {
    return std::any_of(n.aliases.begin(), n.aliases.end(), [&](const std::string& alias) {
      const std::vector<std::string> meant = words(alias);
      return !meant.empty() && std::search(said.begin(), said.end(), meant.begin(), meant.end(),
                                           begins) != said.end();
    });
  });
  return it == precisions.end() ? nullptr : &*it;
}

const Framework* PublishedNames::find_framework(std::string_view name) const {
  const std::string low = lower(name);
  const Framework* found = nullptr;
  for (const Framework& f : frameworks) {
    const std::string own = lower(f.name);
    if (own == low || own.starts_with(low + "@")) {
      found = &f;
    }
  }
  return found;
}

std::string PublishedNames::shortest_name(const Framework& framework) const {
  const std::string name = framework.name.substr(0, framework.name.find('@'));
  const Framework* newest = find_framework(name);
  return newest != nullptr && newest->name == framework.name ? name : framework.name;
}

const AttentionKernel& PublishedNames::attention_kernel(std::string_view name,
                                                        const std::string& where) const {
  for (const AttentionKernel& kernel : attention_kernels) {
    if (kernel.name == lower(name)) {
      return kernel;
    }
  }
  throw InputError(where, fmt::format("found \"{}\"; {}", name.substr(0, 80),
                                      suggestion(name, names_of(attention_kernels))));
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
    const std::vector<std::string> names = meant_by(name, frameworks);
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
  read_frameworks(frameworks, names);
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
      const std::vector<std::string> known = meant_by(published.framework, names.frameworks);
      framework.reject(fmt::format("found \"{}\"; {}", published.framework,
                                   suggestion(published.framework, known)));
    }
    published.settings = shaped(item);
    if (const auto issue = item.find("host_issue")) {
      published.host_issue = issue->amount<Seconds>().base();
    }
    published.evidence = item.at("evidence", "where this is documented").text("a sentence");
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
