#include "cli/validate/print_validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "cli/print/human.h"
#include "core/whole_file.h"

namespace stepcast::cli {
namespace {

using validation::ValidationGroup;
using validation::ValidationRow;
using validation::ValidationSuite;

Json run_json(const ValidationRow::Run& run) {
  return {{"source", run.source}, {"gpu", run.device},    {"framework", run.framework},
          {"plan", run.plan},     {"format", run.format}, {"hardware_pace_s", run.hardware},
          {"fits", run.fits}};
}

Columns<ValidationRow> row_columns(const ValidationSuite& suite) {
  using R = ValidationRow;
  const bool in_bytes = suite.in_bytes;
  const auto figure = [in_bytes](double v) { return in_bytes ? cell(Bytes(v)) : cell(seconds(v)); };
  const char* const unit = in_bytes ? "_bytes" : "_s";
  const auto memory = [](double R::*bytes) {
    return [bytes](auto& r) { return r.measured_memory > 0 ? code(r.*bytes) : absent_cell(); };
  };
  return {
      {"suite", "", [name = suite.name](auto&) { return code(name); }, kInCsv},
      {"id", suite.name, &R::id},
      {"measured", "", [figure](auto& r) { return figure(r.measured); }, 0,
       std::string("measured") + unit},
      {"predicted", "",
       [figure](auto& r) { return r.predicted > 0 ? figure(r.predicted) : empty_cell("-"); }, 0,
       std::string("predicted") + unit},
      {"error", "",
       [](auto& r) { return r.predicted > 0 ? signed_share(r.error()) : empty_cell("-"); }},
      {"skipped", "not scored", [](auto& r) { return r.skipped ? cell(*r.skipped) : empty_cell(); },
       kLeft},
      {"run", "", [](auto& r) { return r.run ? code(run_json(*r.run)) : absent_cell(); }, kInJson},
      {"measured_memory_bytes", "", memory(&R::measured_memory), kInJson},
      {"predicted_memory_bytes", "", memory(&R::predicted_memory), kInJson}};
}

/// Every row while they can be read; of more, those that were not scored.
void add_rows(const ValidationSuite& suite, Report& report) {
  constexpr std::size_t kReadable = 200;
  constexpr std::size_t kSkipped = 20;
  std::vector<ValidationRow> shown = suite.rows;
  std::size_t more = 0;
  if (shown.size() > kReadable) {
    std::erase_if(shown, [](const ValidationRow& r) { return r.predicted > 0; });
    more = shown.size() - std::min(shown.size(), kSkipped);
    shown.resize(shown.size() - more);
  }
  if (!shown.empty() || suite.rows.empty()) {
    report.add(table_of("rows", "", row_columns(suite), shown, kInText));
  }
  if (more > 0) {
    report.line(fmt::format("... and {} more that were not scored", more));
  }
}

template <class Value>
bool any_has(const std::vector<ValidationGroup>& groups, Value value) {
  return std::any_of(groups.begin(), groups.end(),
                     [&](const ValidationGroup& g) { return std::invoke(value, g).has_value(); });
}

Columns<ValidationGroup> group_columns(const std::vector<ValidationGroup>& groups) {
  using G = ValidationGroup;
  using E = studies::ErrorStatistics;
  const auto figure = [](double E::*of) {
    return [of](auto& g) { return g.errors.n > 0 ? share(g.errors.*of) : Cell{"-", g.errors.*of}; };
  };
  const auto dash = [](const std::optional<double>& of) {
    return of ? share(*of) : empty_cell("-");
  };
  const bool ordered = any_has(groups, &G::kendall_tau) || any_has(groups, &G::memory);
  const Look ranked = ordered ? kInText : kNowhere;
  const Look covered = any_has(groups, &G::covered) ? kInText : kNowhere;
  const auto noise = [dash](auto& g) { return dash(g.repeat_noise); };
  const auto regret = [dash](auto& g) { return dash(g.regret); };
  const auto tau = [](auto& g) {
    return g.kendall_tau ? decimal(*g.kendall_tau, 2) : empty_cell("-");
  };
  return {
      {"name", "group", &G::name},
      {"n", "", [](auto& g) { return g.errors.n; }},
      {"median", "", figure(&E::median)},
      {"mean", "", figure(&E::mean)},
      {"geomean", "", figure(&E::geomean)},
      {"p90", "", figure(&E::p90)},
      {"worst", "", figure(&E::worst)},
      {"worst_row", "", &G::worst_row, kInJson},
      {"bias", "",
       [](auto& g) {
         return g.errors.n > 0 ? signed_share(g.errors.bias) : Cell{"-", g.errors.bias};
       }},
      {"", "noise", noise, kInText},
      {"baseline_mean", "naive mean",
       [](auto& g) { return g.baseline.empty() ? empty_cell("-") : share(g.baseline_mean); }},
      {"baseline", "", [](auto& g) { return g.baseline.empty() ? empty_cell() : cell(g.baseline); },
       kInJson},
      {"", "tau", tau, ranked},
      {"", "regret", regret, ranked},
      {"", "memory mean",
       [](auto& g) { return g.memory ? share(g.memory->mean) : empty_cell("-"); }, ranked},
      {"", "in 80 %", [dash](auto& g) { return dash(g.covered); }, covered},
      {"in_range_share", "in range", [](auto& g) { return share(g.in_range_share); }},
      {"kendall_tau", "", tau, kInJson},
      {"regret", "", regret, kInJson},
      {"repeat_noise", "", noise, kInJson},
      {"memory", "",
       [](auto& g) {
         return g.memory ? code({{"n", g.memory->n},
                                 {"mean", g.memory->mean},
                                 {"worst", g.memory->worst},
                                 {"bias", g.memory->bias}})
                         : absent_cell();
       },
       kInJson},
      {"covered_by_80", "", [](auto& g) { return code_or_absent(g.covered); }, kInJson},
      {"bound", "bar",
       [](auto& g) {
         return g.bound.empty()
                    ? absent_cell("-")
                    : Cell{fmt::format("{} ({})", g.pass ? "pass" : "FAIL", g.bound), g.bound};
       },
       kLeft},
      {"pass", "", [](auto& g) { return g.bound.empty() ? absent_cell() : code(g.pass); }, kInJson},
      {"skipped", "", [](auto& g) { return g.skipped > 0 ? code(g.skipped) : absent_cell(); },
       kInJson},
      {"", "worst row", &G::worst_row, kInText | kLeft}};
}

void add_suite(const ValidationSuite& suite, Report& report) {
  begin_suite(report, suite.name, suite.bound, suite.pass);
  add_rows(suite, report);
  report.line("\nerrors");
  report.add(table_of("groups", "", group_columns(suite.groups), suite.groups, kInText | kInJson));
  report.add(table_of("rows", "", row_columns(suite), suite.rows, kInJson | kInCsv));
  report.fact("notes", suite.notes);
  for (const std::string& note : suite.notes) {
    report.line(note);
  }
  report.line(fmt::format("\n{}: {} ({})", suite.name, suite.pass ? "pass" : "FAIL", suite.bound));
}

}  // namespace

void begin_suite(Report& report, std::string_view name, std::string_view bound, bool pass) {
  report.facts({{"name", name}, {"bound", bound}, {"pass", pass}});
}

void print_validation(const std::vector<ValidationSuite>& suites, OutputFormat format,
                      std::ostream& out) {
  Report report(format);
  for (const ValidationSuite& suite : suites) {
    add_suite(suite, report.item("suites"));
  }
  report.print(out);
}

DataTable case_predictions(const std::vector<validation::RuntimeCase>& cases, bool bounds) {
  using Row = Numbered<validation::RuntimeCase>;
  return table_of("predictions", "",
                  Columns<Row>{{"case", "", [](auto& r) { return r.number; }},
                               {"job", "", [](auto& r) { return r.of.job.workload.name; }},
                               {"bound", "", [](auto& r) { return name_of(r.of.bound); },
                                bounds ? kInCsv : kNowhere},
                               {"predicted_s", "", [](auto& r) { return r.of.predicted; }},
                               {"linear_s", "", [](auto& r) { return r.of.linear; }},
                               {"in_calibrated_range", "", [](auto& r) { return r.of.in_range; }}},
                  numbered(cases));
}

void write_predictions(const std::string& file, const DataTable& predictions,
                       const std::string& what) {
  std::ostringstream text;
  predictions.print_csv(text);
  write_whole_file(file, text.str());
  fmt::print(stderr, "stepcast: {} written to {} before the first run\n", what, file);
}

}  // namespace stepcast::cli
