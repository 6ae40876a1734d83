#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "cli/checks.h"
#include "cli/command.h"
#include "cli/data_table.h"
#include "cli/human.h"
#include "cli/output_files.h"
#include "cli/print_prediction.h"
#include "cli/traffic_table.h"
#include "core/access.h"
#include "core/config/access_files.h"
#include "core/error.h"
#include "core/id_sketch.h"
#include "core/repeated_lists.h"
#include "core/stack_distance.h"

namespace stepcast::cli {
namespace {

struct HitcurveCommand {
  std::string indices;
  double sample = 1;
  std::int64_t rows = 0;
  std::string histogram;
  bool sketch = false;
  TrafficOptions traffic;
  OutputFormat format = OutputFormat::kText;
};

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

DataTable summary_table(const std::vector<std::int64_t>& ids, const Access& access,
                        const StackDistances& distances) {
  DataTable t("lookups", "recorded lookups", {{"fact", "", true}, {"value"}});
  t.as_object();
  const auto n = static_cast<double>(ids.size());
  const double distinct = access.unique(n).value;
  t.row({name_cell("lookups", "lookups"), cell(static_cast<std::int64_t>(ids.size()))});
  t.row({name_cell("rows", "rows of the table"), cell(access.rows())});
  t.row({name_cell("distinct_rows", "distinct rows"), cell(static_cast<std::int64_t>(distinct))});
  t.row({name_cell("seen_once", "rows seen once"),
         cell(static_cast<std::int64_t>(access.seen_once(n).value))});
  for (const double top : {0.001, 0.01, 0.1}) {
    t.row({name_cell(fmt::format("top_{:g}", top),
                     fmt::format("lookups to the hottest {} of those", percent(top))),
           share(access.cdf(std::ceil(top * distinct)).value)});
  }
  if (distances.followed() < static_cast<std::int64_t>(ids.size())) {
    t.row({name_cell("followed", "lookups followed (--sample)"), cell(distances.followed())});
  }
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

DataTable curve_table(const Access& access, const StackDistances& distances) {
  DataTable t("hit_rate", "hit rate of a cache",
              {{"capacity_rows", "rows held"},
               {"lru", "LRU, as recorded"},
               {"lru_independent", "LRU, independent lookups"},
               {"pinned", "hottest rows pinned"}});
  for (const double c : capacities(distances.distinct())) {
    t.row({cell(static_cast<std::int64_t>(c)), share(distances.hit_rate(c)),
           share(access.hit_rate(c, CachePolicy::kLru).value),
           share(access.hit_rate(c, CachePolicy::kPinned).value)});
  }
  t.note("As recorded, the first lookup of a row misses; the other columns are of a warm cache.");
  return t;
}

/// Lists of ids that repeat: what `embedding.dedup` would spare pooled tables.
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

std::string histogram_text(const std::vector<ReuseBin>& bins, const std::string& source) {
  std::string text =
      "# reuse of rows in " + source + "\nreuse_low,reuse_high,unique_rows,accesses\n";
  for (const ReuseBin& b : bins) {
    if (b.unique_rows > 0) {
      text += fmt::format("{:.0f},{:.0f},{:.12g},{:.12g}\n", b.reuse_low, b.reuse_high,
                          b.unique_rows, b.accesses);
    }
  }
  return text;
}

void check_rows(const HitcurveCommand& options, std::int64_t most) {
  if (options.rows > 0 && most >= options.rows) {
    throw InputError("--rows", fmt::format("found {}, but {} looks up row {}; expected at least {}",
                                           options.rows, options.indices, most, most + 1));
  }
}

void write_histogram(const HitcurveCommand& options, const std::vector<ReuseBin>& bins) {
  if (!options.histogram.empty()) {
    write_output(options.histogram,
                 histogram_text(bins, std::filesystem::path(options.indices).filename()));
  }
}

DataTable sketch_summary(const IdSketch& sketch, const Access& access) {
  DataTable t("lookups", "recorded lookups, sketched in one pass", {{"fact", "", true}, {"value"}});
  t.as_object();
  t.row({name_cell("lookups", "lookups"), cell(static_cast<std::int64_t>(sketch.lookups()))});
  t.row({name_cell("rows", "rows of the table"), cell(access.rows())});
  t.row({name_cell("distinct_rows", "distinct rows"), cell(sketch.distinct())});
  t.row({name_cell("distinct_error", "standard error of that"), share(sketch.distinct_error())});
  t.row({name_cell("floor", "rows looked up more often are all counted apart"),
         cell(sketch.floor())});
  t.row({name_cell("sketch_bytes", "memory of the sketch"),
         cell(Bytes(static_cast<double>(sketch.memory_bytes())))});
  if (sketch.exact()) {
    t.note("Few enough rows: everything here is exact.");
  }
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

DataTable sketch_curve(const Access& access, double distinct) {
  DataTable t("hit_rate", "hit rate of a cache",
              {{"capacity_rows", "rows held"},
               {"lru_independent", "LRU, independent lookups"},
               {"pinned", "hottest rows pinned"}});
  for (const double c : capacities(distinct)) {
    t.row({cell(static_cast<std::int64_t>(c)), share(access.hit_rate(c, CachePolicy::kLru).value),
           share(access.hit_rate(c, CachePolicy::kPinned).value)});
  }
  t.note("Of a warm cache; LRU in the recorded order needs the recording: leave --sketch out.");
  return t;
}

/// One pass in fixed memory, whatever the size of the file.
int sketched(const HitcurveCommand& options) {
  IdSketch sketch;
  config::stream_indices(options.indices, "hitcurve",
                         [&sketch](std::span<const std::int64_t> ids) { sketch.add(ids); });
  check_rows(options, sketch.largest_id());
  const std::int64_t rows = options.rows > 0 ? options.rows : sketch.largest_id() + 1;
  const std::vector<ReuseBin> bins = sketch.bins(rows);
  const Access access = Access::histogram(rows, bins, sketch.lookups());
  write_histogram(options, bins);
  print_tables(
      {sketch_summary(sketch, access), hot_table(sketch), bins_table(bins, sketch.lookups()),
       sketch_curve(access, std::min(sketch.distinct(), static_cast<double>(rows)))},
      options.format, std::cout);
  return 0;
}

/// Of recorded ids, or of a histogram (.csv).
int traffic(const HitcurveCommand& options, const Context& context) {
  const auto access = [&] {
    if (std::filesystem::path(options.indices).extension() == ".csv") {
      if (!options.traffic.counted_on.empty()) {
        throw InputError("--counted-on",
                         "needs recorded ids to choose rows on; a histogram names no rows");
      }
      const config::ReuseHistogram h = config::read_histogram(options.indices, "hitcurve");
      double rows = 0;
      for (const ReuseBin& b : h.bins) {
        rows += b.unique_rows;
      }
      return Access::histogram(std::max(options.rows, static_cast<std::int64_t>(std::ceil(rows))),
                               h.bins, h.sample_lookups);
    }
    std::vector<std::int64_t> ids = config::read_indices(options.indices, "hitcurve");
    const std::int64_t most = *std::max_element(ids.begin(), ids.end());
    check_rows(options, most);
    return Access::indices(std::max(options.rows, most + 1), std::move(ids));
  }();
  print_tables({traffic_table(options.traffic, access, context)}, options.format, std::cout);
  return 0;
}

int hitcurve(const HitcurveCommand& options, const Context& context) {
  if (!options.traffic.nodes.empty()) {
    return traffic(options, context);
  }
  if (options.sketch) {
    return sketched(options);
  }
  const std::vector<std::int64_t> ids = config::read_indices(options.indices, "hitcurve");
  const std::int64_t most = *std::max_element(ids.begin(), ids.end());
  check_rows(options, most);
  const Access access = Access::indices(options.rows > 0 ? options.rows : most + 1, ids);
  const StackDistances distances(ids, options.sample);
  const std::vector<ReuseBin> bins = reuse_bins(ids);
  write_histogram(options, bins);
  std::vector<DataTable> tables{summary_table(ids, access, distances),
                                bins_table(bins, static_cast<double>(ids.size())),
                                curve_table(access, distances)};
  const std::vector<std::int64_t> begins =
      config::recorded_bags(options.indices, static_cast<std::int64_t>(ids.size()), "hitcurve");
  for (DataTable& lists : lists_tables(ids, begins)) {
    tables.push_back(std::move(lists));
  }
  print_tables(tables, options.format, std::cout);
  return 0;
}

}  // namespace

void add_hitcurve(CLI::App& app, Context& context) {
  auto options = std::make_shared<HitcurveCommand>();
  CLI::App* command =
      app.add_subcommand("hitcurve", "Cache hit curve and access distribution of recorded lookups");
  command
      ->add_option("indices", options->indices,
                   "Row ids: little-endian int64, or text with one per line; with --nodes also a "
                   "histogram (.csv)")
      ->required();
  command->add_option("--sample", options->sample,
                      "Follow only rows whose hash falls below this rate: an estimate, faster");
  command->add_option("--rows", options->rows, "Rows of the table (default: the largest id + 1)")
      ->check(whole_number(1));
  command
      ->add_option("--histogram", options->histogram,
                   "Write the distribution as a histogram that a job's \"access\" can name")
      ->check(output_file());
  command
      ->add_flag("--sketch", options->sketch,
                 "One pass in 5 MB of memory, for recordings of any length: distinct rows and "
                 "reuse with a stated error instead of exact counts and stack distances")
      ->excludes("--sample");
  add_traffic_options(*command, options->traffic);
  add_format_option(*command, options->format);
  command->callback([options, &context] { context.exit_code = hitcurve(*options, context); });
}

}  // namespace stepcast::cli
