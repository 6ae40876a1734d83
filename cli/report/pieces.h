#pragma once
#include <fmt/format.h>

#include <string>
#include <vector>

#include "cli/print/human.h"
#include "cli/print/step_parts.h"
#include "cli/report/charts.h"
#include "cli/report/fields.h"
#include "cli/report/svg.h"

/// What chapters are made of beside charts.
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

/// A table whose first column is text.
inline std::string table(const std::vector<std::string>& titles,
                         const std::vector<std::vector<std::string>>& rows) {
  std::string out = "<table><tr>";
  for (const std::string& title : titles) {
    out += "<th>" + svg::escaped(title) + "</th>";
  }
  out += "</tr>\n";
  for (const auto& row : rows) {
    out += "<tr>";
    for (const std::string& cell : row) {
      out += "<td>" + svg::escaped(cell) + "</td>";
    }
    out += "</tr>\n";
  }
  return out + "</table>\n";
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

/// Bars that are the rows of a document's list, each of the parts named.
struct RowBars {
  RowBars(std::string title, std::vector<BarPart> of, const Scale& scale = kSeconds)
      : chart{.title = std::move(title), .scale = scale}, parts(std::move(of)) {
    for (const BarPart& part : parts) {
      chart.parts.push_back(part.title);
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

inline std::string job_name(const Field& job) {
  const auto name = [&](const char* key) {
    const Field value = job.at(key);
    return value.has("name") ? value.at("name").string() : value.shown();
  };
  return fmt::format("{} on {} devices of {}", name("workload"), job.at("devices").shown(),
                     name("system"));
}

}  // namespace stepcast::cli::report
