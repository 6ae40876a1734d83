// Who is looked up how often: `access` of a table, and of experts.
#include <algorithm>

#include "core/config/access_files.h"
#include "core/config/internal/access_reader.h"
#include "core/config/internal/job_tables.h"

namespace stepcast::config {
namespace {

KeyTable session_table() {
  return {needed_fact("samples", number_form(1, 1e9), "samples of a session"),
          needed_fact("keep", number_form(0, 1),
                      "probability that a value is that of the sample before")};
}

const std::vector<std::pair<std::string, Access::Remap>>& remap_names() {
  static const std::vector<std::pair<std::string, Access::Remap>> names{
      {"mod", Access::Remap::kMod},
      {"frequency", Access::Remap::kFrequency},
      {"lru", Access::Remap::kLru},
      {"lfu", Access::Remap::kLfu}};
  return names;
}

KeyTable remap_table() {
  return {needed_fact("buckets", integer_form(1, kMostRows), "rows that are left"),
          needed_fact("kind", choice_form(remap_names()),
                      "how ids share them; with lru and lfu they take rows from others"),
          usual_fact("admit", number_form(0, 1),
                     "of lfu: probability that it does; others share a row", 1)};
}

/// Errors inside a file say which table asked for it.
template <class Read>
auto named(const Value& v, const Read& read) {
  try {
    return read();
  } catch (const InputError& e) {
    if (e.where().starts_with(v.where())) {
      throw;
    }
    v.reject(e.what());
  }
}

Access histogram_of(const Value& v, const std::filesystem::path& file, std::int64_t rows) {
  ReuseHistogram h = named(v, [&] { return read_histogram(file, v.where()); });
  double unique = 0;
  for (const ReuseBin& b : h.bins) {
    unique += b.unique_rows;
  }
  if (unique > static_cast<double>(rows) * 1.001) {
    v.reject(fmt::format(
        "{} counts {} rows, more than the table's {}; raise rows or use another histogram",
        file.string(), unique, rows));
  }
  return Access::histogram(rows, std::move(h.bins), h.sample_lookups);
}

Access indices_of(const Value& v, const std::filesystem::path& file, std::int64_t rows) {
  std::vector<std::int64_t> ids = named(v, [&] { return read_indices(file, v.where(), rows); });
  if (const auto bad =
          std::find_if(ids.begin(), ids.end(), [&](std::int64_t i) { return i >= rows; });
      bad != ids.end()) {
    v.reject(fmt::format("{} names row {} at position {}, but the table has {} rows; raise rows",
                         file.string(), *bad, bad - ids.begin(), rows));
  }
  return Access::indices(rows, std::move(ids));
}

}  // namespace

std::optional<double> AccessReader::read(const Value& v, EmbeddingTable& table) {
  expect_keys(v, access_table());
  std::vector<std::string> laws;
  for (const char* law : {"uniform", "zipf", "histogram", "indices"}) {
    if (v.find(law)) {
      laws.emplace_back(law);
    }
  }
  if (laws.size() != 1) {
    v.fail("exactly one of uniform, zipf, histogram or indices");
  }
  if (v.find("seed") && laws[0] != "zipf") {
    v.reject("seed belongs to zipf; remove it");
  }
  table.access = law(v, laws[0], table);
  std::optional<double> pooling;
  if (const auto ids = v.find("indices")) {
    const auto lookups = static_cast<std::int64_t>(table.access->recorded().size());
    pooling =
        named(*ids, [&] { return recorded_pooling(table.access_file, lookups, ids->where()); });
  }
  if (const auto session = v.find("session")) {
    expect_keys(*session, session_table());
    table.session =
        Session{session->at("samples", "the samples per session").number(1, 1e9),
                session->at("keep", "the probability that a value is kept").number(0, 1)};
  }
  if (const auto remap = v.find("remap")) {
    expect_keys(*remap, remap_table());
    const std::int64_t buckets =
        remap->at("buckets", "the number of buckets").integer(1, table.rows);
    const auto kind = remap->at("kind", "mod, frequency, lru or lfu").choice(remap_names());
    const bool evicts = kind == Access::Remap::kLru || kind == Access::Remap::kLfu;
    table.remapped = Remapping{table.rows, table.access, kind, evicts};
    if (const auto admit = remap->find("admit")) {
      table.remapped->admitted = admit->number(0, 1);
      if (kind != Access::Remap::kLfu && table.remapped->admitted < 1) {
        admit->reject("belongs to lfu, whose hottest ids keep their rows; remove it");
      }
    }
    // Ids that are not admitted share a row.
    const auto law = table.remapped->admitted < 1 ? Access::Remap::kFrequency : kind;
    table.access = std::make_shared<const Access>(table.access->remapped(buckets, law));
    table.rows = buckets;
  }
  return pooling;
}

std::shared_ptr<const Access> AccessReader::law(const Value& v, const std::string& name,
                                                EmbeddingTable& table) {
  const Value value = v.at(name, "a law");
  std::string key = fmt::format("{} {}", name, table.rows);
  if (name == "uniform") {
    if (!value.boolean()) {
      value.fail("true; to have another law name zipf, histogram or indices instead");
    }
    return shared(key, [&] { return Access::uniform(table.rows); });
  }
  if (name == "zipf") {
    const double exponent = value.number(0, 10);
    const auto seed_value = v.find("seed");
    const auto seed =
        static_cast<std::uint64_t>(seed_value ? seed_value->integer(0, INT64_MAX) : 0);
    return shared(fmt::format("{} {} {}", key, exponent, seed),
                  [&] { return Access::zipf(table.rows, exponent, seed); });
  }
  std::filesystem::path file =
      value.text(name == "histogram" ? "the path of a CSV file" : "the path of a file of row ids");
  if (file.is_relative()) {
    file = value.folder() / file;
  }
  table.access_file = std::filesystem::absolute(file).lexically_normal().string();
  key += " " + table.access_file;
  return shared(key, [&] {
    return name == "histogram" ? histogram_of(value, file, table.rows)
                               : indices_of(value, file, table.rows);
  });
}

OrderedJson access_json(const EmbeddingTable& t) {
  const Access& law = t.remapped ? *t.remapped->access : *t.access;
  OrderedJson j;
  switch (law.kind()) {
    case AccessKind::kUniform:
      j["uniform"] = true;
      break;
    case AccessKind::kZipf:
      j["zipf"] = plain(law.exponent());
      j["seed"] = law.seed();
      break;
    case AccessKind::kHistogram:
      STEPCAST_CHECK(!t.access_file.empty(), "table {} has a histogram without a file", t.name);
      j["histogram"] = t.access_file;
      break;
    case AccessKind::kIndices:
      STEPCAST_CHECK(!t.access_file.empty(), "table {} has recorded indices without a file",
                     t.name);
      j["indices"] = t.access_file;
      break;
  }
  if (t.session) {
    j["session"] = {{"samples", plain(t.session->samples)}, {"keep", plain(t.session->keep)}};
  }
  if (t.remapped) {
    j["remap"] = {{"buckets", t.rows}, {"kind", name_in(remap_names(), t.remapped->kind)}};
    if (t.remapped->admitted < 1) {
      j["remap"]["admit"] = plain(t.remapped->admitted);
    }
  }
  return j;
}

const KeyTable& access_table() {
  static const KeyTable table{
      open_fact("uniform", {{"const", true}}, "every row alike"),
      open_fact("zipf", number_form(0, 10), "p(k) ~ k^-a over popularity ranks"),
      usual_fact("seed", integer_form(0, INT64_MAX),
                 "of zipf: of the shuffle of ranks that gives row ids", 0),
      open_fact("histogram", text_form("the path of a CSV file"),
                "how many rows are used how often"),
      open_fact("indices", text_form("the path of a file of row ids"), "recorded ids"),
      open_fact("session", object_form(session_table()), "samples that repeat values"),
      open_fact("remap", object_form(remap_table()),
                "the table has fewer rows than there are ids")};
  return table;
}

}  // namespace stepcast::config
