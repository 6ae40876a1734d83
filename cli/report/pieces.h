#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

#include "cli/print/human.h"
#include "cli/print/step_parts.h"
#include "cli/report/charts.h"
#include "cli/report/fields.h"
#include "cli/report/svg.h"

/// Parts of chapters other than charts.
namespace stepcast::cli::report {

inline std::string shown_seconds(double v) { return human(seconds(v)); }

inline const Scale kSeconds{shown_seconds};
inline const Scale kBytes{[](double v) { return human(bytes(v)); }, 1024};
inline const Scale kCount{count};
inline const Scale kShare{percent};

inline std::string heading(const std::string& text) {
  return "<h2>" + svg::escaped(text) + "</h2>\n";
}
inline std::string paragraph(const std::string& text) {
  return "<p>" + svg::escaped(text) + "</p>\n";
}

/// Whether a cell is a number, perhaps with a unit: it stands right and is not broken.
inline bool is_amount(const std::string& cell) {
  const bool begins = !cell.empty() && (std::isdigit(static_cast<unsigned char>(cell[0])) != 0 ||
                                        ((cell[0] == '-' || cell[0] == '+') && cell.size() > 1));
  return begins && cell.size() < 16 && std::count(cell.begin(), cell.end(), ' ') < 2;
}

/// A table that scrolls where its place is narrow. A column is of amounts where its first cell is.
inline std::string table(const std::vector<std::string>& titles,
                         const std::vector<std::vector<std::string>>& rows,
                         const std::string& name = "") {
  std::string out = fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{}\"><table><thead><tr>",
      svg::escaped(name.empty() ? "table: " + fmt::format("{}", fmt::join(titles, ", ")) : name));
  const auto amounts = [&](std::size_t column) {
    return !rows.empty() && column < rows.front().size() && is_amount(rows.front()[column]);
  };
  for (std::size_t i = 0; i < titles.size(); ++i) {
    out += fmt::format("<th scope=\"col\"{}>{}</th>", amounts(i) ? " class=\"n\"" : "",
                       svg::escaped(titles[i]));
  }
  out += "</tr></thead><tbody>\n";
  for (const auto& row : rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += fmt::format("<td{}>{}</td>", amounts(i) ? " class=\"n\"" : "", svg::escaped(row[i]));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

/// Figures that are read first: name, value and what stands below it.
using Fact = std::array<std::string, 3>;
inline std::string facts(const std::vector<Fact>& all) {
  std::string out = "<dl class=\"facts\">";
  for (const auto& [name, value, below] : all) {
    out += fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>", svg::escaped(name),
                       svg::escaped(value), svg::escaped(below));
  }
  return out + "</dl>\n";
}

/// A part of a bar: the key of its value in a row, such as "time_s/compute", and its name.
struct BarPart {
  std::string key, title;
};
/// The parts of a step; `before` and `after` are what their keys have around them.
inline std::vector<BarPart> step_parts(const std::string& before, const std::string& after = "") {
  std::vector<BarPart> parts;
  for (const StepPart& part : kStepParts) {
    parts.push_back({before + part.key + after, part.title});
  }
  return parts;
}

/// The kind whose colour a part has: "time_s/compute" and "compute_s" are compute.
inline std::string kind_of(const std::string& key) {
  std::string kind = key.substr(key.rfind('/') + 1);
  for (const std::string_view unit : {"_bytes", "_s"}) {
    kind = kind.ends_with(unit) ? kind.substr(0, kind.size() - unit.size()) : kind;
  }
  return kind;
}

/// Bars that are the rows of a document's list, each of the parts named.
struct RowBars {
  RowBars(std::string title, std::vector<BarPart> of, const Scale& scale = kSeconds)
      : chart{.title = std::move(title), .scale = scale}, parts(std::move(of)) {
    for (const BarPart& part : parts) {
      chart.parts.push_back(part.title);
      chart.kinds.push_back(kind_of(part.key));
    }
  }
  BarChart::Row& add(std::string label, const Field& row) {
    chart.rows.push_back({.label = std::move(label)});
    for (const BarPart& part : parts) {
      chart.rows.back().parts.push_back(row.find(part.key).number());
    }
    return chart.rows.back();
  }
  BarChart chart;
  std::vector<BarPart> parts;
};

/// "TP8 PP2 DP4, ZeRO-1, micro-batch 1" of a plan or a job's parallel; "one GPU" where nothing is
/// split.
inline std::string split_of(const Field& plan, const std::string& micro = "") {
  constexpr std::array<std::pair<const char*, const char*>, 6> kDegrees{{{"tensor", "TP"},
                                                                         {"context", "CP"},
                                                                         {"expert", "EP"},
                                                                         {"pipeline", "PP"},
                                                                         {"virtual_stages", "VPP"},
                                                                         {"data", "DP"}}};
  std::string text;
  const auto add = [&text](const char* between, const std::string& what) {
    text += (text.empty() ? "" : between) + what;
  };
  const auto value = [&plan](const char* key) {
    const std::string shown = plan.has(key) ? plan.at(key).shown() : "";
    return shown == "1" || shown == "0" || shown == "none" ? "" : shown;
  };
  for (const auto& [key, name] : kDegrees) {
    if (const std::string degree = value(key); !degree.empty()) {
      add(" ", name + degree);
    }
  }
  const std::string zero = plan.has("zero") ? plan.at("zero").shown() : "0";
  if (zero != "0") {
    add(", ", zero.size() == 1 ? "ZeRO-" + zero : "sharded");
  }
  const std::string of_micro = plan.has("micro") ? plan.at("micro").shown() : micro;
  if (!of_micro.empty()) {
    add(", ", "micro-batch " + of_micro);
  }
  if (const std::string again = value("recompute"); !again.empty()) {
    add(", ", "recompute " + (again.front() == '{' ? "in part" : again));
  }
  return text.empty() ? "one GPU" : text;
}

inline std::string job_name(const Field& job) {
  const auto name = [&](const char* key) {
    const Field value = job.at(key);
    return value.has("name") ? value.at("name").string() : value.shown();
  };
  return fmt::format("{} on {} GPUs of {}", name("workload"), job.at("devices").shown(),
                     name("system"));
}

}  // namespace stepcast::cli::report
