#include "simulator/reports/op_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace stepcast::simulator {
namespace {

std::string key_of(const Program& program, const Op& op, OpGrouping grouping) {
  switch (grouping) {
    case OpGrouping::kClass:
      return std::string(name_of(class_of(op.kind)));
    case OpGrouping::kKind:
      return std::string(name_of(op.kind));
    case OpGrouping::kPhase:
      return std::string(name_of(op.phase));
    case OpGrouping::kName:
      break;
  }
  return program.name(op);
}

}  // namespace

OpTable op_table(const Program& program, const Timeline& timeline, std::int32_t rank,
                 OpGrouping grouping) {
  // Sums by op template first: names are compared once per template, not per span.
  std::vector<OpTable::Row> templates(program.ops.size());
  for (const OpSpan& span : timeline.ops()) {
    if (span.rank == rank) {
      OpTable::Row& row = templates.at(span.ref.op);
      ++row.count;
      row.time = SimTime{ticks(row.time) + ticks(span.end) - ticks(span.ready)};
      row.wait = SimTime{ticks(row.wait) + ticks(span.ready) - ticks(span.begin)};
    }
  }
  std::map<std::string, OpTable::Row> rows;
  OpTable table;
  for (std::size_t o = 0; o < templates.size(); ++o) {
    if (templates[o].count == 0) {
      continue;
    }
    const std::string key = key_of(program, program.ops[o], grouping);
    OpTable::Row& row = rows[key];
    row.key = key;
    row.count += templates[o].count;
    row.time = SimTime{ticks(row.time) + ticks(templates[o].time)};
    row.wait = SimTime{ticks(row.wait) + ticks(templates[o].wait)};
    table.total = SimTime{ticks(table.total) + ticks(templates[o].time)};
  }
  for (auto& [key, row] : rows) {
    table.rows.push_back(std::move(row));
  }
  std::stable_sort(table.rows.begin(), table.rows.end(),
                   [](const OpTable::Row& a, const OpTable::Row& b) { return a.time > b.time; });
  return table;
}

std::string text(const OpTable& table, std::size_t limit) {
  std::string out = fmt::format("{:<40} {:>9} {:>12} {:>7} {:>12}\n", "op", "count", "time ms",
                                "share", "wait ms");
  const double total = std::max(1.0, static_cast<double>(ticks(table.total)));
  for (std::size_t i = 0; i < table.rows.size() && (limit == 0 || i < limit); ++i) {
    const OpTable::Row& row = table.rows[i];
    out += fmt::format("{:<40} {:>9} {:>12.3f} {:>5.1f} % {:>12.3f}\n", row.key, row.count,
                       to_seconds(row.time) / milliseconds(1),
                       100 * static_cast<double>(ticks(row.time)) / total,
                       to_seconds(row.wait) / milliseconds(1));
  }
  return out;
}

}  // namespace stepcast::simulator
