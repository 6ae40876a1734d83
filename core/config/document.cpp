#include "core/config/document.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

namespace stepcast::config {
namespace {

constexpr std::size_t kDeepest = 64;
/// Position of the parser: enclosing objects and arrays, the key or index reached in each, and the
/// keys seen.
class Place {
 public:
  void open(bool object) {
    enter_element();
    frames_.push_back({object, {}, -1, {}});
  }
  void close() { frames_.pop_back(); }
  /// False when the key was there before.
  bool key(const std::string& name) {
    frames_.back().key = name;
    return frames_.back().seen.insert(name).second;
  }
  void enter_element() {
    if (!frames_.empty() && !frames_.back().object) {
      ++frames_.back().index;
    }
  }
  [[nodiscard]] std::size_t depth() const { return frames_.size(); }
  [[nodiscard]] std::string path() const {
    std::string text;
    for (const Frame& f : frames_) {
      if (f.object && !f.key.empty()) {
        text = join_path(text, f.key);
      } else if (!f.object && f.index >= 0) {
        text += fmt::format("[{}]", f.index);
      }
    }
    return text;
  }

 private:
  struct Frame {
    bool object;
    std::string key;
    std::int64_t index;
    std::set<std::string> seen;
  };
  std::vector<Frame> frames_;
};

std::string in_path(const Place& place) {
  const std::string path = place.path();
  return path.empty() ? std::string() : fmt::format(" near {}", path);
}

/// Line and column of a byte offset.
std::string position(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t start = before.rfind('\n');
  const std::size_t column =
      start == std::string_view::npos ? before.size() : before.size() - start - 1;
  return fmt::format("line {}, column {}", line, std::max<std::size_t>(column, 1));
}

/// The token or piece of text at which reading stopped, for the message.
std::string found_at(std::string_view text, std::size_t offset) {
  if (offset > text.size() || text.empty()) {
    return "the end of the text";
  }
  std::size_t first = offset == 0 ? 0 : offset - 1;
  const auto word = [&](std::size_t i) {
    return std::isalnum(static_cast<unsigned char>(text[i])) != 0 || text[i] == '_' ||
           text[i] == '.';
  };
  while (first > 0 && word(first) && word(first - 1) && offset - first < 24) {
    --first;
  }
  std::size_t last = std::min(text.size(), offset);
  while (last < text.size() && word(last - 1) && word(last) && last - first < 24) {
    ++last;
  }
  std::string piece;
  for (const char c : text.substr(first, last - first)) {
    piece += c >= ' ' && c < 127 ? std::string(1, c)
                                 : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return fmt::format("\"{}\"", piece);
}

std::string syntax_problem(std::string_view text, std::size_t offset) {
  const std::string found = found_at(text, offset);
  if (offset > text.size() || found == "the end of the text") {
    return "found the end of the text inside a value, expected the rest: the file is truncated or "
           "a bracket or quote is not closed";
  }
  for (const std::string_view word : {"NaN", "nan", "Infinity", "inf"}) {
    if (found.find(word) != std::string::npos) {
      return fmt::format(
          "found {}, expected a JSON value: JSON has no NaN or infinity, write a finite number",
          found);
    }
  }
  return fmt::format(
      "found {}, expected JSON here: check commas, quotes and brackets just before it", found);
}

bool is_blank(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isspace(c) != 0; });
}

/// The override that reached below `path` (a path inside the job); empty without one.
std::string overridden_below(const std::vector<std::string>& all, const std::string& path) {
  const auto it = std::find_if(all.begin(), all.end(), [&](const std::string& set) {
    return set.size() > path.size() && set.starts_with(path) &&
           (set[path.size()] == '.' || set[path.size()] == '[');
  });
  return it == all.end() ? std::string() : *it;
}

/// The override that set another key of the same object; empty without one.
std::string overridden_beside(const std::vector<std::string>& all, const std::string& path) {
  const auto parent = [](const std::string& p) {
    const std::size_t end = p.find_last_of(".[");
    return end == std::string::npos ? std::string() : p.substr(0, end);
  };
  const std::string object = parent(path);
  const auto it = std::find_if(all.begin(), all.end(), [&](const std::string& set) {
    return !object.empty() && set != path && parent(set) == object;
  });
  return it == all.end() ? std::string() : *it;
}

/// Place of this path's value in a list of tables; empty where it has none.
std::string table_place(const Document& d, std::string_view path) {
  const std::size_t list = path.find("tables[");
  std::size_t table = 0;
  if (d.table_places.empty() || list == std::string_view::npos) {
    return {};
  }
  path.remove_prefix(list + 7);
  const auto [end, error] = std::from_chars(path.data(), path.data() + path.size(), table);
  if (error != std::errc() || table >= d.table_places.size()) {
    return {};
  }
  path.remove_prefix(std::min<std::size_t>(end - path.data() + 1, path.size()));
  std::string place = d.table_places[table];
  for (const std::string_view known : {".access.", "."}) {
    if (path.starts_with(known)) {
      return place += ": " + std::string(path.substr(known.size()));
    }
  }
  return place;
}

/// UTF-16 is what some editors and shells save.
void reject_binary(std::string_view text, std::string_view label) {
  const auto marked = [&](std::string_view mark) { return text.starts_with(mark); };
  using namespace std::string_view_literals;
  const bool wide = marked("\xff\xfe"sv) || marked("\xfe\xff"sv) || marked("\0\0\xfe\xff"sv);
  if (wide || text.substr(0, 4096).find('\0') != std::string_view::npos) {
    throw InputError(label, !wide ? "is binary, and no recording that is known here; expected JSON"
                            : marked("\xff\xfe\0\0"sv) || marked("\0\0\xfe\xff"sv)
                                ? "is UTF-32 text; save it as UTF-8"
                                : "is UTF-16 text; save it as UTF-8");
  }
}

}  // namespace

