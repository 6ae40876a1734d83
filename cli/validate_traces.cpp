#include "cli/validate_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "cli/human.h"
#include "cli/print_prediction.h"
#include "cli/text_table.h"
#include "core/error.h"
#include "validation/traces.h"

namespace stepcast::cli {
namespace {

using studies::TraceSet;

constexpr double kTracesBound = 0.05;  ///< step error of the sets that are scored
constexpr std::string_view kTracesBoundText =
    "every file opens; |step error| <= 0.05 of sets that are not host-bound";

bool within_bound(const TraceSet& s) {
  return s.opens && (!s.scored() || std::abs(s.replay->error) <= kTracesBound);
}

void print_text(const std::vector<TraceSet>& sets, std::ostream& out) {
  TextTable counts({"trace", "ranks", "steps", "events", "kernels", "collectives", "not scored"});
  counts.left(6);
  for (const TraceSet& s : sets) {
    counts.row({s.name, std::to_string(s.ranks), std::to_string(s.steps), std::to_string(s.events),
                std::to_string(s.kernels), std::to_string(s.collectives), s.skipped.value_or("")});
  }
  counts.print(out);
  out << '\n';
  TextTable table({"replayed", "measured step", "error", "x 0", "x 2", "begins p50", "p95",
                   "last end", "next step", "as the last", "as the median"});
  for (const TraceSet& s : sets) {
    if (!s.replay) {
      continue;
    }
    const studies::Replay& r = *s.replay;
    const auto against = [&r](Seconds t) { return percent_signed(t / r.measured_step - 1); };
    const auto next = [&r](double e) { return r.next_step_error < 0 ? "-" : percent(e); };
    table.row({s.name + (r.host_bound ? " (host-bound)" : ""), human(r.measured_step),
               percent_signed(r.error), against(r.scale_0), against(r.scale_2),
               human(r.kernel_start_p50), human(r.kernel_start_p95),
               percent_signed(r.last_end_error), next(r.next_step_error), next(r.last_step_error),
               next(r.median_step_error)});
  }
  table.print(out);
}

nlohmann::ordered_json to_json(const TraceSet& s) {
  nlohmann::ordered_json j = {{"id", s.name},         {"ranks", s.ranks},
                              {"steps", s.steps},     {"events", s.events},
                              {"kernels", s.kernels}, {"collectives", s.collectives}};
  if (s.replay) {
    const studies::Replay& r = *s.replay;
    j["measured"] = r.measured_step.base();
    j["predicted"] = r.replayed_step.base();
    j["error"] = r.error;
    j["host_bound"] = r.host_bound;
    j["controls"] = {{"scale_0", r.scale_0.base()}, {"scale_2", r.scale_2.base()}};
    j["kernel_start_error_s"] = {{"p50", r.kernel_start_p50.base()},
                                 {"p95", r.kernel_start_p95.base()}};
    j["last_end_error"] = r.last_end_error;
    j["next_step"] = nullptr;
    if (r.next_step_error >= 0) {
      j["next_step"] = {{"error", r.next_step_error},
                        {"naive_error", r.last_step_error},
                        {"naive_median_error", r.median_step_error}};
    }
  }
  j["skipped"] = s.skipped ? nlohmann::ordered_json(*s.skipped) : nlohmann::ordered_json();
  return j;
}

}  // namespace

int validate_traces(const std::string& data, OutputFormat format) {
  if (data.empty()) {
    throw InputError("--data",
                     "is needed: a folder of traces (or --run, to check what-if answers)");
  }
  const std::vector<TraceSet> sets = studies::replay_sets(data);
  const bool pass = std::all_of(sets.begin(), sets.end(), within_bound);
  switch (format) {
    case OutputFormat::kText:
      print_text(sets, std::cout);
      std::cout << fmt::format("\ntraces: {} ({})\n", pass ? "pass" : "FAIL", kTracesBoundText);
      break;
    case OutputFormat::kJson: {
      nlohmann::ordered_json suite = {{"name", "traces"},
                                      {"bound", kTracesBoundText},
                                      {"pass", pass},
                                      {"groups", nlohmann::ordered_json::array()},
                                      {"rows", nlohmann::ordered_json::array()}};
      for (const TraceSet& s : sets) {
        suite["rows"].push_back(to_json(s));
      }
      std::cout
          << nlohmann::ordered_json{{"stepcast", provenance_json()}, {"suites", {suite}}}.dump(2)
          << '\n';
      break;
    }
    case OutputFormat::kCsv:
      std::cout << csv_line({"id", "ranks", "steps", "events", "kernels", "collectives",
                             "measured_s", "replayed_s", "error", "scale_0_s", "scale_2_s",
                             "kernel_start_p50_s", "kernel_start_p95_s", "next_step_error",
                             "last_step_error", "median_step_error", "skipped"});
      for (const TraceSet& s : sets) {
        const auto n = [&s](double studies::Replay::*field) {
          return s.replay ? fmt::format("{:.6g}", *s.replay.*field) : std::string();
        };
        const auto t = [&s](Seconds studies::Replay::*field) {
          return s.replay ? fmt::format("{:.9g}", (*s.replay.*field).base()) : std::string();
        };
        using R = studies::Replay;
        std::cout << csv_line(
            {s.name, std::to_string(s.ranks), std::to_string(s.steps), std::to_string(s.events),
             std::to_string(s.kernels), std::to_string(s.collectives), t(&R::measured_step),
             t(&R::replayed_step), n(&R::error), t(&R::scale_0), t(&R::scale_2),
             t(&R::kernel_start_p50), t(&R::kernel_start_p95), n(&R::next_step_error),
             n(&R::last_step_error), n(&R::median_step_error), s.skipped.value_or("")});
      }
      break;
  }
  return pass ? 0 : 1;
}

}  // namespace stepcast::cli
