#include "cli/report/chapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/report/measured_chapters.h"
#include "cli/report/pieces.h"
#include "core/job/ledger_parts.h"

namespace stepcast::cli::report {
namespace {

std::string prediction(const Field& d) {
  const double step = d.at("iteration_time_s").number();
  std::string out = heading(job_name(d.at("job")));
  out += paragraph(
      fmt::format("{} per step, {} samples/s, MFU {}{}", shown_seconds(step),
                  fmt::format("{:.4g}", d.at("throughput").at("samples_per_s").number()),
                  percent(d.at("mfu").number()), d.at("fits").flag() ? "" : "; does not fit"));
  RowBars whole("where the step goes", step_parts("time_s/"));
  whole.add("critical rank", d);
  if (d.has("last_rank")) {
    whole.add("rank that ends last", d.at("last_rank"));
  }
  out += drawn(whole.chart);

  RowBars ops("longest ops, critical rank", {{"time_s", "running"}, {"wait_s", "waiting"}});
  d.at(d.has("ops") ? "ops" : "op_kinds").each([&](const Field& op) { ops.add(op.at("name").string(), op); });
  std::vector<BarChart::Row>& rows = ops.chart.rows;
  const auto total = [](const BarChart::Row& r) { return r.parts[0] + r.parts[1]; };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const auto& a, const auto& b) { return total(a) > total(b); });
  constexpr std::size_t kOps = 20;
  rows.resize(std::min(rows.size(), kOps));
  out += drawn(ops.chart);

  const Field memory = d.at("memory_bytes");
  std::vector<BarPart> used;
  memory.each_member([&](const std::string& key, const Field& value) {
    if (key != "total" && key != "capacity" && key != "free" && value.number() > 0) {
      used.push_back({key, key});
    }
  });
  RowBars ledger("memory of the fullest device", used, kBytes);
  ledger.chart.mark = "capacity";
  ledger.add("memory", memory).mark = memory.at("capacity").number();
  out += drawn(ledger.chart);
  d.at("warnings").each([&](const Field& w) { out += paragraph("warning: " + w.string()); });
  return out;
}

std::string sweep(const Field& d) {
  std::string fixed;
  d.at("fixed").each_member([&](const std::string& key, const Field& value) {
    fixed += fmt::format("{}{} = {}", fixed.empty() ? "" : ", ", key, value.shown());
  });
  BarChart bars{.title = "step time (grey: does not fit)", .parts = {"step"}, .scale = kSeconds};
  ScatterChart points{.title = "step time against memory (hollow: does not fit)",
                      .x_title = "memory of the fullest device",
                      .y_title = "step",
                      .groups = {{"points", {}}},
                      .x_scale = kBytes,
                      .y_scale = kSeconds};
  std::vector<std::vector<std::string>> without;
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
  out += drawn(points);
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
    out = heading(fmt::format("plans of {} on {} devices of {}", plan.at("workload").string(),
                              plan.at("devices").shown(), plan.at("system").string()));
    out += paragraph(fmt::format("{} per step, {} above the bound of {} in the planner's prices",
                                 shown_seconds(plan.at("predicted_step_s").number()),
                                 percent(d.at("bound").at("gap").number()),
                                 shown_seconds(plan.at("lower_bound_s").number())));
    out += plan_ledger(plan);
  });
  if (d.has("compare")) {
    RowBars compare("planners on the same prices and simulation (grey: does not fit)",
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

/// The degrees of a plan that are not 1, and what else it says.
std::string split_of(const Field& plan) {
  constexpr std::array<std::pair<const char*, const char*>, 9> kNames{{{"tensor", "tp"},
                                                                       {"context", "cp"},
                                                                       {"expert", "ep"},
                                                                       {"pipeline", "pp"},
                                                                       {"data", "dp"},
                                                                       {"virtual_stages", "v"},
                                                                       {"micro", "micro"},
                                                                       {"recompute", "recompute"},
                                                                       {"zero", "zero"}}};
  std::string text;
  for (const auto& [key, name] : kNames) {
    const std::string value = plan.has(key) ? plan.at(key).shown() : "1";
    if (value != "1" && value != "0" && value != "none") {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
    }
  }
  return text.empty() ? "one device a replica" : text;
}

std::string parallel_plans(const Field& d) {
  std::string out;
  RowBars best("best plans, critical rank", step_parts("time_s/"));
  d.at("plans").each([&](const Field& plan) {
    if (out.empty()) {
      out = heading("plans of " + job_name(plan.at("job")));
    }
    best.add(split_of(plan.at("plan")), plan);
  });
  const Field bound = d.at("bound");
  out += paragraph(fmt::format("no plan of the space is below {}; gap {}{}",
                               shown_seconds(bound.at("lower_bound_s").number()),
                               percent(bound.at("gap").number()),
                               bound.at("proven").flag() ? ", proven" : ""));
  out += drawn(best.chart);
  ScatterChart front{.title = "front of step time, memory and devices (closed form)",
                     .x_title = "memory of the fullest device",
                     .y_title = "step",
                     .x_scale = kBytes,
                     .y_scale = kSeconds};
  d.at("front").each([&](const Field& p) {
    const std::string label = p.at("devices").shown() + " devices";
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
};
constexpr std::array kKinds{
    Kind{"predict", "iteration_time_s", prediction},
    Kind{"sweep", "points", sweep},
    Kind{"plan (transformer)", "front", parallel_plans},
    Kind{"plan", "plans", embedding_plans},
    Kind{"replay", "replays", replay},
    Kind{"validate", "suites", validation},
    Kind{"explain", "changes", explanation},
    Kind{"explain (traces)", "parts", explanation},
    Kind{"compare", "by_kind", comparison},
    Kind{"run", "step_time_s", training},
    Kind{"hitcurve", "hit_rate", cache_curve},
    Kind{"replay --baseline", "guard", guarded},
    Kind{"show", "idle", recorded},
    Kind{"show (recordings of ours)", "stragglers", recorded},
    Kind{"job", "inferred", tables},
    Kind{"compare (traces)", "stepcast", tables},
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

std::string chapter_of(const Document& document) {
  const Kind* kind = kind_of(document.json);
  if (kind == nullptr) {
    throw InputError(document.label,
                     "is no document that a report knows; expected what one of these printed with "
                     "--format json: " +
                         known_documents());
  }
  return "<section>\n" + kind->chapter(Field(document.json, document.label + ": ")) +
         fmt::format("<p class=\"source\">{}</p>\n</section>\n", svg::escaped(document.label));
}

std::string chapters_of(std::span<const Document> documents) {
  RowBars together("predicted steps side by side, critical rank", step_parts("time_s/"));
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
