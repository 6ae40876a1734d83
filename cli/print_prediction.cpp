#include "cli/print_prediction.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cli/human.h"
#include "cli/text_table.h"
#include "cli/version.h"
#include "core/config/config.h"
#include "planner/parallel/plan_point.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/plan_summary.h"

namespace stepcast::cli {
namespace {

using studies::OpRow;
using studies::StepPrediction;

bool has_tables(const Job& job) {
  return job.workload.dlrm() != nullptr && !job.workload.dlrm()->tables.empty();
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

/// Where the critical rank's step goes, parts of less than a thousandth left out.
void print_parts(const StepPrediction& p, std::ostream& out) {
  constexpr double kLeast = 0.001;
  const studies::TimeSplit& s = p.split;
  for (const auto& [name, time] :
       {std::pair{"compute", s.compute}, std::pair{"exposed communication", s.exposed_communication},
        std::pair{"pipeline bubble", s.bubble}, std::pair{"host", s.host},
        std::pair{"other", s.other}}) {
    const double share = time / p.iteration;
    if (share >= kLeast) {
      out << bar_line(name, share, fmt::format("{:>8}  {:>7}", human(time), percent(share)));
    }
  }
}

/// Memory of the fullest device against its capacity, and what most of it is.
void print_memory_bar(const StepPrediction& p, std::ostream& out) {
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
    out << fmt::format("{:<24}{}: {}\n", fmt::format("memory (rank {})", p.fullest_rank),
                       human(total), fmt::join(parts, ", "));
    return;
  }
  out << bar_line(fmt::format("memory (rank {})", p.fullest_rank), total / p.capacity,
                  fmt::format("{} of {}: {}{}", human(total), human(p.capacity),
                              fmt::join(parts, ", "), lines.size() > kNamed ? ", ..." : ""));
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
             : text + fmt::format(" (causal {}, hardware {})", percent(p.mfu_causal),
                                  percent(p.hfu));
}

/// Which embedding plan the prediction is of: a rule is never silent.
void print_plan(const Job& job, std::ostream& out) {
  if (has_tables(job)) {
    const EmbeddingPlan plan = workloads::resolved_embedding_plan(job);
    out << fmt::format(
        "embedding plan {}{}\n", workloads::plan_line(job, plan),
        workloads::planned_by_rule(job)
            ? " (a rule, not a search: `stepcast plan` or --set embedding.plan=search finds one "
              "that is faster or as fast)"
        : job.embedding_choice == "search"
            ? " (a quick search; `stepcast plan` searches longer and writes the plan)"
            : "");
  }
}

/// How a transformer is split, defaults included, and what of its traffic is hidden.
void print_parallel(const Job& job, std::ostream& out) {
  if (job.workload.transformer() == nullptr) {
    return;
  }
  const Parallel& p = job.parallel;
  std::string said = planner::describe(job);
  if (p.pipeline > 1 && p.data > 1 && (p.expert > 1 || p.order != kUsualOrder)) {
    const std::string order = planner::order_text(p.order);
    said += order.empty() ? ", ranks in an order of their own" : ", " + order;
  }
  if (p.expert > 1 && p.expert_dispatch == ExpertDispatch::kPerMachine) {
    said += ", a token to each machine once";
  }
  for (const FabricLevel& level : job.system.fabric) {
    if (level.used > 0 && level.used < level.size) {
      said += fmt::format(", {} of {} in each {} domain", level.used, level.size, level.name);
    }
  }
  out << fmt::format("{}{}; overlaps: {}\n", said, job.flash_attention ? "" : "; unfused attention",
                     planner::overlaps_text(p.overlap));
}

nlohmann::ordered_json plan_json(const Job& job) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (const workloads::PlanPart& p :
       workloads::plan_parts(workloads::resolved_embedding_plan(job))) {
    parts.push_back({{"tables", p.tables}, {"placed", p.placed}});
  }
  return {{"choice", job.embedding_choice},
          {"by_rule", workloads::planned_by_rule(job)},
          {"parts", std::move(parts)}};
}

nlohmann::ordered_json split_json(const studies::TimeSplit& split) {
  return {{"compute", split.compute.base()},
          {"exposed_communication", split.exposed_communication.base()},
          {"bubble", split.bubble.base()},
          {"host", split.host.base()},
          {"other", split.other.base()}};
}

nlohmann::ordered_json ops_json(const std::vector<OpRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const OpRow& r : rows) {
    list.push_back({{"name", r.name},
                    {"kind", r.kind},
                    {"executions", r.executions},
                    {"time_s", r.time.base()},
                    {"wait_s", r.wait.base()},
                    {"bound", r.bound},
                    {"model", r.model},
                    {"in_calibrated_range", r.in_range}});
  }
  return list;
}

}  // namespace

