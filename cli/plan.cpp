#include "studies/plan.h"

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/checks.h"
#include "cli/command.h"
#include "cli/drift.h"
#include "cli/human.h"
#include "cli/output_files.h"
#include "cli/plan_export.h"
#include "cli/plan_parallel.h"
#include "cli/print_prediction.h"
#include "cli/replan.h"
#include "cli/text_table.h"
#include "core/config/config.h"
#include "core/error.h"
#include "core/tier_units.h"
#include "studies/memory_remedy.h"

namespace stepcast::cli {
namespace {

using studies::PlanReport;
using studies::RankedPlan;

/// And what only embedding plans have.
struct PlanCommand : ParallelPlanCommand {
  JobOptions job;
  std::string effort = "normal";
  std::uint64_t seed = 1;
  bool compare = false;
  bool no_tiers = false;
  std::int64_t sync_interval = 0;
  bool dedup = false;
  std::string from;
  std::string max_migrate;
  std::vector<std::string> drift;
};

std::string mix_text(const RankedPlan& p) {
  constexpr std::size_t kWidth = 100;
  std::string text;
  std::int64_t left = 0;
  for (const auto& [kind, tables] : p.mix) {
    if (text.size() > kWidth) {
      left += tables;
    } else {
      text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", tables, kind);
    }
  }
  return left == 0 ? text : text + fmt::format(", {} others", left);
}

/// Fullest and emptiest rank of a tier, and what fills the fullest.
void print_ledger(const EmbeddingPlan& plan, const System& system, std::ostream& out) {
  TextTable table({"tier", "rank", "weights", "optimizer", "gradients", "cache", "remap", "buffers",
                   "dense", "total", "capacity"});
  std::vector<std::string> tiers;
  for (const LedgerLine& l : plan.ledger) {
    if (std::find(tiers.begin(), tiers.end(), l.tier) == tiers.end()) {
      tiers.push_back(l.tier);
    }
  }
  for (const std::string& tier : tiers) {
    const LedgerLine* most = nullptr;
    const LedgerLine* least = nullptr;
    for (const LedgerLine& l : plan.ledger) {
      if (l.tier == tier) {
        most = most == nullptr || l.total() > most->total() ? &l : most;
        least = least == nullptr || l.total() < least->total() ? &l : least;
      }
    }
    const auto has = tier_named(system, tier);
    const std::int64_t sharers = has ? has->shared_by : 1;
    std::vector<std::pair<const LedgerLine*, const char*>> rows{{most, "fullest"}};
    if (least->rank != most->rank) {
      rows.emplace_back(least, "emptiest");
    }
    for (const auto& [l, which] : rows) {
      const auto bytes = [](double b) { return human(Bytes(b)); };
      table.row({l->tier, fmt::format("{} ({})", l->rank, which), bytes(l->weights),
                 bytes(l->optimizer), bytes(l->gradients), bytes(l->cache), bytes(l->remap),
                 bytes(l->buffers), bytes(l->dense), bytes(l->total()),
                 bytes(l->capacity) + (sharers > 1 ? fmt::format(" for {}", sharers) : "")});
    }
  }
  table.print(out);
}

void print_text(const PlanReport& r, std::ostream& out) {
  out << fmt::format("{} on {} x {}, {} tables\n\n", r.job.workload.name, r.job.devices,
                     r.job.system.device.name, r.job.workload.dlrm()->tables.size());
  TextTable table({"plan", "step", "bound", "gap", "embedding", "built by", "tables"});
  table.left(5);
  table.left(6);
  std::size_t rank = 0;
  for (const RankedPlan& p : r.plans) {
    table.row({std::to_string(++rank), human(Seconds(p.plan.predicted_step)),
               human(Seconds(p.plan.lower_bound)), percent(p.plan.gap), human(Seconds(p.objective)),
               p.simulated ? "simulated" : "not yet", mix_text(p)});
  }
  table.print(out);
  out << fmt::format(
      "\nlower bound of the embedding part {} ({}); the best found is {:.3g} % above. Beside it a "
      "step takes at least {}: the least of the simulated plans\n",
      human(Seconds(r.bound)), r.bound_reason, 100 * r.gap, human(Seconds(r.rest_of_step)));
  out << fmt::format("search: {} evaluations in a space of 10^{:.0f} plans, {}{}; simulation {}\n",
                     count(static_cast<double>(r.evaluations)), r.space_log10,
                     human(Seconds(r.search_seconds)), r.cut ? " (cut by the time limit)" : "",
                     human(Seconds(r.simulation_seconds)));
  for (const RankedPlan& p : r.plans) {
    if (!p.simulated) {
      out << fmt::format("not yet built: {}\n", p.not_built_because);
    }
  }
  out << "\nbytes per rank of plan 1\n";
  print_ledger(r.plans.front().plan, r.job.system, out);
  if (!r.compared.empty()) {
    out << '\n';
    TextTable rows({"planner", "step", "embedding", "over the bound", "fullest rank", "fits",
                    "time to plan", "remark"});
    rows.left(7);
    for (const studies::ComparedPlan& c : r.compared) {
      rows.row({c.name, c.step ? human(Seconds(*c.step)) : "-",
                c.objective ? human(Seconds(*c.objective)) : "-",
                c.objective ? percent_signed(*c.objective / r.bound - 1) : "-",
                human(Bytes(c.fullest_bytes)), c.fits ? "yes" : "no", human(Seconds(c.seconds)),
                c.remark});
    }
    rows.print(out);
  }
}

/// Where nobody asked for room that stays free: how little there is.
void warn_of_full_devices(const PlanReport& r, std::ostream& out) {
  Bytes fullest;
  for (const LedgerLine& l : r.plans.front().plan.ledger) {
    fullest = l.tier == "hbm" ? std::max(fullest, Bytes(l.total())) : fullest;
  }
  if (const std::string tight = studies::tight_memory(fullest, r.job.system.device.memory);
      !tight.empty()) {
    out << fmt::format("\nwarning: {} (--memory-headroom 5%)\n", tight);
  }
}

nlohmann::ordered_json plan_document(const RankedPlan& p) {
  auto j = nlohmann::ordered_json::parse(config::plan_to_json(p.plan, -1));
  j["objective_s"] = p.objective;
  j["buildable"] = p.simulated;
  if (!p.simulated) {
    j["not_built_because"] = p.not_built_because;
  }
  j["mix"] = nlohmann::ordered_json::object();
  for (const auto& [kind, tables] : p.mix) {
    j["mix"][kind] = tables;
  }
  return j;
}

void print_json(const PlanReport& r, std::ostream& out) {
  nlohmann::ordered_json j;
  j["stepcast"] = provenance_json();
  j["plans"] = nlohmann::ordered_json::array();
  for (const RankedPlan& p : r.plans) {
    j["plans"].push_back(plan_document(p));
  }
  j["bound"] = {{"lower_bound_s", r.plans.front().plan.lower_bound},
                {"gap", r.plans.front().plan.gap},
                {"objective_s", r.objective},
                {"objective_bound_s", r.bound},
                {"objective_bound_with_tiers_s", r.bound_with_tiers},
                {"objective_gap", r.gap},
                {"reason", r.bound_reason},
                {"rest_of_step_s", r.rest_of_step}};
  j["search"] = {{"seconds", r.search_seconds},
                 {"simulation_seconds", r.simulation_seconds},
                 {"evaluations", r.evaluations},
                 {"space", r.space_log10 < 300 ? std::pow(10.0, r.space_log10) : 1e300},
                 {"space_log10", r.space_log10},
                 {"cut", r.cut}};
  if (!r.compared.empty()) {
    j["compare"] = nlohmann::ordered_json::array();
    for (const studies::ComparedPlan& c : r.compared) {
      nlohmann::ordered_json row;
      row["planner"] = c.name;
      row["step_s"] = c.step ? nlohmann::ordered_json(*c.step) : nlohmann::ordered_json();
      row["objective_s"] =
          c.objective ? nlohmann::ordered_json(*c.objective) : nlohmann::ordered_json();
      row["fullest_bytes"] = c.fullest_bytes;
      row["fits"] = c.fits;
      row["seconds"] = c.seconds;
      row["remark"] = c.remark;
      j["compare"].push_back(std::move(row));
    }
  }
  out << j.dump(2) << '\n';
}

void print_csv(const PlanReport& r, std::ostream& out) {
  const auto number = [](double v) { return fmt::format("{:.9g}", v); };
  if (!r.compared.empty()) {
    out << csv_line({"planner", "step_s", "objective_s", "lower_bound_s", "fullest_bytes", "fits",
                     "seconds", "remark"});
    for (const studies::ComparedPlan& c : r.compared) {
      out << csv_line({c.name, c.step ? number(*c.step) : "",
                       c.objective ? number(*c.objective) : "", number(r.bound),
                       fmt::format("{:.0f}", c.fullest_bytes), c.fits ? "true" : "false",
                       number(c.seconds), c.remark});
    }
    return;
  }
  out << csv_line(
      {"plan", "predicted_step_s", "lower_bound_s", "gap", "objective_s", "buildable", "tables"});
  std::size_t rank = 0;
  for (const RankedPlan& p : r.plans) {
    out << csv_line({std::to_string(++rank), number(p.plan.predicted_step),
                     number(p.plan.lower_bound), number(p.plan.gap), number(p.objective),
                     p.simulated ? "true" : "false", mix_text(p)});
  }
}

std::string shortage_text(const planner::Shortage& s) {
  const auto bytes = [](std::int64_t b) { return human(Bytes(static_cast<double>(b))); };
  if (s.capacity < 0) {
    return fmt::format(
        "no plan fits: before any table the dense model and the libraries take {} more of {} than "
        "a device has",
        bytes(-s.capacity), s.tier);
  }
  return fmt::format(
      "no plan fits: {} need{} {} of {} {}, which has {}: {} ({} bytes) short; use more devices, "
      "narrower rows (formats.embedding) or a slower tier of memory (system.tiers)",
      s.table.empty() ? "the tables together" : fmt::format("table '{}'", s.table),
      s.table.empty() ? "" : "s", bytes(s.needed), s.tier,
      s.table.empty() ? "in all" : "at least on one unit", bytes(s.capacity), bytes(s.missing()),
      s.missing());
}

/// The files that were asked for. What a format cannot express is refused before anything is
/// printed or written.
std::vector<ExportedFile> results(const PlanCommand& options, const Job& job,
                                  const EmbeddingPlan& plan) {
  std::vector<ExportedFile> files = exported_plan(options.export_as, job, plan);
  if (!options.out.empty()) {
    files.insert(files.begin(), {options.out, config::plan_to_json(plan) + "\n"});
  }
  return files;
}

/// Last, so that a disk that fills up does not lose what the search found.
void write_results(const std::vector<ExportedFile>& files) {
  for (const ExportedFile& file : files) {
    write_output(file.path, file.text);
  }
}

/// Options of the other kind of plan are refused, not ignored.
void refuse(const CLI::App& command, std::initializer_list<const char*> names, const char* kind) {
  for (const char* name : names) {
    if (command.count(name) > 0) {
      throw InputError(name, fmt::format("belongs to {}; leave it out", kind));
    }
  }
}

/// The job's overrides, with the plan in use where one is given.
std::vector<std::string> overrides_of(const PlanCommand& options) {
  std::vector<std::string> overrides = options.job.overrides;
  if (options.sync_interval > 0) {
    overrides.push_back(fmt::format("embedding.sync_interval={}", options.sync_interval));
  }
  if (options.dedup) {
    overrides.emplace_back("embedding.dedup=ikjt");
  }
  if (!options.from.empty()) {
    overrides.push_back(plan_override(options.from));
  }
  return overrides;
}

/// An exported plan is chosen among those that the other system can carry out.
planner::PlanForm form_of(const PlanCommand& options) {
  planner::PlanForm form;
  if (!options.export_as.empty()) {
    const bool torchrec = options.export_as.starts_with("torchrec");
    form.row_split = torchrec ? Split::kBlock : Split::kStripe;
    form.column_parts = torchrec;
    form.machine_groups = torchrec;
  }
  return form;
}

/// `--from`: the best plan within reach of the one in use.
int plan_from(const PlanCommand& options, const CLI::App& command, const Job& job,
              const config::Source& source, const Context& context) {
  refuse(command,
         {"--compare", "--no-tiers", "--sync-interval", "--dedup", "--time-limit", "--top",
          "--effort", "--memory-headroom"},
         "a search from scratch, and --from asks for a plan near another one");
  studies::ReplanRequest request;
  request.seed = options.seed;
  request.tiers = !options.no_tiers && options.export_as.empty();
  request.form = form_of(options);
  if (!options.max_migrate.empty()) {
    request.max_bytes = bytes_option(options.max_migrate, "--max-migrate");
  }
  if (!options.drift.empty()) {
    std::vector<std::string> overrides = overrides_of(options);
    for (const std::string& change : options.drift) {
      overrides.push_back(change.find('=') == std::string::npos ? "workload=" + change : change);
    }
    const Job now = config::load_job(source, overrides, {context.library});
    const studies::DriftReport report = studies::drift(job, now, request);
    const std::vector<ExportedFile> files = results(options, now, report.replan.plan);
    print_drift(report, options.job.format);
    write_results(files);
    return 0;
  }
  const studies::ReplanReport report = studies::replan(job, request);
  const std::vector<ExportedFile> files = results(options, job, report.plan);
  print_replan(report, options.job.format);
  write_results(files);
  return 0;
}

int plan(const PlanCommand& options, const CLI::App& command, const Context& context) {
  const config::Source source = job_source(options.job);
  const PlanRequest request =
      config::load_plan_request(source, overrides_of(options), {context.library});
  Job job = request.job;
  if (const DlrmWorkload* dlrm = job.workload.dlrm(); dlrm != nullptr && dlrm->tables.empty()) {
    throw InputError("job: workload",
                     fmt::format("'{}' has no embedding tables to place, and parallel plans are "
                                 "searched for transformers; compare degrees with sweep",
                                 job.workload.name));
  }
  if (job.workload.transformer() != nullptr) {
    refuse(command,
           {"--seed", "--effort", "--compare", "--no-tiers", "--sync-interval", "--dedup", "--from",
            "--max-migrate", "--drift"},
           "embedding plans, and the workload is a transformer");
    return plan_parallel(request, options, options.job.format);
  }
  refuse(command, {"--jobs", "--same-devices", "--for"},
         "parallel plans, and the workload is a recommendation model");
  expect_exportable(options.export_as);
  if (job.sync_interval > 1 && !options.export_as.empty()) {
    throw InputError("--export", fmt::format("replicas are synchronised every {} steps, and other "
                                             "systems do so in each; leave embedding.sync_interval "
                                             "out",
                                             job.sync_interval));
  }
  if (!options.from.empty()) {
    return plan_from(options, command, job, source, context);
  }
  if (!options.drift.empty()) {
    throw InputError("--drift", "is of a plan that is in use; name it: --from");
  }
  if (!options.max_migrate.empty()) {
    throw InputError("--max-migrate", "bounds the way from a plan that is in use; name it: --from");
  }
  Bytes& memory = job.system.device.memory;
  memory -= Bytes(headroom_of(options.headroom, memory));
  studies::PlanOptions o;
  o.top = options.top;
  if (options.time_limit > 0) {
    o.time_limit = options.time_limit;
  }
  o.effort = options.effort == "quick"    ? studies::PlanEffort::kQuick
             : options.effort == "normal" ? studies::PlanEffort::kNormal
                                          : studies::PlanEffort::kThorough;
  o.seed = options.seed;
  o.tiers = !options.no_tiers && options.export_as.empty();
  o.compare = options.compare;
  o.form = form_of(options);
  o.clock = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  const PlanReport report = studies::plan(job, o);
  if (report.plans.empty()) {
    const std::string why =
        (report.shortage ? shortage_text(*report.shortage)
                         : std::string("no plan fits the memory of the devices")) +
        (options.headroom.empty() ? "" : "; of that, --memory-headroom keeps " + options.headroom);
    if (options.job.format == OutputFormat::kJson) {
      nlohmann::ordered_json j;
      j["stepcast"] = provenance_json();
      j["plans"] = nlohmann::ordered_json::array();
      j["infeasible"] = why;
      std::cout << j.dump(2) << '\n';
    }
    fmt::print(stderr, "stepcast: {}\n", why);
    return 1;
  }
  const std::vector<ExportedFile> files = results(options, job, report.plans.front().plan);
  switch (options.job.format) {
    case OutputFormat::kText:
      print_text(report, std::cout);
      if (options.headroom.empty()) {
        warn_of_full_devices(report, std::cout);
      }
      break;
    case OutputFormat::kJson:
      print_json(report, std::cout);
      break;
    case OutputFormat::kCsv:
      print_csv(report, std::cout);
      break;
  }
  write_results(files);
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Context& context) {
  auto options = std::make_shared<PlanCommand>();
  CLI::App* command = app.add_subcommand("plan",
                                         "Choose a plan: embedding shards of a recommendation "
                                         "model, parallel degrees of a transformer; "
                                         "ranked, with a lower bound");
  add_job_options(*command, options->job);
  command->add_option("--top", options->top, "Plans to show")->check(CLI::Range(1, 100));
  command
      ->add_option("--time-limit", options->time_limit,
                   "Seconds of search; without it the effort is fixed and the result repeats")
      ->check(positive_number());
  command
      ->add_option("--effort", options->effort,
                   "Recommendation models: quick, normal or thorough search; the time limit, where "
                   "there is one, decides instead")
      ->check(CLI::IsMember({"quick", "normal", "thorough"}));
  command->add_option("--seed", options->seed, "Seed of the search");
  command->add_flag("--compare", options->compare, "Table the plans of other planners beside it");
  command->add_flag("--no-tiers", options->no_tiers, "Leave out row tiers and slower memory");
  command
      ->add_option("--sync-interval", options->sync_interval,
                   "Steps between synchronisations of replicated rows: embedding.sync_interval")
      ->check(CLI::Range(1, 1'000'000));
  command->add_flag("--dedup", options->dedup,
                    "Ids deduplicated on each rank: embedding.dedup=ikjt");
  command->add_option("--out", options->out, "Write the best plan as a plan file")
      ->check(output_file());
  command->add_option("--export", options->export_as,
                      "Transformers: megatron prints the best plan as Megatron-LM arguments, "
                      "megatron=FILE writes them. Recommendation models: torchrec=FILE or "
                      "hugectr=FILE, with a loader script beside it, x.py of x.json");
  command->add_option("--from", options->from,
                      "A plan file in use: search what can be reached from it");
  command->add_option(
      "--max-migrate", options->max_migrate,
      "With --from: most bytes to move, such as \"10 GB\"; 0 prices the plan again");
  command
      ->add_option(
          "--drift", options->drift,
          "With --from: what the plan costs under another access, and the best plan for it: "
          "a workload file, or key=value on top of the job; repeatable")
      ->allow_extra_args(false);
  command->add_option("--jobs", options->threads, "Transformers: threads; all cores by default")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--for", options->stack,
                   "Transformers: only plans that this framework can run; --export megatron "
                   "implies it")
      ->check(CLI::IsMember({"megatron", "torchtitan"}));
  command->add_option("--memory-headroom", options->headroom,
                      "Memory of each device that stays free, such as 5% or "
                      "\"4 GiB\"");
  command->add_flag("--same-devices", options->same_devices,
                    "Transformers: leave plans on fewer devices out of the front");
  command->callback(
      [options, command, &context] { context.exit_code = plan(*options, *command, context); });
}

}  // namespace stepcast::cli
