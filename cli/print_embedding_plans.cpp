#include "cli/print_embedding_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/human.h"
#include "cli/print_prediction.h"
#include "cli/text_table.h"
#include "core/config/config.h"
#include "core/job/tier_units.h"
#include "studies/predict/memory_remedy.h"

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

/// Fullest and emptiest rank of a tier, and what fills the fullest.
void print_ledger(const EmbeddingPlan& plan, const System& system, std::ostream& out) {
  TextTable table({"tier", "rank", "weights", "optimizer", "gradients", "cache", "remap", "buffers",
                   "dense", "total", "capacity"});
  std::vector<std::string> tiers;
  for (const LedgerLine& l : plan.ledger) {
    if (std::find(tiers.begin(), tiers.end(), l.tier) == tiers.end()) {
      tiers.push_back(l.tier);
    }
  }
  for (const std::string& tier : tiers) {
    const LedgerLine* most = nullptr;
    const LedgerLine* least = nullptr;
    for (const LedgerLine& l : plan.ledger) {
      if (l.tier == tier) {
        most = most == nullptr || l.total() > most->total() ? &l : most;
        least = least == nullptr || l.total() < least->total() ? &l : least;
      }
    }
    const auto has = tier_named(system, tier);
    const std::int64_t sharers = has ? has->shared_by : 1;
    std::vector<std::pair<const LedgerLine*, const char*>> rows{{most, "fullest"}};
    if (least->rank != most->rank) {
      rows.emplace_back(least, "emptiest");
    }
    for (const auto& [l, which] : rows) {
      const auto bytes = [](double b) { return human(Bytes(b)); };
      table.row({l->tier, fmt::format("{} ({})", l->rank, which), bytes(l->weights),
                 bytes(l->optimizer), bytes(l->gradients), bytes(l->cache), bytes(l->remap),
                 bytes(l->buffers), bytes(l->dense), bytes(l->total()),
                 bytes(l->capacity) + (sharers > 1 ? fmt::format(" for {}", sharers) : "")});
    }
  }
  table.print(out);
}

void print_text(const PlanReport& r, std::ostream& out) {
  out << fmt::format("{} on {} x {}, {} tables\n\n", r.job.workload.name, r.job.devices,
                     r.job.system.device.name, r.job.workload.dlrm()->tables.size());
  TextTable table({"plan", "step", "lower bound", "gap", "objective", "planner", "tables"});
  table.left(5);
  table.left(6);
  std::size_t rank = 0;
  for (const RankedPlan& p : r.plans) {
    table.row({std::to_string(++rank), human(Seconds(p.plan.predicted_step)),
               human(Seconds(p.plan.lower_bound)), percent(p.plan.gap),
               p.objective > 0 ? human(Seconds(p.objective)) : "-",
               p.simulated ? p.planner : "not built", mix_text(p)});
  }
  table.print(out);
  out << fmt::format(
      "\nno plan of the searched space takes a step of less than the lower bound. Objective, what "
      "a "
      "plan decides of a step: best found {}, none below {} ({})\n",
      human(Seconds(r.objective)), human(Seconds(r.bound)), r.bound_reason);
  out << fmt::format("search: {} evaluations in a space of 10^{:.0f} plans, {}{}; simulation {}\n",
                     count(static_cast<double>(r.evaluations)), r.space_log10,
                     human(Seconds(r.search_seconds)), r.cut ? " (cut by the time limit)" : "",
                     human(Seconds(r.simulation_seconds)));
  for (const RankedPlan& p : r.plans) {
    if (!p.simulated) {
      out << fmt::format("not built: {}\n", p.not_built_because);
    }
  }
  out << "\nbytes per rank of plan 1\n";
  print_ledger(r.plans.front().plan, r.job.system, out);
  if (!r.compared.empty()) {
    out << '\n';
    TextTable rows({"planner", "step", "to plan 1", "objective", "fullest rank", "fits",
                    "time to plan", "remark"});
    const double best = r.plans.front().plan.predicted_step;
    rows.left(7);
    for (const studies::ComparedPlan& c : r.compared) {
      rows.row({c.name, c.step ? human(Seconds(*c.step)) : "-",
                c.step ? percent_signed(*c.step / best - 1) : "-",
                c.objective ? human(Seconds(*c.objective)) : "-",
                c.made ? human(Bytes(c.fullest_bytes)) : "-",
                !c.made  ? "-"
                : c.fits ? "yes"
                         : "no",
                c.made ? human(Seconds(c.seconds)) : "-", c.remark});
    }
    rows.print(out);
  }
}

/// Where nobody asked for room that stays free: how little there is.
void warn_of_full_devices(const PlanReport& r, std::ostream& out) {
  Bytes fullest;
  for (const LedgerLine& l : r.plans.front().plan.ledger) {
    fullest = l.tier == "hbm" ? std::max(fullest, Bytes(l.total())) : fullest;
  }
  if (const std::string tight = studies::tight_memory(fullest, r.job.system.device.memory);
      !tight.empty()) {
    out << fmt::format("\nwarning: {} (--memory-headroom 5%)\n", tight);
  }
}

nlohmann::ordered_json plan_document(const RankedPlan& p) {
  auto j = nlohmann::ordered_json::parse(config::plan_to_json(p.plan, -1));
  j["planner"] = p.planner;
  j["objective_s"] =
      p.objective > 0 ? nlohmann::ordered_json(p.objective) : nlohmann::ordered_json();
  j["buildable"] = p.simulated;
  if (!p.simulated) {
    j["not_built_because"] = p.not_built_because;
  }
  j["mix"] = nlohmann::ordered_json::object();
  for (const auto& [kind, tables] : p.mix) {
    j["mix"][kind] = tables;
  }
  return j;
}

