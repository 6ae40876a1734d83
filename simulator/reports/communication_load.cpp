#include "simulator/reports/communication_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace stepcast::simulator {
namespace {

using Intervals = std::vector<std::pair<std::int64_t, std::int64_t>>;

std::int64_t length_of_union(Intervals& intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::int64_t sum = 0;
  std::int64_t reached = 0;
  for (const auto& [begin, end] : intervals) {
    sum += std::max<std::int64_t>(0, end - std::max(begin, reached));
    reached = std::max(reached, end);
  }
  return sum;
}

/// Rows with the intervals they are made from.
struct Rows {
  std::vector<CommunicationLoad::Row> rows;
  std::vector<Intervals> busy;

  explicit Rows(std::size_t n) : rows(n), busy(n) {}
  void add(std::size_t i, const OpSpan& span, double bytes) {
    CommunicationLoad::Row& row = rows[i];
    ++row.count;
    row.bytes += bytes;
    row.wait = SimTime{ticks(row.wait) + ticks(span.ready) - ticks(span.begin)};
    busy[i].emplace_back(ticks(span.ready), ticks(span.end));
  }
  /// Drops what was not used.
  std::vector<CommunicationLoad::Row> finish(SimTime step) {
    std::vector<CommunicationLoad::Row> used;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].count > 0) {
        rows[i].transfer = SimTime{length_of_union(busy[i])};
        rows[i].utilization = ticks(step) > 0 ? static_cast<double>(ticks(rows[i].transfer)) /
                                                    static_cast<double>(ticks(step))
                                              : 0;
        used.push_back(std::move(rows[i]));
      }
    }
    return used;
  }
};

}  // namespace

CommunicationLoad communication_load(const ExecutionGraph& graph, const StepCosts& costs,
                                     const Timeline& timeline, std::int32_t rank, SimTime step) {
  const auto instance =
      static_cast<std::size_t>(costs.folding.instance_of.at(static_cast<std::size_t>(rank)));
  const Program& program =
      graph.programs[static_cast<std::size_t>(costs.folding.instances[instance].program)];
  Rows communicators(graph.communicators.size());
  Rows levels(costs.level_capacity.size());
  for (std::size_t c = 0; c < graph.communicators.size(); ++c) {
    communicators.rows[c].name = graph.communicators[c].name;
  }
  for (std::size_t l = 0; l < costs.level_capacity.size(); ++l) {
    levels.rows[l].name = fmt::format("level {}", l);
  }
  for (const OpSpan& span : timeline.ops()) {
    if (span.rank != rank) {
      continue;
    }
    const Op& op = program.ops.at(span.ref.op);
    if (!is_collective(op.kind) || op.communicator < 0) {
      continue;
    }
    const double moved = op.bytes_read.base();
    communicators.add(static_cast<std::size_t>(op.communicator), span, moved);
    const std::int32_t path = costs.ops[instance].path[span.ref.op];
    if (path >= 0) {
      for (const std::int32_t level : costs.paths[static_cast<std::size_t>(path)]) {
        levels.add(static_cast<std::size_t>(level), span, moved);
      }
    }
  }
  return {communicators.finish(step), levels.finish(step)};
}

std::string text(const CommunicationLoad& load) {
  std::string out = fmt::format("{:<24} {:>9} {:>12} {:>12} {:>12} {:>7}\n", "communicator",
                                "count", "MB", "transfer ms", "wait ms", "of step");
  const auto add = [&](const CommunicationLoad::Row& row) {
    out += fmt::format("{:<24} {:>9} {:>12.3f} {:>12.3f} {:>12.3f} {:>5.1f} %\n", row.name,
                       row.count, row.bytes / 1e6, to_seconds(row.transfer) / milliseconds(1),
                       to_seconds(row.wait) / milliseconds(1), 100 * row.utilization);
  };
  std::for_each(load.communicators.begin(), load.communicators.end(), add);
  std::for_each(load.levels.begin(), load.levels.end(), add);
  return out;
}

}  // namespace stepcast::simulator
