#include "runtime/trainer.h"
#include "studies/run/executable.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "cli/command.h"
#include "cli/print/human.h"
#include "cli/print/report.h"
#include "cli/support/checks.h"
#include "cli/support/console.h"
#include "cli/support/cuda_backend.h"
#include "cli/support/launch_ranks.h"
#include "cli/support/output_files.h"
#include "cli/support/progress.h"
#include "cli/version.h"
#include "core/config/config.h"
#include "core/error.h"
#include "core/graph/step_traffic.h"
#include "planner/embedding/ledger.h"
#include "runtime/cuda/backend.h"
#include "studies/fit/error_statistics.h"
#include "studies/plan/searched_plan.h"
#include "studies/run/recorded_run.h"
#include "workloads/build_graph.h"
#include "workloads/embedding_plan/embedding_tiers.h"
#include "workloads/embedding_plan/plan.h"

namespace stepcast::cli {
namespace {

struct RunCommand {
  JobOptions job;
  std::string backend = "cpu", trace, emulate, data, op_clock = "auto";
  int ranks = 0;
  std::int64_t steps = 20, warmup = 3;
  std::uint64_t seed = 0;
  double timeout = 20;
  bool cuda_graph = false;
};

double mean_step(const std::vector<double>& steps) {
  return std::accumulate(steps.begin(), steps.end(), 0.0) / static_cast<double>(steps.size());
}

std::vector<double> seconds_of(const runtime::RunResult& result) {
  std::vector<double> v;
  for (const runtime::StepRecord& s : result.steps) {
    v.push_back(s.time.base());
  }
  return v;
}

/// Bytes that the plan's ledger allows the fullest rank in its own memory; 0 without a plan.
/// The CPU's ranks keep every number in four bytes, so they are held to the ledger of that job.
double ledger_bytes(const Job& job) {
  if (job.workload.layered() == nullptr || job.workload.layered()->tables.empty()) {
    return 0;
  }
  Job stored = job;
  stored.formats = {.compute = Format::kFp32};
  const LayeredWorkload& w = *job.workload.layered();
  for (EmbeddingTable& t : std::get<LayeredWorkload>(stored.workload.model).tables) {
    t.format.reset();
  }
  EmbeddingPlan plan = workloads::resolved_embedding_plan(stored);
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    for (PlanShard& s : plan.tables[t].shards) {  // caches of as many rows
      const std::int64_t columns = s.columns[1] - s.columns[0];
      s.cache_bytes *=
          workloads::cached_row_bytes(stored, stored.workload.layered()->tables[t], columns) /
          workloads::cached_row_bytes(job, w.tables[t], columns);
    }
  }
  double most = 0;
  for (const LedgerLine& line : planner::ledger_of(stored, plan)) {
    most = std::max(most, line.tier == "hbm" ? line.total() : 0);
  }
  return most;
}

/// Kinds that either side has bytes of.
std::vector<TrafficKind> kinds_of(const StepTraffic& counted, const StepTraffic& predicted) {
  std::vector<TrafficKind> kinds;
  for (std::size_t k = 0; k < kTrafficKinds; ++k) {
    const auto kind = static_cast<TrafficKind>(k);
    if (counted.total(kind) + predicted.total(kind) > 0) {
      kinds.push_back(kind);
    }
  }
  return kinds;
}

/// Bytes that a run moves between memory tiers, and those expected of it.
struct Expected {
  StepTraffic sent;
  std::map<std::string, RowTraffic> tiers;
};

/// Bytes of one step over all ranks, as counted and as the graph expects them.
void add_traffic(const StepTraffic& counted, const StepTraffic& predicted, Report& report) {
  const auto kinds = kinds_of(counted, predicted);
  report.list("traffic");
  Columns<TrafficKind> columns{{"kind", "sent per step", [](auto& kind) { return name_of(kind); }}};
  for (std::size_t level = 0; level < counted.levels.size(); ++level) {
    for (const auto& [name, traffic] : {std::pair(counted.levels[level], &counted),
                                        std::pair(std::string("predicted"), &predicted)}) {
      columns.emplace_back("bytes", name, [level, of = traffic](const TrafficKind& kind) {
        return Bytes(of->at(kind, level));
      });
    }
  }
  if (!kinds.empty()) {
    report.line();
    report.add(table_of("traffic", "", columns, kinds, kInText));
  }
  for (const TrafficKind kind : kinds) {
    for (std::size_t level = 0; level < counted.levels.size(); ++level) {
      report.item("traffic", {{"kind", name_of(kind)},
                              {"level", counted.levels[level]},
                              {"counted_bytes", counted.at(kind, level)},
                              {"predicted_bytes", predicted.at(kind, level)}});
    }
  }
}

/// Rows of a slower tier in one step over all ranks.
struct TierRow {
  std::string title;
  RowTraffic of;
};

Columns<TierRow> tier_columns() {
  using R = TierRow;
  const auto counted = [](double n) { return Cell{count(n), n}; };
  return {{"", "tier, per step", &R::title, kInText},
          {"lookups", "", [counted](auto& r) { return counted(r.of.lookups); }},
          {"distinct_rows", "distinct rows", [counted](auto& r) { return counted(r.of.touched); }},
          {"fetched_rows", "fetched", [counted](auto& r) { return counted(r.of.fetched); }},
          {"written_rows", "", [](auto& r) { return code(r.of.written); }, kInJson},
          {"", "hit rate",
           [](auto& r) { return percent(r.of.lookups > 0 ? 1 - r.of.fetched / r.of.lookups : 0); },
           kInText},
          {"fetched_bytes", "read", [](auto& r) { return Bytes(r.of.fetched_bytes); }},
          {"written_bytes", "written", [](auto& r) { return Bytes(r.of.written_bytes); }}};
}

/// Adds tiers as counted and as expected of these steps.
void add_tiers(const runtime::RunResult& r, const Expected& expected, Report& report) {
  if (r.tiers.empty()) {
    return;
  }
  const Columns<TierRow> columns = tier_columns();
  const auto json = [&](const TierRow& row) {
    return table_of("", "", columns, std::vector{row}).json().front();
  };
  std::vector<TierRow> rows;
  for (const auto& [tier, use] : r.tiers) {
    const auto at = expected.tiers.find(tier);
    rows.push_back({tier, use.step});
    rows.push_back({"  predicted", at == expected.tiers.end() ? RowTraffic{} : at->second});
    report.item("tiers", {{"tier", tier},
                          {"allocated_bytes", use.allocated.base()},
                          {"counted", json(*(rows.end() - 2))},
                          {"predicted", json(rows.back())}});
  }
  report.line();
  report.add(table_of("tiers", "", columns, rows, kInText));
}

DataTable steps_table(const std::vector<runtime::StepRecord>& steps, Visibility look) {
  using S = runtime::StepRecord;
  return table_of(
      "steps", "",
      Columns<S>{{"step", "", &S::step},
                 {"loss", "", [](auto& s) { return decimal(s.loss, 5); }},
                 {"time_s", "time", &S::time},
                 {"involuntary_switches", "", &S::involuntary_switches, kInJson | kInCsv}},
      steps, look);
}

/// The steps people read: about ten of them, and the last.
std::vector<runtime::StepRecord> some_of(const std::vector<runtime::StepRecord>& steps) {
  std::vector<runtime::StepRecord> some;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (i % std::max<std::size_t>(1, steps.size() / 10) == 0 || i + 1 == steps.size()) {
      some.push_back(steps[i]);
    }
  }
  return some;
}

