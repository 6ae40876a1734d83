#include "runtime/trainer.h"
#include "studies/run/executable.h"

#include <fmt/ostream.h>

#include <algorithm>
#include <cstdlib>

#include "cli/command.h"
#include "cli/print/run_report.h"
#include "cli/support/checkpoints.h"
#include "cli/support/checks.h"
#include "cli/support/console.h"
#include "cli/support/cuda_backend.h"
#include "cli/support/launch_ranks.h"
#include "cli/support/output_files.h"
#include "cli/support/progress.h"
#include "cli/support/stage.h"
#include "cli/version.h"
#include "core/access/access.h"
#include "core/config/config.h"
#include "core/error.h"
#include "core/fnv1a.h"
#include "planner/embedding/ledger.h"
#include "runtime/cuda/backend.h"
#include "runtime/data/data_file.h"
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
  std::string checkpoint, resume;
  std::int64_t every = 0, keep = 0;
};

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

/// Warns where the fullest rank allocated more than the plan's ledger allows, and an alignment of
/// every tensor.
void compare_with_ledger(const Job& job, const ExecutionGraph& graph, Bytes allocated) {
  constexpr double kAlignment = 64;
  double slack = 0;
  for (const Program& program : graph.programs) {
    slack = std::max(slack, kAlignment * static_cast<double>(program.tensors.size()));
  }
  const double allowed = ledger_bytes(job);
  if (allowed > 0 && allocated.base() > allowed + slack) {
    answer().flush();
    fmt::print(
        notes(),
        "stepcast: warning: the fullest rank allocated {:.0f} bytes, the plan's ledger allows "
        "{:.0f}\n",
        allocated.base(), allowed);
  }
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

/// All that training follows from. Laws of the tables stand for files of lookups, whose names may
/// be the same and their contents not.
std::vector<SharedFact> shared_facts(const Job& job, const ExecutionGraph& graph,
                                     const RunCommand& options, const RunFacts& run,
                                     const std::optional<System>& emulated) {
  std::vector<SharedFact> facts{{"the job", config::job_to_json(job, -1), true},
                                {"--seed", fmt::format("{}", options.seed)},
                                {"--steps", fmt::format("{}", options.steps)},
                                {"--warmup", fmt::format("{}", options.warmup)},
                                {"--backend", options.backend},
                                {"--trace", options.trace.empty() ? "not given" : "given"},
                                {"--emulate", options.emulate},
                                {"the file of --data", run.data},
                                {"--checkpoint", options.checkpoint},
                                {"--every", fmt::format("{}", options.every)},
                                {"--keep", fmt::format("{}", options.keep)},
                                {"--resume", options.resume}};
  if (emulated) {
    facts.push_back({"the system of --emulate", config::system_to_json(*emulated, -1), true});
  }
  for (const EmbeddingTable& table : graph.inputs.tables) {
    std::string law;
    for (std::int64_t k = 1; table.access != nullptr && k < table.rows; k *= 2) {
      law += fmt::format("{} {} ", table.access->cdf(static_cast<double>(k)).value,
                         table.access->row_of_rank(k));
    }
    facts.push_back({"the access law of table " + table.name, fmt::format("{:016x}", fnv1a(law))});
  }
  return facts;
}

RunFacts facts_of(const RunCommand& options) {
  RunFacts facts{.seed = options.seed, .data = {}};
  if (!options.data.empty()) {
    const runtime::DataFile file(options.data);
    facts.data = fmt::format("{} bytes of hash {:016x}", file.text().size(), fnv1a(file.text()));
  }
  return facts;
}

void check_checkpoints(const RunCommand& options, const Job& job, const ExecutionGraph& graph) {
  if (options.checkpoint.empty() != (options.every == 0)) {
    throw InputError(options.every == 0 ? "--every" : "--checkpoint",
                     "is missing: --checkpoint DIR --every STEPS");
  }
  if (options.keep > 0 && options.checkpoint.empty()) {
    throw InputError("--keep", "needs --checkpoint DIR --every STEPS");
  }
  const bool saved = options.every > 0 || !options.resume.empty();
  const bool tiers = std::any_of(graph.programs.begin(), graph.programs.end(),
                                 [](const Program& p) { return !p.tiers.empty(); });
  if (saved && tiers && options.backend != "cpu") {
    throw InputError(options.every > 0 ? "--checkpoint" : "--resume",
                     "rows in slower memory are saved by --backend cpu only; place all rows in "
                     "device memory, or leave it out");
  }
  if (options.every % job.sync_interval != 0) {
    throw InputError("--every",
                     fmt::format("{} is no multiple of the {} steps after which replicas are the "
                                 "same (embedding.sync_interval)",
                                 options.every, job.sync_interval));
  }
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
          const RunFacts& facts, const std::optional<System>& emulated, const Context& context,
          runtime::MpiSession& session) {
  runtime::RunOptions run_options;
  run_options.steps = options.steps;
  run_options.warmup = options.warmup;
  run_options.seed = options.seed;
  run_options.data_file = options.data;
  run_options.real_time = true;
  run_options.checkpoint = {
      .folder = options.checkpoint,
      .every = std::max<std::int64_t>(1, options.every),
      .keep = options.keep,
      .manifest = [&](std::int64_t step) { return checkpoint_manifest(job, facts, step); }};
  if (!options.resume.empty()) {
    run_options.resume = runtime::latest_checkpoint(options.resume);
    run_options.first_step = checkpoint_step(run_options.resume, job, facts);
    if (session.rank() == 0) {
      fmt::print(notes(), "stepcast: {} steps were done; going on from {}\n",
                 run_options.first_step, run_options.resume.string());
    }
  }
  run_options.emulate = emulated ? &*emulated : nullptr;
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
  std::optional<Stage> setting_up;
  if (session.rank() == 0) {
    setting_up.emplace(job.workload.name,
                       fmt::format("{} ranks fill their tensors", session.size()));
  }
  run_options.on_step = [&](const runtime::StepRecord& s) {
    setting_up.reset();
    progress.update(static_cast<double>(s.step + 1 - run_options.first_step),
                    static_cast<double>(options.steps + options.warmup),
                    fmt::format("loss {:.4f}", s.loss));
  };
  const runtime::RunResult result =
      options.trace.empty() ? runtime::run_training(graph, job.system, run_options, session)
                            : studies::run_traced(job, graph, run_options, session, traced);
  if (session.rank() == 0) {
    // The CPU's ranks move four bytes of every number, whatever its format.
    RunTraffic predicted{
        expected_traffic(graph, LinkLevels(emulated.value_or(job.system)), 4),
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
    Report report = run_report(job, result, predicted, options.job.format);
    add_checkpoints(job, result, options.every, report);
    report.print(answer());
    if (options.backend == "cpu") {
      compare_with_ledger(job, graph, result.allocated);
    }
  }
  return 0;
}

int run(const RunCommand& options, Context& context) {
  check_backend(options, context);
  JobOptions job_options = options.job;
  if (options.ranks > 0) {
    job_options.overrides.push_back(fmt::format("devices={}", options.ranks));
  }
  std::optional<Stage> stage;
  if (speaks_for_ranks()) {
    stage.emplace("run", "reading the job and building its graph");
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
  check_checkpoints(options, job, graph);
  if (options.ranks == 0 && job.devices > 64) {
    throw InputError(
        "devices",
        fmt::format("{} ranks on this machine? Say so with --ranks, or set devices", job.devices));
  }
  const RunFacts facts = facts_of(options);
  const auto emulated =
      options.emulate.empty()
          ? std::nullopt
          : std::optional(system_of("--emulate", options.emulate, {context.library}));
  if (!options.resume.empty()) {
    checkpoint_step(runtime::latest_checkpoint(options.resume), job, facts);
  }
  stage.reset();
  const auto session = as_ranks(
      context, static_cast<int>(job.devices),
      {.timeout = std::chrono::duration<double>(options.timeout), .timeout_option = "--timeout"},
      job_options.job == "-" ? source.text : std::string_view());
  if (session == nullptr) {
    return context.exit_code;
  }
  return as_one_rank(*session, [&] {
    if (session->size() > 1) {
      require_agreement(*session, shared_facts(job, graph, options, facts, emulated));
    }
    return train(job, graph, options, facts, emulated, context, *session);
  });
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
      ->check(whole_number(1, 4096));
  command->add_option("--steps", options->steps, "Steps to time")->check(whole_number(1, 1000000));
  command->add_option("--warmup", options->warmup, "Steps before them")
      ->check(whole_number(0, 1000000));
  command->add_option("--seed", options->seed, "Seed of the training data")->check(whole_number(0));
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
  command->add_option("--checkpoint", options->checkpoint, "Folder that the state is saved in")
      ->check(output_folder());
  command->add_option("--every", options->every, "Steps from one checkpoint to the next")
      ->check(whole_number(1, 1000000));
  command->add_option("--keep", options->keep, "Checkpoints to keep, the latest; all otherwise")
      ->check(whole_number(1, 1000000));
  command->add_option("--resume", options->resume,
                      "Folder of checkpoints to go on from the latest of, or one of them");
  command
      ->add_option("--timeout", options->timeout, "Seconds after which a collective counts as hung")
      ->check(number_from(1.0, 3600.0));
  command->callback([options, &context] { context.exit_code = run(*options, context); });
}

}  // namespace stepcast::cli
