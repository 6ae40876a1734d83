#include "cli/print_prediction.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/human.h"
#include "cli/text_table.h"
#include "cli/version.h"
#include "core/config/config.h"
#include "planner/parallel/plan_point.h"
#include "workloads/embedding_plan.h"
#include "workloads/embedding_plan_summary.h"

namespace stepcast::cli {
namespace {

using studies::OpRow;
using studies::StepPrediction;

void print_split(std::int32_t rank, const studies::TimeSplit& split, Seconds step,
                 std::ostream& out) {
  TextTable table({fmt::format("where the step goes (rank {})", rank), "time", "share"});
  const auto row = [&](const char* name, Seconds t) {
    table.row({name, human(t), percent(t / step)});
  };
  row("compute", split.compute);
  row("exposed communication", split.exposed_communication);
  row("bubble", split.bubble);
  row("host", split.host);
  row("other", split.other);
  table.print(out);
}

/// What the host's models take for granted, in the unit in which a reader knows their own stack.
void print_issued(const std::vector<OpRow>& rows, Seconds step, std::ostream& out) {
  std::int64_t ops = 0;
  for (const OpRow& r : rows) {
    ops += r.executions;
  }
  if (ops > 0) {
    out << fmt::format(
        "the host issues {} ops: a stack that takes more than {} for each sets the pace itself\n",
        ops, human(step / static_cast<double>(ops)));
  }
}

std::string outside_note(const OpRow& r) {
  const std::string share = percent(r.outside / r.time);
  return r.outside < r.time ? fmt::format(" ({} of it outside calibrated range)", share)
                            : " (outside calibrated range)";
}

void print_ops(const std::vector<OpRow>& rows, std::ostream& out) {
  TextTable table({"op kind", "count", "time", "wait", "bound by", "model"});
  table.left(4);
  table.left(5);
  constexpr std::size_t kShown = 12;
  for (std::size_t i = 0; i < std::min(rows.size(), kShown); ++i) {
    const OpRow& r = rows[i];
    table.row({r.name, std::to_string(r.executions), human(r.time),
               r.wait > Seconds{} ? human(r.wait) : "", r.bound,
               r.model + (r.in_range ? "" : outside_note(r))});
  }
  table.print(out);
  if (rows.size() > kShown) {
    Seconds rest;
    for (std::size_t i = kShown; i < rows.size(); ++i) {
      rest += rows[i].time + rows[i].wait;
    }
    out << fmt::format("... and {} more kinds, {}; --format json names every op\n",
                       rows.size() - kShown, human(rest));
  }
}

void print_memory(const StepPrediction& p, std::ostream& out) {
  TextTable table(
      {"memory of the fullest device (rank " + std::to_string(p.fullest_rank) + ")", "size"});
  const auto row = [&](std::string_view name, Bytes b) {
    if (b > Bytes{}) {
      table.row({std::string(name), human(b)});
    }
  };
  for (const auto& [name, bytes] : p.ledger.lines()) {
    row(name, bytes);
  }
  table.row({"total", human(p.memory.total() + p.reserve)});
  table.row({"capacity", human(p.capacity)});
  table.print(out);
}

bool has_tables(const Job& job) {
  return job.workload.dlrm() != nullptr && !job.workload.dlrm()->tables.empty();
}

/// Which embedding plan the prediction is of: a rule is never silent.
void print_plan(const Job& job, std::ostream& out) {
  if (has_tables(job)) {
    const EmbeddingPlan plan = workloads::resolved_embedding_plan(job);
    out << fmt::format(
        "embedding plan {}{}\n\n", workloads::plan_line(job, plan),
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
  out << fmt::format("{} on {} x {}: {}\n", p.job.workload.name, p.job.devices,
                     p.job.system.device.name, step_text(p));
  out << fmt::format(
      "{:.4g} samples/s{}, MFU {} of {} peak (causal {}, hardware {})\n", p.samples_per_second,
      p.tokens_per_second > 0 ? fmt::format(", {:.4g} tokens/s", p.tokens_per_second) : "",
      percent(p.mfu), name_of(p.peak_format), percent(p.mfu_causal), percent(p.hfu));
  print_parallel(p.job, out);
  if (!usual_stack.empty()) {
    out << fmt::format(
        "no stack is named: as {} runs it; --set stack=NAME for another (`stepcast list stacks`)\n",
        usual_stack);
  }
  if (!p.fits) {
    out << fmt::format(
        "does not fit: rank {} needs {} of {}{}\n", p.fullest_rank,
        human(p.memory.total() + p.reserve), human(p.capacity),
        p.memory.total() + p.reserve > p.capacity ? "" : ", and slower memory (below)");
  }
  out << '\n';
  print_plan(p.job, out);
  print_split(p.critical_rank, p.split, p.iteration, out);
  print_issued(p.by_kind, p.iteration, out);
  out << '\n';
  if (p.pace) {
    out << fmt::format(
        "ops below are at the hardware's pace; the step takes {:.3f} times as long\n",
        p.iteration / p.hardware);
  }
  print_ops(p.by_kind, out);
  if (p.busiest) {
    out << fmt::format("\nrank {} ends last but waits; rank {} waits least:\n\n", p.critical_rank,
                       p.busiest->rank);
    print_split(p.busiest->rank, p.busiest->split, p.iteration, out);
    out << '\n';
    print_ops(p.busiest->by_kind, out);
  }
  out << '\n';
  print_memory(p, out);
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
  return j;
}

}  // namespace stepcast::cli
