#include "cli/report/chapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/report/measured_chapters.h"
#include "cli/report/pieces.h"
#include "core/job/ledger_parts.h"

namespace stepcast::cli::report {
namespace {

/// The figures of a prediction that are read first.
std::string first_figures(const Field& d) {
  const auto rate = [](double v) { return grouped(v); };
  std::vector<Fact> all;
  std::string between;
  if (d.has("interval_s")) {
    const Field interval = d.at("interval_s");
    between = fmt::format("90 % interval {} to {}", shown_seconds(interval.at("p5").number()),
                          shown_seconds(interval.at("p95").number()));
  }
  all.push_back({"step", shown_seconds(d.at("iteration_time_s").number()), between});
  const Field throughput = d.at("throughput");
  const double devices = d.at("job").at("devices").number();
  const double tokens = throughput.at("tokens_per_s").number();
  const double samples = throughput.at("samples_per_s").number();
  all.push_back(tokens > 0 ? Fact{"tokens/s/GPU", rate(tokens / devices), rate(tokens) + " in all"}
                           : Fact{"samples/s", rate(samples), rate(samples / devices) + " a GPU"});
  all.push_back({"MFU", percent(d.at("mfu").number()), "HFU " + percent(d.at("hfu").number())});
  const Field memory = d.at("memory_bytes");
  all.push_back({"memory", human(bytes(memory.at("total").number())),
                 fmt::format("of {}: {}", human(bytes(memory.at("capacity").number())),
                             d.at("fits").flag() ? "fits" : "out of memory")});
  return facts(all);
}

/// The job as its keys, without those of its model and system.
std::string job_table(const Field& job) {
  std::vector<std::vector<std::string>> rows;
  job.each_member([&](const std::string& key, const Field& value) {
    if (key == "stepcast" || key == "workload" || key == "system") {
      return;
    }
    if (!value.is_object()) {
      rows.push_back({key, value.shown()});
      return;
    }
    value.each_member([&](const std::string& inner, const Field& of) {
      rows.push_back({key + "." + inner, of.shown()});
    });
  });
  return "<h3>job</h3>\n" + table({"key", "value"}, rows, "job");
}

std::string plan_line(const Field& d) {
  const Field job = d.at("job");
  const bool batches = job.has("batch") && job.at("batch").has("micro");
  std::string line =
      split_of(job.at("parallel"), batches ? job.at("batch").at("micro").shown() : "");
  if (d.has("framework") && !d.at("framework").shown().empty()) {
    line += "; " + d.at("framework").shown();
  }
  if (d.has("plan_chosen") && d.at("plan_chosen").flag()) {
    line += "; plan chosen: best of " + d.at("plans_tried").shown() + " tried";
  }
  return paragraph(line);
}

std::string prediction(const Field& d) {
  std::string out = heading(job_name(d.at("job"))) + plan_line(d) + first_figures(d);
  d.at("warnings").each([&](const Field& w) {
    out += "<p class=\"warning\">" + svg::escaped(w.string()) + "</p>\n";
  });
  RowBars whole("time of the critical path", step_parts("time_s/"));
  whole.add(fmt::format("rank {}", d.at("critical_rank").shown()), d);
  if (d.has("last_rank")) {
    whole.add("rank that ends last", d.at("last_rank"));
  }
  out += drawn(whole.chart);

  const Field memory = d.at("memory_bytes");
  std::vector<BarPart> used;
  std::vector<std::vector<std::string>> amounts;
  memory.each_member([&](const std::string& key, const Field& value) {
    if (key != "total" && key != "capacity" && key != "free" && value.number() > 0) {
      used.push_back({key, key});
    }
    amounts.push_back({key, human(bytes(value.number()))});
  });
  RowBars ledger("memory of the fullest GPU", used, kBytes);
  ledger.chart.mark = "capacity";
  ledger.add("memory", memory).mark = memory.at("capacity").number();
  out += drawn(ledger.chart);

  RowBars ops("longest ops of the critical path", {{"time_s", "running"}, {"wait_s", "waiting"}});
  ops.chart.kinds = {"compute", "wait"};
  std::vector<std::vector<std::string>> list;
  d.at(d.has("ops") ? "ops" : "op_kinds").each([&](const Field& op) {
    ops.add(op.at("name").string(), op);
    list.push_back({op.at("name").string(), shown_seconds(op.at("time_s").number()),
                    percent(op.at("time_s").number() / d.at("iteration_time_s").number()),
                    shown_seconds(op.at("wait_s").number()), op.at("bound").string(),
                    op.at("executions").shown()});
  });
  std::vector<BarChart::Row>& rows = ops.chart.rows;
  const auto total = [](const BarChart::Row& r) { return r.parts[0] + r.parts[1]; };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const auto& a, const auto& b) { return total(a) > total(b); });
  constexpr std::size_t kOps = 20;
  rows.resize(std::min(rows.size(), kOps));
  out += drawn(ops.chart);
  out += "<h3>ops</h3>\n" +
         table({"op", "time", "of the step", "wait", "bound by", "times"}, list, "ops");
  out += "<h3>memory</h3>\n" + table({"part", "bytes"}, amounts, "memory");
  return out + job_table(d.at("job"));
}

