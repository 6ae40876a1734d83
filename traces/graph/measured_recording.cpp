#include "traces/measured_step.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/graph/op_traits.h"
#include "core/statistics.h"
#include "traces/graph/step_graph.h"
#include "traces/graph/step_marks.h"

namespace stepcast::traces {
namespace {

constexpr std::size_t kUsableEnds = 10;

/// Host intervals of the steps of a rank, in order.
using Window = std::vector<std::pair<Nanoseconds, Nanoseconds>>;

/// By rank, of the steps that all ranks have.
std::vector<Window> windows_of(const Recording& recording, const StepMarks& marks) {
  std::map<std::int64_t, Window> by_number;  // of each rank
  for (const std::vector<StepRange>& rank : marks.ranks) {
    for (const StepRange& s : rank) {
      by_number[s.number].emplace_back(s.begin, s.end);
    }
  }
  std::vector<Window> windows(marks.ranks.size());
  for (const auto& [number, of_ranks] : by_number) {
    for (std::size_t r = 0; of_ranks.size() == windows.size() && r < windows.size(); ++r) {
      windows[r].push_back(of_ranks[r]);
    }
  }
  for (std::size_t r = 0; r < windows.size(); ++r) {
    if (!std::is_sorted(windows[r].begin(), windows[r].end())) {
      throw InputError(recording.ranks[r].source,
                       "its steps overlap on the host; were several runs joined?");
    }
  }
  return windows;
}

/// Ranks among which a communicator of the step lies: named members, else all ranks of the trace.
struct Communicators {
  explicit Communicators(const Recording& recording) {
    for (std::size_t i = 0; i < recording.ranks.size(); ++i) {
      place[recording.ranks[i].rank] = static_cast<std::int32_t>(i);
    }
  }
  /// Index into `all`, or -1 where some member is not in the trace.
  std::int32_t of(const CollectiveNode& node) {
    std::vector<std::int32_t> members;
    for (const std::int32_t m : node.members) {
      const auto found = place.find(m);
      if (found == place.end()) {
        return -1;
      }
      members.push_back(found->second);
    }
    if (members.empty()) {
      for (std::int32_t r = 0; r < static_cast<std::int32_t>(place.size()); ++r) {
        members.push_back(r);
      }
    }
    std::sort(members.begin(), members.end());
    const auto [it, fresh] =
        ids.try_emplace({node.group, members}, static_cast<std::int32_t>(all.size()));
    if (fresh) {
      all.push_back(
          {.name = node.group.empty() ? fmt::format("communicator {}", all.size()) : node.group,
           .axes = {},
           .groups = {members}});
    }
    return it->second;
  }
  std::map<std::int32_t, std::int32_t> place;  ///< rank of the trace: position
  std::map<std::pair<std::string, std::vector<std::int32_t>>, std::int32_t> ids;
  std::vector<Communicator> all;
};

/// Gives collectives their communicators; of those whose members do not run the same sequence,
/// none.
std::uint64_t connect(std::vector<RankGraph>& ranks, Communicators& communicators) {
  // By communicator and rank: its collectives, in order.
  std::vector<std::map<std::size_t, std::vector<const CollectiveNode*>>> sequences;
  std::uint64_t alone = 0;
  std::vector<std::vector<std::int32_t>> ids(ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const CollectiveNode& node : ranks[r].collectives) {
      const std::int32_t c = node.kind == OpKind::kCount ? -1 : communicators.of(node);
      ids[r].push_back(c);
      sequences.resize(communicators.all.size());
      if (c >= 0) {
        sequences[static_cast<std::size_t>(c)][r].push_back(&node);
      }
    }
  }
  std::vector<bool> usable(sequences.size(), true);
  for (std::size_t c = 0; c < sequences.size(); ++c) {
    const auto& members = communicators.all[c].groups.front();
    const auto& first = sequences[c].begin()->second;
    usable[c] = members.size() > 1 && sequences[c].size() == members.size();
    for (const auto& [rank, nodes] : sequences[c]) {
      usable[c] = usable[c] && nodes.size() == first.size() &&
                  std::equal(nodes.begin(), nodes.end(), first.begin(),
                             [](const CollectiveNode* a, const CollectiveNode* b) {
                               return a->kind == b->kind && a->kind != OpKind::kSend &&
                                      a->kind != OpKind::kRecv;
                             });
    }
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (std::size_t i = 0; i < ids[r].size(); ++i) {
      const std::int32_t c = ids[r][i];
      const bool meets = c >= 0 && usable[static_cast<std::size_t>(c)];
      const CollectiveNode& node = ranks[r].collectives[i];
      const bool others = ranks.size() > 1 || node.members.size() > 1 || ranks[r].measured.world > 1;
      alone += !meets && others ? 1 : 0;
      ranks[r].program.ops[node.op].communicator = meets ? c : -1;
      if (!meets && node.members.size() > 1) {
        ranks[r].measured.partial[static_cast<std::uint32_t>(node.op)] = node.members;
      }
    }
  }
  return alone;
}

/// Spans of the n-th collective of a communicator, by rank.
using Meetings =
    std::map<std::pair<std::int32_t, std::size_t>, std::vector<std::pair<std::size_t, OpSpan*>>>;

Meetings meetings_of(std::vector<RankGraph>& ranks) {
  Meetings meetings;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::map<std::int32_t, std::size_t> count;
    for (OpSpan& span : ranks[r].measured.spans) {
      const Op& op = ranks[r].program.ops[span.ref.op];
      if (op.communicator >= 0) {
        meetings[{op.communicator, count[op.communicator]++}].emplace_back(r, &span);
      }
    }
  }
  return meetings;
}

