#include "cli/print_validation.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/human.h"
#include "cli/print_prediction.h"
#include "cli/text_table.h"

namespace stepcast::cli {
namespace {

using studies::ValidationGroup;
using studies::ValidationRow;
using studies::ValidationSuite;
using Json = nlohmann::ordered_json;

void print_text(const ValidationSuite& suite, std::ostream& out) {
  // Every row while they can be read; of more, those that were not scored.
  constexpr std::size_t kReadable = 200;
  constexpr std::size_t kSkipped = 20;
  std::size_t skipped = 0;
  TextTable rows({suite.name, "measured", "predicted", "error", "not scored"});
  rows.left(4);
  for (const ValidationRow& r : suite.rows) {
    const bool predicted = r.predicted > 0;
    if (suite.rows.size() > kReadable && (predicted || ++skipped > kSkipped)) {
      continue;
    }
    rows.row({r.id, human(seconds(r.measured)), predicted ? human(seconds(r.predicted)) : "-",
              predicted ? percent_signed(r.error()) : "-", r.skipped.value_or("")});
  }
  if (suite.rows.size() <= kReadable || skipped > 0) {
    rows.print(out);
  }
  if (skipped > kSkipped) {
    out << fmt::format("... and {} more that were not scored\n", skipped - kSkipped);
  }
  out << "\nerrors\n";
  const bool ranked = std::any_of(suite.groups.begin(), suite.groups.end(), [](const auto& g) {
    return g.kendall_tau.has_value() || g.memory.has_value();
  });
  const bool covered = std::any_of(suite.groups.begin(), suite.groups.end(),
                                   [](const auto& g) { return g.covered.has_value(); });
  std::vector<std::string> columns{"group", "n",     "median", "mean",  "geomean",
                                   "p90",   "worst", "bias",   "noise", "naive mean"};
  if (ranked) {
    columns.insert(columns.end(), {"tau", "regret", "memory mean"});
  }
  if (covered) {
    columns.emplace_back("in 80 %");
  }
  columns.insert(columns.end(), {"in range", "bar", "worst row"});
  TextTable groups(columns);
  groups.left(columns.size() - 2);
  groups.left(columns.size() - 1);
  for (const ValidationGroup& g : suite.groups) {
    const auto& e = g.errors;
    const auto figure = [&e](double f) { return e.n > 0 ? percent(f) : "-"; };
    std::vector<std::string> cells{g.name,
                                   std::to_string(e.n),
                                   figure(e.median),
                                   figure(e.mean),
                                   figure(e.geomean),
                                   figure(e.p90),
                                   figure(e.worst),
                                   e.n > 0 ? percent_signed(e.bias) : "-",
                                   g.repeat_noise ? percent(*g.repeat_noise) : "-",
                                   g.baseline.empty() ? "-" : percent(g.baseline_mean)};
    if (ranked) {
      cells.push_back(g.kendall_tau ? fmt::format("{:.2f}", *g.kendall_tau) : "-");
      cells.push_back(g.regret ? percent(*g.regret) : "-");
      cells.push_back(g.memory ? percent(g.memory->mean) : "-");
    }
    if (covered) {
      cells.push_back(g.covered ? percent(*g.covered) : "-");
    }
    cells.insert(cells.end(),
                 {percent(g.in_range_share),
                  g.bound.empty() ? "-" : fmt::format("{} ({})", g.pass ? "pass" : "FAIL", g.bound),
                  g.worst_row});
    groups.row(cells);
  }
  groups.print(out);
  for (const std::string& note : suite.notes) {
    out << note << '\n';
  }
  out << fmt::format("\n{}: {} ({})\n", suite.name, suite.pass ? "pass" : "FAIL", suite.bound);
}

Json json_of(const ValidationGroup& g) {
  const auto& e = g.errors;
  Json j = {{"name", g.name},         {"n", e.n},
            {"median", e.median},     {"mean", e.mean},
            {"geomean", e.geomean},   {"p90", e.p90},
            {"worst", e.worst},       {"worst_row", g.worst_row},
            {"bias", e.bias},         {"baseline_mean", nullptr},
            {"baseline", nullptr},    {"in_range_share", g.in_range_share},
            {"kendall_tau", nullptr}, {"regret", nullptr},
            {"repeat_noise", nullptr}};
  if (!g.baseline.empty()) {
    j["baseline_mean"] = g.baseline_mean;
    j["baseline"] = g.baseline;
  }
  if (g.kendall_tau) {
    j["kendall_tau"] = *g.kendall_tau;
    j["regret"] = *g.regret;
  }
  if (g.memory) {
    j["memory"] = {{"n", g.memory->n},
                   {"mean", g.memory->mean},
                   {"worst", g.memory->worst},
                   {"bias", g.memory->bias}};
  }
  if (g.covered) {
    j["covered_by_80"] = *g.covered;
  }
  if (g.repeat_noise) {
    j["repeat_noise"] = *g.repeat_noise;
  }
  if (!g.bound.empty()) {
    j["bound"] = g.bound;
    j["pass"] = g.pass;
  }
  if (g.skipped > 0) {
    j["skipped"] = g.skipped;
  }
  return j;
}

Json json_of(const ValidationSuite& suite) {
  Json j = {{"name", suite.name},      {"bound", suite.bound},  {"pass", suite.pass},
            {"groups", Json::array()}, {"rows", Json::array()}, {"notes", suite.notes}};
  for (const ValidationGroup& g : suite.groups) {
    j["groups"].push_back(json_of(g));
  }
  for (const ValidationRow& r : suite.rows) {
    const bool predicted = r.predicted > 0;
    j["rows"].push_back({{"id", r.id},
                         {"measured", r.measured},
                         {"predicted", predicted ? Json(r.predicted) : Json()},
                         {"error", predicted ? Json(r.error()) : Json()},
                         {"skipped", r.skipped ? Json(*r.skipped) : Json()}});
    if (r.run) {
      j["rows"].back()["run"] = {{"source", r.run->source},
                                 {"gpu", r.run->device},
                                 {"framework", r.run->framework},
                                 {"plan", r.run->plan},
                                 {"format", r.run->format},
                                 {"hardware_pace_s", r.run->hardware},
                                 {"fits", r.run->fits}};
    }
    if (r.measured_memory > 0) {
      j["rows"].back()["measured_memory_bytes"] = r.measured_memory;
      j["rows"].back()["predicted_memory_bytes"] = r.predicted_memory;
    }
  }
  return j;
}

void print_csv(const ValidationSuite& suite, std::ostream& out) {
  for (const ValidationRow& r : suite.rows) {
    const bool predicted = r.predicted > 0;
    out << csv_line({suite.name, r.id, fmt::format("{:.6g}", r.measured),
                     predicted ? fmt::format("{:.6g}", r.predicted) : "",
                     predicted ? fmt::format("{:.4f}", r.error()) : "", r.skipped.value_or("")});
  }
}

}  // namespace

void print_validation(const std::vector<ValidationSuite>& suites, OutputFormat format,
                      std::ostream& out) {
  if (format == OutputFormat::kJson) {
    Json all = {{"stepcast", provenance_json()}, {"suites", Json::array()}};
    for (const ValidationSuite& suite : suites) {
      all["suites"].push_back(json_of(suite));
    }
    out << all.dump(2) << '\n';
    return;
  }
  if (format == OutputFormat::kCsv) {
    out << csv_line({"suite", "id", "measured_s", "predicted_s", "error", "skipped"});
  }
  for (const ValidationSuite& suite : suites) {
    if (format == OutputFormat::kCsv) {
      print_csv(suite, out);
    } else {
      print_text(suite, out);
    }
  }
}

}  // namespace stepcast::cli