/// The step: at the hardware's pace, and what such runs make of it.
std::string step_text(const StepPrediction& p) {
  const std::string between =
      p.interval ? fmt::format("{} to {}", human(p.interval->p5), human(p.interval->p95)) : "";
  if (!p.pace) {
    return fmt::format("{} per step{}", human(p.iteration),
                       p.interval ? fmt::format(" (nine of ten: {})", between) : "");
  }
  return fmt::format("{} at the hardware's pace; {} per step expected with {} (nine of ten: {})",
                     human(p.hardware), human(p.iteration), p.pace->measured, between);
}

void print_prediction(const StepPrediction& p, const std::string& usual_stack, std::ostream& out) {
  out << fmt::format("{} on {} x {}: {}\n{}\n", p.job.workload.name, p.job.devices,
                     p.job.system.device.name, step_text(p), rates_text(p));
  print_parallel(p.job, out);
  if (!usual_stack.empty()) {
    out << fmt::format(
        "no stack is named: as {} runs it; --set stack=NAME for another (`stepcast list stacks`)\n",
        usual_stack);
  }
  print_plan(p.job, out);
  out << '\n';
  print_parts(p, out);
  print_memory_bar(p, out);
}

void print_warnings(const StepPrediction& p, std::ostream& out) {
  for (const std::string& w : p.warnings) {
    out << "\nwarning: " << w << '\n';
  }
}

nlohmann::ordered_json provenance_json() {
  return {{"version", kVersion}, {"git", kGit}, {"schema", 1}};
}

void print_tables(const std::vector<DataTable>& tables, OutputFormat format, std::ostream& out) {
  if (format == OutputFormat::kJson) {
    nlohmann::ordered_json j;
    j["stepcast"] = provenance_json();
    for (const DataTable& t : tables) {
      j[t.key()] = t.json();
    }
    out << j.dump(2) << '\n';
    return;
  }
  for (std::size_t i = 0; i < tables.size(); ++i) {
    out << (i > 0 ? "\n" : "");
    if (format == OutputFormat::kText) {
      tables[i].print_text(out);
    } else {
      tables[i].print_csv(out);
    }
  }
}

nlohmann::ordered_json prediction_json(const StepPrediction& p) {
  nlohmann::ordered_json j;
  j["stepcast"] = provenance_json();
  j["job"] = nlohmann::ordered_json::parse(config::job_to_json(p.job));
  if (has_tables(p.job)) {
    j["embedding_plan"] = plan_json(p.job);
  }
  j["iteration_time_s"] = p.iteration.base();
  if (p.pace) {
    j["hardware_pace_s"] = p.hardware.base();
    j["pace"] = {{"factor", p.pace->factor},    {"low", p.pace->low},
                 {"high", p.pace->high},        {"rows", p.pace->rows},
                 {"sources", p.pace->sources},  {"own", p.pace->own},
                 {"measured", p.pace->measured}};
  }
  if (p.interval) {
    j["interval_s"] = {{"p5", p.interval->p5.base()}, {"p95", p.interval->p95.base()}};
  }
  j["in_calibrated_range"] = p.in_calibrated_range;
  j["throughput"] = {{"samples_per_s", p.samples_per_second},
                     {"tokens_per_s", p.tokens_per_second}};
  j["flops"] = {{"model_per_iteration", p.flops.model.base()},
                {"hardware_per_iteration", p.flops.hardware.base()},
                {"peak_format", name_of(p.peak_format)}};
  j["mfu"] = p.mfu;
  j["mfu_causal"] = p.mfu_causal;
  j["hfu"] = p.hfu;
  j["time_s"] = split_json(p.split);
  const MemoryUse& m = p.memory;
  j["fullest_rank"] = p.fullest_rank;
  j["memory_bytes"] = {
      {"parameters", m.parameters.base()}, {"gradients", m.gradients.base()},
      {"optimizer", m.optimizer.base()},   {"activations", m.activations.base()},
      {"embeddings", m.embeddings.base()}, {"buffers", m.buffers.base()},
      {"reserve", p.reserve.base()},       {"total", (m.total() + p.reserve).base()},
      {"capacity", p.capacity.base()}};
  j["memory_ledger"] = nlohmann::ordered_json::object();
  for (const auto& [name, bytes] : p.ledger.lines()) {
    std::string key(name);
    std::replace(key.begin(), key.end(), ' ', '_');
    j["memory_ledger"][key] = bytes.base();
  }
  j["fits"] = p.fits;
  j["critical_rank"] = p.critical_rank;
  j["ops"] = ops_json(p.by_name);
  if (p.busiest) {
    j["busiest_rank"] = {{"rank", p.busiest->rank},
                         {"time_s", split_json(p.busiest->split)},
                         {"op_kinds", ops_json(p.busiest->by_kind)}};
  }
  j["warnings"] = p.warnings;
  if (!p.out_of_range.empty()) {
    j["warnings"].push_back(p.out_of_range);
  }
  return j;
}

}  // namespace stepcast::cli