std::string sweep(const Field& d) {
  std::string fixed;
  d.at("fixed").each_member([&](const std::string& key, const Field& value) {
    fixed += fmt::format("{}{} = {}", fixed.empty() ? "" : ", ", key, value.shown());
  });
  BarChart bars{.title = "step time (grey: out of memory)", .parts = {"step"}, .scale = kSeconds};
  ScatterChart points{.title = "step time against memory (hollow: out of memory)",
                      .x_title = "memory of the fullest GPU",
                      .y_title = "step",
                      .groups = {{"points", {}}},
                      .x_scale = kBytes,
                      .y_scale = kSeconds};
  std::vector<std::vector<std::string>> without;
  std::vector<std::vector<std::string>> rows;
  d.at("points").each([&](const Field& p) {
    std::string label;
    p.at("set").each_member([&](const std::string& key, const Field& value) {
      label += fmt::format("{}{}={}", label.empty() ? "" : " ", key.substr(key.rfind('.') + 1),
                           value.shown());
    });
    if (!p.has("iteration_time_s")) {
      without.push_back({label, p.has("reason") ? p.at("reason").string() : ""});
      return;
    }
    const double step = p.at("iteration_time_s").number();
    const bool fits = p.at("fits").flag();
    bars.rows.push_back({.label = label, .parts = {step}, .faint = !fits});
    points.groups[0].points.push_back(
        {p.at("memory_bytes").number(), step, label + ": " + shown_seconds(step), fits});
    rows.push_back({label, shown_seconds(step), human(bytes(p.at("memory_bytes").number())),
                    fits ? "yes" : "no"});
  });
  std::stable_sort(bars.rows.begin(), bars.rows.end(), [](const auto& a, const auto& b) {
    return std::pair(a.faint, a.parts[0]) < std::pair(b.faint, b.parts[0]);
  });
  constexpr std::size_t kBars = 40;
  const std::size_t all = bars.rows.size();
  bars.rows.resize(std::min(all, kBars));
  std::string out = heading("sweep") + paragraph(fixed) + drawn(bars);
  if (all > kBars) {
    out += paragraph(fmt::format("and {} slower points", all - kBars));
  }
  out += drawn(points) + table({"point", "step", "memory", "fits"}, rows, "points of the sweep");
  return without.empty() ? out : out + table({"not predicted", "reason"}, without);
}

/// Chart of the memory of each rank.
std::string plan_ledger(const Field& plan) {
  std::vector<BarPart> counted;
  for (const auto& [key, of] : kLedgerParts) {
    counted.push_back({key + std::string("_bytes"), key});
  }
  RowBars ledger("bytes by rank and tier, best plan", counted, kBytes);
  ledger.chart.mark = "capacity";
  plan.at("ledger").each([&](const Field& line) {
    ledger.add(fmt::format("rank {}, {}", line.at("rank").shown(), line.at("tier").string()), line)
        .mark = line.at("capacity_bytes").number();
  });
  constexpr std::size_t kRanks = 64;
  BarChart& chart = ledger.chart;
  if (chart.rows.size() > kRanks) {
    chart.title += fmt::format(", the first {} of {} lines", kRanks, chart.rows.size());
    chart.rows.resize(kRanks);
  }
  return drawn(chart);
}

std::string embedding_plans(const Field& d) {
  std::string out;
  d.at("plans").each([&](const Field& plan) {
    if (!out.empty()) {
      return;
    }
    out = heading(fmt::format("plans of {} on {} GPUs of {}", plan.at("workload").string(),
                              plan.at("devices").shown(), plan.at("system").string()));
    out += paragraph(fmt::format("{} per step, {} above the bound of {} in the planner's prices",
                                 shown_seconds(plan.at("predicted_step_s").number()),
                                 percent(d.at("bound").at("gap").number()),
                                 shown_seconds(plan.at("lower_bound_s").number())));
    out += plan_ledger(plan);
  });
  if (d.has("compare")) {
    RowBars compare("planners on the same prices and simulation (grey: out of memory)",
                    {{"step_s", "step"}});
    d.at("compare").each([&](const Field& line) {
      if (line.has("step_s")) {
        compare.add(line.at("planner").string(), line).faint = !line.at("fits").flag();
      }
    });
    out += drawn(compare.chart);
  }
  return out;
}

