#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "core/access/row_order.h"
#include "core/error.h"
#include "core/graph/embedding_placement.h"
#include "core/graph/expert_draw.h"
#include "core/graph/expert_points.h"
#include "traces/native/graph_json.h"
#include "traces/native/internal/check_graph.h"
#include "traces/native/internal/graph_fields.h"

namespace stepcast::traces {
namespace {

using internal::fields;
using internal::Record;
using nlohmann::json;

/// Place of a value; told only where something is wrong with it.
struct Place {
  const Place* in = nullptr;
  std::string_view key = {};
  std::size_t index = SIZE_MAX;
  [[nodiscard]] std::string path() const {
    std::string text = in != nullptr ? in->path() : "";
    if (index != SIZE_MAX) {
      return text + fmt::format("[{}]", index);
    }
    return text.empty() ? std::string(key) : key.empty() ? text : fmt::format("{}.{}", text, key);
  }
};

class GraphReader {
 public:
  explicit GraphReader(const std::string& file) : file_(file) {}

  ExecutionGraph read(json all) {
    const Place top{};
    if (!all.is_object()) {
      fail(top, "expected an object");
    }
    read_shared(all, "laws", &GraphReader::read_law);
    read_shared(all, "orders", &GraphReader::read_order);
    read_shared(all, "draws", &GraphReader::read_draw);
    ExecutionGraph graph;
    value(all, graph, top);
    internal::check_graph(graph, file_);
    return graph;
  }

 private:
  void read_shared(json& all, const char* key,
                   void (GraphReader::*read_one)(const json&, const Place&)) {
    const Place top{};
    const Place place{&top, key};
    const json list = all.contains(key) ? std::move(all[key]) : json();
    all.erase(key);
    if (!list.is_array()) {
      fail(place, "expected a list");
    }
    for (std::size_t i = 0; i < list.size(); ++i) {
      (this->*read_one)(list[i], {&place, {}, i});
    }
  }

  [[noreturn]] void fail(const Place& at, const std::string& what) const {
    throw InputError(file_ + ": " + at.path(), what);
  }
  [[noreturn]] void wrong(const json& j, const Place& at, std::string_view expected) const {
    fail(at, fmt::format("found {}; expected {}", j.dump(-1, ' ', true).substr(0, 40), expected));
  }

