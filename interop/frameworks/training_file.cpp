#include "interop/frameworks/training_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace stepcast::interop {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 31;
constexpr std::int64_t kMostCounted = std::int64_t{1} << 40;
constexpr std::int64_t kMachine = 8;

/// Says nothing that changes a step, most likely: no value, a text, a fraction or the usual 0, 1
/// and -1, or a list of these.
bool shapeless(const Json& j) {
  return j.is_null() || j.is_string() || j.is_number_float() || j == false || j == 0 || j == 1 ||
         j == -1 || (j.is_array() && std::all_of(j.begin(), j.end(), shapeless));
}

void collect_unread(const Value& v, const std::string& path,
                    const std::set<std::string, std::less<>>& seen,
                    const std::vector<std::string_view>& harmless,
                    std::vector<std::string>& names) {
  for (const auto& [key, value] : v.members()) {
    const std::string at = join_path(path, key);
    const bool known =
        seen.contains(at) || std::any_of(harmless.begin(), harmless.end(),
                                         [&](std::string_view p) { return at.starts_with(p); });
    if (known) {
      continue;
    }
    if (value.is_object()) {
      collect_unread(value, at, seen, harmless, names);
    } else if (!shapeless(value.json())) {
      names.push_back(at.substr(0, 80));
    }
  }
}

}  // namespace

std::optional<Value> TrainingFile::find(Paths paths) {
  std::optional<Value> found;
  for (const std::string_view path : paths) {
    seen_.emplace(path);
    std::optional<Value> v = root_;
    for (std::size_t at = 0; v && at <= path.size();) {
      const std::size_t dot = std::min(path.find('.', at), path.size());
      const std::string key(path.substr(at, dot - at));
      v = v->is_object() && v->json().contains(key) && !v->json().at(key).is_null() ? v->find(key)
                                                                                    : std::nullopt;
      at = dot + 1;
    }
    found = found ? found : v;
  }
  return found;
}

std::optional<std::int64_t> TrainingFile::integer(Paths paths, std::int64_t low) {
  const auto v = find(paths);
  if (!v || v->is("auto")) {
    return std::nullopt;
  }
  if (v->is_string()) {
    const std::string text = v->text("a whole number");
    std::int64_t n = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error == std::errc() && stop == text.data() + text.size() && n >= low && n <= kLargest) {
      return n;
    }
    if (text.find("${") != std::string::npos) {
      v->reject(
          fmt::format("found {}, which only the framework resolves; give the resolved file, "
                      "or the number",
                      shown(v->json())));
    }
  }
  if (v->json().is_number_float()) {  // 5e8
    const double n = v->number(static_cast<double>(low), static_cast<double>(kLargest));
    if (n == std::trunc(n)) {
      return static_cast<std::int64_t>(n);
    }
  }
  return v->integer(low, kLargest);
}

std::int64_t TrainingFile::integer_or(Paths paths, std::int64_t otherwise, std::int64_t low) {
  return integer(paths, low).value_or(otherwise);
}

bool TrainingFile::flag(Paths paths, bool otherwise) {
  const auto v = find(paths);
  if (!v || (v->is_string() && !v->is("true") && !v->is("false"))) {
    return otherwise;
  }
  return v->is("true") || (!v->is("false") && v->boolean());
}

std::string TrainingFile::word(Paths paths, std::string otherwise) {
  const auto v = find(paths);
  return !v ? otherwise : v->is_string() ? v->text("a word") : v->json().dump();
}

std::vector<std::string> TrainingFile::words(Paths paths) {
  const auto v = find(paths);
  std::vector<std::string> all;
  if (v && v->json().is_array()) {
    for (const Value& item : v->items("a list of words")) {
      all.push_back(item.is_string() ? item.text("a word") : item.json().dump());
    }
  } else if (v && v->is_string()) {
    all.push_back(v->text("a word"));
  }
  return all;
}

std::int64_t TrainingFile::required(Paths paths, const char* what) {
  const auto n = integer(paths);
  if (!n) {
    throw InputError(root_.where(*paths.begin()), fmt::format("missing; expected {}", what));
  }
  return *n;
}

void TrainingFile::note_unread(std::string_view harmless) {
  std::vector<std::string_view> prefixes;
  for (std::size_t at = 0; at < harmless.size();) {
    const std::size_t blank = std::min(harmless.find(' ', at), harmless.size());
    prefixes.push_back(harmless.substr(at, blank - at));
    at = blank + 1;
  }
  std::vector<std::string> names;
  collect_unread(root_, "", seen_, prefixes, names);
  if (!names.empty()) {
    approximate(fmt::format("keys that are not read: {}", fmt::join(names, ", ")));
  }
}

Document TrainingFile::finished(Document d, Json job) const {
  if (!approximated_.empty()) {
    job["approximated"] = approximated_;
  }
  d.root = std::move(job);
  return d;
}

std::string override_of(const std::vector<std::string>& overrides, std::string_view key) {
  std::string found;
  for (const std::string& o : overrides) {
    if (o.size() > key.size() && o.starts_with(key) && o[key.size()] == '=') {
      found = o.substr(key.size() + 1);
    }
  }
  return found;
}

std::int64_t product(std::initializer_list<std::int64_t> counts) {
  std::int64_t all = 1;
  for (const std::int64_t n : counts) {
    all = n > 0 && all > kMostCounted / n ? kMostCounted : all * n;
  }
  return all;
}

std::int64_t devices_of(TrainingFile& file, const std::vector<std::string>& overrides,
                        std::optional<std::int64_t> said, std::int64_t least) {
  const std::string given = override_of(overrides, "devices");
  std::int64_t devices = 0;
  std::from_chars(given.data(), given.data() + given.size(), devices);
  if (devices > 0) {
    return devices;
  }
  if (said) {
    return *said;
  }
  devices = std::max(least, kMachine / least * least);
  file.approximate(
      fmt::format("a number of devices that the file does not say (taken as {})", devices));
  return devices;
}

void name_model(TrainingFile& file, TrainingFile::Paths paths,
                const std::vector<std::string>& overrides, Json& job) {
  const std::string name = file.word(paths);
  if (!override_of(overrides, "workload").empty()) {
    return;
  }
  if (name.empty()) {
    throw InputError(file.root().where(*paths.begin()),
                     "names no model; name one with --set workload=NAME "
                     "(`stepcast list models`, or a config.json)");
  }
  job["workload"] = name;
}

bool has_yaml_key(std::string_view text, std::initializer_list<std::string_view> keys) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    const std::size_t begin = std::min(line.find_first_not_of(" \t"), line.size());
    const std::string_view rest = line.substr(begin);
    for (const std::string_view key : keys) {
      if (rest.starts_with(key) && rest.substr(key.size()).starts_with(':')) {
        return true;
      }
    }
    at = end + 1;
  }
  return false;
}

}  // namespace stepcast::interop