/// Takes waits out of collectives: what is left once the last member came.
void strip_waits(const Meetings& meetings, std::vector<RankGraph>& ranks) {
  for (const auto& [key, members] : meetings) {
    SimTime last = members.front().second->begin;
    for (const auto& [r, span] : members) {
      last = std::max(last, span->begin);
    }
    for (const auto& [r, span] : members) {
      span->ready = std::clamp(last, span->begin, span->end);
      ranks[r].measured.duration[span->ref.op] = ticks(span->end) - ticks(span->ready);
    }
  }
}

struct RawStep {
  std::vector<RankGraph> ranks;
  std::vector<std::int64_t> origins;  ///< ticks: begin of the step on each rank
  std::vector<Communicator> communicators;
};

/// Distances of each rank's collective ends from rank 0's, in ticks.
std::vector<std::vector<double>> distances_of(RawStep& step) {
  std::vector<std::vector<double>> distances(step.ranks.size());
  for (const auto& [key, members] : meetings_of(step.ranks)) {
    const OpSpan& reference = *members.front().second;
    const Op& op = step.ranks[members.front().first].program.ops[reference.ref.op];
    if (members.front().first != 0 || !ends_together(op.kind)) {
      continue;
    }
    for (const auto& [r, span] : members) {
      distances[r].push_back(static_cast<double>(ticks(reference.end) + step.origins[0] -
                                                 ticks(span->end) - step.origins[r]));
    }
  }
  return distances;
}

void shift(MeasuredRank& rank, std::int64_t by) {
  rank.begin += by;
  rank.end += by;
  for (MeasuredRank::StepEnd& m : rank.step_marks) {
    m.end += by;
  }
  if (!rank.issue.empty()) {
    rank.issue.front() += by;  // the rank begins its step that much later than the first
  }
  for (OpSpan& s : rank.spans) {
    for (SimTime* t : {&s.issued, &s.begin, &s.ready, &s.end}) {
      *t = SimTime{ticks(*t) + by};
    }
  }
}