  void value(const json& j, bool& to, const Place& at) const {
    if (!j.is_boolean()) {
      wrong(j, at, "true or false");
    }
    to = j.get<bool>();
  }
  template <std::integral T>
  void value(const json& j, T& to, const Place& at) const {
    bool fits = false;
    if (j.is_number_unsigned()) {
      const auto n = j.get<std::uint64_t>();
      fits = std::in_range<T>(n);
      to = static_cast<T>(n);
    } else if (j.is_number_integer()) {
      const auto n = j.get<std::int64_t>();
      fits = std::in_range<T>(n);
      to = static_cast<T>(n);
    }
    if (!fits) {
      wrong(j, at, "a whole number in range");
    }
  }
  template <std::floating_point T>
  void value(const json& j, T& to, const Place& at) const {
    if (!j.is_number()) {
      wrong(j, at, "a number");
    }
    to = j.get<T>();
  }
  template <int S, int B, int F>
  void value(const json& j, Quantity<S, B, F>& to, const Place& at) const {
    double base = 0;
    value(j, base, at);
    to = Quantity<S, B, F>(base);
  }
  void value(const json& j, std::string& to, const Place& at) const { to = text(j, at); }
  [[nodiscard]] const std::string& text(const json& j, const Place& at) const {
    if (!j.is_string()) {
      wrong(j, at, "a text");
    }
    return j.get_ref<const std::string&>();
  }
  template <typename E>
  requires std::is_enum_v<E>
  void value(const json& j, E& to, const Place& at) const {
    const std::string& name = text(j, at);
    const auto& names = internal::names_of<E>();
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      fail(at, fmt::format("'{}' is none of {}", name.substr(0, 40), fmt::join(names, ", ")));
    }
    to = static_cast<E>(found - names.begin());
  }
  template <typename T>
  void value(const json& j, std::optional<T>& to, const Place& at) {
    to.reset();
    if (!j.is_null()) {
      value(j, to.emplace(T{}), at);
    }
  }
  void value(const json& j, std::optional<Access>& to, const Place& at) {
    to = *shared(j, laws_, at);
  }
  template <typename T, std::size_t n>
  void value(const json& j, std::array<T, n>& to, const Place& at) {
    if (!j.is_array() || j.size() != n) {
      wrong(j, at, fmt::format("a list of {}", n));
    }
    for (std::size_t i = 0; i < n; ++i) {
      value(j[i], to[i], {&at, {}, i});
    }
  }
  template <typename T>
  void value(const json& j, std::vector<T>& to, const Place& at) {
    list(j, to, at);
  }
  template <Record T>
  void value(const json& j, std::vector<T>& to, const Place& at) {
    j.is_object() ? table(j, to, at) : list(j, to, at);
  }
  template <std::size_t n>
  void value(const json& j, std::bitset<n>& to, const Place& at) {
    std::vector<std::size_t> set;
    list(j, set, at);
    for (const std::size_t i : set) {
      if (i >= n) {
        fail(at, fmt::format("{} of {}", i, n));
      }
      to.set(i);
    }
  }
  template <Record T>
  void value(const json& j, T& to, const Place& at) {
    if (!j.is_object()) {
      wrong(j, at, "an object");
    }
    std::size_t found = 0;
    fields(to, [&](std::string_view name, auto& field) {
      if (const auto v = j.find(name); v != j.end()) {
        value(*v, field, {&at, name});
        ++found;
      }
    });
    if (found != j.size()) {
      for (const auto& item : j.items()) {
        const std::string& key = item.key();
        bool known = false;
        fields(to, [&](std::string_view name, auto&) { known = known || name == key; });
        if (!known) {
          unknown(key, at);
        }
      }
    }
  }
  void value(const json& j, OpAttributes& to, const Place& at) {
    to = {};
    if (j.is_null()) {
      return;
    }
    if (!j.is_object() || j.size() != 1) {
      wrong(j, at, "attributes under one name");
    }
    alternative<1>(j.begin().key(), j.begin().value(), to, at);
  }
  template <std::size_t i>
  void alternative(const std::string& name, const json& j, OpAttributes& to, const Place& at) {
    if constexpr (i == internal::kAttributes.size()) {
      fail(at, fmt::format("'{}' is none of {}", name.substr(0, 40),
                           fmt::join(internal::kAttributes.begin() + 1, internal::kAttributes.end(),
                                     ", ")));
    } else if (internal::kAttributes[i] == name) {
      value(j, to.emplace<i>(), {&at, name});
    } else {
      alternative<i + 1>(name, j, to, at);
    }
  }
  void value(const json& j, std::shared_ptr<const Access>& to, const Place& at) {
    to = shared(j, laws_, at);
  }
  void value(const json& j, std::shared_ptr<const RowOrder>& to, const Place& at) {
    to = shared(j, orders_, at);
  }
  void value(const json& j, std::shared_ptr<const ExpertDraw>& to, const Place& at) {
    to = shared(j, draws_, at);
  }
  void value(const json& j, std::shared_ptr<const EmbeddingPlacement>& to, const Place& at) {
    auto placement = std::make_shared<EmbeddingPlacement>();
    value(j, *placement, at);
    to = std::move(placement);
  }

  template <typename T>
  void list(const json& j, std::vector<T>& to, const Place& at) {
    if (!j.is_array()) {
      wrong(j, at, "a list");
    }
    to.resize(j.size());
    for (std::size_t i = 0; i < j.size(); ++i) {
      value(j[i], to[i], {&at, {}, i});
    }
  }
  template <typename T>
  void table(const json& j, std::vector<T>& to, const Place& at) {
    const auto columns = j.find("columns");
    const auto rows = j.find("rows");
    if (columns == j.end() || rows == j.end() || !columns->is_array() || !rows->is_array() ||
        j.size() != 2) {
      fail(at, "expected a table, {\"columns\": [...], \"rows\": [...]}");
    }
    constexpr std::size_t kNone = SIZE_MAX;
    std::vector<std::size_t> column_of;  // by field
    std::vector<bool> known(columns->size(), false);
    const T plain{};
    fields(plain, [&](std::string_view name, const auto&) {
      const auto c = static_cast<std::size_t>(std::find(columns->begin(), columns->end(), name) -
                                              columns->begin());
      column_of.push_back(c < columns->size() ? c : kNone);
      if (c < columns->size()) {
        known[c] = true;
      }
    });
    for (std::size_t c = 0; c < known.size(); ++c) {
      if (!known[c]) {
        unknown((*columns)[c].dump(), at);
      }
    }
    to.resize(rows->size());
    for (std::size_t r = 0; r < rows->size(); ++r) {
      const json& row = (*rows)[r];
      const Place in_row{&at, {}, r};
      if (!row.is_array() || row.size() != columns->size()) {
        wrong(row, in_row, fmt::format("{} columns", columns->size()));
      }
      std::size_t field_index = 0;
      fields(to[r], [&](std::string_view name, auto& field) {
        const std::size_t c = column_of[field_index++];
        if (c != kNone) {
          value(row[c], field, {&in_row, name});
        }
      });
    }
  }
  [[noreturn]] void unknown(const std::string& key, const Place& at) const {
    fail(at, fmt::format("'{}' is no field that this version knows; was the trace recorded by a "
                         "later one?",
                         key.substr(0, 40)));
  }

