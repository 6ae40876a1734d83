#pragma once
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config/config.h"
#include "core/config/quantity.h"
#include "core/config/suggest.h"
#include "core/error.h"

namespace stepcast::config {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  ///< of writers

// Bounds far beyond anything built, so that later products stay exact in 64 bits and in doubles.
constexpr std::int64_t kMostRows = std::int64_t{1} << 40;
constexpr std::int64_t kWidestTable = 1 << 16;
constexpr std::int64_t kWidest = 1 << 20;  ///< of a layer
constexpr std::int64_t kMostDevices = 1 << 20;

/// A parsed JSON file and how errors name it.
struct Document {
  std::string label;
  std::filesystem::path folder;
  Json root;
  /// Path of the root inside the job ("workload" for a zoo file a job names); overrides are given
  /// in those terms.
  std::string job_path;
  std::vector<std::string> overridden;
  /// Place of each table of a list, for messages ("t.csv:3: table \"a\"").
  std::vector<std::string> table_places;
};

/// Strict JSON: comments allowed; duplicate keys, nesting deeper than 64 and trailing text are
/// rejected. Errors: InputError with line, column and JSON path of the place where reading stopped.
Json parse_json(std::string_view text, std::string_view label);
Document parse_document(const Source& source);

constexpr std::uintmax_t kLargestJson = 256U << 20U;  ///< bytes

/// Opens a regular file. `where` names the place that asked for it. Errors: InputError with the
/// nearest name in its folder.
std::ifstream open_file(const std::filesystem::path& file, std::string_view where);
/// Reads a file of at most `limit` bytes. `where` names the place that asked for it.
std::string read_whole_file(const std::filesystem::path& file, std::string_view where,
                            std::uintmax_t limit);

/// "workload.tables[3]" + "rows" -> "workload.tables[3].rows".
std::string join_path(std::string_view path, std::string_view key);

/// The first `limit` characters of a value as JSON, for messages.
std::string shown(const Json& value, std::size_t limit = 60);

/// JSON text with short objects and lists of numbers on one line; `indent` < 0: all on one line.
std::string pretty(const OrderedJson& value, int indent);
/// JSON of a job, as job_to_json writes it.
OrderedJson job_json(const Job& job, bool every = false);

/// One value of a document with its path: every accessor checks type and range and fails with
/// place, value, expectation.
class Value {
 public:
  Value(const Document& document, const Json& node, std::string path)
      : document_(&document), node_(&node), path_(std::move(path)) {}
  static Value root_of(const Document& d) { return {d, d.root, ""}; }

  [[nodiscard]] const Json& json() const { return *node_; }
  [[nodiscard]] const Document& document() const { return *document_; }
  /// "job.json: parallel.tensor", or "--set parallel.tensor" when an override put the value there.
  [[nodiscard]] std::string where() const;
  /// Place where a key of this object is, or would be.
  [[nodiscard]] std::string where(std::string_view key) const;
  /// Folder that a file named by this value is relative to.
  [[nodiscard]] std::filesystem::path folder() const;

  [[noreturn]] void fail(std::string_view expected) const;   ///< found X, expected ...
  [[noreturn]] void reject(std::string_view message) const;  ///< free text after the place

  /// Object access. `keys` rejects everything that is not listed.
  void keys(const std::vector<std::string_view>& known) const;
  [[nodiscard]] Value at(std::string_view key, std::string_view expected) const;
  [[nodiscard]] std::optional<Value> find(std::string_view key) const;
  [[nodiscard]] std::vector<std::pair<std::string, Value>> members() const;
  [[nodiscard]] std::vector<Value> items(std::string_view expected, std::size_t least = 0) const;

  [[nodiscard]] bool is_string() const { return node_->is_string(); }
  [[nodiscard]] bool is_object() const { return node_->is_object(); }
  [[nodiscard]] bool is(std::string_view text) const;
  [[nodiscard]] std::string text(std::string_view expected) const;
  [[nodiscard]] std::string name() const;  ///< a non-empty string without control characters
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high) const;
  [[nodiscard]] double number(double low, double high) const;
  /// An amount with its unit. `zero` says whether 0 is one.
  template <class Q>
  [[nodiscard]] Q amount(bool zero = false) const;
  /// One of a list of names.
  template <class T>
  [[nodiscard]] T choice(const std::vector<std::pair<std::string, T>>& names) const;

 private:
  [[nodiscard]] std::string place(const std::string& path) const;
  [[nodiscard]] bool overridden(const std::string& path) const;
  const Document* document_;
  const Json* node_;
  std::string path_;
};

/// An amount as it is written.
template <class Q>
constexpr std::string_view example_of() {
  static_assert(std::is_same_v<Q, Bytes> || std::is_same_v<Q, BytesPerSecond> ||
                std::is_same_v<Q, Seconds> || std::is_same_v<Q, FlopsPerSecond>);
  return std::is_same_v<Q, Bytes>            ? "80 GB"
         : std::is_same_v<Q, BytesPerSecond> ? "3.35 TB/s"
         : std::is_same_v<Q, Seconds>        ? "2 us"
                                             : "989 TFLOP/s";
}

template <class Q>
Q Value::amount(bool zero) const {
  constexpr std::string_view example = example_of<Q>();
  if (!is_string()) {
    fail(fmt::format("an amount with its unit, such as \"{}\"", example));
  }
  const Q amount = parse_quantity<Q>(node_->get_ref<const std::string&>(), where());
  if (!zero && amount.base() <= 0) {
    fail(fmt::format("an amount above 0, such as \"{}\"", example));
  }
  return amount;
}

template <class T>
T Value::choice(const std::vector<std::pair<std::string, T>>& names) const {
  std::vector<std::string> all;
  for (const auto& [name, value] : names) {
    if (is(name)) {
      return value;
    }
    all.push_back(name);
  }
  if (!is_string()) {
    fail(list_of(all));
  }
  reject(fmt::format("found {}; {}", shown(json()),
                     suggestion(node_->get_ref<const std::string&>(), all)));
}

}  // namespace stepcast::config
