#include "bindings/web/timeline.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/support/console.h"
#include "core/config/usual_stack.h"
#include "core/numbers.h"
#include "models/cost_model.h"
#include "simulator/reports/timeline.h"
#include "studies/plan/searched_plan.h"
#include "studies/predict/simulated_step.h"
#include "workloads/build_graph.h"

namespace stepcast::cli {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostClasses = 32;
constexpr std::size_t kMostLoadedRanks = 256;

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

/// Classes whose first rank is drawn.
std::vector<std::size_t> drawn_classes(const ExecutionGraph& graph) {
  const std::size_t all = graph.classes.size();
  const std::size_t drawn = std::min(all, kMostClasses);
  std::vector<std::size_t> classes;
  for (std::size_t i = 0; i < drawn; ++i) {
    classes.push_back(drawn < 2 ? 0 : i * (all - 1) / (drawn - 1));
  }
  return classes;
}

Json drawn_rank(const RankClass& of, const Program& program, const simulator::Timeline& timeline,
                Names& names, Names& segments) {
  const std::int32_t rank = of.ranks.front();
  std::vector<std::size_t> name_of_op;
  for (const Op& op : program.ops) {
    name_of_op.push_back(names.of(studies::row_name(program, op, true)));
  }
  Json spans = Json::array();
  std::int64_t before = 0;
  for (const OpSpan& s : timeline.ops()) {
    if (s.rank != rank || s.end == s.begin) {
      continue;
    }
    const Op& op = program.ops[s.ref.op];
    const std::int64_t begin = nanoseconds(s.begin);
    const std::int64_t ready = nanoseconds(s.ready);
    for (const auto v :
         {static_cast<std::int64_t>(op.stream), static_cast<std::int64_t>(name_of_op[s.ref.op]),
          static_cast<std::int64_t>(s.ref.call), begin - before, ready - begin,
          nanoseconds(s.end) - ready}) {
      spans.push_back(v);
    }
    before = begin;
  }
  Json calls = Json::array();
  for (const Call& call : program.calls) {
    const Segment& segment = program.segments[call.segment];
    calls.push_back(segments.of(fmt::format("{}\t{}", segment.name, name_of(segment.kind))));
    calls.push_back(call.microbatch);
  }
  return {{"rank", rank},
          {"alike", of.ranks.size()},
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

Json placement_of(const DlrmWorkload& dlrm, const ExecutionGraph& graph,
                  const simulator::Timeline& timeline, bool all_ranks) {
  Json tables = Json::array();
  for (const EmbeddingTable& t : dlrm.tables) {
    tables.push_back(t.name);
  }
  Json ranks = Json::array();
  for (const RankClass& c : graph.classes) {
    const Program& program = graph.programs[static_cast<std::size_t>(c.program)];
    const Json bytes = held_bytes(program, dlrm.tables.size());
    for (const std::int32_t rank : c.ranks) {
      if (!all_ranks && rank != c.ranks.front()) {
        continue;
      }
      ranks.push_back({{"rank", rank},
                       {"bytes", bytes},
                       {"loads", loads_of(rank, program, timeline.of(rank))}});
    }
  }
  std::sort(ranks.begin(), ranks.end(),
            [](const Json& a, const Json& b) { return a["rank"] < b["rank"]; });
  return {{"tables", std::move(tables)}, {"ranks", std::move(ranks)}};
}

int timeline(const JobOptions& options, const Context& context) {
  auto loaded =
      config::load_job_on_usual_stack(job_source(options), options.overrides, {context.library});
  const Job job = studies::with_searched_plan(std::move(loaded.job));
  const ExecutionGraph graph = workloads::build_graph(job);
  const auto* dlrm = std::get_if<DlrmWorkload>(&job.workload.model);
  const bool places = dlrm != nullptr && !dlrm->tables.empty();
  const bool all_ranks = places && stepcast::index(graph.ranks()) <= kMostLoadedRanks;
  const std::vector<std::size_t> classes = drawn_classes(graph);
  std::vector<std::int32_t> followed;
  for (std::size_t c = 0; c < graph.classes.size(); ++c) {
    const std::vector<std::int32_t>& ranks = graph.classes[c].ranks;
    if (all_ranks) {
      followed.insert(followed.end(), ranks.begin(), ranks.end());
    } else if (places || std::find(classes.begin(), classes.end(), c) != classes.end()) {
      followed.push_back(ranks.front());
    }
  }
  simulator::Timeline spans(followed);
  const models::CostModel model(job.system, job.calibration);
  const studies::SimulatedStep step = studies::simulate_step(graph, model, &spans);
  Names names;
  Names segments;
  Json ranks = Json::array();
  for (const std::size_t c : classes) {
    const RankClass& of = graph.classes[c];
    ranks.push_back(drawn_rank(of, graph.programs[static_cast<std::size_t>(of.program)], spans,
                               names, segments));
  }
  Json document{{"makespan_ns", nanoseconds(step.result.makespan)},
                {"classes", graph.classes.size()},
                {"names", names.all()},
                {"segments", segments.all()},
                {"ranks", std::move(ranks)}};
  if (places) {
    document["placement"] = placement_of(*dlrm, graph, spans, all_ranks);
  }
  answer() << document.dump();
  return 0;
}

}  // namespace

void add_timeline(CLI::App& app, Context& context) {
  auto options = std::make_shared<JobOptions>();
  add_job_options(app, *options);
  app.callback([options, &context] { context.exit_code = timeline(*options, context); });
}

}  // namespace stepcast::cli