Report report_of(const Job& job, const runtime::RunResult& r, const Expected& predicted,
                 OutputFormat format) {
  const std::vector<double> t = seconds_of(r);
  const double median = quantile_of(t, 0.5), p5 = quantile_of(t, 0.05), p95 = quantile_of(t, 0.95);
  Report report(format);
  report.add(steps_table(some_of(r.steps), kInText));
  report.fact("job", [&] { return Json::parse(config::job_to_json(job)); }).fact("ranks", r.ranks);
  report.fact("step_time_s",
              {{"median", median}, {"p5", p5}, {"p95", p95}, {"mean", mean_step(t)}});
  report.line(fmt::format(
      "\n{} on {} ranks: median {} per step (p5 {}, p95 {}), {} steps after {} of warm-up",
      job.workload.name, r.ranks, human(seconds(median)), human(seconds(p5)), human(seconds(p95)),
      r.steps.size(), r.warmup.size()));
  if (job.sync_interval > 1) {
    report.line(fmt::format("mean {} per step: replicas are synchronised every {} steps",
                            human(seconds(mean_step(t))), job.sync_interval));
  }
  report.facts(
      {{"allocated_bytes", r.allocated.base()}, {"peak_resident_bytes", r.peak_resident.base()}});
  report.line(fmt::format("tensors {} on the fullest rank, process {}", human(r.allocated),
                          human(r.peak_resident)));
  if (r.traffic) {
    add_traffic(*r.traffic, predicted.sent, report);
  }
  add_tiers(r, predicted, report);
  if (!r.attention.empty()) {
    report.fact("attention", {{"kernels", r.attention}});
  }
  if (!r.epilogues.kernels.empty()) {
    report.fact("epilogues", {{"kernels", r.epilogues.kernels}, {"reason", r.epilogues.reason}});
  }
  report.add(steps_table(r.steps, kInJson | kInCsv));
  return report;
}

