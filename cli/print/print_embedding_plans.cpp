#include "cli/print/print_embedding_plans.h"

#include <fmt/ostream.h>

#include <algorithm>
#include <cmath>

#include "cli/print/human.h"
#include "cli/print/report.h"
#include "cli/support/console.h"
#include "core/config/config.h"
#include "core/job/ledger_parts.h"
#include "core/job/tier_units.h"

namespace stepcast::cli {
namespace {

using studies::PlanReport;
using studies::RankedPlan;

std::string mix_text(const RankedPlan& p) {
  constexpr std::size_t kWidth = 100;
  std::string text;
  std::int64_t left = 0;
  for (const auto& [kind, tables] : p.mix) {
    if (text.size() > kWidth) {
      left += tables;
    } else {
      text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", tables, kind);
    }
  }
  return left == 0 ? text : text + fmt::format(", {} others", left);
}

/// A row of the ledger of a plan, and which of its tier it is.
struct LedgerRow {
  const LedgerLine* line;
  const char* which;
  [[nodiscard]] const LedgerLine& of() const { return *line; }
};

/// Fullest and emptiest rank of every tier.
std::vector<LedgerRow> extremes(const EmbeddingPlan& plan) {
  std::vector<std::string> tiers;
  for (const LedgerLine& l : plan.ledger) {
    if (std::find(tiers.begin(), tiers.end(), l.tier) == tiers.end()) {
      tiers.push_back(l.tier);
    }
  }
  std::vector<LedgerRow> rows;
  for (const std::string& tier : tiers) {
    const LedgerLine* most = nullptr;
    const LedgerLine* least = nullptr;
    for (const LedgerLine& l : plan.ledger) {
      if (l.tier == tier) {
        most = most == nullptr || l.total() > most->total() ? &l : most;
        least = least == nullptr || l.total() < least->total() ? &l : least;
      }
    }
    rows.push_back({most, "fullest"});
    if (least->rank != most->rank) {
      rows.push_back({least, "emptiest"});
    }
  }
  return rows;
}

/// Bytes of each rank's memory, by what fills it.
DataTable ledger_table(const EmbeddingPlan& plan, const System& system) {
  using R = LedgerRow;
  Columns<R> columns{
      {"tier", "", [](auto& r) { return r.of().tier; }},
      {"rank", "", [](auto& r) { return fmt::format("{} ({})", r.of().rank, r.which); }}};
  for (const auto& [name, bytes] : kLedgerParts) {
    columns.emplace_back(name, name == std::string_view("dense") ? "dense, libraries" : "",
                         [bytes = bytes](const R& r) { return Bytes(bytes(r.of())); });
  }
  columns.emplace_back(
      "total", "", [](const R& r) { return Bytes(r.of().total()); }, kMajor);
  columns.emplace_back("capacity", "", [&system](const R& r) {
    const auto has = tier_named(system, r.of().tier);
    const std::int64_t sharers = has ? has->shared_by : 1;
    return human(Bytes(r.of().capacity)) + (sharers > 1 ? fmt::format(" for {}", sharers) : "");
  }, kMajor);
  return table_of("ledger", "\nmemory per rank of plan 1", columns, extremes(plan), kInText);
}

/// Rows of text and of CSV; JSON has whole plans.
DataTable plans_table(const PlanReport& r) {
  using Row = Numbered<RankedPlan>;
  return table_of(
      "plans", "",
      Columns<Row>{
          {"plan", "", [](auto& p) { return p.number; }},
          {"predicted_step_s", "step", [](auto& p) { return Seconds(p.of.plan.predicted_step); }},
          {"lower_bound_s", "lower bound", [](auto& p) { return Seconds(p.of.plan.lower_bound); },
           kMinor},
          {"gap", "", [](auto& p) { return share(p.of.plan.gap); }},
          {"objective_s", "embedding part",
           [](auto& p) {
             return p.of.objective > 0 ? cell(Seconds(p.of.objective)) : Cell{"-", p.of.objective};
           }},
          {"planner", "", [](auto& p) { return p.of.planner; }, kLeft},
          {"buildable", "", [](auto&) { return code(true); }, kInCsv},
          {"tables", "", [](auto& p) { return mix_text(p.of); }, kLeft}},
      numbered(r.plans, 1), r.compared.empty() ? kInText | kInCsv : kInText);
}

DataTable compared_table(const PlanReport& r) {
  using C = studies::ComparedPlan;
  const double best = r.plans.front().plan.predicted_step;
  const auto time = [](const std::optional<double>& t) {
    return t ? cell(Seconds(*t)) : empty_cell("-");
  };
  const auto made = [](auto value) {
    return [value](const C& c) { return c.made ? cell(value(c)) : empty_cell("-"); };
  };
  return table_of(
      "compare", "",
      Columns<C>{
          {"planner", "", &C::name},
          {"step_s", "step", [time](auto& c) { return time(c.step); }},
          {"", "against plan 1",
           [best](auto& c) { return c.step ? percent_signed(*c.step / best - 1) : "-"; }, kInText},
          {"objective_s", "embedding part", [time](auto& c) { return time(c.objective); }},
          {"objective_bound_s", "", [&r](auto&) { return code(r.bound); }, kInCsv},
          {"fullest_bytes", "fullest rank", made([](auto& c) { return Bytes(c.fullest_bytes); })},
          {"fits", "", made([](auto& c) { return c.fits; })},
          {"seconds", "time to plan", made([](auto& c) { return Seconds(c.seconds); })},
          {"remark", "", &C::remark, kLeft}},
      r.compared);
}

void add_bound(const PlanReport& r, Report& report) {
  const EmbeddingPlan& best = r.plans.front().plan;
  report.fact("bound", {{"lower_bound_s", best.lower_bound},
                        {"gap", best.gap},
                        {"objective_s", r.objective},
                        {"objective_bound_s", r.bound},
                        {"objective_bound_with_tiers_s", r.bound},
                        {"objective_gap", r.gap},
                        {"reason", r.bound_reason}});
  report.line(fmt::format(
      "\nEmbedding part of the step: {}, lower bound {} ({}), so at most {} to gain.",
      human(Seconds(r.objective)), human(Seconds(r.bound)), r.bound_reason, percent(r.gap)));
  report.fact("search", {{"seconds", r.search_seconds},
                         {"simulation_seconds", r.simulation_seconds},
                         {"evaluations", r.evaluations},
                         {"space", r.space_log10 < 300 ? std::pow(10.0, r.space_log10) : 1e300},
                         {"space_log10", r.space_log10},
                         {"cut", r.cut}});
  report.line(fmt::format(
      "search: {} evaluations of 10^{:.0f} plans, {}{}; simulation {}",
      count(static_cast<double>(r.evaluations)), r.space_log10, human(Seconds(r.search_seconds)),
      r.cut ? " (ended early)" : "", human(Seconds(r.simulation_seconds))));
}

Json plan_document(const RankedPlan& p) {
  Json j = Json::parse(config::plan_to_json(p.plan, -1));
  j["planner"] = p.planner;
  j["objective_s"] = p.objective > 0 ? Json(p.objective) : Json();
  j["buildable"] = true;
  j["mix"] = Json::object();
  for (const auto& [kind, tables] : p.mix) {
    j["mix"][kind] = tables;
  }
  return j;
}

/// True if parts of a row have a state each where a whole row would have one.
bool trains_otherwise(const Job& job, const EmbeddingPlan& plan) {
  return job.embedding_optimizer == OptimizerKind::kRowwiseAdagrad &&
         std::any_of(plan.tables.begin(), plan.tables.end(), [](const auto& table) {
           return std::any_of(table.shards.begin(), table.shards.end(), [&](const auto& shard) {
             return shard.columns.front() > 0;
           });
         });
}

/// Options that `predict` takes in addition to the job to say the same of plan 1.
std::string typed_text(const std::string& file) {
  return file.empty() ? "Plan 1 in `predict`: --out FILE writes it here, --set "
                        "embedding.plan=FILE takes it there"
                      : "Plan 1 in `predict`: " + typed_settings({"embedding.plan=" + file});
}

/// Change that would make room: slower memory only if the system has some and the search left it
/// out.
std::string fix_text(const System& system, bool tiers) {
  const bool slower = system.tiers.size() > 1;
  return fmt::format(
      "use more GPUs, narrower rows (formats.embedding) or {}",
      !slower  ? "a slower tier of memory (system.tiers)"
      : !tiers ? fmt::format("slower memory: leave out --device-memory-only ({} was not used)",
                             system.tiers.back().name)
               : fmt::format("more of {}", system.tiers.back().name));
}

std::string shortage_text(const planner::Shortage& s, const std::string& fix) {
  const auto bytes = [](std::int64_t b) { return human(Bytes(static_cast<double>(b))); };
  if (s.capacity < 0) {
    return fmt::format(
        "no plan fits: without any table, the dense model and the libraries need {} more of {} "
        "than a device has",
        bytes(-s.capacity), s.tier);
  }
  return fmt::format("no plan fits: {} need{} {} of {} {}, which has {}: {} ({} bytes) short; {}",
                     s.table.empty() ? "the tables together" : fmt::format("table '{}'", s.table),
                     s.table.empty() ? "" : "s", bytes(s.needed), s.tier,
                     s.table.empty() ? "in all" : "at least on one unit", bytes(s.capacity),
                     bytes(s.missing()), s.missing(), fix);
}

}  // namespace

void print_embedding_plans(const PlanReport& r, const std::string& file,
                           const std::vector<std::string>& warnings, OutputFormat format) {
  Report report(format);
  report.line(fmt::format("{} on {} x {} ({}), {} tables\n", r.job.workload.name, r.job.devices,
                          device_title(r.job.system.device.name), r.job.system.name, r.job.workload.layered()->tables.size()));
  report.add(plans_table(r));
  report.list("plans");
  for (const RankedPlan& p : r.plans) {
    report.item("plans", [&p] { return plan_document(p); });
  }
  add_bound(r, report);
  if (const auto& e = r.efficiency) {
    const double hardware = r.plans.front().plan.predicted_step / e->factor;
    report.fact("pace", {{"factor", e->factor}, {"low", e->low}, {"high", e->high}});
    report.line(fmt::format("steps as expected with {}; 90 % interval of plan 1: {} to {}",
                            e->measured, human(Seconds(hardware * e->low)),
                            human(Seconds(hardware * e->high))));
  }
  report.add(ledger_table(r.plans.front().plan, r.job.system));
  if (!r.compared.empty()) {
    report.line();
    report.add(compared_table(r));
  }
  report.fact("warnings", warnings);
  for (const std::string& warning : warnings) {
    report.line("\nwarning: plan 1: " + warning, Meaning::kWarning);
  }
  if (trains_otherwise(r.job, r.plans.front().plan)) {
    report.line("\nTables cut by columns keep a state of row-wise Adagrad for each part: they learn a "
                "little otherwise than whole ones.");
  }
  report.line('\n' + typed_text(file));
  report.print(answer());
}

int print_infeasible(const std::string& why, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    Report report(format);
    report.list("plans");
    report.fact("infeasible", why);
    report.print(answer());
  }
  fmt::print(notes(), "stepcast: {}\n", why);
  return 1;
}

int print_shortage(const PlanReport& report, const std::string& headroom, bool tiers,
                   OutputFormat format) {
  return print_infeasible(
      (report.shortage ? shortage_text(*report.shortage, fix_text(report.job.system, tiers))
                       : std::string("no plan fits the memory of the devices")) +
          (headroom.empty() ? "" : "; of that, --memory-headroom keeps " + headroom),
      format);
}

}  // namespace stepcast::cli
