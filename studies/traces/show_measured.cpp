#include "studies/traces/show_measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "core/error.h"
#include "simulator/reports/critical_path.h"
#include "simulator/simulate.h"
#include "studies/traces/internal/spans_by_time.h"
#include "studies/traces/replay_costs.h"
#include "studies/traces/step_times.h"
#include "studies/traces/step_views.h"

namespace stepcast::studies {
namespace {

using traces::covered;
using traces::TimeSpan;
using traces::TimeSpans;

Seconds of_ticks(std::int64_t t) { return to_seconds(SimTime{t}); }

/// Sorted and joined.
TimeSpans joined(TimeSpans all) {
  std::sort(all.begin(), all.end());
  TimeSpans result;
  for (const TimeSpan& i : all) {
    if (!result.empty() && i.first <= result.back().second) {
      result.back().second = std::max(result.back().second, i.second);
    } else {
      result.push_back(i);
    }
  }
  return result;
}

/// Time of the other streams, the sets one inside the next.
struct Others {
  TimeSpans transfer, or_wait, or_compute;
};

Others others_of(const Program& program, const std::vector<OpSpan>& spans, std::uint8_t main) {
  Others o;
  for (const OpSpan& s : spans) {
    const Op& op = program.ops[s.ref.op];
    if (op.stream == main) {
      continue;
    }
    if (is_collective(op.kind)) {
      o.transfer.emplace_back(ticks(s.ready), ticks(s.end));
      o.or_wait.emplace_back(ticks(s.begin), ticks(s.end));
    }
    o.or_compute.emplace_back(ticks(s.begin), ticks(s.end));
  }
  o.transfer = joined(std::move(o.transfer));
  o.or_wait = joined(std::move(o.or_wait));
  o.or_compute = joined(std::move(o.or_compute));
  return o;
}

std::uint8_t main_stream(const Program& program, const std::vector<OpSpan>& spans) {
  std::vector<std::int64_t> busy(program.streams.size(), 0);
  for (const OpSpan& s : spans) {
    const Op& op = program.ops[s.ref.op];
    busy[op.stream] += is_collective(op.kind) ? 0 : ticks(s.end) - ticks(s.begin);
  }
  return static_cast<std::uint8_t>(std::max_element(busy.begin(), busy.end()) - busy.begin());
}

void add_queue(const std::vector<OpSpan>& spans, StreamUse& use, double weight) {
  std::vector<std::int64_t> issued, ended;
  for (const OpSpan& s : spans) {
    issued.push_back(ticks(s.issued));
    ended.push_back(ticks(s.end));
  }
  std::sort(issued.begin(), issued.end());
  std::sort(ended.begin(), ended.end());
  std::size_t done = 0;
  double sum = 0;
  for (std::size_t i = 0; i < issued.size(); ++i) {
    while (done < ended.size() && ended[done] <= issued[i]) {
      ++done;
    }
    const auto depth = static_cast<std::int64_t>(i + 1) - static_cast<std::int64_t>(done);
    use.queue_most = std::max(use.queue_most, depth);
    sum += static_cast<double>(std::max<std::int64_t>(0, depth));
  }
  use.queue_mean += spans.empty() ? 0 : weight * sum / static_cast<double>(spans.size());
}

/// A stretch of a rank's main stream: from the end of one op to the begin of the next, in ticks.
struct Idle {
  std::int64_t from = 0, launched = 0, to = 0;
  std::int64_t transfer = 0, rank = 0, stream = 0;  ///< parts of [launched, to)
  [[nodiscard]] std::int64_t gap() const { return to - launched - transfer - rank - stream; }
};

struct MainStream {
  std::uint8_t stream = 0;
  std::vector<const OpSpan*> ops;  ///< by begin
  std::vector<Idle> before;        ///< each op
  std::int64_t end = 0;            ///< of the step
};

/// Work of a rank from a time to another.
struct Window {
  const Program& program;
  std::vector<OpSpan> spans;  ///< cut to it
  std::int64_t begin = 0, end = 0;
};

Window window_of(const traces::MeasuredStep& step, std::size_t r,
                 const internal::SpansByTime& spans, std::int64_t begin, std::int64_t end) {
  return {step.graph->program_of(static_cast<std::int32_t>(r)), spans.within(begin, end), begin,
          end};
}

MainStream main_stream_of(const Window& rank) {
  const Program& program = rank.program;
  MainStream main;
  main.stream = main_stream(program, rank.spans);
  main.end = rank.end;
  const Others others = others_of(program, rank.spans, main.stream);
  for (const OpSpan& s : rank.spans) {
    if (program.ops[s.ref.op].stream == main.stream) {
      main.ops.push_back(&s);
    }
  }
  std::stable_sort(main.ops.begin(), main.ops.end(),
                   [](const OpSpan* a, const OpSpan* b) { return a->begin < b->begin; });
  std::int64_t at = rank.begin;
  for (const OpSpan* s : main.ops) {
    Idle idle;
    idle.from = at;
    idle.to = std::max(at, ticks(s->begin));
    idle.launched = std::clamp(ticks(s->issued), at, idle.to);
    idle.transfer = covered(others.transfer, idle.launched, idle.to);
    idle.rank = covered(others.or_wait, idle.launched, idle.to) - idle.transfer;
    idle.stream = covered(others.or_compute, idle.launched, idle.to) - idle.transfer - idle.rank;
    main.before.push_back(idle);
    at = std::max(idle.to, ticks(s->end));
  }
  return main;
}

void add_step(const Window& rank, StreamUse& use, double weight) {
  const Program& program = rank.program;
  const MainStream main = main_stream_of(rank);
  use.stream = program.streams[main.stream];
  const auto add = [weight](Seconds& sum, std::int64_t t) { sum += of_ticks(t) * weight; };
  std::int64_t at = rank.begin;
  for (std::size_t i = 0; i < main.ops.size(); ++i) {
    const OpSpan& s = *main.ops[i];
    const Idle& idle = main.before[i];
    add(use.host, idle.launched - idle.from);
    add(use.for_communication, idle.transfer);
    add(use.for_rank, idle.rank);
    add(use.for_stream, idle.stream);
    add(use.gap, idle.gap());
    const std::int64_t stop = std::max(idle.to, ticks(s.end));
    if (is_collective(program.ops[s.ref.op].kind)) {
      const std::int64_t ready = std::clamp(ticks(s.ready), idle.to, stop);
      add(use.for_rank, ready - idle.to);
      add(use.communication, stop - ready);
    } else {
      add(use.compute, stop - idle.to);
    }
    at = stop;
  }
  add(use.drain, std::max<std::int64_t>(0, main.end - at));
  add(use.step, main.end - rank.begin);
  add_queue(rank.spans, use, weight);
}

void annotate_idle(const Window& window, std::int32_t rank, std::vector<traces::Annotation>& out) {
  const auto slice = [&](const char* cause, std::int64_t begin, std::int64_t end) {
    if (end > begin) {
      out.push_back({rank, "idle, by cause", cause, SimTime{begin}, SimTime{end}});
    }
  };
  for (const Idle& idle : main_stream_of(window).before) {
    slice("host: not launched", idle.from, idle.launched);
    const std::array<std::pair<std::int64_t, const char*>, 4> causes{{{idle.transfer, "a transfer"},
                                                                      {idle.rank, "a rank"},
                                                                      {idle.stream, "a stream"},
                                                                      {idle.gap(), "gap"}}};
    const auto most =
        std::max_element(causes.begin(), causes.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
    slice(most->second, idle.launched, idle.to);
  }
}

using NamedKind = std::pair<std::string, OpKind>;

void add_kernels(const traces::MeasuredStep& step, std::map<NamedKind, MeasuredKernel>& kernels,
                 std::size_t first, double weight) {
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    const Program& program = step.graph->program_of(static_cast<std::int32_t>(r));
    for (const OpSpan& s : step.ranks[r].spans) {
      if (traces::step_of(step.ranks[r], s.ref.op) <= first) {
        continue;
      }
      const Op& op = program.ops[s.ref.op];
      MeasuredKernel& k = kernels[{program.name(op), op.kind}];
      k.name = program.name(op);
      k.kind = op.kind;
      k.kernel = kernel_kind_of(op);
      k.launches += weight;
      k.time += of_ticks(ticks(s.end) - ticks(s.ready)) * weight;
    }
  }
}

bool is_op(const simulator::CriticalPath::Piece& piece) {
  using Part = simulator::CriticalPath::Part;
  return piece.part == Part::kCompute || piece.part == Part::kTransfer;
}

/// Costs with half the time of the host, or of all that computes but what was launched before.
simulator::StepCosts halved(const traces::MeasuredStep& chain, simulator::StepCosts costs,
                            bool host) {
  for (std::size_t i = 0; i < costs.ops.size(); ++i) {
    const std::int32_t rank = costs.folding.instances[i].rank;
    const Program& program = chain.graph->program_of(rank);
    const std::size_t first = chain.ranks[static_cast<std::size_t>(rank)].carried;
    for (std::size_t o = host ? 0 : first; o < program.ops.size(); ++o) {
      if (host) {
        costs.ops[i].issue[o] /= 2;
      } else if (!is_collective(program.ops[o].kind)) {
        costs.ops[i].ticks[o] /= 2;
      }
    }
  }
  costs.finish /= host ? 2 : 1;
  return costs;
}

/// Names what bounds the run, by its critical path and two what-ifs.
void add_bound(const traces::MeasuredStep& chain, const simulator::StepCosts& costs,
               MeasuredShow& show) {
  const auto whole = [&](const simulator::StepCosts& of) {
    return to_seconds(simulator::simulate(*chain.graph, of).makespan);
  };
  const Seconds unchanged = whole(costs);
  const auto change = [&](bool host) {
    return unchanged > Seconds{} ? whole(halved(chain, costs, host)) / unchanged - 1 : 0;
  };
  show.half_compute = change(false);
  show.half_host = change(true);
  if (std::abs(show.replay_error) > kTrustedReplay) {
    return;
  }
  const std::array<std::pair<const char*, Seconds>, 4> parts{{{"compute", show.path_compute},
                                                              {"host", show.path_host},
                                                              {"transfers", show.path_transfer},
                                                              {"gaps", show.path_gap}}};
  auto most = std::max_element(parts.begin(), parts.end(),
                               [](const auto& a, const auto& b) { return a.second < b.second; });
  Seconds all;
  for (const auto& [name, part] : parts) {
    all += part;
  }
  const auto share = [all](Seconds part) { return all > Seconds{} ? part / all : 0; };
  const bool of_two = most->second == show.path_compute || most->second == show.path_host;
  constexpr double kLittle = 0.02;
  if (of_two && std::min(show.half_compute, show.half_host) > -kLittle) {
    show.bound = "compute and host alike";
    show.bound_share = share(show.path_compute + show.path_host);
    return;
  }
  if (of_two && show.half_compute != show.half_host) {
    most = parts.begin() + (show.half_host < show.half_compute ? 1 : 0);
  }
  show.bound = most->first;
  show.bound_share = share(most->second);
}

/// For all steps back to back: the part of the path that lies in those that count.
void add_critical_path(const traces::MeasuredRun& run, std::size_t first,
                       std::map<NamedKind, MeasuredKernel>& kernels, MeasuredShow& show) {
  const traces::MeasuredStep& last = *run.chain();
  simulator::Timeline timeline;
  const simulator::StepCosts costs = measured_costs(run, {&last, 1});
  simulator::simulate(*last.graph, costs, {}, &timeline);
  const simulator::CriticalPath path = simulator::critical_path(*last.graph, costs, timeline);
  const StepTimes recorded(last), replayed(last, timeline);
  show.replay_error = replayed.step() / recorded.step() - 1;
  const double share = 1.0 / static_cast<double>(replayed.steps() - first);
  const std::int64_t from = replayed.of_run()[first], to = replayed.of_run().back();
  const auto within = [&](const simulator::CriticalPath::Piece& p) {
    return of_ticks(std::max<std::int64_t>(
               0, std::min(to, ticks(p.end)) - std::max(from, ticks(p.begin)))) *
           share;
  };
  for (const simulator::CriticalPath::Piece& p : path.pieces) {
    using Part = simulator::CriticalPath::Part;
    Seconds& part = p.part == Part::kHost       ? show.path_host
                    : p.part == Part::kCompute  ? show.path_compute
                    : p.part == Part::kTransfer ? show.path_transfer
                                                : show.path_gap;
    part += within(p);
  }
  add_bound(last, costs, show);
  const auto kernel_of = [&](std::int32_t rank, OpRef ref) {
    const Program& program = last.graph->program_of(rank);
    const Op& op = program.ops[ref.op];
    const auto found = kernels.find({program.name(op), op.kind});
    return found == kernels.end() ? nullptr : &found->second;
  };
  for (const simulator::CriticalPath::Piece& p : path.pieces) {
    MeasuredKernel* k = is_op(p) ? kernel_of(p.rank, p.ref) : nullptr;
    if (k != nullptr) {
      k->on_critical_path += within(p);
    }
  }
  std::map<const MeasuredKernel*, bool> seen;
  for (std::size_t i = 0; i < timeline.ops().size(); ++i) {
    const OpSpan& span = timeline.ops()[i];
    const auto& rank = last.ranks[static_cast<std::size_t>(span.rank)];
    MeasuredKernel* k =
        traces::step_of(rank, span.ref.op) > first ? kernel_of(span.rank, span.ref) : nullptr;
    if (k != nullptr) {
      const Seconds slack = to_seconds(path.slack[i]);
      k->slack = seen[k] ? std::min(k->slack, slack) : slack;
      seen[k] = true;
    }
  }
}

}  // namespace

MeasuredShow show_measured(const traces::MeasuredRun& run, std::int32_t skip) {
  MeasuredShow show;
  const StepTimes times(*run.chain());
  const std::size_t first =
      std::max(times.first_counted(), static_cast<std::size_t>(std::max(0, skip)));
  if (first >= times.steps()) {
    throw InputError("--skip", fmt::format("{} leaves none of {} steps", skip, times.steps()));
  }
  const double weight = 1.0 / static_cast<double>(times.steps() - first);
  std::map<NamedKind, MeasuredKernel> kernels;
  for (std::size_t r = 0; r < run.chain()->ranks.size(); ++r) {
    StreamUse& use = show.ranks.emplace_back();
    use.rank = static_cast<std::int32_t>(r);
    const std::vector<std::int64_t>& ends = times.of_rank(r);
    const internal::SpansByTime spans(run.chain()->ranks[r].spans);
    for (std::size_t s = first; s < times.steps(); ++s) {
      add_step(window_of(*run.chain(), r, spans, ends[s], ends[s + 1]), use, weight);
    }
  }
  add_kernels(*run.chain(), kernels, first, weight);
  add_critical_path(run, first, kernels, show);
  for (auto& [key, kernel] : kernels) {
    show.kernels.push_back(std::move(kernel));
  }
  std::stable_sort(
      show.kernels.begin(), show.kernels.end(),
      [](const MeasuredKernel& a, const MeasuredKernel& b) { return a.time > b.time; });
  return show;
}

AnnotatedStep annotated_step(const traces::MeasuredRun& run) {
  const traces::MeasuredStep& replayed = run.steps.back();
  const StepView view = std::move(step_views(run).back());
  AnnotatedStep step{replayed.graph, {}, {}};
  const simulator::StepCosts costs = measured_costs(run, {&replayed, 1});
  simulator::Timeline timeline;
  simulator::simulate(*replayed.graph, costs, {}, &timeline);
  std::set<std::pair<std::int32_t, OpRef>> critical;
  for (const auto& piece : simulator::critical_path(*replayed.graph, costs, timeline).pieces) {
    if (is_op(piece)) {
      critical.emplace(piece.rank, piece.ref);
    }
  }
  for (std::size_t r = 0; r < view.ranks.size(); ++r) {
    const auto rank = static_cast<std::int32_t>(r);
    const Program& program = replayed.graph->program_of(rank);
    const Window window{program, view.ranks[r].ran, view.ranks[r].begin, view.ranks[r].end};
    annotate_idle(window, rank, step.annotations);
    std::vector<const OpSpan*> on_path;
    for (const OpSpan& s : window.spans) {
      step.spans.push_back(s);
      if (critical.contains({rank, s.ref})) {
        on_path.push_back(&s);
      }
    }
    std::stable_sort(on_path.begin(), on_path.end(),
                     [](const OpSpan* a, const OpSpan* b) { return a->begin < b->begin; });
    SimTime at{};
    for (const OpSpan* s : on_path) {  // ops of several streams may overlap as recorded
      const SimTime begin = std::max(at, std::max(s->begin, s->ready));
      if (s->end > begin) {
        step.annotations.push_back(
            {rank, "critical path", program.name(program.ops[s->ref.op]), begin, s->end});
        at = s->end;
      }
    }
  }
  return step;
}

}  // namespace stepcast::studies