/// The CUDA backend on this rank's device. Ranks that share one are told so: their times mean
/// nothing.
runtime::ExecutorFactory cuda_executors(const RunCommand& options, const Context& context,
                                        runtime::MpiSession& session) {
  const auto& module = cuda_module(context);
  const runtime::cuda::Probe probe = module.probe();
  std::vector<double> keys(static_cast<std::size_t>(session.size()), 0.0);
  keys[static_cast<std::size_t>(session.rank())] =
      runtime::cuda::device_key(probe, session.local_rank());
  const auto shared = runtime::cuda::shared_device_environment(
      probe.nccl, session.rank(), session.local_size(), session.sum(keys));
  for (const std::string& entry : shared) {
    const auto equals = entry.find('=');
    setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 0);
  }
  if (!shared.empty() && session.rank() == 0) {
    fmt::print(stderr,
               "stepcast: {} ranks share the devices of this machine: results are right, times "
               "mean nothing\n",
               session.size());
  }
  runtime::cuda::Options cuda;
  cuda.timeout = std::chrono::duration<double>(options.timeout);
  cuda.graph = options.cuda_graph;
  return runtime::cuda::executors(module, cuda);
}

void check_backend(const RunCommand& options, const Context& context) {
  if (options.backend == "cuda") {
    if (!options.emulate.empty()) {
      throw InputError("--emulate", "slows down collectives of --backend cpu only; leave it out");
    }
    // Asked before the ranks start, so that what is missing is told once.
    require_cuda(context);
  } else if (options.cuda_graph) {
    throw InputError("--cuda-graph", "needs --backend cuda");
  } else if (options.op_clock != "auto") {
    throw InputError("--op-clock", "needs --backend cuda");
  }
}

int train(const Job& job, const ExecutionGraph& graph, const RunCommand& options,
          const Context& context, runtime::MpiSession& session) {
  System emulated;
  runtime::RunOptions run_options;
  run_options.steps = options.steps;
  run_options.warmup = options.warmup;
  run_options.seed = options.seed;
  run_options.data_file = options.data;
  run_options.real_time = true;
  if (!options.emulate.empty()) {
    emulated = config::load_system(options.emulate, {context.library});
    run_options.emulate = &emulated;
  }
  studies::TraceOptions traced{.folder = options.trace,
                               .job = config::job_to_json(job),
                               .producer = std::string(kVersionText)};
  if (options.backend == "cuda") {
    if (!options.trace.empty()) {
      traced.clock = op_clock(options.op_clock, context, session);
    }
    run_options.executor = cuda_executors(options, context, session);
  }
  Progress progress(job.workload.name);
  run_options.on_step = [&](const runtime::StepRecord& s) {
    progress.update(static_cast<double>(s.step + 1),
                    static_cast<double>(options.steps + options.warmup),
                    fmt::format("loss {:.4f}", s.loss));
  };
  const runtime::RunResult result =
      options.trace.empty() ? runtime::run_training(graph, job.system, run_options, session)
                            : studies::run_traced(job, graph, run_options, session, traced);
  if (session.rank() == 0) {
    const double allowed = options.backend == "cpu" ? ledger_bytes(job) : 0;
    STEPCAST_CHECK(allowed == 0 || result.allocated.base() <= allowed,
                   "the fullest rank allocated {:.0f} bytes, the plan's ledger allows {:.0f}",
                   result.allocated.base(), allowed);
    // The CPU's ranks move four bytes of every number, whatever its format.
    Expected predicted{
        expected_traffic(graph, LinkLevels(options.emulate.empty() ? job.system : emulated), 4),
        {}};
    if (!result.tiers.empty()) {
      predicted.tiers = workloads::expected_tier_traffic(job, graph, options.warmup, options.steps,
                                                         options.backend == "cpu" ? 4 : 0);
    }
    if (options.backend == "cuda" && !options.trace.empty()) {
      fmt::print(stderr, "stepcast: op times are {}\n",
                 traced.clock.cupti != nullptr
                     ? "those of the device, as CUPTI recorded them"
                     : "those of CUDA events around each op: " + traced.clock.reason);
    }
    if (!result.attention.empty()) {
      fmt::print(stderr, "stepcast: attention by {}\n", result.attention);
    }
    if (const runtime::KernelUse& use = result.epilogues; !use.kernels.empty()) {
      fmt::print(stderr, "stepcast: epilogues by {}{}\n", use.kernels,
                 use.reason.empty() ? "" : " (" + use.reason + ")");
    }
    report_of(job, result, predicted, options.job.format).print(answer());
  }
  return 0;
}