std::string join_path(std::string_view path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

std::string shown(const Json& value, std::size_t limit) {
  if (value.is_object() && value.size() > 3) {
    return fmt::format("an object of {} keys", value.size());
  }
  if (value.is_array() && value.size() > 8) {
    return fmt::format("a list of {} values", value.size());
  }
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= limit ? text : text.substr(0, limit) + "...";
}

Json parse_json(std::string_view text, std::string_view label) {
  reject_binary(text, label);
  Place place;
  const auto callback = [&](int, Json::parse_event_t event, Json& value) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        place.open(event == Json::parse_event_t::object_start);
        if (place.depth() > kDeepest) {
          throw InputError(label,
                           fmt::format("nested deeper than {} levels{}; no file of this kind is",
                                       kDeepest, in_path(place)));
        }
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        place.close();
        break;
      case Json::parse_event_t::key:
        if (!place.key(value.get_ref<const std::string&>())) {
          throw InputError(
              fmt::format("{}: {}", label, place.path()),
              "the key appears twice in one object, expected once; remove one of them");
        }
        break;
      case Json::parse_event_t::value:
        place.enter_element();
        break;
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), callback, true, true);
  } catch (const Json::parse_error& e) {
    throw InputError(fmt::format("{}: {}{}", label, position(text, e.byte), in_path(place)),
                     syntax_problem(text, e.byte));
  } catch (const Json::exception&) {  // a number such as 1e999
    throw InputError(fmt::format("{}: {}", label, place.path()),
                     "found a number beyond the range of a double, expected at most 1.8e308");
  }
}

