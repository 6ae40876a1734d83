#include "simulator/steady_rounds.h"

#include <algorithm>
#include <limits>
#include <map>

#include "core/graph/op_traits.h"
#include "simulator/engine.h"

namespace stepcast::simulator {
namespace {

/// Micro-batches before the rounds that are compared, for each stage, at first; where that is too
/// soon, as many more.
constexpr std::uint32_t kSettling = 3;
constexpr int kAttempts = 2;
/// Rounds that must follow each other alike, at least.
constexpr std::uint32_t kFewest = 2;
/// Times what is simulated that a step must be long, and where the round was seen before.
constexpr std::uint32_t kWorthTrying = 3, kWorthRepeating = 2;
/// Shares of the micro-batches that fill a pipeline: a round of the fewest that will do.
constexpr std::int32_t kParts = 4;

/// Calls of a program that repeat themselves: `calls` from `first` on are a round, and `rounds`
/// follow each other.
struct Run {
  std::uint32_t first = 0, calls = 0, rounds = 0;
};

bool is_pass(SegmentKind kind) {
  return kind == SegmentKind::kForward || kind == SegmentKind::kBackward ||
         kind == SegmentKind::kWeights;
}

std::optional<Run> run_of(const Program& program, std::int32_t microbatches) {
  const auto passes =
      std::count_if(program.calls.begin(), program.calls.end(),
                    [&](const Call& call) { return is_pass(program.segments[call.segment].kind); });
  const std::size_t all = program.calls.size();
  if (passes % program.microbatches != 0) {
    return std::nullopt;
  }
  const auto period = static_cast<std::size_t>(passes / program.microbatches * microbatches);
  if (period == 0 || all < 4 * period) {
    return std::nullopt;
  }
  const auto repeats = [&](std::size_t i) {
    const Call& now = program.calls[i];
    const Call& later = program.calls[i + period];
    return now.segment == later.segment && now.microbatch + microbatches == later.microbatch;
  };
  std::size_t first = (all - period) / 2;
  std::size_t last = first;
  while (last + period < all && repeats(last)) {
    ++last;
  }
  while (last > first && first > 0 && repeats(first - 1)) {
    --first;
  }
  if (last == first) {
    return std::nullopt;
  }
  return Run{static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(period),
             static_cast<std::uint32_t>((last + period - first) / period)};
}

/// The rounds of a graph's programs, of so many micro-batches each.
struct Rounds {
  std::int32_t microbatches = 0;
  std::vector<Run> runs;  // by program
  /// That must follow each other alike, after the one they are compared with.
  std::uint32_t verified = kFewest;
  [[nodiscard]] std::uint32_t shortest() const {
    std::uint32_t rounds = std::numeric_limits<std::uint32_t>::max();
    for (const Run& run : runs) {
      rounds = std::min(rounds, run.rounds);
    }
    return rounds;
  }
  /// To simulate at first.
  [[nodiscard]] std::uint32_t kept(std::int32_t stages) const {
    const auto size = static_cast<std::uint32_t>(microbatches);
    return (kSettling * static_cast<std::uint32_t>(stages) + size - 1) / size + verified + 1;
  }
};

/// Whether a round gives some stream of the program as many ops as its queue holds: the host is
/// then no more than a round ahead.
bool fills_queue(const Program& program, const Run& run, std::int64_t depth) {
  std::vector<std::int64_t> ops(program.streams.size(), 0);
  for (std::uint32_t c = run.first; c < run.first + run.calls; ++c) {
    for (const Op& op : program.ops_of(program.segments[program.calls[c].segment])) {
      ++ops[op.stream];
    }
  }
  return *std::max_element(ops.begin(), ops.end()) >= depth;
}

/// A graph without rounds.
struct Shortened {
  ExecutionGraph graph;
  std::vector<std::uint32_t> cut;  // by program: calls from here on come after those left out
  std::vector<std::uint32_t> calls;
  std::int32_t microbatches = 0;  // of a round
  std::uint32_t verified = 0;     // rounds before the cut
  std::uint32_t left_out = 0;
};

/// Graph with only what the engine reads.
ExecutionGraph without_operands(const ExecutionGraph& graph) {
  ExecutionGraph less;
  less.mesh = graph.mesh;
  less.communicators = graph.communicators;
  less.classes = graph.classes;
  for (const Program& p : graph.programs) {
    Program& own = less.programs.emplace_back();
    own.streams = p.streams;
    own.names = p.names;
    own.ops = p.ops;
    own.waits = p.waits;
    own.events = p.events;
    own.segments = p.segments;
    own.calls = p.calls;
    own.microbatches = p.microbatches;
    own.interval = p.interval;
  }
  return less;
}

Shortened shortened(const ExecutionGraph& graph, const Rounds& rounds, std::uint32_t kept) {
  Shortened s{without_operands(graph), {}, {}, rounds.microbatches, rounds.verified,
              rounds.shortest() - kept};
  for (std::size_t p = 0; p < graph.programs.size(); ++p) {
    const Run& run = rounds.runs[p];
    s.cut.push_back(run.first + kept * run.calls);
    s.calls.push_back(run.calls);
    Program& program = s.graph.programs[p];
    const std::int32_t fewer = static_cast<std::int32_t>(s.left_out) * rounds.microbatches;
    program.microbatches -= fewer;
    const auto from = program.calls.begin() + s.cut.back();
    program.calls.erase(from,
                        from + static_cast<std::ptrdiff_t>(std::size_t{run.calls} * s.left_out));
    // Calls before the cut keep their numbers; the others count on from there.
    for (auto call = program.calls.begin() + s.cut.back(); call != program.calls.end(); ++call) {
      call->microbatch -= is_pass(program.segments[call->segment].kind) ? fewer : 0;
    }
  }
  return s;
}

/// Rounds until what a call waits for, of its own micro-batch on any rank, lies in them or after
/// them.
std::uint32_t reach_back(const ExecutionGraph& graph, const Rounds& rounds) {
  std::int32_t earliest = std::numeric_limits<std::int32_t>::min();
  std::int32_t next = std::numeric_limits<std::int32_t>::max();
  for (std::size_t p = 0; p < rounds.runs.size(); ++p) {
    const Run& run = rounds.runs[p];
    std::map<std::uint32_t, std::int32_t> first_of;  // by segment
    for (std::uint32_t c = run.first; c < run.first + run.calls; ++c) {
      const Call& call = graph.programs[p].calls[c];
      const auto [it, fresh] = first_of.try_emplace(call.segment, call.microbatch);
      it->second = std::min(it->second, call.microbatch);
      next = std::min(next, call.microbatch);
    }
    for (const auto& [segment, microbatch] : first_of) {
      earliest = std::max(earliest, microbatch);
    }
  }
  return 1 + static_cast<std::uint32_t>((earliest - next + rounds.microbatches - 1) /
                                        rounds.microbatches);
}

/// The rounds of so many micro-batches; nullopt where some program has none, or too few to fill a
/// queue.
std::optional<Rounds> rounds_of(const ExecutionGraph& graph, std::int32_t microbatches,
                                std::int64_t depth) {
  Rounds rounds{microbatches, {}};
  for (const Program& program : graph.programs) {
    const auto run = run_of(program, microbatches);
    if (!run || !fills_queue(program, *run, depth)) {
      return std::nullopt;
    }
    rounds.runs.push_back(*run);
  }
  rounds.verified = std::max(kFewest, reach_back(graph, rounds));
  return rounds;
}

/// The shortest rounds of a graph that are long enough.
std::optional<Rounds> shortest_rounds(const ExecutionGraph& graph, std::int64_t depth) {
  const std::int32_t stages = graph.mesh.pipeline;
  for (std::int32_t d = std::max(1, stages / kParts); d <= graph.programs.front().microbatches / 4;
       d *= 2) {
    auto rounds = rounds_of(graph, d, depth);
    if (rounds && rounds->shortest() >= kWorthTrying * rounds->kept(stages)) {
      return rounds;
    }
  }
  return std::nullopt;
}

/// The shortest rounds of so many micro-batches, or a multiple.
std::optional<Rounds> rounds_seen(const ExecutionGraph& graph, std::optional<std::int32_t> period,
                                  std::int64_t depth) {
  for (std::int32_t d = period.value_or(0); d > 0 && d <= graph.programs.front().microbatches / 4;
       d += *period) {
    if (auto rounds = rounds_of(graph, d, depth)) {
      return rounds;
    }
  }
  return std::nullopt;
}

/// The verified rounds and the one before, of every rank.
class SteadyCheck : public Observer {
 public:
  SteadyCheck(const Shortened& s, const StepCosts& costs) : s_(s), costs_(costs) {
    for (const Instance& instance : costs.folding.instances) {
      const auto p = static_cast<std::size_t>(instance.program);
      const Program& program = s.graph.programs[p];
      const std::uint32_t first = s.cut[p] - (s.verified + 1) * s.calls[p];
      Ranks& own = ranks_.emplace_back();
      own.first = first;
      for (std::uint32_t c = first; c < s.cut[p]; ++c) {
        own.place.push_back(own.ops);
        own.ops += program.segments[program.calls[c].segment].op_count;
      }
      own.round = own.ops / (s.verified + 1);
      own.spans.resize(own.ops);
      own.begun.resize(program.streams.size());
    }
  }

