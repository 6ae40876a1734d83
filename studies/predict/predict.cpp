#include "studies/predict/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/access/access.h"
#include "core/clearly_less.h"
#include "core/error.h"
#include "core/job/tier_units.h"
#include "models/cost_model.h"
#include "simulator/intervals.h"
#include "simulator/reports/breakdown.h"
#include "studies/predict/context_choice.h"
#include "studies/predict/memory_fix.h"
#include "studies/predict/simulated_step.h"
#include "studies/predict/warnings.h"

namespace stepcast::studies {
namespace {

/// The same job with every table's rows equally likely: what a predictor knows that has not seen
/// the data.
Job without_distribution(Job job) {
  if (auto* dlrm = std::get_if<LayeredWorkload>(&job.workload.model)) {
    for (EmbeddingTable& table : dlrm->tables) {
      table.access = std::make_shared<Access>(Access::uniform(table.rows));
    }
  }
  return job;
}

/// The reasons why a step does not fit are its first warnings.
void reject(StepPrediction& p, std::string reason) {
  p.fits = false;
  p.fit = simulator::Fit::kNo;
  p.warnings.push_back(std::move(reason));
}

void fill_memory(StepPrediction& p, const ExecutionGraph& graph) {
  const Device& device = p.job.system.device;
  p.capacity = device.memory;
  p.ledger = simulator::fullest_ledger(graph, device);
  p.fullest_rank = p.ledger.rank;
  p.memory = memory_use(graph.program_of(p.fullest_rank));
  p.reserve = p.ledger.context + p.ledger.communicators + p.ledger.fragmentation;
  p.fit = simulator::fit_of(p.ledger.total(), device);
  if (p.fit == simulator::Fit::kNo) {
    reject(p, memory_reason(p.ledger, device));
  } else if (p.fit == simulator::Fit::kLikely) {
    p.warnings.push_back(tight_memory(p.ledger.total(), device));
  }
}

/// Rows of embedding tables, and what is offloaded, in slower memory: each unit of a tier has room
/// for its ranks'.
void check_tiers(StepPrediction& p, const ExecutionGraph& graph) {
  std::map<std::string, std::vector<Bytes>> held;
  for (const RankClass& of : graph.classes) {
    const Program& program = graph.programs[static_cast<std::size_t>(of.program)];
    for (std::size_t tier = 0; tier < program.tiers.size(); ++tier) {
      const Bytes bytes = held_in_tier(program, tier);
      auto& ranks = held[program.tiers[tier]];
      ranks.resize(static_cast<std::size_t>(graph.ranks()));
      for (const std::int32_t rank : of.ranks) {
        ranks[static_cast<std::size_t>(rank)] = bytes;
      }
    }
  }
  for (const auto& [name, ranks] : held) {
    const auto tier = tier_named(p.job.system, name);
    const auto excess = tier ? tier_excess(*tier, ranks) : std::nullopt;
    if (excess) {
      reject(p, fmt::format("out of memory: tier {} needs {:.3g} of {:.3g} GB", name,
                            excess->held.base() * 1e-9, excess->capacity.base() * 1e-9));
    }
  }
}

/// Without padding.
double tokens_of_a_sequence(const Job& job) {
  const auto& lengths = job.sequence_lengths;
  return lengths && !lengths->packed ? lengths->mean : static_cast<double>(job.batch.sequence);
}

void fill_rates(StepPrediction& p, const ExecutionGraph& graph) {
  const double seconds = p.iteration.base();
  const Job& job = p.job;
  p.samples_per_second = static_cast<double>(job.batch.global) / seconds;
  p.tokens_per_second =
      job.workload.transformer() != nullptr ? p.samples_per_second * tokens_of_a_sequence(job) : 0;
  p.flops = workloads::step_flops(job, &graph);
  p.peak_format = job.formats.compute;
  if (const auto peak = job.system.device.peak_of(job.formats.compute)) {
    const Flops available = p.iteration * *peak * static_cast<double>(job.devices);
    p.mfu = p.flops.model / available;
    p.mfu_causal = p.flops.model_causal / available;
    p.hfu = p.flops.hardware / available;
  }
}

/// Ops outside the calibrated range that take no more of a row's time leave it in range.
constexpr double kSlightShare = 0.01;

/// Rows of the critical rank, with the reason of the longest op template behind each.
std::vector<OpRow> rows_of(const simulator::Timeline& timeline, const ExecutionGraph& graph,
                           const simulator::StepCosts& costs, const simulator::RankSummary& of,
                           bool by_name) {
  const std::int32_t rank = of.rank;
  const Program& program = graph.program_of(rank);
  const auto instance = costs.folding.instance_of.at(static_cast<std::size_t>(rank));
  const simulator::OpCosts& costed = costs.ops[static_cast<std::size_t>(instance)];
  const std::vector<TemplateTime> templates =
      template_times(timeline, program, rank, of.repetition);
  std::map<std::string, std::pair<OpRow, Seconds>> rows;
  for (std::size_t o = 0; o < templates.size(); ++o) {
    const TemplateTime& s = templates[o];
    if (s.executions == 0) {
      continue;
    }
    const Op& op = program.ops[o];
    auto& [row, longest] = rows[row_name(program, op, by_name)];
    row.kind = name_of(op.kind);
    row.executions += s.executions;
    row.time += s.time;
    row.wait += s.wait;
    const simulator::OpReason& reason = costed.reason[o];
    row.overhead += std::min(Seconds(reason.overhead) * static_cast<double>(s.executions), s.time);
    if (!clearly_less(s.time, longest)) {
      longest = s.time;
      row.bound = reason.bound;
      row.model = costed.model[o] < 0 ? std::string()
                                      : costs.models[static_cast<std::size_t>(costed.model[o])];
    }
    row.outside += reason.in_range ? Seconds{} : s.time;
  }
  std::vector<OpRow> sorted;
  for (auto& [name, entry] : rows) {
    entry.first.name = name;
    entry.first.in_range = entry.first.outside <= kSlightShare * entry.first.time;
    sorted.push_back(std::move(entry.first));
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const OpRow& a, const OpRow& b) {
    return clearly_less(b.time + b.wait, a.time + a.wait);
  });
  return sorted;
}

/// Share of the time of a rank's ops: from models that say nothing of their error.
double share_without_error(const simulator::Timeline& timeline, const simulator::StepCosts& costs,
                           const simulator::RankSummary& of) {
  const std::int32_t rank = of.rank;
  const auto instance = costs.folding.instance_of.at(static_cast<std::size_t>(rank));
  const std::vector<float>& sigma = costs.ops[static_cast<std::size_t>(instance)].log_sigma;
  std::int64_t all = 0, without = 0;
  for (const OpSpan& s : timeline.ops()) {
    if (s.rank == rank) {
      const std::int64_t time = of.repetition.count(s.begin) * (ticks(s.end) - ticks(s.ready));
      all += time;
      without += sigma[s.ref.op] > 0 ? 0 : time;
    }
  }
  return all > 0 ? static_cast<double>(without) / static_cast<double>(all) : 0;
}

/// Share of the time of all ops that is extrapolated; they may overlap.
double share_outside(const std::vector<OpRow>& rows) {
  Seconds all, outside;
  for (const OpRow& row : rows) {
    all += row.time;
    outside += row.outside;
  }
  return all > Seconds{} ? outside / all : 0;
}

/// Extrapolated share of a step's op time that a decision may rest on: more is warned of.
constexpr double kMostExtrapolated = 0.25;

SimTime busy(const simulator::RankSummary& r) { return SimTime{ticks(r.end) - ticks(r.wait)}; }

/// The slowest rank if no rank waited for another.
SimTime without_waits(const simulator::SimulationResult& result) {
  std::int64_t longest = 0;
  for (const simulator::RankSummary& r : result.ranks) {
    longest = std::max(longest, ticks(busy(r)));
  }
  return SimTime{longest};
}

TimeSplit split_of(const simulator::Breakdown& parts) {
  return {to_seconds(parts.compute), to_seconds(parts.exposed_communication),
          to_seconds(parts.bubble), to_seconds(parts.host), to_seconds(parts.other)};
}

/// Interval of the models' residuals, no narrower than steps of software that was not looked at lie
/// about predictions.
Interval interval_of(const Job& job, Seconds step, const simulator::StepInterval& ops) {
  Interval interval{ops.p5, ops.p95};
  const auto spread = job.system.fitted.find("transformer_step");
  if (spread == job.system.fitted.end() || job.workload.transformer() == nullptr ||
      job.phase != JobPhase::kTrain || job.calibration.kind == Calibration::Kind::kNone) {
    return interval;
  }
  const bool scaled = job.calibration.kind == Calibration::Kind::kScale;
  const auto factor = [&](const char* plain, const char* after_one_row) {
    return std::exp(spread->second.constants.at(scaled ? after_one_row : plain));
  };
  interval.p5 = std::min(interval.p5, step * factor("low", "low_scaled"));
  interval.p95 = std::max(interval.p95, step * factor("high", "high_scaled"));
  return interval;
}

/// No step is faster than this share of the peak allows: no published run comes near it.
constexpr double kMostMfu = 0.9;

/// Least time of a training step of a transformer on a GPU; 0 of other jobs.
Seconds least_step(const Job& job, const ExecutionGraph& graph) {
  const auto& peaks = job.system.device.peak;  // a CPU has none in 16 bits
  const bool trains = plan_family(job) && job.phase == JobPhase::kTrain &&
                      (peaks.contains(Format::kBf16) || peaks.contains(Format::kFp16));
  const auto peak = job.system.device.peak_of(job.formats.compute);
  if (!trains || !peak || job.calibration.kind != Calibration::Kind::kAuto) {
    return {};
  }
  // For causal attention: what a device computes at least.
  return Seconds{workloads::step_flops(job, &graph).model_causal.base() /
                 (static_cast<double>(job.devices) * peak->base() * kMostMfu)};
}

/// The simulated step brought to the efficiency of such runs, its split with it, and between what
/// nine of ten steps lie.
void take_efficiency(StepPrediction& p, const ExecutionGraph& graph) {
  p.efficiency = efficiency_of(p.job);
  const double efficiency = p.efficiency ? p.efficiency->factor : 1;
  const Seconds least = least_step(p.job, graph);
  const auto at = [&](double factor) { return std::max(p.hardware * factor, least); };
  if (p.hardware * efficiency < least) {
    p.warnings.push_back(
        fmt::format("the step is set to {:.0f} % of the peak: no published run is faster than that",
                    100 * kMostMfu));
  }
  p.iteration = at(efficiency);
  if (p.efficiency) {
    p.interval = Interval{at(p.efficiency->low), at(p.efficiency->high)};
  }
  if (p.iteration == p.hardware) {
    return;
  }
  const double slower = p.iteration / p.hardware;
  const auto stretch = [slower](TimeSplit& split) {
    for (Seconds* part :
         {&split.compute, &split.exposed_communication, &split.bubble, &split.host, &split.other}) {
      *part = *part * slower;
    }
  };
  stretch(p.split);
  if (p.busiest) {
    stretch(p.busiest->split);
  }
}

}  // namespace

