#include "cli/report/measured_chapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "cli/report/pieces.h"

namespace stepcast::cli::report {
namespace {

/// The waterfall from A to B by `rows`, the smallest taken together.
BarChart waterfall(const Field& rows, const char* label, double a, double b) {
  BarChart chart{.title = "from A to B", .parts = {"step"}, .scale = kSeconds};
  chart.rows.push_back({"A", {a}});
  double at = a;
  double rest = 0;
  rows.each([&](const Field& row) {
    const double delta = row.at("delta_s").number();
    constexpr std::size_t kRows = 20;
    if (chart.rows.size() > kRows || std::abs(delta) < 1e-4 * std::max(a, b)) {
      rest += delta;
      return;
    }
    chart.rows.push_back({.label = row.at(row.has(label) ? label : "op_kind").shown(),
                          .parts = {delta},
                          .from = at,
                          .note = (delta < 0 ? "-" : "+") + shown_seconds(std::abs(delta))});
    at += delta;
  });
  if (rest != 0) {
    chart.rows.push_back({.label = "all others",
                          .parts = {rest},
                          .from = at,
                          .note = (rest < 0 ? "-" : "+") + shown_seconds(std::abs(rest))});
  }
  chart.rows.push_back({"B", {b}});
  return chart;
}

}  // namespace

std::string replay(const Field& d) {
  std::string out = heading("replayed traces");
  BarChart bars{
      .title = "step, measured and replayed, with controls", .parts = {"step"}, .scale = kSeconds};
  d.at("replays").each([&](const Field& r) {
    const std::filesystem::path path = r.at("trace").string();
    const std::string name = (path.has_filename() ? path : path.parent_path()).filename();
    const auto row = [&](const char* what, double v) { bars.rows.push_back({what, {v}}); };
    bars.rows.push_back({name + ", measured", {r.at("measured_step_s").number()}});
    const double error = r.at("error").number();
    bars.rows.push_back(
        {.label = "replayed",
         .parts = {r.at("replayed_step_s").number()},
         .note = fmt::format("{} ({})", shown_seconds(r.at("replayed_step_s").number()),
                             percent_signed(error))});
    row("kernels take no time", r.at("controls").at("scale_0").number());
    row("kernels take twice as long", r.at("controls").at("scale_2").number());
    if (r.at("host_bound").flag()) {
      out += paragraph(name + ": host-bound: says nothing of devices or network");
    }
    if (r.has("what_if")) {
      const Field change = r.at("what_if");
      bars.rows.push_back(
          {.label = "with the change",
           .parts = {change.at("step_s").number()},
           .note = fmt::format("{} ({})", shown_seconds(change.at("step_s").number()),
                               percent_signed(change.at("ratio").number() - 1))});
      change.at("doubts").each(
          [&](const Field& doubt) { out += paragraph("doubtful: " + doubt.string()); });
    }
    r.at("warnings").each([&](const Field& w) { out += paragraph("warning: " + w.string()); });
  });
  return out + drawn(bars);
}

std::string validation(const Field& d) {
  std::string out;
  d.at("suites").each([&](const Field& suite) {
    out += heading(fmt::format("validation: {}, {}", suite.at("name").string(),
                               suite.at("pass").flag() ? "pass" : "FAIL"));
    out += paragraph(suite.at("bound").string());
    std::vector<std::vector<std::string>> groups;
    suite.at("groups").each([&](const Field& g) {
      const auto figure = [&g](const char* key) {
        return g.has(key) ? percent(g.at(key).number()) : "-";
      };
      groups.push_back({g.at("name").string(), g.at("n").shown(), figure("median"), figure("mean"),
                        figure("geomean"), figure("p90"), figure("worst"),
                        g.has("bias") ? percent_signed(g.at("bias").number()) : "-",
                        figure("repeat_noise"), figure("baseline_mean"),
                        g.has("baseline") ? g.at("baseline").string() : "-"});
    });
    out += table({"group", "n", "median", "mean", "geomean", "p90", "worst", "bias", "noise",
                  "naive mean", "naive model"},
                 groups);
    ScatterChart rows{.title = "predicted against measured",
                      .x_title = "measured",
                      .y_title = "predicted",
                      .groups = {{"rows", {}}},
                      .x_scale = kSeconds,
                      .y_scale = kSeconds,
                      .logarithmic = true,
                      .diagonal = true};
    std::vector<std::vector<std::string>> skipped;
    suite.at("rows").each([&](const Field& r) {
      if (r.has("predicted") && r.has("measured")) {
        rows.groups[0].points.push_back(
            {r.at("measured").number(), r.at("predicted").number(),
             r.at("id").string() + ": " + percent_signed(r.at("error").number())});
      } else if (r.has("skipped")) {
        skipped.push_back({r.at("id").string(), r.at("skipped").string()});
      }
    });
    constexpr std::size_t kDots = 4000;
    auto& points = rows.groups[0].points;
    const std::size_t every = (points.size() + kDots - 1) / kDots;
    if (every > 1) {
      rows.title += fmt::format(", one of {} rows", every);
      for (std::size_t i = 0; i * every < points.size(); ++i) {
        points[i] = points[i * every];
      }
      points.resize((points.size() + every - 1) / every);
    }
    out += drawn(rows);
    if (!skipped.empty()) {
      out += table({fmt::format("not scored ({})", skipped.size()), "reason"}, skipped);
    }
  });
  return out;
}

std::string explanation(const Field& d) {
  std::vector<double> steps;
  std::vector<std::string> sides;
  std::vector<Fact> whole;
  d.at("summary").each([&](const Field& side) {
    sides.push_back(side.at("side").string());
    // Rows divide the steps without what their frameworks lose.
    const bool alone = side.has("kernels_only_s");
    steps.push_back(side.at(alone ? "kernels_only_s" : "step_s").number());
    whole.push_back({"step of " + sides.back(), shown_seconds(side.at("step_s").number()),
                     alone ? "kernels alone, as below: " + shown_seconds(steps.back()) : ""});
  });
  if (steps.size() < 2) {
    d.at("summary").reject("two sides, A and B");
  }
  std::string out = heading("where the difference comes from") + facts(whole);
  for (const auto& [key, label, title] :
       std::array<std::array<const char*, 3>, 3>{{{"changes", "change", "change by change"},
                                                  {"parts", "part", "part by part"},
                                                  {"rows", "op", "op by op"}}}) {
    if (!d.has(key)) {
      continue;
    }
    BarChart chart = waterfall(d.at(key), label, steps[0], steps[1]);
    chart.title = title;
    if (chart.rows.size() > 2) {
      out += drawn(chart);
    }
  }
  return out;
}

std::string comparison(const Field& d) {
  std::string out = heading(fmt::format("{} on {}: predicted against measured",
                                        d.at("workload").string(), d.at("system").string()));
  out += paragraph(fmt::format("step: predicted {}, measured {} ({}, spread {})",
                               shown_seconds(d.at("predicted_step_s").number()),
                               shown_seconds(d.at("measured_step_s").number()),
                               percent_signed(d.at("error").number()),
                               percent(d.at("spread").number())));
  RowBars bars("op kinds", {{"predicted_s", "running"}, {"predicted_wait_s", "waiting"}});
  const std::vector<BarPart> predicted = bars.parts;
  d.at("by_kind").each([&](const Field& row) {
    bars.parts = predicted;
    bars.add(row.at("name").string() + ", predicted", row);
    bars.parts = {{"measured_s", ""}, {"measured_wait_s", ""}};
    bars.add("measured", row);
  });
  return out + drawn(bars.chart);
}

std::string training(const Field& d) {
  std::string out = heading("run of " + job_name(d.at("job")));
  const Field t = d.at("step_time_s");
  out += paragraph(fmt::format("step {} (p5 {}, p95 {})", shown_seconds(t.at("median").number()),
                               shown_seconds(t.at("p5").number()),
                               shown_seconds(t.at("p95").number())));
  ScatterChart loss{.title = "loss",
                    .x_title = "step",
                    .y_title = "loss",
                    .groups = {{"loss", {}}},
                    .x_scale = kCount,
                    .y_scale = {[](double v) { return fmt::format("{:.3g}", v); }}};
  ScatterChart time{.title = "step time",
                    .x_title = "step",
                    .y_title = "time",
                    .groups = {{"time", {}}},
                    .x_scale = kCount,
                    .y_scale = kSeconds};
  d.at("steps").each([&](const Field& s) {
    const double step = s.at("step").number();
    loss.groups[0].points.push_back({step, s.at("loss").number(), ""});
    time.groups[0].points.push_back({step, s.at("time_s").number(), ""});
  });
  return out + drawn(loss) + drawn(time);
}

std::string cache_curve(const Field& d) {
  ScatterChart chart{.title = "hit rate of a cache",
                     .x_title = "rows held",
                     .y_title = "hit rate",
                     .x_scale = kCount,
                     .y_scale = kShare,
                     .logarithmic_x = true,
                     .joined = true};
  for (const auto& [key, label] :
       std::array<std::pair<const char*, const char*>, 3>{{{"lru", "LRU, as recorded"},
                                                           {"lru_independent", "LRU, independent"},
                                                           {"pinned", "hottest rows pinned"}}}) {
    ScatterChart::Group group{label, {}};
    d.at("hit_rate").each([&, k = key](const Field& row) {
      if (row.has(k)) {
        group.points.push_back(
            {row.at("capacity_rows").number(), row.at(k).number(), percent(row.at(k).number())});
      }
    });
    chart.groups.push_back(std::move(group));
  }
  return heading("recorded lookups") + drawn(chart);
}

std::string guarded(const Field& document) {
  const Field d = document.at("guard");
  std::string out = heading("guard: " + d.at("verdict").string());
  const Field power = d.at("power");
  for (const auto& [key, what] : std::array<std::pair<const char*, const char*>, 2>{
           {{"all_ops_together", "all ops together"}, {"step", "the step"}}}) {
    out += paragraph(power.has(key) ? fmt::format("a slowdown of {} is seen from {} on", what,
                                                  percent(power.at(key).number()))
                                    : fmt::format("{} cannot be judged", what));
  }
  BarChart bars{.title = "times per step, baseline and now", .parts = {"time"}, .scale = kSeconds};
  constexpr std::size_t kRows = 60;
  d.at("times").each([&](const Field& t) {
    if (bars.rows.size() >= kRows) {
      return;
    }
    bars.rows.push_back({t.at("op").string() + ", baseline", {t.at("before_s").number()}});
    const double after = t.at("after_s").number();
    bars.rows.push_back({.label = t.at("regressed").flag() ? "now: regressed" : "now",
                         .parts = {after},
                         .note = fmt::format("{} ({})", shown_seconds(after),
                                             percent_signed(t.at("plain_change").number()))});
  });
  return out + drawn(bars) + tables(d);
}

namespace {

/// Whether a number of that name is a part of a whole.
bool is_share(const std::string& key) {
  return key == "share" || key.ends_with("_share") || key.ends_with("_error") ||
         key.ends_with("_imbalance") || key == "error" || key == "efficiency";
}

/// A value of a table as people read it; keys carry units.
std::string shown_value(const std::string& key, const Field& value) {
  const std::string text = value.shown();
  if (text == "null") {
    return "";
  }
  return !value.is_number()        ? text
         : key.ends_with("_per_s") ? fmt::format("{:.4g}", value.number())
         : key.ends_with("_s")     ? shown_seconds(value.number())
         : is_share(key)           ? percent(value.number())
                                   : fmt::format("{:.4g}", value.number());
}

/// "last_arrivals" -> "last arrivals".
std::string words_of(std::string key) {
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

/// A table of a list of objects, with a column for each key whose values are no objects or lists.
std::string rows_of(const std::string& name, const Field& list) {
  std::vector<std::string> keys;
  std::size_t count = 0;
  list.each([&](const Field& row) {
    ++count;
    if (!row.is_object()) {
      return;
    }
    row.each_member([&](const std::string& key, const Field& value) {
      const bool one = !value.is_object() && !value.is_list();
      if (one && std::find(keys.begin(), keys.end(), key) == keys.end()) {
        keys.push_back(key);
      }
    });
  });
  if (keys.empty()) {
    return "";
  }
  std::vector<std::string> titles;
  for (const std::string& key : keys) {
    const bool unit = key.ends_with("_s") && !key.ends_with("per_s");
    titles.push_back(words_of(unit ? key.substr(0, key.size() - 2) : key));
  }
  constexpr std::size_t kRows = 200;
  std::vector<std::vector<std::string>> rows;
  list.each([&](const Field& row) {
    if (rows.size() >= kRows || !row.is_object()) {
      return;
    }
    rows.emplace_back();
    for (const std::string& key : keys) {
      rows.back().push_back(row.has(key) ? shown_value(key, row.at(key)) : "");
    }
  });
  return "<h3>" + svg::escaped(words_of(name)) + "</h3>\n" + table(titles, rows, words_of(name)) +
         (count > kRows ? paragraph(fmt::format("... and {} more", count - kRows)) : "");
}

}  // namespace

std::string recorded(const Field& d) {
  const Field step = d.at("step");
  std::string out = heading("recorded step");
  out += paragraph(fmt::format(
      "step {}{}, mostly {} ({})", shown_seconds(step.at("step_s").number()),
      step.has("bound") ? ", bound by " + step.at("bound").string() : "",
      step.at("mostly").string(), percent(step.at("mostly_share").number())));
  RowBars bars("where the step goes, per rank", step_parts("", "_s"));
  d.at("ranks").each([&](const Field& r) { bars.add("rank " + r.at("rank").shown(), r); });
  return out + drawn(bars.chart);
}

std::string tables(const Field& d) {
  std::string out;
  d.each_member([&](const std::string& key, const Field& value) {
    if (key != "stepcast" && value.is_list()) {
      out += rows_of(key, value);
    }
  });
  return out;
}

}  // namespace stepcast::cli::report