int run(const RunCommand& options, Context& context) {
  check_backend(options, context);
  JobOptions job_options = options.job;
  if (options.ranks > 0) {
    job_options.overrides.push_back(fmt::format("devices={}", options.ranks));
  }
  // Read before the ranks start, so that a mistake in the job is told once.
  const config::Source source = job_source(job_options);
  const auto loaded = [&] {
    return studies::with_searched_plan(
        config::load_job(source, job_options.overrides, {context.library}));
  };
  const Job job = options.ranks > 0 ? inferred_as("--ranks", loaded) : loaded();
  studies::require_executable(job, options.backend == "cuda");
  const ExecutionGraph graph = workloads::build_graph(job);
  if (options.ranks == 0 && job.devices > 64) {
    throw InputError(
        "devices",
        fmt::format("{} ranks on this machine? Say so with --ranks, or set devices", job.devices));
  }
  const auto session = as_ranks(context, static_cast<int>(job.devices), options.timeout,
                                job_options.job == "-" ? source.text : std::string_view());
  if (session == nullptr) {
    return context.exit_code;
  }
  return as_one_rank(*session, [&] { return train(job, graph, options, context, *session); });
}

}  // namespace

void add_run(CLI::App& app, Context& context) {
  auto options = std::make_shared<RunCommand>();
  CLI::App* command =
      app.add_subcommand("run", "Really train on this machine's ranks: loss, step time, trace");
  add_job_options(*command, options->job);
  command->add_option("--backend", options->backend, "cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_flag("--cuda-graph", options->cuda_graph,
                    "Capture the step into one CUDA graph and replay it (--backend cuda)");
  command->add_option("--ranks", options->ranks, "Number of ranks; sets devices")
      ->check(CLI::Range(1, 4096));
  command->add_option("--steps", options->steps, "Steps to time")->check(CLI::Range(1, 1000000));
  command->add_option("--warmup", options->warmup, "Steps before them")
      ->check(CLI::Range(0, 1000000));
  command->add_option("--seed", options->seed, "Seed of the training data");
  command->add_option("--trace", options->trace, "Folder for a native trace of the run")
      ->check(output_folder());
  command
      ->add_option("--op-clock", options->op_clock,
                   "What times ops of a trace on devices: CUPTI, events around each op, or CUPTI "
                   "where it can be had")
      ->check(CLI::IsMember({"auto", "cupti", "events"}));
  command->add_option("--emulate", options->emulate,
                      "System whose fabric sets how fast collectives are");
  command->add_option(
      "--data", options->data,
      "Criteo TSV file (DLRM) or text file (transformer); drawn from the workload otherwise");
  command
      ->add_option("--timeout", options->timeout, "Seconds after which a collective counts as hung")
      ->check(CLI::Range(1.0, 3600.0));
  command->callback([options, &context] { context.exit_code = run(*options, context); });
}

}  // namespace stepcast::cli
