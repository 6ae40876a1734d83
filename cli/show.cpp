#include <fmt/format.h>

#include <optional>

#include "cli/command.h"
#include "cli/print/report.h"
#include "cli/print/show_file.h"
#include "cli/print/show_memory.h"
#include "cli/print/show_tables.h"
#include "cli/support/checks.h"
#include "cli/support/console.h"
#include "cli/support/output_files.h"
#include "cli/support/recordings.h"
#include "core/config/config.h"
#include "core/error.h"
#include "interop/import.h"
#include "studies/plan/searched_plan.h"
#include "studies/predict/chosen_plan.h"
#include "studies/traces/show_measured.h"
#include "traces/chrome/chrome_writer.h"
#include "traces/events/open_native.h"
#include "traces/memory/memory_record.h"
#include "workloads/build_graph.h"

namespace stepcast::cli {
namespace {

struct ShowCommand {
  JobOptions job;
  bool graph = false, flops = false, bytes = false, memory = false;
  bool details = false;
  std::optional<std::int32_t> rank;
  std::int32_t skip = 0;
  std::string timeline, mark, by, recorded;
  std::size_t top = 0;
  [[nodiscard]] bool sections() const { return graph || flops || bytes || memory; }
};

void check_rank(const ShowCommand& options, const ExecutionGraph& graph) {
  if (options.rank && *options.rank >= graph.ranks()) {
    throw InputError("--rank",
                     fmt::format("found {}; expected 0..{}", *options.rank, graph.ranks() - 1));
  }
}

void append(Tables& all, Tables more) {
  std::move(more.begin(), more.end(), std::back_inserter(all));
}

/// The sections asked for.
Tables sections(const ShowCommand& options, const Job* job, const ExecutionGraph& graph) {
  check_rank(options, graph);
  Tables tables;
  if (options.graph) {
    append(tables, graph_tables(graph, options.rank));
  }
  if (options.flops) {
    append(tables, flops_tables(job, graph));
  }
  if (options.bytes) {
    append(tables, bytes_tables(job, graph));
  }
  if (options.memory) {
    if (job == nullptr) {
      throw InputError(options.job.job,
                       "the trace names no job, so nothing is known of its tensors; give the "
                       "job instead of the trace");
    }
    append(tables, memory_tables(*job, graph, options.rank));
    if (!options.recorded.empty()) {
      tables.push_back(ledger_beside(simulator::fullest_ledger(graph, job->system.device),
                                     traces::open_memory(options.recorded)));
    }
  }
  return tables;
}

/// The graph of a run of our own runtime, whose job may not be known.
Tables sections_of(const ShowCommand& options, const traces::Recording& recording,
                   const Context& context) {
  if (recording.own == nullptr) {
    throw InputError(options.job.job,
                     "is a recording of another program: nothing is known of its shapes; show it "
                     "without --graph, --flops and --bytes");
  }
  const traces::GraphRun& run = *recording.own;
  std::optional<Job> job;
  if (!run.job.empty()) {
    job = config::load_job(config::text_source(run.job, options.job.job + "/trace.json: job"), {},
                           {context.library});
  }
  return sections(options, job ? &*job : nullptr, run.graph);
}

/// A recorded run, ours or of any program.
Tables show_recorded(const ShowCommand& options, const Context& context) {
  if (!options.job.overrides.empty()) {
    throw InputError("--set", "a recorded trace cannot be changed; give its job instead");
  }
  const bool memory_alone = options.memory && !options.graph && !options.flops && !options.bytes;
  if (traces::is_memory_snapshot(options.job.job)) {
    return recorded_memory_tables(traces::open_memory(options.job.job));
  }
  traces::Recording recording = open_recording(options.job.job);
  if (memory_alone && recording.own == nullptr) {
    return recorded_memory_tables(traces::memory_of(recording, options.job.job));
  }
  if (options.sections()) {
    return sections_of(options, recording, context);
  }
  if (!recording.ranks.empty() && recording.ranks.front().timing != traces::Timing::kTimeline) {
    return execution_graph_tables(recording);
  }
  if (!options.by.empty()) {
    return {device_time_table(traces::events_of(std::move(recording)), options.by, options.mark,
                              options.rank)};
  }
  return run_tables(recording, options.job.job, options.skip, options.mark);
}

Tables show_job(const ShowCommand& options, const Context& context) {
  const studies::ChosenJob on =
      studies::choose_plan(job_source(options.job), options.job.overrides, {context.library});
  const Job& job = on.job;
  const ExecutionGraph graph = workloads::build_graph(job);
  return options.sections() ? sections(options, &job, graph)
                            : summary_tables(job, graph, on.default_framework);
}

void write_timeline(const ShowCommand& options, bool recorded) {
  if (!recorded) {
    throw InputError("--timeline", "a job has no recorded step; use predict --timeline");
  }
  const studies::AnnotatedStep step =
      studies::annotated_step(read_run(options.job.job, options.mark));
  traces::write_timeline(options.timeline, *step.graph, step.spans, {}, "stepcast show",
                         step.annotations);
  tell_written(options.timeline);
}

/// A description from elsewhere, by itself: shown as stepcast reads it. With a system it is a job.
bool shows_foreign(const ShowCommand& options) {
  const std::string& file = options.job.job;
  return !options.sections() && options.job.overrides.empty() && !file.empty() && file != "-" &&
         std::filesystem::is_regular_file(file) &&
         interop::describes_model(config::file_source(file));
}

}  // namespace

void add_show(CLI::App& app, Context& context) {
  auto options = std::make_shared<ShowCommand>();
  CLI::App* command =
      app.add_subcommand("show", "Show the contents of a step, or what bounds a recorded one");
  add_job_options(*command, options->job);
  command->get_option("job")->description(
      "Job, system, device or plan file, - for standard input, or a recorded trace (ours or "
      "others')");
  command->add_flag("--graph", options->graph, "The ops, per class of ranks and segment");
  command->add_flag("--flops", options->flops, "FLOPs by convention, op kind and phase");
  command->add_flag("--bytes", options->bytes, "Memory traffic, communication, embedding lookups");
  command->add_flag("--memory", options->memory,
                    "The memory ledger and the largest tensors; of a trace what held memory at its "
                    "peak");
  command
      ->add_option("--recorded", options->recorded,
                   "--memory of a job: beside a memory snapshot of PyTorch or a trace with memory")
      ->check(CLI::ExistingPath)
      ->needs("--memory");
  command
      ->add_option("--rank", options->rank,
                   "--graph and --memory: only the class of this rank; --by: only this rank")
      ->check(whole_number(0));
  command->add_option("--skip", options->skip, "Traces: leave out the first steps")
      ->check(whole_number(0));
  command->add_option("--mark", options->mark,
                      "Traces of others: the name of the ranges that are steps");
  command
      ->add_option("--by", options->by,
                   "Traces of others: device time per step by kind of kernel, module or stream")
      ->check(CLI::IsMember({"kind", "module", "stream"}));
  command->add_option("--top", options->top, "Rows shown of each table, longest first")
      ->check(whole_number(1));
  command
      ->add_option("--timeline", options->timeline,
                   "Traces: write the last step as Perfetto JSON, with why streams were idle and "
                   "the critical path along with it")
      ->check(output_file());
  command->add_flag("--details", options->details,
                    "Every row of every table, where only the first are shown");
  command->callback([options, &context] {
    const auto print = [&options](Tables tables) {
      for (DataTable& t : tables) {
        if (options->details || options->top > 0) {
          t.limit(options->details ? 0 : options->top);
        }
      }
      print_tables(tables, options->job.format, answer());
    };
    const bool recorded = is_recording(options->job.job);
    if (!recorded && shows_foreign(*options)) {
      answer() << interop::import_to_json(config::file_source(options->job.job));
      return;
    }
    if (!recorded && !options->sections() && options->job.overrides.empty()) {
      if (const auto tables = file_tables(options->job.job, context)) {
        print(*tables);
        return;
      }
    }
    if (!options->timeline.empty()) {
      write_timeline(*options, recorded);
    }
    print(recorded ? show_recorded(*options, context) : show_job(*options, context));
  });
}

}  // namespace stepcast::cli
