#include <fmt/ostream.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "cli/print/show_measured.h"
#include "cli/print/show_tables.h"
#include "cli/support/console.h"
#include "traces/graph/device_time.h"
#include "traces/graph/step_marks.h"
#include "traces/measured_step.h"

namespace stepcast::cli {

Tables run_tables(const traces::Recording& recording, const std::string& name, std::int32_t skip,
                  const std::string& mark) {
  const traces::MeasuredRun run = traces::measured_run(recording, mark);
  const studies::RecordedStep step = studies::recorded_step(run, skip);
  for (const std::string& w : step.warnings) {
    fmt::print(notes(), "stepcast: {}: {}\n", name, w);
  }
  if (run.of_our_own()) {
    return recorded_tables(step, nullptr);
  }
  const studies::MeasuredShow show = studies::show_measured(run, skip);
  Tables tables = recorded_tables(step, &show);
  for (DataTable& t : measured_tables(show)) {
    tables.push_back(std::move(t));
  }
  return tables;
}

namespace {

/// A row of operators or collectives of an execution graph.
struct GraphRow {
  std::int64_t count = 0;
  double seconds = 0, bytes = 0;
};

}  // namespace

Tables execution_graph_tables(const traces::Recording& recording) {
  std::map<std::string, GraphRow> ops, collectives;
  std::int64_t nodes = 0, control = 0, data = 0;
  const bool timed = recording.ranks.front().timing == traces::Timing::kDurations;
  for (const traces::RankRecording& rank : recording.ranks) {
    const traces::Events& e = rank.events;
    nodes += static_cast<std::int64_t>(e.size());
    for (const auto kind : rank.dependencies.kinds) {
      (kind == traces::Dependencies::Kind::kData ? data : control) += 1;
    }
    for (traces::EventId i = 0; i < e.size(); ++i) {
      GraphRow& row = ops[std::string(recording.names.view(e.name[i]))];
      ++row.count;
      row.seconds += static_cast<double>(e.duration[i].count()) * 1e-9;
    }
    for (const traces::CollectiveInfo& c : rank.collectives) {
      GraphRow& row =
          collectives[c.kind == OpKind::kCount ? "unknown" : std::string(name_of(c.kind))];
      ++row.count;
      row.bytes += static_cast<double>(std::max<std::int64_t>(0, c.bytes));
    }
  }
  DataTable facts(
      "graph",
      fmt::format("an execution graph ({}): no begins, so no step is shown", recording.format),
      {{"fact"}, {"value"}});
  facts.as_object();
  for (const auto& [key, title, value] :
       {std::tuple("ranks", "ranks", static_cast<std::int64_t>(recording.ranks.size())),
        {"nodes", "nodes", nodes},
        {"control_edges", "control dependencies", control},
        {"data_edges", "data dependencies", data}}) {
    facts.row({name_cell(key, title), cell(value)});
  }
  std::vector<std::pair<std::string, GraphRow>> sorted(ops.begin(), ops.end());
  std::stable_sort(sorted.begin(), sorted.end(), [timed](const auto& a, const auto& b) {
    return timed ? a.second.seconds > b.second.seconds : a.second.count > b.second.count;
  });
  DataTable operators("operators", "operators, all ranks",
                      {{"operator"}, {"count"}, {"time_s", "recorded time"}});
  for (const auto& [name, row] : sorted) {
    operators.row(
        {short_name(name), cell(row.count), timed ? cell(Seconds(row.seconds)) : empty_cell()});
  }
  operators.limit(20);
  DataTable moves("collectives", "collectives, all ranks", {{"kind"}, {"count"}, {"bytes"}});
  for (const auto& [name, row] : collectives) {
    moves.row({cell(name), cell(row.count), cell(Bytes(row.bytes))});
  }
  return {facts, operators, moves};
}

DataTable device_time_table(const traces::Recording& recording, const std::string& by,
                            const std::string& mark, std::optional<std::int32_t> rank) {
  const traces::TimeBy which = by == "kind"     ? traces::TimeBy::kKind
                               : by == "module" ? traces::TimeBy::kModule
                                                : traces::TimeBy::kStream;
  const auto rows = traces::device_time_by(recording, which, mark, rank);
  double all = 0;
  for (const traces::DeviceTime& row : rows) {
    all += row.nanoseconds;
  }
  DataTable table("device_time", fmt::format("device time of a step by {}", by),
                  {{by}, {"launches"}, {"time_s", "time"}, {"share"}});
  for (const traces::DeviceTime& row : rows) {
    table.row({short_name(row.name), cell(row.launches), cell(Seconds(row.nanoseconds * 1e-9)),
               share(all > 0 ? row.nanoseconds / all : 0)});
  }
  table.note("sums over the streams of all ranks shown; collectives with their waits");
  for (const std::string& w : traces::step_marks(recording, mark).warnings()) {
    table.note(w);
  }
  table.limit(20);
  return table;
}

}  // namespace stepcast::cli