Document parse_document(const Source& source) {
  Document d;
  d.label = source.label;
  d.folder = source.folder;
  if (source.label.ends_with(".csv")) {
    throw InputError(
        source.label,
        "is no list of tables: expected a header with name,rows,dim (or the names that "
        "TorchRec and HugeCTR use) and optionally "
        "pooling,mode,zipf,histogram,indices; else describe the workload as JSON "
        "(docs/jobs.md), or give tables of TorchRec or HugeCTR "
        "(docs/reference/table-files.md)");
  }
  d.root = is_blank(source.text) ? Json::object() : parse_json(source.text, source.label);
  if (!d.root.is_object()) {
    throw InputError(d.label, fmt::format("found {}, expected an object {{...}}", shown(d.root)));
  }
  return d;
}

std::ifstream open_file(const std::filesystem::path& file, std::string_view where) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) {
    std::vector<std::string> neighbours;
    const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
    for (std::filesystem::directory_iterator it(folder, error), end;
         !error && it != end && neighbours.size() < 1000; it.increment(error)) {
      neighbours.push_back(it->path().filename().string());
    }
    std::sort(neighbours.begin(), neighbours.end());
    const std::string near = nearest_name(file.filename().string(), neighbours);
    throw InputError(where,
                     fmt::format("no file {}{}", file.string(),
                                 near.empty() ? "; check the path"
                                              : fmt::format("; did you mean \"{}\"?", near)));
  }
  if (!std::filesystem::is_regular_file(status)) {
    throw InputError(where, fmt::format("{} is not a regular file; name a file", file.string()));
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    throw InputError(where, fmt::format("cannot read {}; check its permissions", file.string()));
  }
  return in;
}

std::string read_whole_file(const std::filesystem::path& file, std::string_view where,
                            std::uintmax_t limit) {
  std::ifstream in = open_file(file, where);
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (error || size > limit) {
    throw InputError(
        where, fmt::format("{} holds {} bytes, expected at most {}", file.string(), size, limit));
  }
  std::string text(size, '\0');
  in.read(text.data(), static_cast<std::streamsize>(size));
  if (!in || static_cast<std::uintmax_t>(in.gcount()) != size) {
    throw InputError(where, fmt::format("cannot read {}; check its permissions", file.string()));
  }
  return text;
}

Source file_source(const std::filesystem::path& file) {
  const std::filesystem::path folder =
      file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  Source source{file.string(), read_whole_file(file, file.string(), kLargestJson), folder};
  if (is_blank(source.text)) {
    throw InputError(source.label, "is empty, expected an object {...}");
  }
  return source;
}

Source text_source(std::string text, std::string label, std::filesystem::path folder) {
  return {std::move(label), std::move(text), std::move(folder)};
}

bool Value::overridden(const std::string& path) const {
  const auto covers = [&](const std::string& set) {
    // An override of the whole document only chose it: what is wrong inside is the file's.
    return set.size() > document_->job_path.size() && path.size() >= set.size() &&
           path.compare(0, set.size(), set) == 0 &&
           (path.size() == set.size() || path[set.size()] == '.' || path[set.size()] == '[');
  };
  return std::any_of(document_->overridden.begin(), document_->overridden.end(), covers);
}

std::string Value::place(const std::string& path) const {
  std::string in_job = document_->job_path;
  if (!path.empty()) {
    in_job = path.front() == '[' ? in_job + path : join_path(in_job, path);
  }
  if (overridden(in_job)) {
    return "--set " + in_job;
  }
  if (path.empty()) {
    return document_->label;
  }
  if (const std::string table = table_place(*document_, path); !table.empty()) {
    return table;
  }
  const std::string neighbour = overridden_beside(document_->overridden, in_job);
  return fmt::format("{}: {}{}", document_->label, path,
                     neighbour.empty() ? "" : fmt::format(" (together with --set {})", neighbour));
}

std::string Value::where() const { return place(path_); }
std::string Value::where(std::string_view key) const { return place(join_path(path_, key)); }

std::filesystem::path Value::folder() const {
  return where().rfind("--set ", 0) == 0 ? std::filesystem::path(".") : document_->folder;
}

void Value::fail(std::string_view expected) const {
  throw InputError(where(), fmt::format("found {}, expected {}", shown(*node_), expected));
}
void Value::reject(std::string_view message) const { throw InputError(where(), message); }

