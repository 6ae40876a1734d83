#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "cli/command.h"
#include "cli/print/data_table.h"
#include "cli/print/hitcurve_tables.h"
#include "cli/print/report.h"
#include "cli/print/traffic_table.h"
#include "cli/support/checks.h"
#include "cli/support/console.h"
#include "cli/support/output_files.h"
#include "core/access/access.h"
#include "core/access/id_sketch.h"
#include "core/access/stack_distance.h"
#include "core/config/access_files.h"
#include "core/error.h"

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

/// Exact counts keep every lookup: of more, what is stated of them fits into fixed memory.
constexpr std::size_t kMostExact = std::size_t{1} << 25U;

/// Lookups, or a sketch of them where there are too many.
struct Lookups {
  std::vector<std::int64_t> ids;
  std::optional<IdSketch> sketch;
};

/// One pass, in bounded memory unless a sample is asked for.
Lookups read_lookups(const HitcurveCommand& options) {
  Lookups read;
  if (options.sketch) {
    read.sketch.emplace();
  }
  config::stream_indices(
      options.indices, "hitcurve",
      [&](std::span<const std::int64_t> ids) {
        if (!read.sketch && options.sample == 1 && read.ids.size() + ids.size() > kMostExact) {
          fmt::print(
              notes(),
              "stepcast: {}: more than {} lookups: counted in one pass with a stated error, as "
              "--sketch does; --sample RATE follows some rows exactly\n",
              options.indices, kMostExact);
          read.sketch.emplace();
          read.sketch->add(read.ids);
          read.ids = {};
        }
        if (read.sketch) {
          read.sketch->add(ids);
        } else {
          read.ids.insert(read.ids.end(), ids.begin(), ids.end());
        }
      },
      options.rows);
  return read;
}

int sketched(const HitcurveCommand& options, const IdSketch& sketch) {
  check_rows(options, sketch.largest_id());
  const std::int64_t rows = options.rows > 0 ? options.rows : sketch.largest_id() + 1;
  const std::vector<ReuseBin> bins = sketch.bins(rows);
  const Access access = Access::histogram(rows, bins, sketch.lookups());
  write_histogram(options, bins);
  print_tables(
      {sketch_summary(sketch, access, bins), hot_table(sketch), bins_table(bins, sketch.lookups()),
       curve_table(access, std::min(sketch.distinct(), static_cast<double>(rows)), nullptr)},
      options.format, answer());
  return 0;
}

/// A histogram and the law it is of.
struct Histogram {
  config::ReuseHistogram counts;
  Access access;
};

Histogram read_histogram(const HitcurveCommand& options) {
  config::ReuseHistogram h = config::read_histogram(options.indices, "hitcurve");
  double seen = 0;
  for (const ReuseBin& b : h.bins) {
    seen += b.unique_rows;
  }
  const auto distinct = static_cast<std::int64_t>(std::ceil(seen));
  if (options.rows > 0 && distinct > options.rows) {
    throw InputError("--rows",
                     fmt::format("found {}, but {} counts {} rows; expected at least that",
                                 options.rows, options.indices, distinct));
  }
  Access access = Access::histogram(std::max(options.rows, distinct), h.bins, h.sample_lookups);
  return {std::move(h), std::move(access)};
}

/// Access law of recorded ids, or of a histogram, as traffic.
int traffic(const HitcurveCommand& options, const Context& context) {
  const auto access = [&] {
    if (config::is_histogram(options.indices, "hitcurve")) {
      if (!options.traffic.counted_on.empty()) {
        throw InputError("--counted-on",
                         "needs recorded ids to choose rows on; a histogram names no rows");
      }
      return read_histogram(options).access;
    }
    std::vector<std::int64_t> ids = config::read_indices(options.indices, "hitcurve", options.rows);
    const std::int64_t most = *std::max_element(ids.begin(), ids.end());
    check_rows(options, most);
    return Access::indices(std::max(options.rows, most + 1), std::move(ids));
  }();
  print_tables({traffic_table(options.traffic, access, context)}, options.format, answer());
  return 0;
}

int of_histogram(const HitcurveCommand& options) {
  if (options.sketch || options.sample < 1 || !options.histogram.empty()) {
    throw InputError(options.indices,
                     "is a histogram already: --sketch, --sample and --histogram are for recorded "
                     "ids; leave them out");
  }
  const Histogram h = read_histogram(options);
  const double n = h.counts.sample_lookups;
  print_tables(
      {summary_table("a histogram of lookups", n, h.access, h.counts.bins, nullptr),
       bins_table(h.counts.bins, n), curve_table(h.access, h.access.unique(n).value, nullptr)},
      options.format, answer());
  return 0;
}

int hitcurve(const HitcurveCommand& options, const Context& context) {
  if (!options.traffic.nodes.empty()) {
    return traffic(options, context);
  }
  if (config::is_histogram(options.indices, "hitcurve")) {
    return of_histogram(options);
  }
  const Lookups read = read_lookups(options);
  if (read.sketch) {
    return sketched(options, *read.sketch);
  }
  const std::vector<std::int64_t>& ids = read.ids;
  const std::int64_t most = *std::max_element(ids.begin(), ids.end());
  check_rows(options, most);
  const Access access = Access::indices(options.rows > 0 ? options.rows : most + 1, ids);
  const StackDistances distances(ids, options.sample);
  const std::vector<ReuseBin> bins = reuse_bins(ids);
  write_histogram(options, bins);
  const auto lookups = static_cast<double>(ids.size());
  std::vector<DataTable> tables{
      summary_table("recorded lookups", lookups, access, bins, &distances),
      bins_table(bins, lookups), curve_table(access, distances.distinct(), &distances)};
  const std::vector<std::int64_t> begins =
      config::recorded_bags(options.indices, static_cast<std::int64_t>(ids.size()), "hitcurve");
  for (DataTable& lists : lists_tables(ids, begins)) {
    tables.push_back(std::move(lists));
  }
  print_tables(tables, options.format, answer());
  return 0;
}

}  // namespace

void add_hitcurve(CLI::App& app, Context& context) {
  auto options = std::make_shared<HitcurveCommand>();
  CLI::App* command =
      app.add_subcommand("hitcurve", "Cache hit curve and access distribution of recorded lookups");
  command
      ->add_option(
          "indices", options->indices,
          "Row ids: int64, text, .npy, .npz, .pt or a Criteo log, FILE:PART for one table of "
          "several (docs/reference/table-files.md); or a histogram")
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
