#include "core/config/aliases.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "core/config/internal/loaders.h"
#include "core/device_names.h"
#include "core/lower.h"

namespace stepcast::config {
namespace {

constexpr std::array<KeyAlias, 21> kKeyAliases{{{"tp", "parallel.tensor"},
                                                {"pp", "parallel.pipeline"},
                                                {"vpp", "parallel.virtual_stages"},
                                                {"cp", "parallel.context"},
                                                {"ep", "parallel.expert"},
                                                {"etp", "parallel.expert_tensor"},
                                                {"dp", "parallel.data"},
                                                {"sp", "parallel.sequence_parallel"},
                                                {"zero", "parallel.zero"},
                                                {"recompute", "parallel.recompute"},
                                                {"schedule", "parallel.schedule"},
                                                {"gbs", "batch.global"},
                                                {"b", "batch.global"},
                                                {"mbs", "batch.micro"},
                                                {"seq", "batch.sequence"},
                                                {"gpus", "devices"},
                                                {"n", "devices"},
                                                {"on", "system"},
                                                {"gpu", "system"},
                                                {"model", "workload"},
                                                {"precision", "formats.compute"}}};

/// "8k" is 8192, "1m" 1048576; any other text stays.
std::string in_figures(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string suffix = lower(text.substr(digits));
  const int shift = suffix == "k" ? 10 : suffix == "m" ? 20 : 0;
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, count);
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (shift == 0 || digits == 0 || error != std::errc() || count > kMost) {
    return std::string(text);
  }
  return std::to_string(count << shift);
}

bool counts(std::string_view key) {
  return key == "devices" || key == "batch.global" || key == "batch.sequence" || key == "cached";
}

Document aliases_of(const Library& library) {
  return parse_document(file_source(library.root / "workloads" / "published" / "aliases.json"));
}

std::vector<std::string> texts_of(const Json& list) { return list.get<std::vector<std::string>>(); }

/// The name in the data file whose list holds the alias, or that the alias is itself; "" none.
std::string listed(const Json& names, std::string_view alias) {
  for (const auto& [name, aliases] : names.items()) {
    const std::vector<std::string> all = texts_of(aliases);
    if (name == alias || std::find(all.begin(), all.end(), alias) != all.end()) {
      return name;
    }
  }
  return {};
}

bool is_built_in(const std::string& name, FileKind kind, const Library& library) {
  std::error_code ignored;
  return name.find('/') == std::string::npos &&
         std::filesystem::is_regular_file(built_in_folder(kind, library) / (name + ".json"),
                                          ignored);
}

/// True if a name says the device and nothing else: "H100-SXM" does, "my-h100-cluster" does not.
bool says_only(std::string_view written, const DeviceName& device) {
  std::string name = lower(written);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ' ' || c == '_'; }, '-');
  for (const std::string_view maker : {"nvidia-", "amd-", "google-", "aws-", "hgx-", "dgx-"}) {
    if (name.starts_with(maker)) {
      name.erase(0, maker.size());
    }
  }
  return name.find('-') == std::string::npos || device.device.starts_with(name) ||
         device.system.starts_with(name);
}

}  // namespace

std::span<const KeyAlias> key_aliases() { return kKeyAliases; }

std::string_view key_called(std::string_view word) {
  const auto* const found = std::find_if(kKeyAliases.begin(), kKeyAliases.end(),
                                         [word](const KeyAlias& a) { return a.alias == word; });
  return found == kKeyAliases.end() ? word : found->key;
}

std::string spelled_out(const std::string& setting) {
  const std::size_t equals = setting.find('=');
  if (equals == std::string::npos) {
    return setting;
  }
  const std::string key(key_called(std::string_view(setting).substr(0, equals)));
  const std::string value = setting.substr(equals + 1);
  if (!counts(key)) {
    return key + "=" + value;
  }
  std::string figures;
  std::size_t from = 0;
  for (std::size_t comma = 0; comma != std::string::npos; from = comma + 1) {
    comma = value.find(',', from);
    figures +=
        (from > 0 ? "," : "") + in_figures(std::string_view(value).substr(
                                    from, comma == std::string::npos ? comma : comma - from));
  }
  return key + "=" + figures;
}

std::vector<std::string> spelled_out(const std::vector<std::string>& settings) {
  std::vector<std::string> all;
  all.reserve(settings.size());
  for (const std::string& setting : settings) {
    all.push_back(spelled_out(setting));
  }
  return all;
}

std::string workload_called(std::string_view written, const Library& library) {
  std::string name = lower(written);
  if (is_built_in(name, FileKind::kWorkload, library)) {
    return name;
  }
  // The owner before the name, as hubs have it; a path has more than one slash or begins with one.
  if (const std::size_t slash = name.find('/'); slash != std::string::npos) {
    if (slash == 0 || name.front() == '.' || name.find('/', slash + 1) != std::string::npos) {
      return {};
    }
    name.erase(0, slash + 1);
  }
  const Document aliases = aliases_of(library);
  const auto known = [&](const std::string& one) {
    return is_built_in(one, FileKind::kWorkload, library)
               ? one
               : listed(aliases.root.at("workloads"), one);
  };
  if (std::string found = known(name); !found.empty()) {
    return found;
  }
  for (const std::string& ending : texts_of(aliases.root.at("endings"))) {
    if (name.ends_with(ending)) {
      if (std::string found = known(name.substr(0, name.size() - ending.size())); !found.empty()) {
        return found;
      }
    }
  }
  return {};
}

std::string system_called(std::string_view written, const Library& library) {
  const std::string name = lower(written);
  if (is_built_in(name, FileKind::kSystem, library)) {
    return name;
  }
  if (name.find('/') != std::string::npos || name.ends_with(".json")) {
    return {};
  }
  const auto device = device_named(written);
  const std::string system(device && says_only(written, *device) ? device->system : "");
  return is_built_in(system, FileKind::kSystem, library) ? system : std::string();
}

std::string framework_called(std::string_view written, const Library& library) {
  const std::string name = lower(written.substr(0, written.find('@')));
  const Document aliases = aliases_of(library);
  const std::string found = listed(aliases.root.at("frameworks"), name);
  return found.empty() ? std::string(written)
                       : found + std::string(written.substr(std::min(name.size(), written.size())));
}

std::vector<std::string> workload_aliases(const Library& library) {
  const Document aliases = aliases_of(library);
  std::vector<std::string> all;
  for (const auto& [name, others] : aliases.root.at("workloads").items()) {
    const std::vector<std::string> texts = texts_of(others);
    all.insert(all.end(), texts.begin(), texts.end());
  }
  return all;
}

std::vector<std::string> system_aliases(const Library& library) {
  std::vector<std::string> all;
  for (const std::string& device : built_in_names(FileKind::kDevice, library)) {
    for (const std::string& name : {device, device.substr(0, device.find('-'))}) {
      if (!system_called(name, library).empty() && (all.empty() || all.back() != name)) {
        all.push_back(name);
      }
    }
  }
  return all;
}

}  // namespace stepcast::config
