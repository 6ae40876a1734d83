#include "studies/internal/whole_steps.h"

namespace stepcast::studies::internal {

double seconds_between(SimTime begin, SimTime end) {
  return to_seconds(SimTime{ticks(end) - ticks(begin)}).base();
}

double without(double duration, Seconds clock) {
  return std::max(duration - clock.base(), duration / 4);
}

std::vector<double> keep_whole_steps(traces::GraphRun& trace, Unused& unused) {
  using Bounds = std::pair<SimTime, SimTime>;
  std::map<std::int32_t, Bounds> whole;
  for (traces::RankTrace& rank : trace.ranks) {
    const Program& program = trace.graph.program_of(rank.rank);
    std::map<std::int32_t, Bounds> marks;
    for (const traces::StepMark& m : rank.steps) {
      marks[m.step] = {m.begin, m.end};
    }
    std::map<std::int32_t, std::uint64_t> executed;
    std::erase_if(rank.ops, [&](const OpSpan& s) {
      const auto mark = marks.find(s.step);
      const bool outside =
          mark == marks.end() || s.begin < mark->second.first || s.end > mark->second.second;
      if (outside) {
        unused.add("outside every step", program.name(program.ops[s.ref.op]), 1,
                   seconds_between(s.begin, s.end));
      } else {
        ++executed[s.step];
      }
      return outside;
    });
    std::map<std::int32_t, Bounds> common;
    for (const auto& [step, bounds] : marks) {
      const auto others = whole.find(step);
      if (executed[step] != program.executed_ops()) {
        unused.add("step not whole", "rank " + std::to_string(rank.rank));
      } else if (rank.rank == trace.ranks.front().rank) {
        common[step] = bounds;
      } else if (others != whole.end()) {
        common[step] = {std::min(others->second.first, bounds.first),
                        std::max(others->second.second, bounds.second)};
      }
    }
    whole = std::move(common);
    if (rank.dropped > 0) {
      unused.add(kDropped, "rank " + std::to_string(rank.rank),
                 static_cast<std::int64_t>(rank.dropped));
    }
  }
  std::vector<double> durations;
  for (const auto& [step, bounds] : whole) {
    durations.push_back(seconds_between(bounds.first, bounds.second));
  }
  const auto partial = [&](const auto& record) { return !whole.contains(record.step); };
  for (traces::RankTrace& rank : trace.ranks) {
    std::erase_if(rank.ops, partial);
    std::erase_if(rank.host, partial);
    std::erase_if(rank.steps, partial);
  }
  return durations;
}

}  // namespace stepcast::studies::internal