void print_json(const PlanReport& r, std::ostream& out) {
  nlohmann::ordered_json j;
  j["stepcast"] = provenance_json();
  j["plans"] = nlohmann::ordered_json::array();
  for (const RankedPlan& p : r.plans) {
    j["plans"].push_back(plan_document(p));
  }
  j["bound"] = {{"lower_bound_s", r.plans.front().plan.lower_bound},
                {"gap", r.plans.front().plan.gap},
                {"objective_s", r.objective},
                {"objective_bound_s", r.bound},
                {"objective_bound_with_tiers_s", r.bound_with_tiers},
                {"objective_gap", r.gap},
                {"reason", r.bound_reason}};
  j["search"] = {{"seconds", r.search_seconds},
                 {"simulation_seconds", r.simulation_seconds},
                 {"evaluations", r.evaluations},
                 {"space", r.space_log10 < 300 ? std::pow(10.0, r.space_log10) : 1e300},
                 {"space_log10", r.space_log10},
                 {"cut", r.cut}};
  if (!r.compared.empty()) {
    j["compare"] = nlohmann::ordered_json::array();
    for (const studies::ComparedPlan& c : r.compared) {
      nlohmann::ordered_json row;
      row["planner"] = c.name;
      row["step_s"] = c.step ? nlohmann::ordered_json(*c.step) : nlohmann::ordered_json();
      row["objective_s"] =
          c.objective ? nlohmann::ordered_json(*c.objective) : nlohmann::ordered_json();
      const auto of_plan = [&c](auto value) {
        return c.made ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
      };
      row["fullest_bytes"] = of_plan(c.fullest_bytes);
      row["fits"] = of_plan(c.fits);
      row["seconds"] = of_plan(c.seconds);
      row["remark"] = c.remark;
      j["compare"].push_back(std::move(row));
    }
  }
  out << j.dump(2) << '\n';
}

void print_csv(const PlanReport& r, std::ostream& out) {
  const auto number = [](double v) { return fmt::format("{:.9g}", v); };
  if (!r.compared.empty()) {
    out << csv_line({"planner", "step_s", "objective_s", "objective_bound_s", "fullest_bytes",
                     "fits", "seconds", "remark"});
    for (const studies::ComparedPlan& c : r.compared) {
      out << csv_line({c.name, c.step ? number(*c.step) : "",
                       c.objective ? number(*c.objective) : "", number(r.bound),
                       c.made ? fmt::format("{:.0f}", c.fullest_bytes) : "",
                       !c.made  ? ""
                       : c.fits ? "true"
                                : "false",
                       c.made ? number(c.seconds) : "", c.remark});
    }
    return;
  }
  out << csv_line({"plan", "predicted_step_s", "lower_bound_s", "gap", "objective_s", "planner",
                   "buildable", "tables"});
  std::size_t rank = 0;
  for (const RankedPlan& p : r.plans) {
    out << csv_line({std::to_string(++rank), number(p.plan.predicted_step),
                     number(p.plan.lower_bound), number(p.plan.gap), number(p.objective), p.planner,
                     p.simulated ? "true" : "false", mix_text(p)});
  }
}

/// What would make room: slower memory only where the system has none or the search left it out.
std::string remedy_text(const System& system, bool tiers) {
  const bool slower = system.tiers.size() > 1;
  return fmt::format("use more devices, narrower rows (formats.embedding) or {}",
                     !slower  ? "a slower tier of memory (system.tiers)"
                     : !tiers ? fmt::format("slower memory: leave out --no-tiers ({} was not used)",
                                            system.tiers.back().name)
                              : fmt::format("more of {}", system.tiers.back().name));
}

std::string shortage_text(const planner::Shortage& s, const std::string& remedy) {
  const auto bytes = [](std::int64_t b) { return human(Bytes(static_cast<double>(b))); };
  if (s.capacity < 0) {
    return fmt::format(
        "no plan fits: before any table the dense model and the libraries take {} more of {} than "
        "a device has",
        bytes(-s.capacity), s.tier);
  }
  return fmt::format("no plan fits: {} need{} {} of {} {}, which has {}: {} ({} bytes) short; {}",
                     s.table.empty() ? "the tables together" : fmt::format("table '{}'", s.table),
                     s.table.empty() ? "" : "s", bytes(s.needed), s.tier,
                     s.table.empty() ? "in all" : "at least on one unit", bytes(s.capacity),
                     bytes(s.missing()), s.missing(), remedy);
}

}  // namespace

void print_embedding_plans(const PlanReport& report, bool headroom, OutputFormat format) {
  switch (format) {
    case OutputFormat::kText:
      print_text(report, std::cout);
      if (!headroom) {
        warn_of_full_devices(report, std::cout);
      }
      break;
    case OutputFormat::kJson:
      print_json(report, std::cout);
      break;
    case OutputFormat::kCsv:
      print_csv(report, std::cout);
      break;
  }
}

int print_infeasible(const std::string& why, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    nlohmann::ordered_json j;
    j["stepcast"] = provenance_json();
    j["plans"] = nlohmann::ordered_json::array();
    j["infeasible"] = why;
    std::cout << j.dump(2) << '\n';
  }
  fmt::print(stderr, "stepcast: {}\n", why);
  return 1;
}

int print_shortage(const PlanReport& report, const std::string& headroom, bool tiers,
                   OutputFormat format) {
  return print_infeasible(
      (report.shortage ? shortage_text(*report.shortage, remedy_text(report.job.system, tiers))
                       : std::string("no plan fits the memory of the devices")) +
          (headroom.empty() ? "" : "; of that, --memory-headroom keeps " + headroom),
      format);
}

}  // namespace stepcast::cli
