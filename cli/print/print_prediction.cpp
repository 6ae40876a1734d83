#include "cli/print/print_prediction.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/command.h"
#include "cli/print/human.h"
#include "cli/print/print_details.h"
#include "cli/print/step_parts.h"
#include "cli/print/terminal_text.h"
#include "core/config/aliases.h"
#include "core/config/config.h"
#include "core/config/default_framework.h"
#include "core/config/document.h"
#include "core/job/parameter_count.h"
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

constexpr std::size_t kBarWidth = 40;
constexpr std::size_t kLeastBar = 10;
constexpr std::size_t kIndent = 2;
constexpr std::size_t kNames = 9;  ///< columns that names of lines take

/// "60 %", "2.1 %": shares of the first screen.
std::string short_percent(double share) {
  return share >= 0.0995 ? fmt::format("{:.0f} %", 100 * share) : percent(share);
}

std::string in_gib(Bytes bytes) {
  const double gib = bytes.base() / 0x1p30;
  return fmt::format("{:.{}f}", gib, gib < 9.95 ? 1 : 0);
}

/// Memory of the fullest device, and whether it is enough.
std::string memory_piece(const StepPrediction& p, const TerminalStyle& style) {
  const Bytes total = p.ledger.total();
  if (p.capacity <= Bytes{}) {
    return human(total);
  }
  const auto [word, meaning] = p.fit == simulator::Fit::kLikely
                                   ? std::pair("unlikely to fit", Meaning::kBad)
                               : p.fits ? std::pair("fits", Meaning::kGood)
                                        : std::pair("out of memory", Meaning::kBad);
  const bool large = p.capacity.base() >= 0x1p30;
  return (large ? fmt::format("{} of {} GiB", in_gib(total), in_gib(p.capacity))
                : fmt::format("{} of {}", human(total), human(p.capacity))) +
         "   " + coloured(word, meaning, style);
}

/// The step, its interval, rates, memory.
std::string figures(const StepPrediction& p, const TerminalStyle& style) {
  const double tokens = p.tokens_per_second / static_cast<double>(p.job.devices);
  std::vector<std::string> pieces{coloured(human(p.iteration) + "/step", Meaning::kStrong, style)};
  if (p.interval) {
    pieces.push_back("90 % interval " + interval_text(*p.interval));
  }
  pieces.push_back(p.tokens_per_second > 0
                       ? fmt::format("{} tokens/s/GPU", grouped(tokens, tokens < 1000 ? 3 : 4))
                       : fmt::format("{} samples/s", grouped(p.samples_per_second)));
  if (p.tokens_per_second == 0 && p.job.phase != JobPhase::kTrain) {
    pieces.back() += fmt::format(
        ", {} per device", grouped(p.samples_per_second / static_cast<double>(p.job.devices)));
  }
  if (p.mfu >= 0.001) {  // steps of exchanges say it by their time line
    pieces.push_back("MFU " + short_percent(p.mfu));
  }
  pieces.push_back(memory_piece(p, style));
  return in_row(pieces, style.width, kIndent);
}

/// A line of the screen: a name, and what is said of it.
std::string named_line(std::string_view name, const std::string& text, const TerminalStyle& style) {
  const std::string wrapped_text = wrapped(text, style.width - kNames);
  std::string all = std::string(kIndent, ' ') + coloured(name, Meaning::kDim, style) +
                    std::string(kNames - kIndent - name.size(), ' ');
  for (const char c : wrapped_text) {
    all += c;
    all += c == '\n' ? std::string(kNames, ' ') : "";
  }
  return all + '\n';
}

/// Parts of the critical rank's step, the largest before the bar, the others behind it.
std::string time_line(const StepPrediction& p, const TerminalStyle& style) {
  constexpr double kLeast = 0.001;
  const studies::TimeSplit& split = critical_split(p);
  std::vector<BarSegment> segments;
  std::vector<std::pair<double, std::string>> parts;
  for (const StepPart& part : kStepParts) {
    const double share = split.*part.of / p.iteration;
    if (share >= kLeast) {
      const bool bubble = part.of == &studies::TimeSplit::bubble;
      const char* title = !bubble                       ? part.title
                          : p.job.parallel.pipeline > 1 ? "pipeline bubble"
                                                        : "waits for other ranks";
      segments.push_back({share, part.meaning});
      parts.emplace_back(
          share, coloured(fmt::format("{} {}", title, short_percent(share)), part.meaning, style));
    }
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& x, const auto& y) { return x.first > y.first; });
  std::string rest;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    rest += "  " + parts[i].second;
  }
  rest += p.busiest ? fmt::format("  (critical rank {})", p.busiest->rank) : "";
  const std::string first = parts.empty() ? "" : parts.front().second + "  ";
  const std::size_t used = kNames + shown_width(first) + shown_width(rest);
  const std::size_t room = style.width > used ? style.width - used : 0;
  return named_line(
      "time", first + bar(segments, std::clamp(room, kLeastBar, kBarWidth), style) + rest, style);
}

