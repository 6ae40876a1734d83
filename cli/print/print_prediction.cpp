#include "cli/print/print_prediction.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cli/print/human.h"
#include "cli/print/print_details.h"
#include "cli/print/step_parts.h"
#include "core/config/document.h"
#include "planner/parallel/plan_point.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/plan_summary.h"

namespace stepcast::cli {
namespace {

using studies::StepPrediction;

bool has_tables(const Job& job) {
  return job.workload.layered() != nullptr && !job.workload.layered()->tables.empty();
}

const studies::TimeSplit& critical_split(const StepPrediction& p) {
  return p.busiest ? p.busiest->split : p.split;
}
std::int32_t critical_rank(const StepPrediction& p) {
  return p.busiest ? p.busiest->rank : p.critical_rank;
}

constexpr std::size_t kBarWidth = 30;

/// "#####.....": the share of a whole, at most all of it.
std::string bar(double share) {
  const double filled = std::clamp(share, 0.0, 1.0) * static_cast<double>(kBarWidth);
  const auto full = static_cast<std::size_t>(std::lround(filled));
  return std::string(full, '#') + std::string(kBarWidth - full, '.');
}

std::string bar_line(std::string_view name, double share, const std::string& text) {
  return fmt::format("{:<24}{}  {}\n", name, bar(share), text);
}

/// Adds the parts of the step, those of less than a thousandth left out: on the rank that waits
/// least where the one that ends last mostly waits, else on that one.
void add_parts(const StepPrediction& p, Report& report) {
  constexpr double kLeast = 0.001;
  if (p.busiest) {
    report.line(fmt::format("rank {}, which waits least:", p.busiest->rank));
  }
  const studies::TimeSplit& split = p.busiest ? p.busiest->split : p.split;
  const char* bubble_title =
      p.job.parallel.pipeline > 1 ? "pipeline bubble" : "waits for other ranks";
  for (const StepPart& part : kStepParts) {
    const Seconds time = split.*part.of;
    const double share = time / p.iteration;
    const bool bubble = part.of == &studies::TimeSplit::bubble;
    if (share >= kLeast) {
      report.text(bar_line(bubble ? bubble_title : part.title, share,
                           fmt::format("{:>8}  {:>7}", human(time), percent(share))));
    }
  }
}

/// Memory of the fullest device against its capacity, and what most of it is.
std::string memory_bar(const StepPrediction& p) {
  constexpr std::size_t kNamed = 4;
  const Bytes total = p.memory.total() + p.reserve;
  auto lines = p.ledger.lines();
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::erase_if(lines, [](const auto& line) { return line.second <= Bytes{}; });
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(lines.size(), kNamed); ++i) {
    parts.push_back(fmt::format("{} {}", lines[i].first, human(lines[i].second)));
  }
  if (p.capacity <= Bytes{}) {
    return fmt::format("{:<24}{}: {}\n", fmt::format("memory (rank {})", p.fullest_rank),
                       human(total), fmt::join(parts, ", "));
  }
  const std::string host =
      p.ledger.host > Bytes{} ? fmt::format("; host memory {}", human(p.ledger.host)) : "";
  return bar_line(fmt::format("memory (rank {})", p.fullest_rank), total / p.capacity,
                  fmt::format("{} of {}: {}{}{}", human(total), human(p.capacity),
                              fmt::join(parts, ", "), lines.size() > kNamed ? ", ..." : "", host));
}

/// Work and tokens of a device in a second, and how near that is to its peak.
std::string rates_text(const StepPrediction& p) {
  const auto devices = static_cast<double>(p.job.devices);
  std::vector<std::string> each;
  if (p.tokens_per_second > 0) {
    each.push_back(fmt::format("{} tokens/s", grouped(p.tokens_per_second / devices)));
  }
  if (p.flops.model > Flops{}) {
    each.push_back(human(p.flops.model / p.iteration / devices));
  }
  std::string text = fmt::format(
      "{} samples/s{}", grouped(p.samples_per_second),
      p.tokens_per_second > 0 ? fmt::format(", {} tokens/s", grouped(p.tokens_per_second)) : "");
  if (!each.empty()) {
    text += fmt::format("; a device: {}", fmt::join(each, ", "));
  }
  text += fmt::format("; MFU {} of {} peak", percent(p.mfu), name_of(p.peak_format));
  return p.mfu_causal == p.mfu && p.hfu == p.mfu
             ? text
             : text +
                   fmt::format(" (causal {}, hardware {})", percent(p.mfu_causal), percent(p.hfu));
}

/// Which embedding plan the prediction is of: a rule is never silent.
std::string embedding_plan_text(const Job& job) {
  return fmt::format(
      "embedding plan {}{}", workloads::plan_line(job, workloads::resolved_embedding_plan(job)),
      workloads::planned_by_rule(job)
          ? " (a rule, not a search: `stepcast plan` or --set embedding.plan=search finds one "
            "that is faster or as fast)"
      : job.embedding_choice == "search"
          ? " (a quick search; `stepcast plan` searches longer and writes the plan)"
          : "");
}

/// How a transformer is split, defaults included, and what of its traffic is hidden.
std::string parallel_text(const Job& job) {
  const Parallel& p = job.parallel;
  std::string said = planner::describe(job);
  if (p.pipeline > 1 && p.data > 1 && (p.expert > 1 || p.order != kUsualOrder)) {
    const std::string order = planner::order_text(p.order);
    said += order.empty() ? ", ranks in an order of their own" : ", " + order;
  }
  if (job.lora) {
    said += fmt::format(", adapters of rank {}", job.lora->rank);
    if (job.formats.frozen) {
      said += fmt::format(" on weights in {}", name_of(*job.formats.frozen));
    }
  }
  std::vector<std::string> away;
  for (const auto& [name, on] : {std::pair{"activations", job.offload.activations},
                                 {"optimizer", job.offload.optimizer},
                                 {"parameters", job.offload.parameters}}) {
    if (on) {
      away.emplace_back(name);
    }
  }
  if (!away.empty()) {
    said += fmt::format(", {} in host memory", fmt::join(away, " and "));
  }
  if (p.expert > 1 && p.expert_dispatch == ExpertDispatch::kPerMachine) {
    said += ", a token to each machine once";
  }
  for (const FabricLevel& level : job.system.fabric) {
    if (level.used > 0 && level.used < level.size) {
      said += fmt::format(", {} of {} in each {} domain", level.used, level.size, level.name);
    }
  }
  return fmt::format("{}{}; overlaps: {}", said, job.flash_attention ? "" : "; unfused attention",
                     planner::overlaps_text(p.overlap));
}

Json plan_json(const Job& job) {
  Json parts = Json::array();
  for (const workloads::PlanPart& p :
       workloads::plan_parts(workloads::resolved_embedding_plan(job))) {
    parts.push_back({{"tables", p.tables}, {"placed", p.placed}});
  }
  return {{"choice", job.embedding_choice},
          {"by_rule", workloads::planned_by_rule(job)},
          {"parts", std::move(parts)}};
}

/// The step: at the ideal rate, and what such runs make of it.
std::string step_text(const StepPrediction& p) {
  const std::string between =
      p.interval ? fmt::format("{} to {}", human(p.interval->p5), human(p.interval->p95)) : "";
  if (!p.efficiency) {
    return fmt::format("{} per step{}", human(p.iteration),
                       p.interval ? fmt::format(" (nine of ten: {})", between) : "");
  }
  return fmt::format("{} at the hardware's pace; {} per step expected with {} (nine of ten: {})",
                     human(p.hardware), human(p.iteration), p.efficiency->measured, between);
}

/// The people's account of the step.
void add_screen(const StepPrediction& p, const std::string& default_framework, Report& report) {
  report.line(fmt::format("{} on {} x {}: {}\n{}", p.job.workload.name, p.job.devices,
                          p.job.system.device.name, step_text(p), rates_text(p)));
  if (p.job.workload.transformer() != nullptr) {
    report.line(parallel_text(p.job));
  }
  if (p.job.phase != JobPhase::kTrain) {
    report.line("no measured efficiency applies to inference: the time is the hardware's pace");
  }
  if (!default_framework.empty()) {
    report.line(fmt::format(
        "no stack is named: as {} runs it; --set stack=NAME for another (`stepcast list stacks`)",
        default_framework));
  }
  if (has_tables(p.job)) {
    report.line(embedding_plan_text(p.job));
  }
  report.line();
  add_parts(p, report);
  report.text(memory_bar(p));
}

void add_step(const StepPrediction& p, Report& report) {
  report.fact("iteration_time_s", p.iteration.base());
  if (p.efficiency) {
    report.fact("kernels_only_s", p.hardware.base());
    report.fact("efficiency", {{"factor", p.efficiency->factor},
                         {"low", p.efficiency->low},
                         {"high", p.efficiency->high},
                         {"rows", p.efficiency->rows},
                         {"sources", p.efficiency->sources},
                         {"own", p.efficiency->own},
                         {"measured", p.efficiency->measured}});
  }
  if (p.job.phase != JobPhase::kTrain) {
    report.fact("efficiency_applies", false);
  }
  if (p.interval) {
    report.fact("interval_s", {{"p5", p.interval->p5.base()}, {"p95", p.interval->p95.base()}});
  }
  report.fact("in_calibrated_range", p.in_calibrated_range);
  report.fact("throughput",
              {{"samples_per_s", p.samples_per_second}, {"tokens_per_s", p.tokens_per_second}});
  report.fact("flops", {{"model_per_iteration", p.flops.model.base()},
                        {"hardware_per_iteration", p.flops.hardware.base()},
                        {"peak_format", name_of(p.peak_format)}});
  report.facts({{"mfu", p.mfu}, {"mfu_causal", p.mfu_causal}, {"hfu", p.hfu}});
  report.fact("critical_rank", critical_rank(p));
  report.fact("time_s", split_json(p));
  if (p.busiest) {
    report.fact("last_rank", {{"rank", p.critical_rank}, {"time_s", split_json(p.split)}});
  }
}

void add_memory(const StepPrediction& p, bool details, Report& report) {
  report.fact("fullest_rank", p.fullest_rank);
  report.fact("memory_bytes", memory_json(p));
  if (details) {
    Json ledger = Json::object();
    for (const auto& [name, bytes] : p.ledger.lines()) {
      std::string key(name);
      std::replace(key.begin(), key.end(), ' ', '_');
      ledger[key] = bytes.base();
    }
    report.fact("memory_ledger", std::move(ledger));
  }
  if (p.ledger.host > Bytes{}) {
    report.fact("host_memory_bytes", p.ledger.host.base());
  }
  report.fact("fits", p.fits);
  report.fact("fit", name_of(p.fit));
  report.fact("memory_margin", simulator::memory_margin(p.job.system.device));
}

/// One row of the figures people compare.
DataTable csv_table(const StepPrediction& p) {
  using P = StepPrediction;
  Columns<P> columns{
      {"workload", "", [](auto& q) { return q.job.workload.name; }},
      {"system", "", [](auto& q) { return q.job.system.name; }},
      {"devices", "", [](auto& q) { return q.job.devices; }},
      {"iteration_time_s", "", &P::iteration},
      {"samples_per_s", "", &P::samples_per_second},
      {"mfu", "", [](auto& q) { return fmt::format("{:.6g}", q.mfu); }},
      {"memory_bytes", "",
       [](auto& q) { return code(std::llround(q.ledger.total().base())); }},
      {"fits", "", &P::fits},
      {"in_calibrated_range", "", &P::in_calibrated_range},
      {"tokens_per_s", "",
       [](auto& q) { return q.tokens_per_second > 0 ? code(q.tokens_per_second) : empty_cell(); }}};
  for (const StepPart& part : kStepParts) {
    columns.emplace_back(part.key + std::string("_s"), "",
                         [of = part.of](const P& q) { return critical_split(q).*of; });
  }
  return table_of("prediction", "", columns, std::vector{p}, kInCsv);
}

}  // namespace