MeasuredStep finish(RawStep& raw, const std::vector<std::int64_t>& offsets) {
  std::vector<std::int64_t> begins;
  for (std::size_t r = 0; r < raw.ranks.size(); ++r) {
    begins.push_back(raw.origins[r] + offsets[r]);
  }
  const std::int64_t first = *std::min_element(begins.begin(), begins.end());
  for (std::size_t r = 0; r < raw.ranks.size(); ++r) {
    shift(raw.ranks[r].measured, begins[r] - first);
  }
  strip_waits(meetings_of(raw.ranks), raw.ranks);
  auto graph = std::make_shared<ExecutionGraph>();
  graph->mesh.data = static_cast<std::int32_t>(raw.ranks.size());
  graph->communicators = raw.communicators;
  MeasuredStep step;
  std::int64_t from = INT64_MAX;
  for (std::size_t r = 0; r < raw.ranks.size(); ++r) {
    MeasuredRank& m = raw.ranks[r].measured;
    const auto rank = static_cast<std::int32_t>(r);
    for (OpSpan& s : m.spans) {
      s.rank = rank;
    }
    const std::vector<std::int64_t> ends = recorded_step_ends(m);
    from = std::min(from, ends.front());
    step.wall = std::max(step.wall, ends.back());
    graph->programs.push_back(std::move(raw.ranks[r].program));
    graph->classes.push_back({rank, {rank}});
    step.ranks.push_back(std::move(m));
  }
  step.wall -= from;
  step.graph = std::move(graph);
  return step;
}

/// All steps as one, by rank its windows.
RawStep chain_of(const Recording& recording, const std::vector<Window>& windows,
                 GraphAssumptions& assumptions) {
  RawStep chain;
  for (std::size_t r = 0; r < recording.ranks.size(); ++r) {
    std::vector<Nanoseconds> ends;
    for (std::size_t s = 0; s < windows[r].size(); ++s) {
      const bool last = s + 1 == windows[r].size();
      ends.push_back(last ? windows[r][s].second
                          : std::min(windows[r][s].second, windows[r][s + 1].first));
    }
    const RankRecording& rank = recording.ranks[r];
    chain.ranks.push_back(build_rank_graph(recording, rank, HostOrder(recording, rank),
                                           windows[r].front().first, ends, assumptions));
    chain.origins.push_back(windows[r].front().first.count() * 1000);
  }
  return chain;
}

/// Steps in which no rank launched device work.
std::size_t empty_steps(const std::vector<RankGraph>& ranks) {
  std::vector<bool> works(ranks.front().measured.step_marks.size() + 1, false);
  for (const RankGraph& rank : ranks) {
    for (const OpSpan& s : rank.measured.spans) {
      works[std::min(step_of(rank.measured, s.ref.op), works.size() - 1)] = true;
    }
  }
  return static_cast<std::size_t>(std::count(works.begin() + 1, works.end(), false));
}

/// How far each rank's clock is from the first's, by the ends of symmetric collectives; a rank that
/// shares too few keeps its clock, and the run warns.
std::vector<std::int64_t> clock_offsets(const Recording& recording,
                                        const std::vector<std::vector<double>>& distances,
                                        MeasuredRun& run) {
  std::vector<std::int64_t> offsets(recording.ranks.size(), 0);
  std::map<std::size_t, std::vector<std::int32_t>> as_they_stand;  // by what they share
  for (std::size_t r = 1; r < offsets.size(); ++r) {
    if (distances[r].size() >= kUsableEnds) {
      offsets[r] = std::llround(median_of(distances[r]));
    } else {
      as_they_stand[distances[r].size()].push_back(recording.ranks[r].rank);
    }
  }
  for (const auto& [shared, ranks] : as_they_stand) {
    run.warnings.push_back(fmt::format(
        "clock{} of rank{} {} not aligned: {} symmetric collectives shared with rank {}, {} "
        "needed; taken as recorded",
        ranks.size() == 1 ? "" : "s", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), shared,
        recording.ranks[0].rank, kUsableEnds));
  }
  return offsets;
}