  void on_op(const OpSpan& span) override {
    const auto i =
        static_cast<std::size_t>(costs_.folding.instance_of[static_cast<std::size_t>(span.rank)]);
    Ranks& own = ranks_[i];
    const Program& program = program_of(i);
    if (span.ref.call < own.first) {
      own.settled = std::max(own.settled, ticks(span.end));
      return;
    }
    if (span.ref.call - own.first >= own.place.size()) {
      own.left = std::min(own.left, ticks(span.begin));
      return;
    }
    const std::uint32_t first = program.segments[program.calls[span.ref.call].segment].first_op;
    own.spans[own.place[span.ref.call - own.first] + span.ref.op - first] = span;
    if (auto begun = own.begun[program.ops[span.ref.op].stream]; !begun) {
      begun = true;
      own.settled = std::max(own.settled, ticks(span.begin));
    }
  }

  /// Time that each further round adds to a rank.
  struct Round {
    std::int64_t compute = 0, wait = 0, transfer = 0;
    std::int64_t begin = 0;  ///< of a time as long in which all streams are in these rounds
    bool told = false;       ///< there is such a time
  };
  struct Steady {
    std::int64_t ticks = 0;     ///< a round takes
    std::vector<Round> rounds;  ///< by instance
  };
  [[nodiscard]] std::optional<Steady> steady() const {
    Steady steady;
    steady.ticks = ticks(ranks_.front().spans.back().end) -
                   ticks(ranks_.front().spans[ranks_.front().ops - ranks_.front().round - 1].end);
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (!repeats(ranks_[i], steady.ticks)) {
        return std::nullopt;
      }
      steady.rounds.push_back(round_of(i, steady.ticks));
    }
    return steady;
  }

