#include "core/config/published_names.h"

#include <algorithm>
#include <cctype>

#include "core/config/internal/document.h"
#include "core/config/suggest.h"

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

std::vector<NamedSettings> aliases_of(const Value& list) {
  std::vector<NamedSettings> all;
  for (const Value& item : list.items("a list of {\"name\", \"aliases\", \"set\"}")) {
    item.keys({"name", "aliases", "set"});
    NamedSettings named{item.at("name", "our name").name(), {}, settings_of(item)};
    for (const Value& alias :
         item.at("aliases", "names that sources use").items("a list of names", 1)) {
      named.aliases.push_back(alias.text("a name"));
    }
    all.push_back(std::move(named));
  }
  return all;
}

const NamedSettings* find(const std::vector<NamedSettings>& all, std::string_view name) {
  const auto it = std::find_if(all.begin(), all.end(), [name](const NamedSettings& n) {
    return std::find(n.aliases.begin(), n.aliases.end(), name) != n.aliases.end();
  });
  return it == all.end() ? nullptr : &*it;
}

}  // namespace

const NamedSettings* PublishedNames::gpu(std::string_view name) const { return find(gpus, name); }
const NamedSettings* PublishedNames::precision(std::string_view name) const {
  return find(precisions, name);
}

const PublishedStack* PublishedNames::stack(std::string_view source, std::string_view framework,
                                            std::string_view model) const {
  const auto it = std::find_if(stacks.begin(), stacks.end(), [&](const PublishedStack& s) {
    return source.starts_with(s.begins) && (s.framework.empty() || s.framework == framework) &&
           (s.models.empty() ||
            std::find(s.models.begin(), s.models.end(), model) != s.models.end());
  });
  return it == stacks.end() ? nullptr : &*it;
}

const PublishedStack& PublishedNames::stack_named(std::string_view name,
                                                  const std::string& where) const {
  const auto lower = [](std::string_view text) {
    std::string low(text);
    std::transform(low.begin(), low.end(), low.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return low;
  };
  const PublishedStack* found = nullptr;
  std::vector<std::string> names;
  for (const PublishedStack& s : stacks) {
    if (lower(s.name()) == lower(name) && (found == nullptr || s.models.empty())) {
      found = &s;
    }
    if (std::find(names.begin(), names.end(), s.name()) == names.end()) {
      names.push_back(s.name());
    }
  }
  if (found == nullptr) {
    throw InputError(where,
                     fmt::format("found \"{}\"; {}", name.substr(0, 80), suggestion(name, names)));
  }
  return *found;
}

PublishedNames read_published_names(const Source& source) {
  const Document document = parse_document(source);
  const Value root = Value::root_of(document);
  root.keys({"gpus", "precisions", "stacks"});
  PublishedNames names;
  names.gpus = aliases_of(root.at("gpus", "a list"));
  names.precisions = aliases_of(root.at("precisions", "a list"));
  for (const Value& item : root.at("stacks", "a list").items("a list of software stacks")) {
    item.keys({"source", "family", "begins", "framework", "models", "set", "pipelined",
               "host_issue", "evidence"});
    PublishedStack stack;
    stack.source = item.at("source", "a short name").name();
    stack.family = item.at("family", "a short name").name();
    stack.begins = item.at("begins", "what the column source begins with").name();
    if (const auto framework = item.find("framework")) {
      stack.framework = framework->name();
    }
    if (const auto models = item.find("models")) {
      for (const Value& model : models->items("a list of names", 1)) {
        stack.models.push_back(model.text("a name"));
      }
    }
    stack.settings = settings_of(item);
    stack.pipelined = settings_of(item, "pipelined");
    if (const auto issue = item.find("host_issue")) {
      stack.host_issue = issue->amount<Seconds>().base();
    }
    stack.evidence = item.at("evidence", "where this is documented").name();
    names.stacks.push_back(std::move(stack));
  }
  return names;
}

PublishedNames load_published_names(const Library& library) {
  return read_published_names(file_source(library.root / "workloads" / "published" / "names.json"));
}

}  // namespace stepcast::config
