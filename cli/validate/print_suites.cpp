#include "cli/validate/validate.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/print/human.h"
#include "cli/print/report.h"

namespace stepcast::cli {
namespace {

using validation::Group;
using validation::Row;
using validation::Suite;

Cell cell_of(const validation::Figure& f) {
  using As = validation::Figure::As;
  if (const auto* text = std::get_if<std::string>(&f.value)) {
    return cell(*text);
  }
  const auto* value = std::get_if<double>(&f.value);
  if (value == nullptr) {
    return absent_cell("-");
  }
  return f.as == As::kShare     ? share(*value)
         : f.as == As::kSigned  ? signed_share(*value)
         : f.as == As::kFactor  ? decimal(*value, 3)
         : f.as == As::kSeconds ? cell(seconds(*value))
         : f.as == As::kYes     ? cell(*value != 0)
                                : cell(static_cast<std::int64_t>(*value));
}

/// "next_step/error" as a column of CSV: "next_step_error".
std::string in_one_word(std::string key) {
  std::replace(key.begin(), key.end(), '/', '_');
  return key;
}

/// A column for each of the further figures.
template <class Of>
void add_figures(const std::vector<Of>& all, std::vector<validation::Figure> Of::*figures,
                 Visibility look, Columns<Of>& columns) {
  std::vector<validation::Figure> most;
  for (const Of& of : all) {
    most = (of.*figures).size() > most.size() ? of.*figures : most;
  }
  for (std::size_t i = 0; i < most.size(); ++i) {
    columns.emplace_back(
        most[i].key, most[i].title,
        [=](const Of& of) {
          return i < (of.*figures).size() ? cell_of((of.*figures)[i]) : absent_cell("-");
        },
        look | (most[i].minor ? kInJson | kInCsv : 0) |
            (most[i].as == validation::Figure::As::kText ? kLeft : 0),
        in_one_word(most[i].key));
  }
}

Columns<Row> row_columns(const Suite& suite) {
  const auto figure = [in_bytes = suite.in_bytes](double v) {
    return in_bytes ? cell(Bytes(v)) : cell(seconds(v));
  };
  const std::string unit = suite.in_bytes ? "_bytes" : "_s";
  Columns<Row> columns{
      {"suite", "", [name = suite.name](auto&) { return code(name); }, kInCsv},
      {"id", suite.name, &Row::id},
      {"measured", "",
       [figure](auto& r) {
         return r.measured > 0 ? figure(r.measured) : empty_cell("-");
       },
       0, "measured" + unit},
      {"predicted", "",
       [figure](auto& r) { return r.predicted > 0 ? figure(r.predicted) : empty_cell("-"); }, 0,
       "predicted" + unit},
      {"error", "",
       [](auto& r) {
         return r.predicted > 0 && r.measured > 0 ? signed_share(r.error()) : empty_cell("-");
       }},
  };
  add_figures(suite.rows, &Row::more, 0, columns);
  columns.emplace_back(
      "skipped", "not scored",
      [](const Row& r) { return r.skipped ? cell(*r.skipped) : empty_cell(); }, kLeft | kMajor);
  add_figures(suite.rows, &Row::run, kInJson, columns);
  return columns;
}

/// Every row while they can be read; of more, those that were not scored.
void add_rows(const Suite& suite, Report& report) {
  constexpr std::size_t kReadable = 200;
  constexpr std::size_t kSkipped = 20;
  std::vector<Row> shown = suite.rows;
  std::size_t more = 0;
  if (shown.size() > kReadable) {
    std::erase_if(shown, [](const Row& r) { return r.predicted > 0; });
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
bool any_has(const std::vector<Group>& groups, Value value) {
  return std::any_of(groups.begin(), groups.end(),
                     [&](const Group& g) { return std::invoke(value, g).has_value(); });
}

Columns<Group> group_columns(const std::vector<Group>& groups) {
  using G = Group;
  using E = studies::ErrorStatistics;
  const auto figure = [](double E::*of) {
    return [of](auto& g) { return g.errors.n > 0 ? share(g.errors.*of) : Cell{"-", g.errors.*of}; };
  };
  const auto dash = [](const std::optional<double>& of) {
    return of ? share(*of) : empty_cell("-");
  };
  const auto naive = [](double E::*of) {
    return [of](auto& g) {
      return g.baseline_errors ? share((*g.baseline_errors).*of) : empty_cell("-");
    };
  };
  const bool ordered = any_has(groups, &G::kendall_tau) || any_has(groups, &G::memory);
  const Visibility ranked = ordered ? kInText : kNowhere;
  const Visibility covered = any_has(groups, &G::covered) ? kInText : kNowhere;
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
      {"geomean", "", figure(&E::geomean), kMinor},
      {"p90", "", figure(&E::p90)},
      {"worst", "", figure(&E::worst)},
      {"worst_row", "", &G::worst_row, kInJson},
      {"bias", "",
       [](auto& g) {
         return g.errors.n > 0 ? signed_share(g.errors.bias) : Cell{"-", g.errors.bias};
       }},
      {"", "noise", noise, kInText | kMinor},
      {"baseline_mean", "naive mean",
       [](auto& g) { return g.baseline.empty() ? empty_cell("-") : share(g.baseline_mean); },
       kMinor},
      {"baseline_median", "naive median", naive(&E::median), kMinor},
      {"baseline_p90", "naive p90", naive(&E::p90), kMinor},
      {"baseline", "", [](auto& g) { return g.baseline.empty() ? empty_cell() : cell(g.baseline); },
       kInJson},
      {"", "tau", tau, ranked},
      {"", "regret", regret, ranked},
      {"", "memory mean",
       [](auto& g) { return g.memory ? share(g.memory->mean) : empty_cell("-"); }, ranked},
      {"", "in 90 %", [dash](auto& g) { return dash(g.covered); }, covered},
      {"in_range_share", "in range", [](auto& g) { return share(g.in_range_share); }, kMinor},
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
      {"covered_by_90", "", [](auto& g) { return code_or_absent(g.covered); }, kInJson},
      {"bound", "",
       [](auto& g) { return g.bound.empty() ? absent_cell() : cell(g.bound); }, kInJson},
      {"", "bar",
       [](auto& g) { return g.bound.empty() ? std::string() : g.pass ? "pass" : "FAIL"; },
       kInText | kLeft | kMajor},
      {"pass", "", [](auto& g) { return g.bound.empty() ? absent_cell() : code(g.pass); }, kInJson},
      {"skipped", "", [](auto& g) { return g.skipped > 0 ? code(g.skipped) : absent_cell(); },
       kInJson},
      {"", "worst row", &G::worst_row, kInText | kLeft | kMinor}};
}

void add_suite(const Suite& suite, Report& report) {
  report.facts({{"name", suite.name}, {"bound", suite.bound}, {"pass", suite.pass}});
  add_rows(suite, report);
  report.line("\nerrors");
  Columns<Group> columns = group_columns(suite.groups);
  add_figures(suite.groups, &Group::more, kInJson, columns);
  report.add(table_of("groups", "", columns, suite.groups, kInText | kInJson));
  Columns<Group> further{{"", "group", &Group::name}};
  add_figures(suite.groups, &Group::more, 0, further);
  if (further.size() > 1) {
    report.line();
    report.add(table_of("groups", "", further, suite.groups, kInText));
  }
  report.add(table_of("rows", "", row_columns(suite), suite.rows, kInJson | kInCsv));
  for (const validation::FigureTable& t : suite.tables) {
    Columns<validation::FigureTable::Entry> figures;
    add_figures(t.rows, &validation::FigureTable::Entry::more, 0, figures);
    report.line();
    report.add(
        table_of(t.key, t.title, figures, t.rows, t.key.empty() ? kInText : kInText | kInJson));
  }
  report.fact("notes", suite.notes);
  for (const std::string& note : suite.notes) {
    report.line(note);
  }
  report.line(fmt::format("\n{}: {} ({})", suite.name, suite.pass ? "pass" : "FAIL", suite.bound));
}

}  // namespace

void print_suites(const std::vector<Suite>& suites, OutputFormat format, std::ostream& out) {
  Report report(format);
  for (const Suite& suite : suites) {
    add_suite(suite, report.item("suites"));
  }
  report.print(out);
}

}  // namespace stepcast::cli