Json split_json(const studies::TimeSplit& split) {
  Json j;
  for (const StepPart& part : kStepParts) {
    j[part.key] = (split.*part.of).base();
  }
  return j;
}

Json split_json(const StepPrediction& p) { return split_json(critical_split(p)); }

Json memory_json(const StepPrediction& p) {
  const Bytes total = p.ledger.total();
  Json j;
  for (const auto& [name, bytes] : p.ledger.parts()) {
    j[std::string(name)] = bytes.base();
  }
  j["free"] = std::max(p.capacity - total, Bytes{}).base();
  j["total"] = total.base();
  j["capacity"] = p.capacity.base();
  return j;
}

void add_framework(const std::string& framework, bool implied, Report& report) {
  if (framework.empty()) {
    return;
  }
  report.fact("framework", framework);
  if (implied) {
    report.fact("framework_implied", true);
  }
}

void add_prediction(const StepPrediction& p, const PredictionContext& context, Report& report) {
  add_screen(p, context.implied ? context.framework : "", report);
  report.fact("job", [&] { return Json::parse(context.job()); });
  add_framework(context.framework, context.implied, report);
  if (has_tables(p.job)) {
    report.fact("embedding_plan", [&] { return plan_json(p.job); });
  }
  add_step(p, report);
  add_memory(p, context.details, report);
  report.add(ops_table("op_kinds", p.busiest ? p.busiest->by_kind : p.by_kind, kInJson));
  if (context.details) {
    report.add(ops_table("ops", p.busiest ? p.busiest->by_name : p.by_name, kInJson));
  }
  std::vector<std::string> warnings = p.warnings;
  if (!p.out_of_range.empty()) {
    warnings.push_back(p.out_of_range);
  }
  report.fact("warnings", warnings);
  report.add(csv_table(p));
}

}  // namespace stepcast::cli