/// The largest parts of the fullest device's memory.
std::string memory_line(const StepPrediction& p, const TerminalStyle& style) {
  constexpr std::size_t kNamed = 5;
  auto parts = p.ledger.parts();
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::erase_if(parts, [&](const auto& part) { return part.second < p.ledger.total() * 0.005; });
  const bool large = p.ledger.total().base() >= 0x1p30;
  std::string text;
  for (std::size_t i = 0; i < std::min(parts.size(), kNamed); ++i) {
    text += fmt::format("{}{} {}", i > 0 ? "  " : "", parts[i].first,
                        large ? in_gib(parts[i].second) : human(parts[i].second));
  }
  text += parts.size() > kNamed ? "  ..." : "";
  text += large ? " GiB" : "";
  text += p.job.devices > 1 ? fmt::format("  (rank {})", p.fullest_rank) : "";
  text += p.ledger.host > Bytes{} ? fmt::format("  host memory {}", human(p.ledger.host)) : "";
  return named_line("memory", text, style);
}

/// Which embedding plan the prediction is of: a rule is never silent.
std::string embedding_plan_text(const Job& job) {
  return fmt::format(
      "{}{}", workloads::plan_line(job, workloads::resolved_embedding_plan(job)),
      workloads::planned_by_rule(job)
          ? "  (built-in heuristic; `stepcast plan` or --set embedding.plan=search finds one as "
            "fast or faster)"
      : job.embedding_choice == "search" ? "  (quick search; `stepcast plan` searches longer)"
                                         : "");
}