  /// Micro-batches after which all ranks last did the same again; nullopt: that was not seen.
  [[nodiscard]] std::optional<std::int32_t> period() const {
    const auto all = static_cast<std::int32_t>(s_.verified + 1) * s_.microbatches;
    for (std::int32_t d = 1; d <= all - s_.microbatches; ++d) {
      const auto later = [&](std::size_t i) { return did_again_after(i, d); };
      const auto first = later(0);
      bool alike = first.has_value();
      for (std::size_t i = 1; alike && i < ranks_.size(); ++i) {
        alike = later(i) == first;
      }
      if (alike) {
        return d;
      }
    }
    return std::nullopt;
  }

 private:
  struct Ranks {
    std::uint32_t first = 0;           // call
    std::vector<std::uint32_t> place;  // of a call's first op among `spans`
    std::uint32_t ops = 0, round = 0;  // of all these rounds, of one
    std::vector<OpSpan> spans;
    std::vector<bool> begun;    // by stream: it is in these rounds
    std::int64_t settled = -1;  // from then on all streams are, or have nothing to do in them
    std::int64_t left = std::numeric_limits<std::int64_t>::max();  // until one is past them
  };
  [[nodiscard]] const Program& program_of(std::size_t instance) const {
    return s_.graph.programs[static_cast<std::size_t>(costs_.folding.instances[instance].program)];
  }
  static bool repeats(const Ranks& own, std::int64_t later) {
    for (std::size_t o = own.round; o < own.ops; ++o) {
      const OpSpan& before = own.spans[o - own.round];
      const OpSpan& now = own.spans[o];
      if (ticks(now.begin) - ticks(before.begin) != later ||
          ticks(now.ready) - ticks(before.ready) != later ||
          ticks(now.end) - ticks(before.end) != later ||
          ticks(now.issued) - ticks(before.issued) != later ||
          ticks(now.end) - ticks(now.issued) > later) {
        return false;
      }
    }
    return true;
  }
  /// Time after which all that a rank does in the last round followed itself by so many
  /// micro-batches.
  [[nodiscard]] std::optional<std::int64_t> did_again_after(std::size_t instance,
                                                            std::int32_t microbatches) const {
    const Ranks& own = ranks_[instance];
    const Program& program = program_of(instance);
    const auto p = static_cast<std::size_t>(costs_.folding.instances[instance].program);
    const auto back = static_cast<std::size_t>(s_.calls[p]) *
                      static_cast<std::size_t>(microbatches) /
                      static_cast<std::size_t>(s_.microbatches);
    std::optional<std::int64_t> later;
    for (std::size_t c = own.place.size() - s_.calls[p]; c < own.place.size(); ++c) {
      const Call& now = program.calls[own.first + c];
      if (now.segment != program.calls[own.first + c - back].segment) {
        return std::nullopt;
      }
      for (std::uint32_t o = 0; o < program.segments[now.segment].op_count; ++o) {
        const OpSpan& span = own.spans[own.place[c] + o];
        const OpSpan& before = own.spans[own.place[c - back] + o];
        later = later ? later : ticks(span.end) - ticks(before.end);
        if (ticks(span.end) - ticks(before.end) != *later ||
            ticks(span.begin) - ticks(before.begin) != *later) {
          return std::nullopt;
        }
      }
    }
    return later;
  }
  [[nodiscard]] Round round_of(std::size_t instance, std::int64_t length) const {
    const Ranks& own = ranks_[instance];
    const Program& program = program_of(instance);
    Round round;
    round.begin = own.settled + 1;
    round.told = own.left - round.begin >= 2 * length;
    for (std::size_t o = own.ops - own.round; o < own.ops; ++o) {
      const OpSpan& span = own.spans[o];
      const Op& op = program.ops[span.ref.op];
      if (op.communicator < 0 || traits_of(op.kind).role == OpRole::kCompute) {
        round.compute += ticks(span.end) - ticks(span.begin);
      } else {
        round.wait += ticks(span.ready) - ticks(span.begin);
        round.transfer += ticks(span.end) - ticks(span.ready);
      }
    }
    return round;
  }

