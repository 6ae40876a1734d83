// Embedding tables of a workload.
#include <algorithm>
#include <cmath>
#include <map>

#include "core/access/access.h"
#include "core/config/internal/access_reader.h"
#include "core/config/internal/job_tables.h"
#include "core/config/internal/layer_loaders.h"

namespace stepcast::config {
namespace {

KeyTable feature_table() {
  return {needed_fact("name", text_form("a name"), "of the feature"),
          usual_fact("pooling", number_form(0, 1e6), "lookups of a sample", 1)};
}

const KeyTable& tables_table() {
  static const KeyTable table{
      needed_fact("name", text_form("a name"), "of the table"),
      needed_fact("rows", integer_form(1, kMostRows), "rows"),
      needed_fact("dim", integer_form(1, kWidestTable), "columns"),
      open_fact("pooling", number_form(0, 1e6),
                "lookups of a sample: a fraction is the mean of a Poisson law",
                "1, or that of the recording"),
      usual_fact("mode", choice_form(pooling_names()), "what becomes of them", "sum"),
      open_fact("access", named_form("access"), "which rows are looked up how often", "uniform"),
      usual_fact("features",
                 any_form({integer_form(1, 4096), list_form(object_form(feature_table()), 1)}),
                 "features that share the rows: how many alike, or each by name", 1),
      open_fact("format", choice_form(row_format_names()), "of the rows", "formats.embedding"),
      usual_fact("weighted", boolean_form(), "a weight travels with every id", false)};
  return table;
}

double lookups_per_sample(const Value& v) {
  const double lookups = v.number(0, 1e6);
  if (lookups <= 0) {
    v.fail("more than 0 lookups per sample");
  }
  return lookups;
}

/// A number of features alike, or one by one with their names; `t.pooling` of one becomes that of
/// all.
void read_features(const Value& v, EmbeddingTable& t, bool has_pooling) {
  constexpr std::int64_t kMostFeatures = 4096;
  if (v.json().is_array()) {
    double all = 0;
    for (const Value& f : v.items("a number of features, or a list of them", 1)) {
      expect_keys(f, feature_table());
      const auto pooling = f.find("pooling");
      t.features.push_back(
          {f.at("name", "a name in quotes").name(), pooling ? lookups_per_sample(*pooling) : 1});
      all += t.features.back().pooling;
    }
    if (has_pooling) {
      v.reject("found a list of features and pooling; give each feature its own pooling");
    }
    t.pooling = all;
  } else {
    const std::int64_t count = v.integer(1, kMostFeatures);
    if (count > 1) {
      t.features.assign(static_cast<std::size_t>(count), {"", t.pooling});
      t.pooling *= static_cast<double>(count);
    }
  }
  if (t.feature_count() > 1 && t.session) {
    v.reject(
        "found several features, but sessions are modelled for tables of one feature; "
        "remove access.session");
  }
}

EmbeddingTable table_from(const Value& v, AccessReader& laws) {
  expect_keys(v, tables_table());
  EmbeddingTable t;
  t.name = v.at("name", "a name in quotes").name();
  t.rows = v.at("rows", "the number of rows").integer(1, kMostRows);
  t.dim = v.at("dim", "the embedding dimension").integer(1, kWidestTable);
  if (const auto pooling = v.find("pooling")) {
    t.pooling = lookups_per_sample(*pooling);
  }
  if (const auto mode = v.find("mode")) {
    t.mode = mode->choice(pooling_names());
  }
  if (const auto access = v.find("access")) {
    const auto recorded = laws.read(*access, t);
    const auto pooling = v.find("pooling");
    if (recorded && pooling && std::abs(*recorded / t.pooling - 1) > 0.01) {
      pooling->reject(
          fmt::format("found {}, but {} has {:.6g} ids per bag; leave pooling out to take that",
                      t.pooling, t.access_file, *recorded));
    }
    t.pooling = recorded && !pooling ? *recorded : t.pooling;
  } else {
    t.access = std::make_shared<const Access>(Access::uniform(t.rows));
  }
  if (const auto features = v.find("features")) {
    read_features(*features, t, v.find("pooling").has_value());
  }
  if (const auto format = v.find("format")) {
    t.format = format->choice(row_format_names());
  }
  if (const auto weighted = v.find("weighted")) {
    t.weighted = weighted->boolean();
    if (t.weighted && t.mode == PoolingMode::kSequence) {
      weighted->reject("found true: rows that are not pooled have no weights; use mode sum");
    }
  }
  return t;
}

}  // namespace

std::vector<EmbeddingTable> tables_from(const Value& v, std::size_t least) {
  std::vector<EmbeddingTable> tables;
  AccessReader laws;
  std::map<std::string, std::size_t> seen;
  for (const Value& t :
       v.items(least > 0 ? "a list of at least one table" : "a list of tables", least)) {
    tables.push_back(table_from(t, laws));
    if (const auto [first, fresh] = seen.emplace(tables.back().name, tables.size() - 1); !fresh) {
      throw InputError(
          t.where("name"),
          fmt::format("\"{}\" is also the name of tables[{}]; plans need names that differ",
                      first->first, first->second));
    }
  }
  return tables;
}

OrderedJson tables_form(std::size_t least) { return list_form(object_form(tables_table()), least); }

void add_tables(OrderedJson& j, const LayeredWorkload& w) {
  j["tables"] = OrderedJson::array();
  for (const EmbeddingTable& t : w.tables) {
    OrderedJson table;
    table["name"] = t.name;
    table["rows"] = t.remapped ? t.remapped->rows : t.rows;
    table["dim"] = t.dim;
    if (t.features.empty()) {
      table["pooling"] = plain(t.pooling);
    } else if (t.features.front().name.empty()) {  // so many alike
      table["pooling"] = plain(t.features.front().pooling);
      table["features"] = t.features.size();
    } else {
      table["features"] = OrderedJson::array();
      for (const TableFeature& f : t.features) {
        table["features"].push_back({{"name", f.name}, {"pooling", plain(f.pooling)}});
      }
    }
    table["mode"] = name_in(pooling_names(), t.mode);
    if (t.format) {
      table["format"] = name_of(*t.format);
    }
    if (t.weighted) {
      table["weighted"] = true;
    }
    table["access"] = access_json(t);
    j["tables"].push_back(std::move(table));
  }
}

const std::vector<std::pair<std::string, PoolingMode>>& pooling_names() {
  static const std::vector<std::pair<std::string, PoolingMode>> names{
      {"sum", PoolingMode::kSum},
      {"mean", PoolingMode::kMean},
      {"sequence", PoolingMode::kSequence}};
  return names;
}

const std::vector<std::pair<std::string, Format>>& row_format_names() {
  static const auto names = [] {
    std::vector<std::pair<std::string, Format>> all;
    for (const Format f : {Format::kFp32, Format::kBf16, Format::kFp16, Format::kFp8,
                           Format::kInt8Row, Format::kInt4Row}) {
      all.emplace_back(name_of(f), f);
    }
    return all;
  }();
  return names;
}

}  // namespace stepcast::config
