#include <array>
#include <bitset>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/access/row_order.h"
#include "core/graph/embedding_placement.h"
#include "core/graph/expert_draw.h"
#include "core/graph/expert_points.h"
#include "traces/native/graph_json.h"
#include "traces/native/internal/graph_fields.h"

namespace stepcast::traces {
namespace {

using internal::fields;
using internal::Record;
using nlohmann::json;

/// Values that several records share; equal ones stand once.
class Pool {
 public:
  std::size_t index_of(json value) {
    const auto [at, fresh] = places_.try_emplace(value.dump(), values_.size());
    if (fresh) {
      values_.push_back(std::move(value));
    }
    return at->second;
  }
  [[nodiscard]] const json& values() const { return values_; }

 private:
  std::map<std::string, std::size_t> places_;
  json values_ = json::array();
};

class GraphWriter {
 public:
  json write(const ExecutionGraph& graph) {
    json all = object(graph);
    all["laws"] = laws_.values();
    all["orders"] = orders_.values();
    all["draws"] = draws_.values();
    return all;
  }
  json write(const OpAttributes& attributes) { return value(attributes); }

 private:
  template <typename T>
  requires std::is_arithmetic_v<T> json value(const T& v) { return v; }
  json value(const std::string& v) { return v; }
  template <typename E>
  requires std::is_enum_v<E> json value(const E& v) {
    return internal::names_of<E>().at(static_cast<std::size_t>(v));
  }
  template <int S, int B, int F>
  json value(const Quantity<S, B, F>& v) {
    return v.base();
  }
  template <typename T>
  json value(const std::optional<T>& v) {
    return v ? value(*v) : json();
  }
  template <typename T, std::size_t n>
  json value(const std::array<T, n>& v) {
    return list(v);
  }
  template <typename T>
  json value(const std::vector<T>& v) {
    return list(v);
  }
  template <Record T>
  json value(const std::vector<T>& v) {
    return v.size() > 1 && !std::same_as<T, Program> ? table(v) : list(v);
  }
  template <std::size_t n>
  json value(const std::bitset<n>& v) {
    json set = json::array();
    for (std::size_t i = 0; i < n; ++i) {
      if (v[i]) {
        set.push_back(i);
      }
    }
    return set;
  }
  template <Record T>
  json value(const T& v) {
    return object(v);
  }
  json value(const OpAttributes& v) { return alternative<1>(v); }
  /// The attributes under their name, from alternative `i` on; null where there are none.
  template <std::size_t i>
  json alternative(const OpAttributes& v) {
    if constexpr (i < std::variant_size_v<OpAttributes>) {
      const auto* attributes = std::get_if<i>(&v);
      return attributes == nullptr
                 ? alternative<i + 1>(v)
                 : json{{std::string(internal::kAttributes.at(i)), object(*attributes)}};
    } else {
      return {};
    }
  }
  json value(const Access& law) { return laws_.index_of(object(StoredAccess::of(law))); }
  json value(const std::shared_ptr<const Access>& law) { return law ? value(*law) : json(); }
  json value(const std::shared_ptr<const RowOrder>& order) {
    if (order == nullptr) {
      return {};
    }
    json j = {{"rows", order->rows()}};
    if (order->seed()) {
      j["seed"] = *order->seed();
    } else {
      j["ids"] = order->ids();
    }
    return orders_.index_of(std::move(j));
  }
  json value(const std::shared_ptr<const ExpertDraw>& draw) {
    if (draw == nullptr) {
      return {};
    }
    constexpr auto kAll = static_cast<std::int64_t>(expert_points::kUnit);
    json shares = json::array();
    for (std::int64_t e = 0; e < draw->experts(); ++e) {  // of all tokens there are: exact
      shares.push_back(draw->count(0, kAll, 0, e));
    }
    return draws_.index_of({{"per_token", draw->per_token()}, {"shares", std::move(shares)}});
  }
  json value(const std::shared_ptr<const EmbeddingPlacement>& placement) {
    return placement ? object(*placement) : json();
  }

  template <typename Container>
  json list(const Container& all) {
    json j = json::array();
    for (const auto& v : all) {
      j.push_back(value(v));
    }
    return j;
  }
  template <typename T>
  json object(const T& record) {
    const std::vector<json>& plain = defaults<T>();
    json j = json::object();
    std::size_t i = 0;
    fields(record, [&](std::string_view name, const auto& field) {
      if (json v = value(field); v != plain[i++]) {
        j[std::string(name)] = std::move(v);
      }
    });
    return j;
  }
  template <typename T>
  json table(const std::vector<T>& all) {
    const std::vector<json>& plain = defaults<T>();
    std::vector<std::vector<json>> rows;
    std::vector<bool> used(plain.size(), false);
    for (const T& record : all) {
      std::vector<json>& row = rows.emplace_back();
      fields(record, [&](std::string_view, const auto& field) {
        row.push_back(value(field));
        used[row.size() - 1] = used[row.size() - 1] || row.back() != plain[row.size() - 1];
      });
    }
    json names = json::array();
    std::size_t i = 0;
    fields(all.front(), [&](std::string_view name, const auto&) {
      if (used[i++]) {
        names.push_back(name);
      }
    });
    json cut = json::array();
    for (std::vector<json>& row : rows) {
      json& kept = cut.emplace_back(json::array());
      for (std::size_t c = 0; c < row.size(); ++c) {
        if (used[c]) {
          kept.push_back(std::move(row[c]));
        }
      }
    }
    return {{"columns", std::move(names)}, {"rows", std::move(cut)}};
  }
  /// The fields of a record that says nothing.
  template <typename T>
  const std::vector<json>& defaults() {
    static const std::vector<json> kDefaults = [this] {
      std::vector<json> values;
      const T plain{};
      fields(plain, [&](std::string_view, const auto& field) { values.push_back(value(field)); });
      return values;
    }();
    return kDefaults;
  }

  Pool laws_, orders_, draws_;
};

}  // namespace

json graph_to_json(const ExecutionGraph& graph) { return GraphWriter().write(graph); }

}  // namespace stepcast::traces
