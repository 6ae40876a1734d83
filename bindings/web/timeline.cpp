#include "bindings/web/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "cli/support/console.h"
#include "core/numbers.h"
#include "models/cost_model.h"
#include "simulator/folding.h"
#include "simulator/reports/memory_ledger.h"
#include "simulator/reports/timeline.h"
#include "studies/predict/chosen_plan.h"
#include "studies/predict/simulated_step.h"
#include "workloads/build_graph.h"

namespace stepcast::cli {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostClasses = 32;
constexpr std::size_t kMostLoadedRanks = 256;
/// For each rank; where more ops run, those of one call on one stream are drawn as one.
constexpr std::uint64_t kMostSpans = 500'000;

std::string_view name_of(SegmentKind kind) {
  switch (kind) {
    case SegmentKind::kForward:
      return "forward";
    case SegmentKind::kBackward:
      return "backward";
    case SegmentKind::kWeights:
      return "weights";
    case SegmentKind::kBegin:
      return "begin";
    case SegmentKind::kFinish:
      return "finish";
    case SegmentKind::kOther:
      break;
  }
  return "other";
}

std::int64_t nanoseconds(SimTime t) { return (ticks(t) + 500) / 1000; }

/// Texts by number, each once.
class Names {
 public:
  std::size_t of(const std::string& text) {
    const auto [at, added] = numbers_.try_emplace(text, numbers_.size());
    if (added) {
      all_.push_back(text);
    }
    return at->second;
  }
  [[nodiscard]] const Json& all() const { return all_; }

 private:
  std::map<std::string, std::size_t> numbers_;
  Json all_ = Json::array();
};

/// A rank whose spans are drawn: those of the rank that was simulated in its place.
struct DrawnRank {
  std::size_t of = 0;  ///< its class
  std::int32_t rank = 0, simulated = 0;
};

/// The rank simulated in the place of each.
std::vector<std::int32_t> simulated_ranks(const ExecutionGraph& graph) {
  const simulator::Folding folding = simulator::fold(graph);
  std::vector<std::int32_t> ranks;
  for (const std::int32_t i : folding.instance_of) {
    ranks.push_back(folding.instances[stepcast::index(i)].rank);
  }
  return ranks;
}

/// The first rank of each class, of many classes evenly spaced ones; `wanted` in place of the first
/// of its class.
std::vector<DrawnRank> drawn_ranks(const ExecutionGraph& graph,
                                   const std::vector<std::int32_t>& simulated,
                                   std::int32_t wanted) {
  const std::size_t all = graph.classes.size();
  std::vector<DrawnRank> drawn;
  for (std::size_t c = 0, spaced = 0; c < all; ++c) {
    const std::vector<std::int32_t>& ranks = graph.classes[c].ranks;
    const bool has = std::binary_search(ranks.begin(), ranks.end(), wanted);
    const bool due = c * (std::min(all, kMostClasses) - 1) >= spaced * (all - 1);
    spaced += due ? 1 : 0;
    if (due || has) {
      const std::int32_t rank = has ? wanted : ranks.front();
      drawn.push_back({c, rank, simulated[stepcast::index(rank)]});
    }
  }
  return drawn;
}

/// Spans as the page unpacks them: stream, name, call, begin after the one before, wait, transfer
/// or work.
class DrawnSpans {
 public:
  void add(std::int64_t stream, std::size_t name, std::uint32_t call, SimTime begin, SimTime ready,
           SimTime end) {
    const std::int64_t from = nanoseconds(begin);
    const std::int64_t to = nanoseconds(ready);
    for (const std::int64_t v : {stream, static_cast<std::int64_t>(name), std::int64_t{call},
                                 from - before_, to - from, nanoseconds(end) - to}) {
      all_.push_back(v);
    }
    before_ = from;
  }
  [[nodiscard]] Json take() { return std::move(all_); }

