#include "cli/print/hitcurve_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/print/human.h"
#include "core/access/repeated_lists.h"
#include "core/access/zipf_fit.h"

namespace stepcast::cli {
namespace {

/// 1, 2, 5, 10, ... up to and including the distinct rows.
std::vector<double> capacities(double distinct) {
  std::vector<double> all;
  for (double decade = 1; decade <= distinct; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      if (step * decade < distinct) {
        all.push_back(step * decade);
      }
    }
  }
  all.push_back(std::ceil(distinct));
  return all;
}

/// Beyond this the law is another.
constexpr double kPoorFit = 0.05;

void add_zipf(Facts& t, const Access& access, const std::vector<ReuseBin>& bins, double lookups) {
  const ZipfFit fit = fit_zipf(access.rows(), bins, lookups);
  t.row({name_cell("zipf", "zipf exponent that fits best"),
         {fmt::format("{:.3f}", fit.exponent), std::round(fit.exponent * 1000) / 1000}});
  t.add("zipf_error", "largest error of its shares of lookups", share(fit.error));
  t.note(fmt::format("As a law: \"access\": {{\"zipf\": {:.3f}}}{}", fit.exponent,
                     fit.error > kPoorFit ? ", but these lookups follow no zipf law: give the "
                                            "recording or its histogram (--histogram) instead"
                                          : ""));
}

/// Shares of lookups that go to the hottest of the rows looked up.
void add_hottest(Facts& t, const Access& access, double distinct) {
  for (const double top : {0.001, 0.01, 0.1}) {
    t.row({name_cell(fmt::format("top_{:g}", top),
                     fmt::format("lookups to the hottest {} of those", percent(top))),
           share(access.cdf(std::ceil(top * distinct)).value)});
  }
}

}  // namespace

DataTable summary_table(const char* title, double lookups, const Access& access,
                        const std::vector<ReuseBin>& bins, const StackDistances* recorded) {
  Facts t("lookups", title);
  const double distinct = access.unique(lookups).value;
  t.add("lookups", "lookups", static_cast<std::int64_t>(lookups));
  t.add("rows", "rows of the table", access.rows());
  t.add("distinct_rows", "distinct rows", static_cast<std::int64_t>(distinct));
  if (recorded != nullptr) {
    t.add("seen_once", "rows seen once",
          static_cast<std::int64_t>(access.seen_once(lookups).value));
  }
  add_hottest(t, access, distinct);
  if (recorded != nullptr && static_cast<double>(recorded->followed()) < lookups) {
    t.add("followed", "lookups followed (--sample)", recorded->followed());
  }
  add_zipf(t, access, bins, lookups);
  return t;
}

DataTable bins_table(const std::vector<ReuseBin>& bins, double lookups) {
  DataTable t("reuse", "how often a row was looked up",
              {{"reuse_low", "more than"},
               {"reuse_high", "at most"},
               {"unique_rows", "rows"},
               {"accesses", "lookups"},
               {"share", "of lookups"}});
  for (const ReuseBin& b : bins) {
    t.row({cell(static_cast<std::int64_t>(b.reuse_low)),
           cell(static_cast<std::int64_t>(b.reuse_high)),
           cell(static_cast<std::int64_t>(b.unique_rows)),
           cell(static_cast<std::int64_t>(b.accesses)), share(b.accesses / lookups)});
  }
  return t;
}

DataTable curve_table(const Access& access, double distinct, const StackDistances* recorded) {
  DataTable t("hit_rate", "hit rate of a cache",
              {{"capacity_rows", "rows held"},
               {"lru", "LRU, as recorded", false, recorded != nullptr ? 0 : kNowhere},
               {"lru_independent", "LRU, independent lookups"},
               {"pinned", "hottest rows pinned"}});
  for (const double c : capacities(distinct)) {
    t.row({cell(static_cast<std::int64_t>(c)),
           recorded != nullptr ? share(recorded->hit_rate(c)) : empty_cell(),
           share(access.hit_rate(c, CachePolicy::kLru).value),
           share(access.hit_rate(c, CachePolicy::kPinned).value)});
  }
  t.note(recorded != nullptr
             ? "The column as recorded counts the first lookup of a row as a miss; the other "
               "columns assume a warm cache."
             : "These are rates of a warm cache. LRU in the recorded order needs the recording, without "
               "--sketch.");
  return t;
}

std::vector<DataTable> lists_tables(const std::vector<std::int64_t>& ids,
                                    const std::vector<std::int64_t>& begins) {
  if (begins.empty()) {
    return {};
  }
  DataTable t("lists", "lists of ids that differ, among the samples of a rank",
              {{"samples", "samples"},
               {"distinct_share", "distinct lists"},
               {"ids_share", "their ids"},
               {"dedup_factor", "lists / distinct"}});
  const auto lists = static_cast<std::int64_t>(begins.size());
  std::vector<std::int64_t> batches;
  for (std::int64_t b = 64; b < lists; b *= 4) {
    batches.push_back(b);
  }
  batches.push_back(lists);
  for (const std::int64_t b : batches) {
    const DistinctLists d = distinct_lists(ids, begins, b);
    const double each = static_cast<double>(ids.size()) / static_cast<double>(lists);
    t.row({cell(b), share(d.lists / static_cast<double>(b)),
           share(d.ids / (each * static_cast<double>(b))), cell(static_cast<double>(b) / d.lists)});
  }
  t.note(
      fmt::format("{} of the lists are that of the sample before: as \"session\" of a law, keep "
                  "is that share where sessions are long.",
                  percent(kept_lists(ids, begins))));
  return {std::move(t)};
}

DataTable sketch_summary(const IdSketch& sketch, const Access& access,
                         const std::vector<ReuseBin>& bins) {
  Facts t("lookups", "recorded lookups, sketched in one pass");
  t.add("lookups", "lookups", static_cast<std::int64_t>(sketch.lookups()));
  t.add("rows", "rows of the table", access.rows());
  t.add("distinct_rows", "distinct rows", sketch.distinct());
  t.add("distinct_error", "standard error of that", share(sketch.distinct_error()));
  t.add("floor", "rows looked up more often are all counted apart", sketch.floor());
  t.add("sketch_bytes", "memory of the sketch", Bytes(static_cast<double>(sketch.memory_bytes())));
  if (sketch.exact()) {
    t.note("Few enough rows: everything here is exact.");
  }
  add_zipf(t, access, bins, sketch.lookups());
  return t;
}

DataTable hot_table(const IdSketch& sketch) {
  constexpr std::size_t kShown = 1000;
  DataTable t("hot_rows", "rows looked up most",
              {{"row"},
               {"lookups_at_least", "at least"},
               {"lookups_at_most", "at most"},
               {"share", "of lookups"}});
  const auto rows = sketch.hot_rows();
  for (std::size_t i = 0; i < std::min(kShown, rows.size()); ++i) {
    t.row({cell(rows[i].row), cell(rows[i].count), cell(rows[i].count + rows[i].missed),
           share(static_cast<double>(rows[i].count) / sketch.lookups())});
  }
  t.limit(10);
  return t;
}

}  // namespace stepcast::cli