  const Shortened& s_;
  const StepCosts& costs_;
  std::vector<Ranks> ranks_;  // by instance
};

SimTime later(SimTime time, std::int64_t by) { return SimTime{ticks(time) + by}; }

/// The result of the shortened step as that of the whole; `told`: its repetitions can be observed.
SimulationResult of_all(SimulationResult result, const ExecutionGraph& graph, const Shortened& s,
                        const StepCosts& costs, const SteadyCheck::Steady& steady, bool told) {
  const std::int64_t by = s.left_out * steady.ticks;
  result.ops = 0;
  for (std::size_t i = 0; i < result.ranks.size(); ++i) {
    RankSummary& rank = result.ranks[i];
    const SteadyCheck::Round& round = steady.rounds[i];
    rank.host_end = later(rank.host_end, by);
    rank.end = later(rank.end, by);
    rank.compute = later(rank.compute, s.left_out * round.compute);
    rank.wait = later(rank.wait, s.left_out * round.wait);
    rank.transfer = later(rank.transfer, s.left_out * round.transfer);
    rank.repetition =
        told ? Repetition{SimTime{round.begin}, steady.ticks, s.left_out, s.microbatches}
             : Repetition{};
    result.ops +=
        graph.programs[static_cast<std::size_t>(costs.folding.instances[i].program)].executed_ops();
  }
  find_critical(result);
  return result;
}

}  // namespace

std::optional<SimulationResult> simulate_steady(const ExecutionGraph& graph, const StepCosts& costs,
                                                const SimulationOptions& options,
                                                Observer* observer,
                                                std::optional<SimulationResult>* few) {
  if (costs.shares_core || costs.straggler.log_sigma > 0) {
    return std::nullopt;
  }
  if (options.known != nullptr && observer != nullptr) {
    const Repetition& known = options.known->ranks.front().repetition;
    if (known.times == 0) {
      return std::nullopt;
    }
    const auto rounds = rounds_of(graph, known.microbatches, costs.queue_depth);
    const Shortened s =
        shortened(graph, *rounds, rounds->shortest() - static_cast<std::uint32_t>(known.times));
    Engine(s.graph, costs, options, observer).run();
    return *options.known;
  }
  auto rounds = shortest_rounds(graph, costs.queue_depth);
  std::uint32_t kept = rounds ? rounds->kept(graph.mesh.pipeline) : 0;
  for (int attempt = 0; rounds && attempt < kAttempts; ++attempt) {
    const Shortened s = shortened(graph, *rounds, kept);
    SteadyCheck check(s, costs);
    SimulationResult result = Engine(s.graph, costs, options, &check).run();
    const auto steady = check.steady();
    const bool told = steady && std::all_of(steady->rounds.begin(), steady->rounds.end(),
                                            [](const auto& round) { return round.told; });
    if (told && observer != nullptr) {
      Engine(s.graph, costs, options, observer).run();
    }
    if (told || (steady && observer == nullptr)) {
      return of_all(std::move(result), graph, s, costs, *steady, told);
    }
    if (few != nullptr) {
      *few = std::move(result);
    }
    const auto seen = rounds_seen(graph, check.period(), costs.queue_depth);
    if (!seen) {
      break;  // ranks that share links come to equal rounds ever more slowly
    }
    kept = seen->microbatches == rounds->microbatches ? 2 * kept : seen->kept(graph.mesh.pipeline);
    rounds = seen;
    if (rounds->shortest() < kWorthRepeating * kept) {
      break;
    }
  }
  return std::nullopt;
}

}  // namespace stepcast::simulator
