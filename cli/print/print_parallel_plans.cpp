#include "cli/print/print_parallel_plans.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "cli/command.h"
#include "cli/print/human.h"
#include "cli/print/print_prediction.h"
#include "core/job/efficiency.h"
#include "core/job_split.h"

namespace stepcast::cli {
namespace {

using planner::ParallelCandidate;
using planner::PlanPoint;
using studies::ParallelPlanReport;
using studies::RankedParallelPlan;

constexpr std::size_t kFrontRows = 12;

/// How a plan splits its ranks, a column for each degree; those that are 1 or none in all rows say
/// nothing to people. `point` is that of a row.
template <class Row, class Point>
void add_point_columns(Columns<Row>& columns, Point point, const Job& job, Visibility devices) {
  const auto add = [&](const char* key, const char* title, auto of,
                       Visibility look = kInCsv | kIfVarying | kMajor) {
    columns.emplace_back(
        key, title, [=](const Row& row) { return cell(of(point(row))); }, look);
  };
  const auto even = [](PlanPoint p) {  // what the ends count as stands in columns of its own
    p.embedding_layers = p.head_layers = 0;
    return p;
  };
  add(
      "devices", "GPUs", [](const PlanPoint& p) { return p.devices(); }, devices | kInCsv);
  add("tensor", "TP", [](const PlanPoint& p) {
    return Cell{fmt::format("{}{}", p.tensor, p.sequence_parallel ? "+SP" : ""), p.tensor};
  });
  add("context", "CP", [](const PlanPoint& p) { return p.context; });
  add("expert", "EP", [](const PlanPoint& p) { return p.expert; });
  add("pipeline", "PP", [](const PlanPoint& p) { return p.pipeline; });
  add("data", "DP", [](const PlanPoint& p) { return p.data; });
  add("micro", "MBS", [](const PlanPoint& p) { return p.micro; });
  add(
      "schedule", "schedule",
      [even](const PlanPoint& p) {
        return Cell{p.pipeline == 1 ? "-" : planner::schedule_title(even(p)),
                    planner::schedule_text(even(p))};
      },
      kInCsv | kIfVarying | kMajor);
  add(
      "", "VPP", [](const PlanPoint& p) { return p.virtual_stages; }, kIfVarying | kMajor);
  add("recompute", "recompute", [&job](const PlanPoint& p) {
    return planner::recompute_text(p, job.parallel.recompute.modules);
  });
  add("zero", "ZeRO", [&job](const PlanPoint& p) { return planner::zero_text(p, job.system); });
  add(
      "sequence_parallel", "", [](const PlanPoint& p) { return p.sequence_parallel; }, kInCsv);
  add(
      "embedding_layers", "", [](const PlanPoint& p) { return p.embedding_layers; }, kInCsv);
  add(
      "head_layers", "", [](const PlanPoint& p) { return p.head_layers; }, kInCsv);
}

std::string order_text(const MeshOrder& order) {
  const std::string text = planner::order_text(order);
  return text.empty() ? "the job's own" : text;
}

/// Relative distance of a plan's step from the lower bound; nullopt without a bound.
std::optional<double> gap_of(const ParallelPlanReport& r, const RankedParallelPlan& p) {
  return r.lower_bound > 0 ? std::optional(p.prediction.iteration.base() / r.lower_bound - 1)
                           : std::nullopt;
}

Json recompute_json(const PlanPoint& p, const RecomputeModules& modules) {
  return p.recompute == RecomputeKind::kFirstLayers ? Json{{"layers", p.recompute_layers}}
         : p.recompute == RecomputeKind::kSelective && modules != RecomputeModules{}
             ? Json{{"modules", names_of(modules)}}
             : Json(planner::recompute_text(p));
}

Json point_json(const PlanPoint& p, const Job& job) {
  Json j{{"devices", p.devices()},
         {"tensor", p.tensor},
         {"sequence_parallel", p.sequence_parallel},
         {"context", p.context},
         {"expert", p.expert},
         {"pipeline", p.pipeline},
         {"data", p.data},
         {"micro", p.micro},
         {"virtual_stages", p.virtual_stages},
         {"schedule", name_of(p.schedule)},
         {"recompute", recompute_json(p, job.parallel.recompute.modules)},
         {"zero", p.shard_level == 0
                      ? Json(p.zero)
                      : Json{{"stage", p.zero},
                             {"level", planner::level_name(p.shard_level, job.system)}}}};
  if (p.embedding_layers > 0 || p.head_layers > 0) {
    j["pipeline_split"] = {{"embedding", p.embedding_layers}, {"head", p.head_layers}};
  }
  return j;
}

void add_front(const ParallelPlanReport& r, Report& report) {
  report.list("front");
  for (const ParallelCandidate& c : r.front) {
    report.item("front", [&] {
      Json row{{"step_s", c.seconds}, {"memory_bytes", c.bytes}, {"order", order_text(c.order)}};
      row.update(point_json(c.point, r.job));
      return row;
    });
  }
  if (r.front.empty()) {
    return;
  }
  // A long front is thinned to a readable number of rows, evenly spaced.
  const std::size_t all = r.front.size();
  const std::size_t shown = std::min(all, kFrontRows);
  std::vector<ParallelCandidate> rows;
  for (std::size_t i = 0; i < shown; ++i) {
    rows.push_back(r.front[shown < 2 ? 0 : i * (all - 1) / (shown - 1)]);
  }
  report.line(fmt::format(
      "\nPareto front of time, memory and devices ({} of {}, estimated in closed form)",
      shown, all));
  using C = ParallelCandidate;
  Columns<C> columns{{"step_s", "step", [](auto& c) { return Seconds(c.seconds); }},
                     {"memory_bytes", "memory", [](auto& c) { return Bytes(c.bytes); }},
                     {"order", "rank order", [](auto& c) { return order_text(c.order); },
                      r.order_searched ? kInText : kNowhere}};
  add_point_columns(
      columns, [](const C& c) { return c.point; }, r.job, kInText);
  report.add(table_of("front", "", columns, rows, kInText));
}

/// Says what became of every point of the space, and what the proof rests on.
void add_search_lines(const ParallelPlanReport& r, Report& report) {
  const planner::SearchCounts& c = r.counts;
  const auto n = [](std::int64_t v) { return count(static_cast<double>(v)); };
  report.line(fmt::format(
      "search: {} plans in {}; out of memory by their states: {}, with activations: {}; slower by "
      "their bound: {}; timed: {}{}",
      n(c.space), human(Seconds(r.search_seconds)), n(c.weights_too_large), n(c.memory_too_large),
      n(c.bounded), n(c.evaluated),
      c.left_out > 0 ? fmt::format("; not reached before the time limit: {}", n(c.left_out)) : ""));
  if (r.fewer_devices_seconds > 0) {
    report.line(fmt::format("search on fewer devices, for the front: {} more{}",
                            human(Seconds(r.fewer_devices_seconds)),
                            r.front_cut ? ", ended by the time limit" : ""));
  }
  report.line(fmt::format("simulated: {} plans, in all {}",
                          r.simulated, human(Seconds(r.simulation_seconds))));
  if (const auto gap = gap_of(r, r.plans.front())) {
    report.line(fmt::format("lower bound {}; plan 1 is {} above it",
                            human(Seconds(r.lower_bound)), percent(*gap)));
  }
}

/// How sure the first plan is the fastest, as one sentence.
std::string bound_text(const ParallelPlanReport& r) {
  if (r.lower_bound <= 0) {
    return "Not proven optimal: the time limit ended the search; faster plans may be left.";
  }
  const std::string space = count(static_cast<double>(r.counts.space));
  if (r.proven) {
    return fmt::format(
        "Plan 1 is the fastest of all {} plans of this space, to {}: {} were simulated, the others "
        "are slower by their bound.",
        space, percent(studies::kLeastTimeError), r.simulated);
  }
  return fmt::format(
      "Not proven optimal: {} of {} plans were simulated; {} could reach {} at best.", r.simulated,
      space, r.unproven_more ? "others" : fmt::format("{} others", r.unproven),
      human(Seconds(r.others_at_least)));
}

/// Plans that differ by less than what is known of steps; "" where the first stands alone.
std::string tie_text(const ParallelPlanReport& r) {
  const auto efficiency = efficiency_of(r.plans.front().job);
  const double reach =
      r.plans.front().prediction.hardware.base() * std::exp(efficiency ? efficiency->scatter : 0);
  std::vector<std::string> simulated;
  for (const RankedParallelPlan& p : r.plans) {
    if (p.prediction.hardware.base() <= reach) {
      simulated.push_back(human(p.prediction.hardware));
    }
  }
  return !efficiency || simulated.size() < 2
             ? ""
             : fmt::format(
                   "Plans 1 to {} tie: measured runs scatter by {}. Kernels alone: {}.",
                   simulated.size(), percent(efficiency->scatter), fmt::join(simulated, ", "));
}

std::string title(const ParallelPlanReport& r, const std::string& framework) {
  return fmt::format("{} on {} x {} ({}), {}, {}, global batch {} x {}", r.job.workload.name,
                     r.job.devices, device_title(r.job.system.device.name), r.job.system.name,
                     framework.empty() ? "kernels alone" : framework,
                     name_of(r.job.formats.compute), r.job.batch.global, r.job.batch.sequence);
}

std::string family_text(const RankedParallelPlan& p) {
  return std::string(name_of(planner::family_of(p.point)));
}

bool families_differ(const ParallelPlanReport& r) {
  return std::any_of(r.plans.begin(), r.plans.end(), [&r](const auto& p) {
    return family_text(p) != family_text(r.plans.front());
  });
}

/// Rows of text and of CSV; JSON has whole plans.
DataTable plans_table(const ParallelPlanReport& r, bool details) {
  using Row = Numbered<RankedParallelPlan>;
  const auto shown = [](bool shows) { return shows ? kInText : kNowhere; };
  Columns<Row> columns{
      {"plan", "", [](auto& p) { return p.number; }},
      {"predicted_step_s", "step", [](auto& p) { return p.of.prediction.iteration; }, kMajor},
      {"kernels_only_s", "kernels only", [](auto& p) { return p.of.prediction.hardware; },
       shown(details && r.plans.front().prediction.efficiency.has_value()) | kInCsv},
      {"", "90 % interval",
       [](auto& p) {
         const auto& between = p.of.prediction.interval;
         return between ? interval_text(*between) : "";
       },
       shown(std::any_of(r.plans.begin(), r.plans.end(),
                         [](const auto& p) { return p.prediction.interval.has_value(); })) |
           kMinor},
      {"", "tokens/s/GPU",
       [](auto& p) {
         return rate(p.of.prediction.tokens_per_second / static_cast<double>(p.of.point.devices()));
       },
       shown(r.plans.front().prediction.tokens_per_second > 0)},
      {"closed_form_s", "", [](auto& p) { return code(p.of.closed_form); }, kInCsv},
      {"lower_bound_s", "",
       [&r](auto&) { return r.lower_bound > 0 ? code(r.lower_bound) : empty_cell(); }, kInCsv},
      {"mfu", "MFU",
       [](auto& p) {
         const double mfu = p.of.prediction.mfu;
         return Cell{percent(mfu), fmt::format("{:.6g}", mfu)};
       }},
      {"memory_bytes", "memory",
       [](auto& p) {
         return Cell{human(Bytes(p.of.bytes)), std::llround(p.of.bytes)};
       },
       kMajor},
      {"", "closed form", [](auto& p) { return Seconds(p.of.closed_form); }, shown(details)},
      {"", "rank order", [](auto& p) { return order_text(p.of.job.parallel.order); },
       shown(r.order_searched)},
      {"", "CP algorithm",
       [](auto& p) { return std::string(name_of(p.of.job.parallel.context_algorithm)); },
       shown(std::any_of(r.plans.begin(), r.plans.end(),
                         [](const auto& p) { return p.point.context > 1; })) |
           kMinor},
      {"", "family", [](auto& p) { return family_text(p.of); },
       shown(families_differ(r)) | kMinor}};
  add_point_columns(
      columns, [](const Row& p) { return p.of.point; }, r.job, kNowhere);
  return table_of("plans", "", columns, numbered(r.plans, 1), kInText | kInCsv);
}

/// Options that `predict` takes in addition to the job to say the same of plan 1.
std::string typed_text(const RankedParallelPlan& first) {
  return "Plan 1 in `predict`: " + typed_settings(first.settings);
}

/// Parts that were not searched, and why.
std::string held_text(const ParallelPlanReport& r) {
  const std::string held = planner::fixed_text(r.fixed);
  return fmt::format(
      "Held fixed: overlaps ({}), offloading{}{}{}",
      planner::overlaps_text(r.job.parallel.overlap),
      r.order_searched ? ""
                       : fmt::format(", rank order ({})", order_text(r.job.parallel.order)),
      r.fixed.framework ? fmt::format(", plans that {} cannot run", name_of(*r.fixed.framework))
                        : "",
      held.empty() ? "" : fmt::format("; as the job says: {}", held));
}

/// True if no plan of the other family is shown, though there may be some: their efficiencies are
/// known differently well.
bool all_shard_weights(const ParallelPlanReport& r) {
  return !r.fixed.zero && r.fixed.framework != TrainingFramework::kTorchtitan &&
         efficiency_of(r.plans.front().job) &&
         std::all_of(r.plans.begin(), r.plans.end(),
                     [](const auto& p) { return p.point.zero == 3; });
}

void add_search(const ParallelPlanReport& r, Report& report) {
  report.fact("search", {{"seconds", r.search_seconds},
                         {"fewer_devices_seconds", r.fewer_devices_seconds},
                         {"simulation_seconds", r.simulation_seconds},
                         {"evaluations", r.counts.evaluated},
                         {"space", r.counts.space},
                         {"weights_too_large", r.counts.weights_too_large},
                         {"memory_too_large", r.counts.memory_too_large},
                         {"bounded", r.counts.bounded},
                         {"left_out", r.counts.left_out},
                         {"cut", r.cut},
                         {"order_searched", r.order_searched},
                         {"for", r.fixed.framework ? Json(name_of(*r.fixed.framework)) : Json()},
                         {"front_cut", r.front_cut}});
}

}  // namespace

Json parallel_plan_json(const ParallelPlanReport& r, const RankedParallelPlan& p,
                   const std::string& framework) {
  Json j;
  j["stepcast"] = 1;
  j["kind"] = "parallel";
  j["job"] = Json::parse(config::job_on_framework_to_json(p.job, framework, -1));
  j["predicted_step_s"] = p.prediction.iteration.base();
  j["kernels_only_s"] = p.prediction.hardware.base();
  if (const auto& between = p.prediction.interval) {
    j["interval_s"] = {{"p5", between->p5.base()}, {"p95", between->p95.base()}};
  }
  const auto gap = gap_of(r, p);
  j["lower_bound_s"] = gap ? Json(r.lower_bound) : nullptr;
  j["gap"] = gap ? Json(*gap) : nullptr;
  j["memory_bytes"] = memory_json(p.prediction);
  j["fit"] = name_of(p.prediction.fit);
  j["memory_margin"] = simulator::memory_margin(p.job.system.device);
  j["closed_form_s"] = p.closed_form;
  j["mfu"] = p.prediction.mfu;
  j["warnings"] = p.prediction.warnings;
  j["time_s"] = split_json(p.prediction);
  j["plan"] = point_json(p.point, r.job);
  j["plan"]["family"] = family_text(p);
  j["plan"]["order"] = order_text(p.job.parallel.order);
  j["set"] = p.settings;
  return j;
}

Report parallel_report(const ParallelPlanReport& r, const config::PlanRequestOnFramework& on,
                 bool details, const std::string& exported, OutputFormat format) {
  const std::string& default_framework = on.default_framework;
  Report report(format);
  report.line(title(r, on.framework) + '\n');
  report.add(plans_table(r, details));
  for (const RankedParallelPlan& p : r.plans) {
    report.item("plans", [&] { return parallel_plan_json(r, p, on.framework); });
  }
  const auto gap = gap_of(r, r.plans.front());
  report.fact("bound", {{"lower_bound_s", gap ? Json(r.lower_bound) : Json()},
                        {"gap", or_null(gap)},
                        {"simulated", r.simulated},
                        {"others_at_least_s", r.others_at_least},
                        {"proven", r.proven},
                        {"unproven", r.unproven},
                        {"error", studies::kLeastTimeError}});
  report.line('\n' + bound_text(r));
  if (const std::string tie = tie_text(r); !tie.empty()) {
    report.line(tie);
  }
  report.fact("held", planner::fixed_text(r.fixed));
  add_framework(on.framework, !default_framework.empty(), report);
  if (!r.plans.front().settings.empty()) {
    report.line(typed_text(r.plans.front()));
  }
  if (details || r.fixed.framework || !planner::fixed_text(r.fixed).empty()) {
    report.line(held_text(r));
  }
  for (const std::string& warning : r.plans.front().prediction.warnings) {
    report.line("\nwarning: plan 1: " + warning, Meaning::kWarning);
  }
  if (all_shard_weights(r)) {
    report.line("All of these are ZeRO-3; --set zero=1 shows plans that are not.");
  }
  add_search(r, report);
  if (details) {
    add_search_lines(r, report);
  }
  add_front(r, report);
  if (!exported.empty()) {
    report.fact("exported", exported);
  }
  return report;
}

}  // namespace stepcast::cli