/// How a transformer is split, and what of its job is unusual.
std::string parallel_text(const Job& job) {
  const Parallel& p = job.parallel;
  std::string said = planner::describe(job);
  if (job.lora) {
    said += fmt::format(", LoRA rank {}", job.lora->rank);
    if (job.formats.frozen) {
      said += fmt::format(" on {} weights", name_of(*job.formats.frozen));
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
    said += ", node-limited dispatch";
  }
  for (const FabricLevel& level : job.system.fabric) {
    if (level.used > 0 && level.used < level.size) {
      said += fmt::format(", {} of {} GPUs in each {} domain", level.used, level.size, level.name);
    }
  }
  return said + (job.flash_attention ? "" : ", unfused attention");
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

/// "8.03 B parameters", "671 B parameters (37.5 B active)".
std::string parameters_text(const Job& job) {
  const auto short_count = [](double n) {
    return n >= 0.9995e12  ? fmt::format("{:.3g} T", n * 1e-12)
           : n >= 0.9995e9 ? fmt::format("{:.3g} B", n * 1e-9)
                           : fmt::format("{:.3g} M", n * 1e-6);
  };
  const TransformerWorkload* model = job.workload.transformer();
  if (model == nullptr) {
    return short_count(config::parameter_count(job.workload)) + " parameters";
  }
  const auto all = transformer_parameters(*model, job.batch.sequence);
  const auto active = transformer_active_parameters(*model, job.batch.sequence);
  return short_count(static_cast<double>(all)) + " parameters" +
         (active < all ? fmt::format(" ({} active)", short_count(static_cast<double>(active)))
                       : "");
}

/// "llama3-8b on 8 x H100 (dgx-h100), megatron-core, bf16", and parameters and batch at the end of
/// the line, or on one of their own.
std::string heading(const StepPrediction& p, const std::string& framework,
                    const TerminalStyle& style) {
  const Job& job = p.job;
  const std::string left = printable(
      fmt::format("{} on {} x {} ({}){}, {}", job.workload.name, job.devices,
                  device_title(job.system.device.name), job.system.name,
                  framework.empty() ? "" : ", " + framework, name_of(job.formats.compute)));
  const bool transformer = job.workload.transformer() != nullptr;
  const std::string phase = job.phase == JobPhase::kTrain    ? ""
                            : !transformer                   ? "inference, "
                            : job.phase == JobPhase::kDecode ? "decode, "
                                                             : "prefill, ";
  const std::string right = fmt::format(
      "{}, {}global batch {}{}{}", parameters_text(job), phase, job.batch.global,
      transformer ? fmt::format(" x {}", job.batch.sequence) : "",
      job.phase == JobPhase::kDecode || job.cached > 0 ? fmt::format(", {} cached", job.cached)
                                                       : "");
  const std::size_t used = shown_width(left) + shown_width(right);
  return used + 2 > style.width ? coloured(left, Meaning::kStrong, style) + '\n' +
                                      std::string(kIndent, ' ') + right + '\n'
                                : coloured(left, Meaning::kStrong, style) +
                                      std::string(style.width - used, ' ') + right + '\n';
}

/// The people's account of the step.
void add_screen(const StepPrediction& p, const PredictionContext& context, Report& report) {
  if (!report.for_people()) {
    return;
  }
  const auto line = [&report](const char* name, std::string text) {
    report.drawn([name, text = printable(text)](const TerminalStyle& style) {
      return named_line(name, text, style);
    });
  };
  report.drawn([&p, framework = context.framework](const TerminalStyle& style) {
    return heading(p, framework, style) + figures(p, style);
  });
  if (p.job.workload.transformer() != nullptr) {
    line("plan",
         parallel_text(p.job) + (context.plan_note.empty() ? "" : "  (" + context.plan_note + ")"));
  }
  if (has_tables(p.job)) {
    line("tables", embedding_plan_text(p.job));
  }
  report.drawn(
      [&p](const TerminalStyle& style) { return time_line(p, style) + memory_line(p, style); });
  if (p.job.phase != JobPhase::kTrain) {
    line("note", "inference: kernels alone, no runs were measured");
  }
  const bool planned = p.job.workload.transformer() != nullptr || p.job.phase == JobPhase::kTrain;
  if (!context.command.empty() && p.fit == simulator::Fit::kYes && planned) {
    report.drawn([command = printable(context.command),
                  plan = printable(context.plan_command)](const TerminalStyle& style) {
      const std::vector<std::string> next{"stepcast plan" + plan,
                                          "stepcast" + command + " --html out.html"};
      const bool room = std::all_of(next.begin(), next.end(), [&style](const std::string& one) {
        return kNames + shown_width(one) <= style.width;
      });
      std::string rows = room
                             ? in_row(next, style.width, kNames)
                             : std::string(kNames, ' ') +
                                   "`plan` instead for the best plan, --html out.html for a page\n";
      return rows.replace(kIndent, 4, coloured("next", Meaning::kDim, style));
    });
  }
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
  report.fact("extrapolated", p.extrapolated);
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
      {"memory_bytes", "", [](auto& q) { return code(std::llround(q.ledger.total().base())); }},
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

/// "41.2-64.0 s": one unit where both ends have it.
std::string interval_text(const studies::Interval& between) {
  const std::string low = human(between.p5);
  const std::string high = human(between.p95);
  const std::size_t unit = high.find(' ');
  const bool same = low.substr(std::min(low.find(' '), low.size())) == high.substr(unit);
  return (same ? low.substr(0, low.find(' ')) : low + " ") + "-" + (same ? "" : " ") + high;
}

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

namespace {

/// Arguments without these options and the values after them.
std::vector<std::string> without(std::vector<std::string> arguments,
                                 std::initializer_list<std::string_view> options) {
  bool value = false;
  std::erase_if(arguments, [&](const std::string& argument) {
    const bool takes = std::find(options.begin(), options.end(), argument) != options.end();
    return std::exchange(value, takes) || takes;
  });
  return arguments;
}

}  // namespace

std::vector<std::string> without_output(std::vector<std::string> arguments) {
  return without(std::move(arguments), {"-o", "--html", "--format"});
}

std::string typed_job(const std::vector<std::string>& arguments) {
  std::string text;
  for (const std::string& argument : without_output(arguments)) {
    if (argument == "-") {
      return "";
    }
    if (argument != "predict" && argument != "--details") {
      text += " " + config::quoted_setting(argument);
    }
  }
  return text;
}

std::string typed_plan(const std::vector<std::string>& arguments) {
  std::vector<std::string> typed =
      without(arguments, {"--tokens", "--samples", "--steps", "--price", "--mtbf", "--restart",
                          "--measured", "--timeline"});
  std::erase_if(typed, [](const std::string& word) {
    return word == "--as-is" || word == "--allow-oom" || word == "--intervals";
  });
  return typed_job(without_keys(typed, [searched = config::plan_keys()](const std::string& key) {
    return std::any_of(searched.begin(), searched.end(), [&key](const std::string& of_plan) {
      return key == of_plan || key.starts_with(of_plan + ".");
    });
  }));
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
  add_screen(p, context, report);
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
  report.fact("warnings", p.warnings);
  report.add(csv_table(p));
}

}  // namespace stepcast::cli
