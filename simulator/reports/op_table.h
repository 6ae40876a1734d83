#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/program.h"
#include "simulator/reports/timeline.h"

namespace stepcast::simulator {

enum class OpGrouping : std::uint8_t { kClass, kKind, kName, kPhase };

/// Time of the ops of one rank, grouped. Ops on different streams overlap: shares are of the sum,
/// not of the step. Collectives count their transfer in `time`, their wait apart.
struct OpTable {
  struct Row {
    std::string key;
    std::uint64_t count = 0;
    SimTime time{};
    SimTime wait{};
  };
  std::vector<Row> rows;  ///< longest first; equal times by key
  SimTime total{};
};

OpTable op_table(const Program& program, const Timeline& timeline, std::int32_t rank,
                 OpGrouping grouping);
/// The first `limit` rows; 0 prints all.
std::string text(const OpTable& table, std::size_t limit = 0);

}  // namespace stepcast::simulator