Seconds expected_step(const Job& job, const ExecutionGraph& graph, Seconds hardware) {
  const auto efficiency = efficiency_of(job);
  return std::max(hardware * (efficiency ? efficiency->factor : 1), least_step(job, graph));
}

Bytes reserve_of(const Job& job) {
  const TransformerWorkload* model = job.workload.transformer();
  return simulator::framework_memory(job.system.device, {}, {}, model != nullptr && model->moe)
      .context;
}

StepPrediction predict(const Job& job, const PredictOptions& options) {
  const Job seen = settled(options.data_distribution ? job : without_distribution(job));
  return predict(seen, workloads::build_graph(seen), options);
}

StepPrediction predict(const Job& job, const ExecutionGraph& graph, const PredictOptions& options) {
  const models::CostModel model(job.system, job.calibration);
  return predict(job, graph, simulate_account(graph, model, options.host_cost), options);
}

StepPrediction predict(const Job& job, const ExecutionGraph& graph, const SimulatedStep& step,
                       const PredictOptions& options) {
  StepPrediction p;
  p.job = job;
  const simulator::StepCosts& costs = step.costs;
  const simulator::SimulationResult& result = step.result;
  const SimTime makespan = options.rendezvous ? result.makespan : without_waits(result);
  p.hardware = to_seconds(makespan);
  p.iteration = p.hardware;
  p.all_in_range = costs.in_range;
  p.executed_ops = result.ops;
  p.critical_rank = result.ranks.at(result.critical).rank;

  // The critical rank op by op, and who kept it waiting: as simulated, or once more.
  const std::vector<std::int32_t> ranks = accounted(result);
  const bool kept =
      !options.timeline && std::all_of(ranks.begin(), ranks.end(), [&](std::int32_t rank) {
        return std::count(step.followed.begin(), step.followed.end(), rank) > 0;
      });
  simulator::Timeline once_more;
  simulator::SimulationResult told = result;
  if (!kept) {
    simulator::SimulationOptions simulation;
    simulation.steady = !options.timeline;
    simulation.known = &result;
    if (!options.timeline) {
      once_more = simulator::Timeline(graph, ranks);
    }
    told = simulator::simulate(graph, costs, simulation, &once_more);
  }
  const simulator::Timeline& timeline = kept ? step.spans : once_more;
  const simulator::RankSummary& critical = told.ranks.at(told.critical);
  const simulator::Timeline apart =
      options.timeline ? timeline.of(critical.rank) : simulator::Timeline();
  const simulator::Timeline& own = options.timeline ? apart : timeline;
  const auto split = [&](const simulator::RankSummary& rank, const simulator::Timeline& spans) {
    return split_of(simulator::breakdown(graph.program_of(rank.rank), spans, rank.rank,
                                         {.begin = SimTime{},
                                          .end = result.makespan,
                                          .rank_end = rank.end,
                                          .shares_core = costs.shares_core,
                                          .repetition = rank.repetition}));
  };
  p.split = split(critical, own);
  if (options.timeline) {
    p.timeline = timeline.ops();
  }
  if (options.intervals && !efficiency_of(job)) {
    if (const double guessed = share_without_error(own, costs, critical); guessed > 0.5) {
      p.warnings.push_back(fmt::format(
          "no interval: {:.0f} % of the op time of rank {} comes from models whose error "
          "was not measured",
          100 * guessed, critical.rank));
    } else {
      p.interval = interval_of(job, p.iteration, simulator::step_interval(graph, costs));
    }
  }
  p.by_kind = rows_of(own, graph, costs, critical, false);
  p.by_name = rows_of(own, graph, costs, critical, true);
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    const simulator::RankSummary& rank = *std::find_if(
        told.ranks.begin(), told.ranks.end(), [&](const auto& r) { return r.rank == ranks[i]; });
    const TimeSplit of = split(rank, timeline);
    const Seconds least = p.busiest ? p.busiest->split.bubble : p.split.bubble;
    if (of.bubble < least) {
      p.busiest = RankAccount{rank.rank, of, rows_of(timeline, graph, costs, rank, false),
                              rows_of(timeline, graph, costs, rank, true)};
    }
  }
  p.extrapolated = share_outside(p.busiest ? p.busiest->by_kind : p.by_kind);
  take_efficiency(p, graph);
  // Whole steps that were measured on such GPUs have the kernels that nobody measured alone.
  p.in_calibrated_range =
      p.extrapolated <= kMostExtrapolated || (p.efficiency && p.efficiency->generation);
  fill_memory(p, graph);
  check_tiers(p, graph);
  fill_rates(p, graph);
  for (std::string& warning : warnings_of(p)) {
    p.warnings.push_back(std::move(warning));
  }
  return p;
}

}  // namespace stepcast::studies
