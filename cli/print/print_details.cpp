#include "cli/print/print_details.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/print/human.h"
#include "cli/print/step_parts.h"
#include "planner/parallel/plan_point.h"

namespace stepcast::cli {
namespace {

using studies::OpRow;
using studies::StepPrediction;

/// Figures behind those of the first screen.
void add_rates(const StepPrediction& p, Report& report) {
  const auto devices = static_cast<double>(p.job.devices);
  if (p.efficiency) {
    report.line(fmt::format("kernels alone {}, times {:.3f}: {}", human(p.hardware),
                            p.efficiency->factor, p.efficiency->measured));
  }
  std::string text = fmt::format("{} samples/s", grouped(p.samples_per_second));
  if (p.tokens_per_second > 0) {
    text += fmt::format(", {} tokens/s", grouped(p.tokens_per_second));
  }
  if (p.flops.model > Flops{}) {
    text += fmt::format(", {}/GPU", human(p.flops.model / p.iteration / devices));
  }
  text += fmt::format(", MFU {}", percent(p.mfu));
  text += p.mfu_causal == p.mfu ? "" : fmt::format(" (causal {})", percent(p.mfu_causal));
  report.line(text + fmt::format(", HFU {}, against the {} peak", percent(p.hfu),
                                 name_of(p.peak_format)));
  if (p.job.workload.transformer() != nullptr) {
    const std::string order = planner::order_text(p.job.parallel.order);
    report.line(fmt::format("overlapped communication: {}; rank order {}",
                            planner::overlaps_text(p.job.parallel.overlap),
                            order.empty() ? "of its own" : order));
  }
}

DataTable split_table(std::int32_t rank, const studies::TimeSplit& split, Seconds step) {
  return table_of(
      "time", "",
      Columns<StepPart>{
          {"part", fmt::format("time of rank {}", rank), &StepPart::title},
          {"time_s", "time", [&](auto& part) { return split.*part.of; }},
          {"share", "", [&](auto& part) { return share(split.*part.of / step); }}},
      kStepParts, kInText);
}

/// Adds what the host's models assume, in the unit in which a reader knows their own framework.
void add_issued(const std::vector<OpRow>& rows, Seconds step, Report& report) {
  std::int64_t ops = 0;
  for (const OpRow& r : rows) {
    ops += r.executions;
  }
  if (ops > 0) {
    report.line(fmt::format(
        "the host launches {} ops: a framework that takes more than {} for each is host-bound", ops,
        human(step / static_cast<double>(ops))));
  }
}

std::string outside_note(const OpRow& r) {
  if (r.in_range) {
    return "";
  }
  const std::string share = percent(r.outside / r.time);
  return r.outside < r.time ? fmt::format(" ({} of it extrapolated)", share) : " (extrapolated)";
}

void add_ops(const std::vector<OpRow>& rows, Report& report) {
  constexpr std::size_t kShown = 12;
  const auto end = rows.begin() + static_cast<std::ptrdiff_t>(std::min(rows.size(), kShown));
  report.add(ops_table("op_kinds", {rows.begin(), end}, kInText));
  if (end != rows.end()) {
    Seconds rest;
    for (auto r = end; r != rows.end(); ++r) {
      rest += r->time + r->wait;
    }
    report.line(fmt::format("... and {} more kinds, {}; --json --details names every op",
                            rows.size() - kShown, human(rest)));
  }
}

DataTable memory_table(const StepPrediction& p) {
  DataTable table(
      "memory", "",
      {{"memory of rank " + std::to_string(p.fullest_rank) + ", the fullest"}, {"size"}},
      kInText);
  for (const auto& [name, bytes] : p.ledger.lines()) {
    if (bytes > Bytes{}) {
      table.row({cell(name), cell(bytes)});
    }
  }
  table.row({cell("total"), cell(p.ledger.total())});
  table.row({cell("capacity"), cell(p.capacity)});
  return table;
}

}  // namespace

DataTable ops_table(const std::string& key, const std::vector<OpRow>& rows, Visibility look) {
  return table_of(
      key, "",
      Columns<OpRow>{{"name", "op kind", &OpRow::name},
                     {"kind", "", &OpRow::kind, kInJson},
                     {"executions", "count", &OpRow::executions},
                     {"time_s", "time", &OpRow::time},
                     {"wait_s", "wait",
                      [](auto& r) {
                        return Cell{r.wait > Seconds{} ? human(r.wait) : "", r.wait.base()};
                      }},
                     {"bound", "bound by", &OpRow::bound, kLeft},
                     {"model", "",
                      [](auto& r) {
                        return Cell{r.model + outside_note(r), r.model};
                      },
                      kLeft},
                     {"in_calibrated_range", "", &OpRow::in_range, kInJson}},
      rows, look);
}

void add_details(const StepPrediction& p, Report& report) {
  report.line();
  add_rates(p, report);
  report.line();
  report.add(split_table(p.critical_rank, p.split, p.iteration));
  add_issued(p.by_kind, p.iteration, report);
  report.line();
  if (p.efficiency) {
    report.line(fmt::format("the ops below are kernels alone; the step takes {:.3f} times as long",
                            p.iteration / p.hardware));
  }
  add_ops(p.by_kind, report);
  if (p.busiest) {
    report.line(fmt::format("\nrank {} ends last but waits; rank {} is the critical rank:\n",
                            p.critical_rank, p.busiest->rank));
    report.add(split_table(p.busiest->rank, p.busiest->split, p.iteration));
    report.line();
    add_ops(p.busiest->by_kind, report);
  }
  report.line();
  report.add(memory_table(p));
}

}  // namespace stepcast::cli