 private:
  Json all_ = Json::array();
  std::int64_t before_ = 0;
};

Json spans_of(std::int32_t rank, const Program& program, const simulator::Timeline& timeline,
              Names& names) {
  std::vector<std::size_t> name_of_op;
  for (const Op& op : program.ops) {
    name_of_op.push_back(names.of(studies::row_name(program, op, true)));
  }
  DrawnSpans drawn;
  for (const OpSpan& s : timeline.ops()) {
    if (s.rank == rank && s.end != s.begin) {
      drawn.add(program.ops[s.ref.op].stream, name_of_op[s.ref.op], s.ref.call, s.begin, s.ready,
                s.end);
    }
  }
  return drawn.take();
}

/// One span for all ops of a call on a stream, from its first to its last: they run in order.
Json merged_spans(std::int32_t rank, const Program& program, const simulator::Timeline& timeline,
                  Names& names) {
  std::vector<std::optional<OpSpan>> open(program.streams.size());
  DrawnSpans drawn;
  const auto close = [&](std::size_t stream) {
    const OpSpan& s = *open[stream];
    const Segment& segment = program.segments[program.calls[s.ref.call].segment];
    drawn.add(static_cast<std::int64_t>(stream), names.of(segment.name + ", all ops"), s.ref.call,
              s.begin, s.begin, s.end);
  };
  for (const OpSpan& s : timeline.ops()) {
    if (s.rank != rank || s.end == s.begin) {
      continue;
    }
    const auto stream = static_cast<std::size_t>(program.ops[s.ref.op].stream);
    if (open[stream] && open[stream]->ref.call == s.ref.call) {
      open[stream]->end = s.end;
      continue;
    }
    if (open[stream]) {
      close(stream);
    }
    open[stream] = s;
  }
  for (std::size_t stream = 0; stream < open.size(); ++stream) {
    if (open[stream]) {
      close(stream);
    }
  }
  return drawn.take();
}

Json drawn_rank(const DrawnRank& drawn, const ExecutionGraph& graph, const Device& device,
                const simulator::Timeline& timeline, Names& names, Names& segments) {
  const RankClass& of = graph.classes[drawn.of];
  const Program& program = graph.programs[static_cast<std::size_t>(of.program)];
  const std::int32_t rank = drawn.simulated;
  Json spans = program.executed_ops() > kMostSpans ? merged_spans(rank, program, timeline, names)
                                                   : spans_of(rank, program, timeline, names);
  Json calls = Json::array();
  for (const Call& call : program.calls) {
    const Segment& segment = program.segments[call.segment];
    calls.push_back(segments.of(fmt::format("{}\t{}", segment.name, name_of(segment.kind))));
    calls.push_back(call.microbatch);
  }
  Json memory;
  for (const auto& [what, bytes] : simulator::memory_ledger(graph, drawn.of, device).parts()) {
    memory[std::string(what)] = bytes.base();
  }
  return {{"rank", drawn.rank},
          {"alike", of.ranks.size()},
          {"memory_bytes", std::move(memory)},
          {"streams", program.streams},
          {"calls", std::move(calls)},
          {"spans", std::move(spans)}};
}

/// Bytes of each table on the ranks of a class.
Json held_bytes(const Program& program, std::size_t tables) {
  std::vector<double> bytes(tables, 0);
  for (const EmbeddingGroup& group : program.embeddings) {
    for (const EmbeddingShard& s : group.shards) {
      bytes[static_cast<std::size_t>(s.table)] +=
          format_bytes(s.format.value_or(group.format), s.rows, s.dim).base();
    }
  }
  return bytes;
}

/// How long ops of each kind take on a rank; collectives without their wait.
Json loads_of(std::int32_t rank, const Program& program, const simulator::Timeline& timeline) {
  std::map<std::string, double> seconds;
  const std::vector<studies::TemplateTime> times = studies::template_times(timeline, program, rank);
  for (std::size_t i = 0; i < times.size(); ++i) {
    seconds[studies::row_name(program, program.ops[i], false)] += times[i].time.base();
  }
  return seconds;
}

Json placement_of(const LayeredWorkload& dlrm, const ExecutionGraph& graph,
                  const std::vector<std::int32_t>& simulated, const simulator::Timeline& timeline,
                  bool all_ranks) {
  Json tables = Json::array();
  for (const EmbeddingTable& t : dlrm.tables) {
    tables.push_back(t.name);
  }
  Json ranks = Json::array();
  std::map<std::int32_t, Json> loads;  // by simulated rank
  for (const RankClass& c : graph.classes) {
    const Program& program = graph.programs[static_cast<std::size_t>(c.program)];
    const Json bytes = held_bytes(program, dlrm.tables.size());
    for (const std::int32_t rank : c.ranks) {
      if (!all_ranks && rank != c.ranks.front()) {
        continue;
      }
      const std::int32_t of = simulated[stepcast::index(rank)];
      if (!loads.contains(of)) {
        loads[of] = loads_of(of, program, timeline.of(of));
      }
      ranks.push_back({{"rank", rank}, {"bytes", bytes}, {"loads", loads[of]}});
    }
  }
  std::sort(ranks.begin(), ranks.end(),
            [](const Json& a, const Json& b) { return a["rank"] < b["rank"]; });
  return {{"tables", std::move(tables)}, {"ranks", std::move(ranks)}};
}

int timeline(const JobOptions& options, std::int32_t wanted, const Context& context) {
  const Job job =
      studies::choose_plan(job_source(options), options.overrides, {context.library}).job;
  const ExecutionGraph graph = workloads::build_graph(job);
  const auto* dlrm = std::get_if<LayeredWorkload>(&job.workload.model);
  const bool places = dlrm != nullptr && !dlrm->tables.empty();
  const bool all_ranks = places && stepcast::index(graph.ranks()) <= kMostLoadedRanks;
  const std::vector<std::int32_t> simulated = simulated_ranks(graph);
  const std::vector<DrawnRank> drawn = drawn_ranks(graph, simulated, wanted);
  std::set<std::int32_t> followed;
  for (const DrawnRank& rank : drawn) {
    followed.insert(rank.simulated);
  }
  for (std::size_t c = 0; places && c < graph.classes.size(); ++c) {
    for (const std::int32_t rank : graph.classes[c].ranks) {
      if (all_ranks || rank == graph.classes[c].ranks.front()) {
        followed.insert(simulated[stepcast::index(rank)]);
      }
    }
  }
  simulator::Timeline spans(graph, {followed.begin(), followed.end()});
  const models::CostModel model(job.system, job.calibration);
  const studies::SimulatedStep step = studies::simulate_step(graph, model, &spans);
  Names names;
  Names segments;
  Json ranks = Json::array();
  for (const DrawnRank& rank : drawn) {
    ranks.push_back(drawn_rank(rank, graph, job.system.device, spans, names, segments));
  }
  Json document{{"makespan_ns", nanoseconds(step.result.makespan)},
                {"critical_rank", step.critical().rank},
                {"classes", graph.classes.size()},
                {"names", names.all()},
                {"segments", segments.all()},
                {"ranks", std::move(ranks)}};
  if (places) {
    document["placement"] = placement_of(*dlrm, graph, simulated, spans, all_ranks);
  }
  answer() << document.dump();
  return 0;
}

}  // namespace

void add_timeline(CLI::App& app, Context& context) {
  auto options = std::make_shared<JobOptions>();
  auto rank = std::make_shared<std::int32_t>(-1);
  CLI::App* command = app.add_subcommand("timeline");
  add_job_options(*command, *options);
  command->add_option("--rank", *rank);
  command->callback(
      [options, rank, &context] { context.exit_code = timeline(*options, *rank, context); });
}

}  // namespace stepcast::cli
