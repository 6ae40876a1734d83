#include "cli/print/drift.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/print/data_table.h"
#include "cli/print/human.h"
#include "cli/print/replan.h"
#include "cli/support/console.h"

namespace stepcast::cli {
namespace {

using studies::DriftReport;

constexpr double kNegligible = 1e-3;  // of a step

/// Whether a new plan pays, and whether that is because of the drift.
std::string verdict(const DriftReport& r, bool pays) {
  if (!pays) {
    return "No plan in reach is faster: keep the plan.";
  }
  const double after = std::ceil(r.replan.steps_to_pay());
  const std::string steps = count(after) + (after == 1 ? " step" : " steps");
  const double by_drift = r.saved() - std::max(r.saved_by_searching(), 0.0);
  if (by_drift <= kNegligible * r.step_then) {
    return fmt::format(
        "The plan loses nothing by the drift: searching again saves as much under the access of "
        "then. A new plan pays after {}; --out writes it, --max-migrate bounds what moves.",
        steps);
  }
  return fmt::format(
      "A new plan pays after {}: it saves {} per step because of the drift and {} because "
      "of searching again. --out writes it, --max-migrate bounds what moves.",
      steps, human(Seconds(by_drift)), human(Seconds(r.saved() - by_drift)));
}

DataTable summary(const DriftReport& r) {
  Facts t("drift", "the plan under the access it was made for, and under that of now");
  const studies::ReplanReport& next = r.replan;
  t.add("step_then_s", "step then", Seconds(r.step_then));
  t.add("step_now_s", "step now", Seconds(r.step_now));
  t.add("change", "change", share(r.step_now / r.step_then - 1));
  t.add("replanned_step_s", "step now with a new plan", Seconds(next.plan.predicted_step));
  t.add("saved_s", "saved per step", Seconds(r.saved()));
  t.add("searched_then_step_s", "step then with a new plan", Seconds(r.searched_then));
  t.add("saved_by_searching_s", "saved per step without drift, by searching again",
        Seconds(r.saved_by_searching()));
  t.add("migrated_bytes", "to move for it", bytes_cell(next.migration.bytes));
  t.add("migration_s", "time to move, nothing else running", Seconds(next.migration.seconds));
  const bool pays = next.migration.bytes > 0 && std::isfinite(next.steps_to_pay());
  t.add("steps_to_pay", "steps until that is earned back",
        pays ? cell(next.steps_to_pay()) : empty_cell());
  note_adapted(next, r.adapted, t);
  t.note(verdict(r, pays));
  return t;
}

DataTable tables(const DriftReport& r) {
  DataTable t("tables", "tables, most drifted first",
              {{"table", "", true},
               {"hot_rows", "rows followed"},
               {"range", "they are", true},
               {"covered_then", "took then"},
               {"covered_now", "take now"},
               {"distinct_then", "distinct then"},
               {"distinct_now", "distinct now"}});
  bool assumed = false;
  for (const studies::TableDrift& d : r.tables) {
    t.row({cell(d.name),
           cell(d.hot_rows),
           cell(std::string_view(d.planned_range ? "the plan's hot range" : "the hottest 1 %")),
           share(d.covered_then),
           {percent(d.covered_now) + (d.followed ? "" : " *"), d.covered_now},
           cell(d.distinct_then),
           cell(d.distinct_now)});
    assumed = assumed || !d.followed;
  }
  t.limit(20);
  if (assumed) {
    t.note("* Rows without ids: the rows that are hot now are taken to be those of then.");
  }
  return t;
}

}  // namespace

void print_drift(const DriftReport& report, OutputFormat format) {
  Report printed(format);
  printed.add(std::vector<DataTable>{summary(report), tables(report)});
  add_carried_over(report.replan, report.adapted, printed);
  printed.print(answer());
}

}  // namespace stepcast::cli