std::string parallel_plans(const Field& d) {
  std::string out;
  RowBars best("best plans, critical path", step_parts("time_s/"));
  std::vector<std::vector<std::string>> rows;
  d.at("plans").each([&](const Field& plan) {
    if (out.empty()) {
      out = heading("plans of " + job_name(plan.at("job")));
    }
    best.add(split_of(plan.at("plan")), plan);
    const bool between = plan.has("interval_s");
    rows.push_back(
        {shown_seconds(plan.at("predicted_step_s").number()),
         between ? fmt::format("{} to {}", shown_seconds(plan.at("interval_s").at("p5").number()),
                               shown_seconds(plan.at("interval_s").at("p95").number()))
                 : "",
         split_of(plan.at("plan")), percent(plan.at("mfu").number()),
         human(bytes(plan.at("memory_bytes").at("total").number()))});
  });
  const Field bound = d.at("bound");
  out +=
      paragraph(fmt::format("within {} of the lower bound, {}{}", percent(bound.at("gap").number()),
                            shown_seconds(bound.at("lower_bound_s").number()),
                            bound.at("proven").flag() ? "; optimal in the searched space" : ""));
  out += drawn(best.chart);
  out += table({"step", "90 % interval", "plan", "MFU", "memory"}, rows, "best plans");
  ScatterChart front{.title = "front of step time, memory and devices (in closed form)",
                     .x_title = "memory of the fullest GPU",
                     .y_title = "step",
                     .x_scale = kBytes,
                     .y_scale = kSeconds};
  d.at("front").each([&](const Field& p) {
    const std::string label = p.at("devices").shown() + " GPUs";
    auto group = std::find_if(front.groups.begin(), front.groups.end(),
                              [&](const auto& g) { return g.label == label; });
    if (group == front.groups.end()) {
      group = front.groups.insert(front.groups.end(), {label, {}});
    }
    const double step = p.at("step_s").number();
    group->points.push_back(
        {p.at("memory_bytes").number(), step, split_of(p) + ": " + shown_seconds(step)});
  });
  return out + drawn(front);
}

/// A document is the first whose key it has: one line for each command that prints one.
struct Kind {
  const char* command;
  const char* key;
  std::string (*chapter)(const Field&);
  bool lists = true;  ///< all lists of rows stand below it as tables; else it has its own
};
constexpr std::array kKinds{
    Kind{"predict", "iteration_time_s", prediction, false},
    Kind{"sweep", "points", sweep, false},
    Kind{"plan (transformer)", "front", parallel_plans, false},
    Kind{"plan", "plans", embedding_plans},
    Kind{"replay", "replays", replay},
    Kind{"validate", "suites", validation, false},
    Kind{"explain", "changes", explanation},
    Kind{"doctor", "build", tables, false},
    Kind{"explain (traces)", "parts", explanation},
    Kind{"compare", "by_kind", comparison},
    Kind{"run", "step_time_s", training},
    Kind{"hitcurve", "hit_rate", cache_curve},
    Kind{"replay --baseline", "guard", guarded},
    Kind{"show", "idle", recorded},
    Kind{"show (recordings of ours)", "stragglers", recorded},
    Kind{"job", "inferred", tables, false},
    Kind{"list", "entries", tables, false},
    Kind{"compare (traces)", "stepcast", tables, false},
};

const Kind* kind_of(const nlohmann::ordered_json& json) {
  const auto kind = std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& k) {
    return json.is_object() && json.contains(k.key);
  });
  return kind == kKinds.end() ? nullptr : &*kind;
}

}  // namespace

std::string known_documents() {
  std::string names;
  for (const Kind& kind : kKinds) {
    const std::string_view name = kind.command;
    if (name.find('(') == std::string_view::npos) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
    }
  }
  return names;
}

std::string title_of(std::span<const Document> documents) {
  if (documents.empty()) {
    return "stepcast";
  }
  const Kind* kind = kind_of(documents.front().json);
  const Field d(documents.front().json, documents.front().label + ": ");
  const std::string command = kind == nullptr ? "" : std::string(kind->command) + ": ";
  return command + (d.has("job") ? job_name(d.at("job")) : documents.front().label);
}

std::string chapter_of(const Document& document) {
  const Kind* kind = kind_of(document.json);
  if (kind == nullptr) {
    throw InputError(document.label,
                     "is no document that a report knows; expected what one of these printed with "
                     "--format json: " +
                         known_documents());
  }
  const Field d(document.json, document.label + ": ");
  std::string source = document.label;
  if (d.has("command")) {
    source += "; " + d.at("command").shown();
  }
  if (d.has("stepcast") && d.at("stepcast").has("version")) {
    const Field of = d.at("stepcast");
    source += fmt::format("; stepcast {} ({}), data {}", of.at("version").shown(),
                          of.at("git").shown(), of.at("data").shown());
  }
  return "<section>\n" + kind->chapter(d) + (kind->lists ? tables(d) : "") +
         fmt::format("<p class=\"source\">{}</p>\n</section>\n", svg::escaped(source));
}

std::string chapters_of(std::span<const Document> documents) {
  RowBars together("predicted steps side by side, critical path", step_parts("time_s/"));
  std::string out;
  for (const Document& document : documents) {
    const Kind* kind = kind_of(document.json);
    if (kind != nullptr && kind->chapter == prediction) {
      together.add(document.label, Field(document.json, document.label + ": "));
    }
    out += chapter_of(document);
  }
  const bool side_by_side = together.chart.rows.size() > 1;
  return (side_by_side ? "<section>\n" + drawn(together.chart) + "</section>\n" : "") + out;
}

}  // namespace stepcast::cli::report