  template <typename T>
  std::shared_ptr<const T> shared(const json& j, const std::vector<std::shared_ptr<const T>>& all,
                                  const Place& at) const {
    if (j.is_null()) {
      return nullptr;
    }
    std::size_t i = 0;
    value(j, i, at);
    if (i >= all.size()) {
      fail(at, fmt::format("{} of {}", i, all.size()));
    }
    return all[i];
  }
  /// Makes what a library may reject; the error then has the place in the file.
  template <typename Make>
  auto made(const Place& at, const Make& make) const {
    try {
      return std::make_shared<const std::decay_t<decltype(make())>>(make());
    } catch (const InputError& e) {
      fail(at, e.what());
    }
  }
  void read_law(const json& j, const Place& at) {
    StoredAccess law;
    value(j, law, at);
    laws_.push_back(made(at, [&law] { return law.restored(); }));
  }
  void read_order(const json& j, const Place& at) {
    std::int64_t rows = 0;
    value(field_of(j, "rows", at), rows, {&at, "rows"});
    if (j.contains("seed")) {
      std::uint64_t seed = 0;
      value(j["seed"], seed, {&at, "seed"});
      if (rows < 1) {
        fail(at, fmt::format("{} rows", rows));
      }
      orders_.push_back(made(at, [&] { return RowOrder::seeded(rows, seed); }));
      return;
    }
    std::vector<std::int64_t> ids;
    value(field_of(j, "ids", at), ids, {&at, "ids"});
    orders_.push_back(made(at, [&] { return RowOrder::listed(rows, std::move(ids)); }));
  }
  void read_draw(const json& j, const Place& at) {
    std::int64_t per_token = 0;
    std::vector<std::int64_t> parts;
    value(field_of(j, "per_token", at), per_token, {&at, "per_token"});
    value(field_of(j, "shares", at), parts, {&at, "shares"});
    constexpr auto kAll = static_cast<std::int64_t>(expert_points::kUnit);
    constexpr std::size_t kMostExperts = 1 << 14;
    const bool shares =
        !parts.empty() && parts.size() <= kMostExperts && per_token >= 1 &&
        per_token <= static_cast<std::int64_t>(parts.size()) &&
        std::all_of(parts.begin(), parts.end(), [](std::int64_t p) { return p >= 0 && p <= kAll; });
    if (!shares ||
        std::accumulate(parts.begin(), parts.end(), std::int64_t{0}) != per_token * kAll) {
      fail(at, fmt::format("expected shares of 2^48 tokens, {} of them in all", per_token));
    }
    std::vector<double> exact;
    for (const std::int64_t p : parts) {
      exact.push_back(static_cast<double>(p) / static_cast<double>(kAll));
    }
    draws_.push_back(made(at, [&] { return ExpertDraw(exact, per_token); }));
  }
  [[nodiscard]] const json& field_of(const json& j, const char* key, const Place& at) const {
    if (!j.is_object() || !j.contains(key)) {
      fail({&at, key}, "is missing");
    }
    return j[key];
  }

  const std::string& file_;
  std::vector<std::shared_ptr<const Access>> laws_;
  std::vector<std::shared_ptr<const RowOrder>> orders_;
  std::vector<std::shared_ptr<const ExpertDraw>> draws_;
};

}  // namespace

ExecutionGraph graph_from_json(json graph, const std::string& place) {
  return GraphReader(place).read(std::move(graph));
}

}  // namespace stepcast::traces
