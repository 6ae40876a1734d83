#include "studies/plan/plan.h"

#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "cli/command.h"
#include "cli/plan_parallel.h"
#include "cli/print/drift.h"
#include "cli/print/print_embedding_plans.h"
#include "cli/print/replan.h"
#include "cli/support/checks.h"
#include "cli/support/console.h"
#include "cli/support/framework_export.h"
#include "cli/support/interrupt.h"
#include "cli/support/output_files.h"
#include "cli/support/output_options.h"
#include "cli/support/plan_export.h"
#include "cli/support/progress.h"
#include "cli/support/remap_file.h"
#include "core/config/config.h"
#include "core/config/default_framework.h"
#include "core/config/foreign.h"
#include "core/error.h"
#include "interop/torchrec/rules.h"
#include "planner/embedding/adapt_plan.h"
#include "planner/embedding/migration.h"
#include "studies/predict/predict.h"
#include "studies/predict/recipes.h"

namespace stepcast::cli {
namespace {

using studies::PlanReport;

/// And what only embedding plans have.
struct PlanCommand : ParallelPlanCommand {
  JobOptions job;
  std::string effort = "normal";
  std::uint64_t seed = 1;
  bool compare = false;
  bool no_row_replication = false;
  bool device_memory_only = false;
  std::int64_t sync_interval = 0;
  bool dedup = false;
  std::string from;
  std::string max_migrate;
  std::vector<std::string> drift;
  std::string remap_out;
};

constexpr std::string_view kPlanKey = "embedding.plan=";

/// Outputs requested in addition to the printed answer.
struct Results {
  std::vector<ExportedFile> files;
  std::vector<RowRemap> remaps;
};

/// Rejects what a format cannot express before anything is printed or written.
Results results(const PlanCommand& options, const Job& job, const EmbeddingPlan& plan) {
  Results r{exported_plan(options.export_as, job, plan), {}};
  if (!options.out.empty()) {
    r.files.insert(r.files.begin(), {options.out, config::plan_to_json(plan) + "\n"});
  }
  if (!options.remap_out.empty()) {
    r.remaps = row_remaps(job, plan);
    expect_remap_file(options.remap_out, r.remaps.size());
  }
  return r;
}

/// Last, so that a disk that fills up does not lose what the search found.
void write_results(const PlanCommand& options, const Results& results) {
  for (const ExportedFile& file : results.files) {
    write_output(file.path, file.text);
  }
  if (!results.remaps.empty()) {
    write_remaps(options.remap_out, results.remaps);
  }
}

/// Options of the other kind of plan are rejected, not ignored.
void reject(const CLI::App& command, std::initializer_list<const char*> names, const char* kind) {
  for (const char* name : names) {
    if (command.count(name) > 0) {
      throw InputError(name, fmt::format("belongs to {}; leave it out", kind));
    }
  }
}

/// The job's overrides, but for the plan in use.
std::vector<std::string> overrides_of(const PlanCommand& options) {
  std::vector<std::string> overrides = options.job.overrides;
  if (options.sync_interval > 0) {
    overrides.push_back(fmt::format("embedding.sync_interval={}", options.sync_interval));
  }
  if (options.dedup) {
    overrides.emplace_back("embedding.dedup=ikjt");
  }
  return overrides;
}

/// A plan is what the command looks for: one that is set is rejected, not ignored.
void reject_set_plan(const std::vector<std::string>& overrides) {
  for (const std::string& o : overrides) {
    const std::string value = o.starts_with(kPlanKey) ? o.substr(kPlanKey.size()) : "search";
    if (value != "auto" && value != "search") {
      throw InputError("--set embedding.plan",
                       fmt::format("found {}, but `plan` searches for the plan: --from FILE starts "
                                   "from one that is in use, `predict` prices one as it is",
                                   value));
    }
  }
}

/// Column parts of unpooled tables in TorchRec plans, whose widths have to be the same in all
/// tables of a collection, and so of one dim.
constexpr std::int64_t kUnpooledParts = 2;

/// An exported plan is chosen among those that the other system can carry out.
planner::PlanForm form_of(const PlanCommand& options, const Job& job) {
  planner::PlanForm form;
  if (!options.export_as.empty()) {
    const bool torchrec = options.export_as.starts_with("torchrec");
    form.row_split = torchrec ? Split::kBlock : Split::kStripe;
    form.column_parts = torchrec;
    form.machine_groups = torchrec;
    form.row_ranges = form.row_blocks = false;
    form.slow_tiers.emplace();
    if (torchrec) {
      form.column_multiple = interop::kTorchRecColumnMultiple;
      form.unpooled_parts = kUnpooledParts;
      form.unpooled_groups = interop::torchrec_sharding("table_row_wise")->unpooled;
      if (!job.system.host.shares_core) {  // kernels on the CPU have no other memory
        form.slow_tiers->emplace_back(interop::kTorchRecHostTier);
      }
    }
  }
  return form;
}

/// The plan in use, and the job with it: as it is where it is for the job's tables and devices,
/// else carried over.
struct PlanInUse {
  Job job;
  planner::AdaptedPlan adapted;
  std::optional<EmbeddingPlan> held;  ///< what was carried over
};

PlanInUse plan_in_use(const PlanCommand& options, const Job& job, const config::Source& source,
                      std::vector<std::string> overrides, const Context& context) {
  PlanInUse use;
  EmbeddingPlan held = config::load_plan(options.from, job, context.library);
  const auto& tables = job.workload.layered()->tables;
  const auto same = [&](const EmbeddingTable& t) {
    return planner::placed_table(held, t) != nullptr;
  };
  if (held.devices == job.devices && held.tables.size() == tables.size() &&
      std::all_of(tables.begin(), tables.end(), same)) {
    overrides.push_back(plan_override(options.from));
    use.job = config::load_job(source, overrides, {context.library});
    use.job.system.device.memory = job.system.device.memory;
    return use;
  }
  use.job = job;
  use.adapted = planner::adapted_plan(job, held);
  use.job.embedding_plan = use.adapted.plan;
  use.job.embedding_choice = options.from;
  use.job.embedding_dedup = job.embedding_dedup || held.dedup;
  use.job.sync_interval = std::max<std::int64_t>(job.sync_interval, held.sync_interval);
  use.held = std::move(held);
  return use;
}

studies::PlanOptions search_options(const PlanCommand& options, const Job& job) {
  studies::PlanOptions o;
  o.top = options.top;
  if (options.time_limit > 0) {
    o.time_limit = options.time_limit;
  }
  o.effort = options.effort == "quick"    ? studies::PlanEffort::kQuick
             : options.effort == "normal" ? studies::PlanEffort::kNormal
                                          : studies::PlanEffort::kThorough;
  o.seed = options.seed;
  o.row_tiers = !options.no_row_replication;
  o.slow_tiers = !options.device_memory_only;
  o.compare = options.compare;
  o.form = form_of(options, job);
  o.clock = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  return o;
}

/// The job of `--drift`, with the plan: a file of its own, or this one with other settings or
/// another workload.
Job drifted_job(const PlanCommand& options, const config::Source& source, Bytes memory,
                const Context& context) {
  const config::Library library{context.library};
  config::Source job = source;
  std::vector<std::string> overrides = overrides_of(options);
  for (const std::string& change : options.drift) {
    if (change.find('=') != std::string::npos) {
      overrides.push_back(change);
    } else if (std::filesystem::is_regular_file(change) &&
               config::holds_job(config::file_source(change), library)) {
      job = config::file_source(change);
    } else {
      overrides.push_back("workload=" + change);
    }
  }
  Job now = config::load_job(job, overrides, library);
  if (now.workload.layered() == nullptr) {
    throw InputError("--drift", fmt::format("'{}' has no embedding tables; give a job that has",
                                            now.workload.name));
  }
  now.system.device.memory = memory;
  return plan_in_use(options, now, job, overrides, context).job;
}

/// `--from`: the best plan within reach of the one in use.
int plan_from(const PlanCommand& options, const CLI::App& command, const Job& job,
              const config::Source& source, const Context& context) {
  reject(command,
         {"--compare", "--device-memory-only", "--sync-interval", "--dedup", "--time-limit",
          "--top", "--effort"},
         "a search from scratch, and --from asks for a plan near another one");
  const PlanInUse use = plan_in_use(options, job, source, overrides_of(options), context);
  studies::ReplanRequest request;
  request.seed = options.seed;
  request.form = form_of(options, job);
  request.row_tiers = !options.no_row_replication && request.form.row_ranges;
  request.in_use = use.held;
  if (!options.max_migrate.empty()) {
    request.max_bytes = bytes_option(options.max_migrate, "--max-migrate");
  }
  if (!options.drift.empty()) {
    const Job now = drifted_job(options, source, use.job.system.device.memory, context);
    const studies::DriftReport report = studies::drift(use.job, now, request);
    const Results files = results(options, now, report.replan.plan);
    print_drift(report, options.job.format);
    write_results(options, files);
    return 0;
  }
  const studies::ReplanReport report = studies::replan(use.job, request);
  const Results files = results(options, use.job, report.plan);
  print_replan(report, use.adapted, options.job.format);
  write_results(options, files);
  return 0;
}

/// Popularity decides where rows belong, and a list of tables need not say it.
void doubt_popularity(const LayeredWorkload& workload) {
  if (std::all_of(workload.tables.begin(), workload.tables.end(), [](const EmbeddingTable& t) {
        return t.access == nullptr || t.access->kind() == AccessKind::kUniform;
      })) {
    fmt::print(
        notes(),
        "stepcast: no table says which rows are popular, so all count as equally popular and "
        "none is worth a copy; a zipf column, or `access` of a table, says it\n");
  }
}

/// Repeats what a file says that the workload made of it does not.
void say_approximated(const config::Source& source, const std::string& name,
                      const config::Library& library) {
  if (const auto phrases = config::approximated(source, library); !phrases.empty()) {
    fmt::print(notes(), "stepcast: approximated in {}: {}\n", name, fmt::join(phrases, "; "));
  }
}

int plan(const PlanCommand& options, const CLI::App& command, const Context& context) {
  const config::Source source = job_source(options.job);
  const config::Library library{context.library};
  const auto load = [&](const std::vector<std::string>& more) {
    std::vector<std::string> overrides = overrides_of(options);
    overrides.insert(overrides.end(), more.begin(), more.end());
    return config::load_plan_request_on_framework(
        source, overrides, library, defaults_of(options.framework, options.export_as));
  };
  config::PlanRequestOnFramework on = load({});
  Job job = on.request.job;
  if (!on.rejected.empty()) {
    fmt::print(notes(), "stepcast: no framework is implied, as {}; steps are kernels alone\n",
               on.rejected);
  }
  if (const LayeredWorkload* dlrm = job.workload.layered();
      dlrm != nullptr && dlrm->tables.empty()) {
    throw InputError("job: workload",
                     fmt::format("'{}' has no embedding tables to place, and parallel plans are "
                                 "searched for transformers; compare degrees with sweep",
                                 job.workload.name));
  }
  if (job.workload.transformer() != nullptr) {
    reject(command,
           {"--seed", "--effort", "--compare", "--no-row-replication", "--device-memory-only",
            "--sync-interval", "--dedup", "--from", "--max-migrate", "--drift", "--remap-out"},
           "embedding plans, and the workload is a transformer");
    ParallelPlanCommand asked = options;
    if (!options.script.empty()) {
      asked.export_as = script_export(options.script, options.framework, on.framework);
    }
    const std::vector<std::string> batch =
        studies::dividing_batch(on.request, source, options.job.overrides, library);
    if (!batch.empty()) {
      const std::int64_t usual = job.batch.global;
      on = load(batch);
      fmt::print(notes(), "stepcast: global batch {}: the default, {}, does not divide\n",
                 on.request.job.batch.global, usual);
    }
    const studies::AsSet command_line_form = [&](const Job& plan) {
      std::vector<std::string> overrides = options.job.overrides;
      overrides.insert(overrides.end(), batch.begin(), batch.end());
      config::PlanAsSet as = config::plan_command_line(source, overrides, library, on, plan);
      as.settings.insert(as.settings.begin(), batch.begin(), batch.end());
      return as;
    };
    return plan_parallel(on, asked, command_line_form, options.job.format);
  }
  if (!options.script.empty()) {
    throw InputError("-o " + options.script,
                     "expected .json, .csv, .html or .txt; TorchRec and HugeCTR read what --export "
                     "torchrec=FILE and hugectr=FILE write");
  }
  reject(command, {"--jobs", "--front", "--same-devices", "--for", "--details"},
         "parallel plans, and the workload is a recommendation model");
  if (job.phase != JobPhase::kTrain) {
    throw InputError("phase",
                     "is inference, and plans of tables are searched for training steps; plan with "
                     "phase train, and predict that plan: --set embedding.plan=PLAN");
  }
  expect_exportable(options.export_as, job);
  if (job.workload.layered() != nullptr) {
    doubt_popularity(*job.workload.layered());
    say_approximated(source, job.workload.name, library);
  }
  reject_set_plan(options.job.overrides);
  if (job.embedding_chosen && job.embedding_choice != "auto" && job.embedding_choice != "search") {
    fmt::print(notes(),
               "stepcast: the job's own embedding.plan ({}) has no part in the search; --from FILE "
               "starts from a plan in use\n",
               job.embedding_choice);
  }
  job.embedding_choice = "auto";
  job.embedding_plan.reset();
  if (!options.remap_out.empty()) {
    expect_remap_file(options.remap_out, 1);
  }
  if (job.sync_interval > 1 && !options.export_as.empty()) {
    throw InputError("--export", fmt::format("replicas are synchronised every {} steps, and other "
                                             "systems do so in each; leave embedding.sync_interval "
                                             "out",
                                             job.sync_interval));
  }
  const Bytes whole = job.system.device.memory;
  job.system.device.memory -= Bytes(headroom_of(options.headroom, whole));
  if (!options.from.empty()) {
    return plan_from(options, command, job, source, context);
  }
  if (!options.drift.empty()) {
    throw InputError("--drift", "requires --from PLAN, the plan that is in use");
  }
  if (!options.max_migrate.empty()) {
    throw InputError("--max-migrate", "bounds the way from a plan that is in use; name it: --from");
  }
  const InterruptWatch watch;
  const PlanReport report = [&] {
    Progress progress("plan");
    studies::PlanOptions search = search_options(options, job);
    search.progress = std::ref(progress);
    search.interrupted = &InterruptWatch::interrupted;
    return studies::plan(job, search);
  }();
  const std::optional<int> interrupted = InterruptWatch::code(!report.plans.empty());
  if (report.plans.empty() && interrupted) {
    return *interrupted;
  }
  if (report.plans.empty()) {
    return print_shortage(report, options.headroom, !options.device_memory_only,
                          options.job.format);
  }
  const Results files = results(options, job, report.plans.front().plan);
  job.system.device.memory = whole;
  job.embedding_plan = report.plans.front().plan;
  print_embedding_plans(report, options.out, studies::predict(job).warnings, options.job.format);
  write_results(options, files);
  return interrupted.value_or(0);
}

}  // namespace

void add_plan(CLI::App& app, Context& context) {
  auto options = std::make_shared<PlanCommand>();
  CLI::App* command = app.add_subcommand("plan",
                                         "Choose a plan: embedding shards of a recommendation "
                                         "model, parallel degrees of a transformer; "
                                         "ranked, with a lower bound");
  add_job_options(*command, options->job);
  command->add_option("--top", options->top, "Plans to show")->check(whole_number(1, 100));
  command
      ->add_option("--time-limit", options->time_limit,
                   "Seconds of search; without it the effort is fixed and the result repeats")
      ->check(positive_number());
  command
      ->add_option("--effort", options->effort,
                   "Recommendation models: quick, normal or thorough search; the time limit, where "
                   "there is one, decides instead")
      ->check(CLI::IsMember({"quick", "normal", "thorough"}));
  command->add_option("--seed", options->seed, "Seed of the search")->check(whole_number(0));
  command->add_flag("--compare", options->compare, "Compare with the plans of other planners");
  command->add_flag("--no-row-replication", options->no_row_replication,
                    "Leave out copies of popular rows");
  command->add_flag("--device-memory-only", options->device_memory_only,
                    "Leave out tables in slower memory");
  command
      ->add_option("--sync-interval", options->sync_interval,
                   "Steps between synchronisations of replicated rows: embedding.sync_interval")
      ->check(whole_number(1, 1'000'000));
  command->add_flag("--dedup", options->dedup,
                    "Ids deduplicated on each rank: embedding.dedup=ikjt");
  command->add_option("--out", options->out, "Write the best plan as a plan file")
      ->check(output_file());
  command->add_option(kScriptOption, options->script)->group("");
  command->add_option(
      "--export", options->export_as,
      "Transformers: megatron, nemo, torchtitan or deepspeed print the best plan "
      "as that framework reads it, NAME=FILE writes it. Recommendation models: torchrec=FILE or "
      "hugectr=FILE, with a loader script next to it, x.py for x.json");
  command
      ->add_option(
          "--remap-out", options->remap_out,
          "Write the remaps that deploy tables in order of popularity: of each row id its "
          "row in the plan, int64; FILE.npy for one such table, FILE.npz with an array per "
          "table for any number")
      ->check(output_file());
  command->add_option("--from", options->from,
                      "A plan file in use: search what can be reached from it");
  command->add_option(
      "--max-migrate", options->max_migrate,
      "With --from: most bytes to move, such as \"10 GB\"; 0 prices the plan again");
  command->add_option(
      "--drift", options->drift,
      "With --from: what the plan costs under another access, and the best plan for it: "
      "a workload file, or key=value on top of the job; several may follow, after the JOB");
  command->add_option("--jobs", options->threads, "Transformers: threads; all cores by default")
      ->check(whole_number(1, 1024));
  command
      ->add_option("--for", options->framework,
                   "Transformers: only plans that this framework can run, with its overlaps and "
                   "efficiency; --export implies it")
      ->check(CLI::IsMember(framework_names()));
  command->add_option(
      "--memory-headroom", options->headroom,
      fmt::format("Memory of each device that stays free, such as 10% or \"4 GiB\"; "
                  "of transformers {:g}% unless given",
                  100 * studies::RecipeSearch::kHeadroom));
  command->add_flag("--details", options->details,
                    "Transformers: also what became of the space, and closed-form times");
  CLI::Option* front =
      command->add_flag("--front", options->front,
                        "Transformers: also the plans than which none is faster, smaller and on "
                        "fewer devices");
  command
      ->add_flag("--same-devices", options->same_devices,
                 "Transformers: leave plans on fewer devices out of the front")
      ->needs(front);
  command->callback(
      [options, command, &context] { context.exit_code = plan(*options, *command, context); });
}

}  // namespace stepcast::cli
