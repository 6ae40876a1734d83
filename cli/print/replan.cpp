#include "cli/print/replan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cli/print/human.h"
#include "cli/print/report.h"
#include "cli/support/console.h"
#include "core/config/quantity.h"
#include "core/error.h"

namespace stepcast::cli {
namespace {

using studies::ReplanReport;

/// "3 tables (a, b, c)", with as many names as fit a line.
std::string names_text(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  const std::size_t shown = std::min(names.size(), kShown);
  return fmt::format(
      "{} ({}{})", counted(static_cast<std::int64_t>(names.size()), "table"),
      fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      shown < names.size() ? ", ..." : "");
}

DataTable summary(const ReplanReport& r, const planner::AdaptedPlan& adapted) {
  Facts t("replan", "plan in use and plan reached");
  const double saved = r.from_step - r.plan.predicted_step;
  t.add("from_step_s", "step with the plan in use", Seconds(r.from_step));
  t.add("step_s", "step with the plan reached", Seconds(r.plan.predicted_step));
  t.add("saved_s", "saved per step", Seconds(saved));
  t.add("from_objective_s", "objective before", Seconds(r.from_objective));
  t.add("objective_s", "objective after", Seconds(r.objective));
  t.add("migrated_bytes", "to move", bytes_cell(r.migration.bytes));
  t.add("migrated_tables", "tables that move", r.migration.tables.size());
  t.add("migration_s", "time to move, nothing else running", Seconds(r.migration.seconds));
  t.add("steps_to_pay", "steps until that is earned back",
        std::isfinite(r.steps_to_pay()) ? cell(r.steps_to_pay()) : empty_cell());
  note_adapted(r, adapted, t);
  if (!r.from_fits) {
    t.note("The plan in use does not fit the memory of the devices.");
  }
  if (!r.kept.empty()) {
    t.note(fmt::format("Left as they are, because the search has no placement like theirs: {}.",
                       fmt::join(r.kept, ", ")));
  }
  return t;
}

DataTable reachable(const ReplanReport& r) {
  DataTable t("reachable", "what can be had for how many bytes",
              {{"migrated_bytes", "moved"}, {"step_s", "step"}, {"of_from", "of the plan in use"}});
  for (const ReplanReport::Step& s : r.reachable) {
    t.row({bytes_cell(s.bytes), cell(Seconds(s.step)), share(s.step / r.from_step)});
  }
  return t;
}

DataTable moved_tables(const studies::PlanDifference& d) {
  DataTable t("moved_tables", "tables that are placed otherwise",
              {{"table", "", true}, {"bytes"}, {"before", "", true}, {"after", "", true}});
  for (const studies::PlanDifference::Table& table : d.tables) {
    t.row({cell(table.name), bytes_cell(table.bytes), cell(table.before), cell(table.after)});
  }
  t.limit(20);
  return t;
}

DataTable moved_ranks(const planner::Migration& m) {
  DataTable t("moved_ranks", "bytes to move, by rank",
              {{"rank"}, {"received_bytes", "receives"}, {"sent_bytes", "sends"}});
  for (std::size_t r = 0; r < m.received.size(); ++r) {
    t.row({cell(static_cast<std::int64_t>(r)), bytes_cell(m.received[r]), bytes_cell(m.sent[r])});
  }
  t.limit(32);
  return t;
}

DataTable moved_levels(const planner::Migration& m) {
  DataTable t("moved_levels", "bytes to move, by the level they cross",
              {{"level", "", true}, {"bytes"}});
  for (const auto& [level, bytes] : m.levels) {
    t.row({cell(level), bytes_cell(bytes)});
  }
  return t;
}

DataTable changed_memory(const studies::PlanDifference& d) {
  DataTable t("memory", "bytes that ranks need, before and after",
              {{"rank"},
               {"tier", "", true},
               {"before_bytes", "before"},
               {"after_bytes", "after"},
               {"capacity_bytes", "capacity"}});
  for (const studies::PlanDifference::Memory& m : d.memory) {
    t.row({cell(std::int64_t{m.rank}), cell(m.tier), cell(Bytes(m.before)), cell(Bytes(m.after)),
           cell(Bytes(m.capacity))});
  }
  t.limit(32);
  return t;
}

}  // namespace

void note_adapted(const ReplanReport& r, const planner::AdaptedPlan& adapted, DataTable& t) {
  if (r.in_use.devices != r.job.devices) {
    t.note(fmt::format("The plan in use is for {} devices, the job has {}: it was carried over.",
                       r.in_use.devices, r.job.devices));
  }
  if (!adapted.added.empty()) {
    t.note(
        fmt::format("New: {}; their rows begin anew and move nothing.", names_text(adapted.added)));
  }
  if (!adapted.grown.empty()) {
    t.note(fmt::format("Grown: {}; they keep their rows, and new ones begin anew and move nothing.",
                       names_text(adapted.grown)));
  }
  if (!adapted.removed.empty()) {
    t.note(fmt::format("No longer in the job: {}.", names_text(adapted.removed)));
  }
  if (!adapted.moved.empty()) {
    t.note(fmt::format("Cannot stay on the job's devices as they are: {}.",
                       names_text(adapted.moved)));
  }
}

void add_carried_over(const ReplanReport& r, const planner::AdaptedPlan& adapted, Report& report) {
  if (!adapted.as_it_was() || r.in_use.devices != r.job.devices) {
    report.fact("carried_over", {{"devices_before", r.in_use.devices},
                                 {"devices_now", r.job.devices},
                                 {"added", adapted.added},
                                 {"grown", adapted.grown},
                                 {"removed", adapted.removed},
                                 {"moved", adapted.moved}});
  }
}

std::int64_t bytes_option(const std::string& text, const char* option) {
  const double value = text == "0" ? 0 : config::parse_quantity<Bytes>(text, option).base();
  if (!(value >= 0 && value <= 1e18)) {
    throw InputError(option, fmt::format("found \"{}\", expected an amount of at least 0 bytes, "
                                         "such as \"10 GB\"",
                                         text));
  }
  return static_cast<std::int64_t>(value);
}

void add_difference(const studies::PlanDifference& d, std::vector<DataTable>& tables) {
  tables.push_back(moved_tables(d));
  tables.push_back(moved_levels(d.migration));
  tables.push_back(moved_ranks(d.migration));
  if (!d.memory.empty()) {
    tables.push_back(changed_memory(d));
  }
}

void print_replan(const ReplanReport& r, const planner::AdaptedPlan& adapted, OutputFormat format) {
  std::vector<DataTable> tables{summary(r, adapted), reachable(r)};
  if (!r.migration.tables.empty()) {
    add_difference(studies::plan_difference(r.job, r.in_use, r.plan), tables);
  }
  Report report(format);
  report.item("plans", [&r] { return Json::parse(config::plan_to_json(r.plan, -1)); });
  report.add(tables);
  add_carried_over(r, adapted, report);
  report.print(answer());
}

std::string plan_override(const std::string& file) {
  const bool bare = file.find('/') == std::string::npos;
  return "embedding.plan=" + (bare ? "./" + file : file);
}

}  // namespace stepcast::cli