/// An error that says what a recording without device work holds instead.
InputError no_device_work(const Recording& recording, std::string_view mark) {
  std::map<std::string, std::uint64_t> found;
  bool any = false, ranges = false;
  for (const RankRecording& rank : recording.ranks) {
    for (const auto& [category, count] : rank.unknown_categories) {
      found[category.empty() ? "events without a category"
                             : fmt::format("events of unknown category {}", category)] += count;
    }
    for (const EventCategory c : rank.events.category) {
      any = any || is_device_work(c);
    }
    found["operators"] += rank.count(EventCategory::kCpuOp);
    found["calls of the runtime"] += rank.count(EventCategory::kRuntimeCall);
    ranges = ranges || rank.count(EventCategory::kUserRange) > 0;
  }
  const std::string& source = recording.ranks.front().source;
  if (any) {
    return {source, mark.empty() ? "marks no step on all ranks that launched device work; name the "
                                   "ranges that are steps with --mark NAME"
                                 : fmt::format("no range '{}' launched device work; name others "
                                               "with --mark",
                                               mark)};
  }
  std::vector<std::pair<std::uint64_t, std::string>> most;
  for (const auto& [what, count] : found) {
    if (count > 0) {
      most.emplace_back(count, what);
    }
  }
  std::sort(most.rbegin(), most.rend());
  std::string list;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, most.size()); ++i) {
    list += fmt::format(", {}{} {}", i == 0 ? "only " : "", most[i].first, most[i].second);
  }
  return {source, fmt::format("holds no device work{}; record kernels and copies too",
                              list.empty() && ranges ? ", only ranges" : list)};
}

/// Warns of what the recording lacks and what was assumed in its place.
void note_assumptions(const Recording& recording, std::uint64_t alone,
                      const GraphAssumptions& assumptions, MeasuredRun& run) {
  const ParseWarnings oddities = recording.all_oddities();
  run.dropped = oddities[ParseWarning::kDropped].count;
  const auto note = [&run](std::uint64_t count, std::string_view what) {
    if (count > 0) {
      run.warnings.push_back(fmt::format("{} {}", count, what));
    }
  };
  note(run.dropped,
       "times the profiler says it lost records (its buffers ran out); replayed times are too low");
  note(oddities[ParseWarning::kOverrun].count,
       "durations ran over several pieces of work after them on their stream: cut there");
  note(oddities[ParseWarning::kRepeated].count, "records stand there twice: counted once");
  note(oddities[ParseWarning::kBadTime].count, "records have times that cannot be: left out");
  note(alone,
       "collectives are counted alone, waits included: not all their members are in the trace");
  note(assumptions.inferred_edges,
       "stream waits without event ids, inferred from the order of calls");
  note(assumptions.refuted_edges, "such waits contradict the recorded times and are left out");
  note(assumptions.orphans, "pieces of device work have no launch: kept in stream order");
  note(assumptions.full_queues, "launches waited for room in the queue: that wait is taken out");
}

}  // namespace

MeasuredRun measured_run(const Recording& recording, std::string_view mark) {
  if (recording.own != nullptr && !mark.empty()) {
    throw InputError("--mark", recording.ranks.front().source +
                                   " is of our own runtime, whose steps are marked");
  }
  if (recording.own != nullptr) {
    return measured_run(*recording.own);
  }
  MeasuredRun run;
  if (recording.ranks.empty() || recording.ranks.front().timing != Timing::kTimeline) {
    throw InputError(recording.ranks.empty() ? "trace" : recording.ranks.front().source,
                     "is an execution graph without times; a replay needs a recorded timeline "
                     "(Kineto, or our own)");
  }
  if (!recording.ranks.front().devices.empty()) {
    run.device = recording.ranks.front().devices.front();
  }
  const StepMarks marks = step_marks(recording, mark);
  run.warnings = marks.warnings();
  run.marked_by = marks.by + (marks.guessed ? " (guessed)" : "");
  const std::vector<Window> windows = windows_of(recording, marks);
  GraphAssumptions assumptions;
  RawStep chain;
  std::size_t steps = windows.front().size(), empty = steps;
  if (steps > 0) {
    chain = chain_of(recording, windows, assumptions);
    empty = empty_steps(chain.ranks);
  }
  if (empty == steps) {
    throw no_device_work(recording, mark);
  }
  if (empty > 0) {
    run.warnings.push_back(
        fmt::format("device work is missing in {} of {} steps: the recording has holes, or these "
                    "steps are the host's alone",
                    empty, steps));
  }
  Communicators communicators(recording);
  const std::uint64_t alone = connect(chain.ranks, communicators);
  chain.communicators = std::move(communicators.all);
  const std::vector<std::int64_t> offsets = clock_offsets(recording, distances_of(chain), run);
  run.steps.push_back(finish(chain, offsets));
  note_assumptions(recording, alone, assumptions, run);
  return run;
}

}  // namespace stepcast::traces
