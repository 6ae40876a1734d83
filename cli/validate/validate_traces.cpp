#include "cli/support/console.h"
#include "cli/validate/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/print/human.h"
#include "core/error.h"
#include "validation/traces.h"

namespace stepcast::cli {
namespace {

using validation::TraceSet;

constexpr double kTracesBound = 0.05;  ///< step error of the sets that are scored
constexpr std::string_view kTracesBoundText =
    "every file opens; |step error| <= 0.05 of sets that are not host-bound";

bool within_bound(const TraceSet& s) {
  return s.opens && (!s.scored() || std::abs(s.replay->error) <= kTracesBound);
}

/// A value of the replay; programs find nothing where there is none, CSV an empty cell.
template <class Value>
auto replayed(Value value) {
  return [value](const TraceSet& s) {
    return s.replay ? cell(std::invoke(value, *s.replay)) : absent_cell();
  };
}

/// An error that runs of a single step do not have.
auto next_step(double studies::Replay::*error) {
  return replayed([error](const studies::Replay& r) {
    return r.next_step_error < 0 ? absent_cell("-") : share(r.*error);
  });
}

Columns<TraceSet> counts_columns() {
  using S = TraceSet;
  return {{"id", "trace", &S::name},    {"ranks", "", &S::ranks},
          {"steps", "", &S::steps},     {"events", "", &S::events},
          {"kernels", "", &S::kernels}, {"collectives", "", &S::collectives}};
}

Columns<TraceSet> replay_columns() {
  using R = studies::Replay;
  const auto against = [](Seconds R::*time) {
    return replayed([time](auto& r) {
      return Cell{percent_signed(r.*time / r.measured_step - 1), (r.*time).base()};
    });
  };
  return {
      {"", "replayed",
       [](auto& s) { return s.name + (s.replay->unscored ? " (host-bound)" : ""); }, kInText},
      {"measured", "measured step", replayed(&R::measured_step), 0, "measured_s"},
      {"predicted", "", replayed(&R::replayed_step), kInJson | kInCsv, "replayed_s"},
      {"error", "", replayed([](auto& r) { return signed_share(r.error); })},
      {"host_bound", "", replayed(&R::host_bound), kInJson},
      {"controls/scale_0", "x 0", against(&R::scale_0), 0, "scale_0_s"},
      {"controls/scale_2", "x 2", against(&R::scale_2), 0, "scale_2_s"},
      {"kernel_start_error_s/p50", "begins p50", replayed(&R::kernel_start_p50), 0,
       "kernel_start_p50_s"},
      {"kernel_start_error_s/p95", "p95", replayed(&R::kernel_start_p95), 0, "kernel_start_p95_s"},
      {"last_end_error", "last end",
       replayed([](auto& r) { return signed_share(r.last_end_error); }), kInText | kInJson},
      {"next_step", "", replayed([](auto&) { return empty_cell(); }), kInJson},
      {"next_step/error", "next step", next_step(&R::next_step_error), 0, "next_step_error"},
      {"next_step/naive_error", "as the last", next_step(&R::last_step_error), 0,
       "last_step_error"},
      {"next_step/naive_median_error", "as the median", next_step(&R::median_step_error), 0,
       "median_step_error"}};
}

DataTable moved_table(const std::vector<validation::MovedTrace>& moved) {
  using M = validation::MovedTrace;
  return table_of("moved", "device time of a step, moved to another device",
                  Columns<M>{{"program", "", [](auto& m) { return short_name(m.name); }},
                             {"device", "recorded on", &M::device, kLeft},
                             {"to", "", &M::to, kLeft},
                             {"covered", "", [](auto& m) { return share(m.covered); }},
                             {"recorded", "", &M::recorded, 0, "recorded_s"},
                             {"predicted", "", &M::predicted, 0, "predicted_s"},
                             {"truth", "recorded there", &M::truth, 0, "truth_s"},
                             {"error", "", [](auto& m) { return signed_share(m.error()); }},
                             {"naive_error", "as recorded",
                              [](auto& m) { return signed_share(m.naive_error()); }}},
                  moved);
}

Report report_of(const std::vector<TraceSet>& sets,
                 const std::vector<validation::MovedTrace>& moved, bool pass, OutputFormat format) {
  Report report(format);
  Report& suite = report.item("suites");
  begin_suite(suite, "traces", kTracesBoundText, pass);
  suite.list("groups");
  const Columns<TraceSet> skipped{{"skipped", "not scored",
                                   [](auto& s) {
                                     return Cell{s.skipped.value_or(""), or_null(s.skipped)};
                                   },
                                   kLeft}};
  Columns<TraceSet> counts = counts_columns();
  Columns<TraceSet> all = counts;
  const Columns<TraceSet> replays = replay_columns();
  all.insert(all.end(), replays.begin(), replays.end());
  all.insert(all.end(), skipped.begin(), skipped.end());
  counts.insert(counts.end(), skipped.begin(), skipped.end());
  suite.add(table_of("rows", "", counts, sets, kInText));
  suite.line();
  std::vector<TraceSet> with_replay = sets;
  std::erase_if(with_replay, [](const TraceSet& s) { return !s.replay; });
  suite.add(table_of("rows", "", replays, with_replay, kInText));
  suite.add(table_of("rows", "", all, sets, kInJson | kInCsv));
  if (!moved.empty()) {
    suite.line();
    suite.add(moved_table(moved));
  }
  suite.line(fmt::format("\ntraces: {} ({})", pass ? "pass" : "FAIL", kTracesBoundText));
  return report;
}

}  // namespace

int validate_traces(const ValidateOptions& options, Context& context) {
  if (options.data.empty()) {
    throw InputError("--data",
                     "is needed: a folder of traces (or --run, to check what-if answers)");
  }
  const std::vector<TraceSet> sets = validation::replay_sets(options.data);
  const bool pass = std::all_of(sets.begin(), sets.end(), within_bound);
  report_of(sets, validation::moved_traces(options.data, {context.library}), pass, options.format)
      .print(answer());
  return pass ? 0 : 1;
}

}  // namespace stepcast::cli