void Value::keys(const std::vector<std::string_view>& known) const {
  if (!node_->is_object()) {
    fail("an object {...}");
  }
  for (const auto& [key, value] : node_->items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      const std::string set = overridden_below(
          document_->overridden, join_path(document_->job_path, join_path(path_, key)));
      throw InputError(
          set.empty() ? where(key.substr(0, 80)) : "--set " + set,
          fmt::format("unknown key{}; {}", set.empty() ? "" : fmt::format(" \"{}\"", key),
                      suggestion(key, {known.begin(), known.end()})));
    }
  }
}

Value Value::at(std::string_view key, std::string_view expected) const {
  if (auto v = find(key)) {
    return *std::move(v);
  }
  throw InputError(where(key), fmt::format("missing, expected {}", expected));
}

std::optional<Value> Value::find(std::string_view key) const {
  if (!node_->is_object()) {
    fail("an object {...}");
  }
  const auto it = node_->find(key);
  if (it == node_->end()) {
    return std::nullopt;
  }
  return Value(*document_, *it, join_path(path_, key));
}

std::vector<std::pair<std::string, Value>> Value::members() const {
  if (!node_->is_object()) {
    fail("an object {...}");
  }
  std::vector<std::pair<std::string, Value>> all;
  for (const auto& [key, value] : node_->items()) {
    all.emplace_back(key, Value(*document_, value, join_path(path_, key)));
  }
  return all;
}

std::vector<Value> Value::items(std::string_view expected, std::size_t least) const {
  if (!node_->is_array() || node_->size() < least) {
    fail(expected);
  }
  std::vector<Value> all;
  all.reserve(node_->size());
  for (std::size_t i = 0; i < node_->size(); ++i) {
    all.emplace_back(*document_, (*node_)[i], fmt::format("{}[{}]", path_, i));
  }
  return all;
}

bool Value::is(std::string_view text) const {
  return is_string() && node_->get_ref<const std::string&>() == text;
}

std::string Value::text(std::string_view expected) const {
  if (!is_string()) {
    fail(expected);
  }
  return node_->get<std::string>();
}

std::string Value::name() const {
  const std::string name = text("a name in quotes");
  const auto printable = [](unsigned char c) { return c >= ' ' && c != 127; };
  if (name.empty() || name.size() > 200 || !std::all_of(name.begin(), name.end(), printable)) {
    fail("a name of 1 to 200 printable characters");
  }
  return name;
}

bool Value::boolean() const {
  if (!node_->is_boolean()) {
    fail("true or false");
  }
  return node_->get<bool>();
}

std::int64_t Value::integer(std::int64_t low, std::int64_t high) const {
  constexpr double kExact = 9007199254740992.0;  // 2^53: 4e7 is the integer it looks like
  std::optional<std::int64_t> value;
  if (node_->is_number_unsigned()) {
    const auto u = node_->get<std::uint64_t>();
    if (u <= static_cast<std::uint64_t>(INT64_MAX)) {
      value = static_cast<std::int64_t>(u);
    }
  } else if (node_->is_number_integer()) {
    value = node_->get<std::int64_t>();
  } else if (node_->is_number_float()) {
    if (const double d = node_->get<double>(); std::abs(d) <= kExact && d == std::floor(d)) {
      value = static_cast<std::int64_t>(d);
    }
  }
  if (!value || *value < low || *value > high) {
    fail(low == high ? fmt::format("{}", low) : fmt::format("an integer from {} to {}", low, high));
  }
  return *value;
}

double Value::number(double low, double high) const {
  if (!node_->is_number()) {
    fail(fmt::format("a number from {} to {}", low, high));
  }
  const auto value = node_->get<double>();
  if (!(value >= low && value <= high)) {
    fail(fmt::format("a number from {} to {}", low, high));
  }
  return value;
}

}  // namespace stepcast::config
