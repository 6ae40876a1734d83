#include "cli/plan_parallel.h"

#include <fmt/ostream.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>

#include "cli/print/human.h"
#include "cli/print/print_embedding_plans.h"
#include "cli/print/print_parallel_plans.h"
#include "cli/support/console.h"
#include "cli/support/framework_export.h"
#include "cli/support/interrupt.h"
#include "cli/support/output_files.h"
#include "cli/support/progress.h"
#include "core/config/config.h"
#include "core/config/quantity.h"
#include "core/error.h"
#include "core/job/job_rules.h"
#include "core/portable.h"
#include "core/whole_file.h"
#include "studies/plan/plan_parallel.h"
#include "studies/predict/recipes.h"
#include "studies/predict/warnings.h"

namespace stepcast::cli {
namespace {

using studies::ParallelPlanReport;

/// A fix that makes a plan fit; where the model keeps sequences whole on a rank more GPUs may not.
std::string fix_for(const ParallelPlanReport& r) {
  planner::PlanPoint two;
  two.context = 2;
  Job job = planner::applied(r.job, two);
  job.batch.global = 1;
  const auto broken = broken_rule(job);
  return !broken || !broken->key.starts_with("workload")
             ? std::string("use more GPUs or a smaller model")
             : fmt::format(
                   "use more GPUs, a smaller model or shorter sequences, which are whole on a rank "
                   "({}: {})",
                   broken->key, broken->what.substr(0, broken->what.find(';')));
}

/// Why no plan fits where the smallest needs `least` of the `usable` part of a device's memory.
std::string nothing_fits_text(Bytes least, Bytes usable, Bytes memory, const std::string& fix) {
  const auto [needs, has] = apart(least, usable);
  return fmt::format(
      "no plan fits: the smallest needs {} of each device, and {}; {}", needs,
      usable < memory
          ? fmt::format("plans may use {} of {} (--memory-headroom 0 uses all)", has, human(memory))
          : fmt::format("a device has {}", has),
      fix);
}

int tell_nothing_fits(const ParallelPlanReport& r, OutputFormat format) {
  return print_infeasible(
      r.cut ? std::string("the time limit ended the search before it found a plan that fits")
            : nothing_fits_text(Bytes(r.least_bytes), Bytes(r.capacity), r.job.system.device.memory,
                                fix_for(r)),
      format);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

double headroom_of(const std::string& text, Bytes memory) {
  if (text.empty() || text == "0") {
    return 0;
  }
  const auto reject = [&text](const std::string& expected) -> double {
    throw InputError("--memory-headroom", fmt::format("found '{}', expected {}", text, expected));
  };
  double share = 0;
  const auto is_number = [&share](std::string_view word) {
    const auto [stop, error] = read_decimal(word.data(), word.data() + word.size(), share);
    return error == std::errc() && stop == word.data() + word.size();
  };
  if (text.back() != '%') {
    if (is_number(text) && share > 0 && share < 1) {
      return reject(
          fmt::format("\"{:g}%\" of the memory, or an amount such as \"4 GiB\"", 100 * share));
    }
    const Bytes free = config::parse_quantity<Bytes>(text, "--memory-headroom");
    return free < memory ? free.base()
                         : reject(fmt::format("less than the {} of a device", human(memory)));
  }
  return is_number(std::string_view(text).substr(0, text.size() - 1)) && share >= 0 && share < 100
             ? memory.base() * share / 100
             : reject("a share such as 5%, or an amount such as \"4 GiB\"");
}

int plan_parallel(const config::PlanRequestOnFramework& on, const ParallelPlanCommand& options,
                  const studies::AsSet& command_line_form, OutputFormat format) {
  PlanRequest request = on.request;
  std::optional<FrameworkExport> exported;
  if (!options.export_as.empty()) {
    exported = framework_export(options.export_as);
    request.fixed.framework = exported->framework;
    if (!exported->file.empty()) {
      expect_writable(exported->file);
    }
  }
  if (!options.framework.empty()) {
    const TrainingFramework framework = framework_named(options.framework);
    if (exported && exported->framework != framework) {
      throw InputError("--for", fmt::format("found {}, but --export writes a plan for {}; name one "
                                            "framework, or leave --for out",
                                            options.framework, name_of(exported->framework)));
    }
    request.fixed.framework = framework;
  }
  if (exported) {
    expect_script(exported->framework, request.job);
  }
  studies::ParallelPlanOptions o;
  o.top = options.top;
  o.threads = options.threads > 0
                  ? options.threads
                  : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  o.front = options.front;
  o.fewer_devices = !options.same_devices;
  const Bytes memory = request.job.system.device.memory;
  o.headroom = options.headroom.empty() ? studies::RecipeSearch::kHeadroom * memory.base()
                                        : headroom_of(options.headroom, memory);
  // Ctrl-C is the end of any time limit.
  constexpr double kNever = 1e12;
  const InterruptWatch watch;
  o.time_limit = options.time_limit > 0 ? options.time_limit : kNever;
  o.clock = [] { return seconds_now() + (InterruptWatch::interrupted() ? 2 * kNever : 0); };
  ParallelPlanReport report;
  {
    Progress progress("plan");
    o.on_progress = [&progress](double share, double best) {
      progress.update(
          share, 1,
          std::isinf(best) ? "no plan that fits yet" : "best so far " + human(Seconds(best)));
    };
    report = studies::plan_parallel(request, o);
  }
  const std::optional<int> interrupted = InterruptWatch::code(!report.plans.empty());
  if (interrupted) {
    for (double* seconds :
         {&report.search_seconds, &report.fewer_devices_seconds, &report.simulation_seconds}) {
      *seconds = std::fmod(*seconds, kNever);
    }
    if (report.plans.empty()) {
      return *interrupted;
    }
  }
  if (report.plans.empty()) {
    return tell_nothing_fits(report, format);
  }
  studies::predict_command_line(report, command_line_form);
  for (studies::RankedParallelPlan& plan : report.plans) {
    if (std::string uneven = studies::uneven_stages(plan.job, on.framework); !uneven.empty()) {
      plan.prediction.warnings.push_back(std::move(uneven));
    }
  }
  const std::string text =
      exported ? text_for(exported->framework, report.plans.front().job) : std::string();
  const bool written = exported && !exported->file.empty();
  const std::string shown = written ? std::string() : text;
  Report printed = parallel_report(report, on, options.details, shown, format);
  if (!shown.empty()) {
    printed.text(fmt::format("\nplan 1 for {}\n{}", name_of(exported->framework), shown));
  }
  std::vector<const Job*> plans;
  for (const studies::RankedParallelPlan& plan : report.plans) {
    plans.push_back(&plan.job);
  }
  if (const std::string missing = scripts_missing(plans, on.framework); !missing.empty()) {
    printed.line('\n' + missing);
  }
  printed.print(answer());
  if (!options.out.empty()) {
    write_output(options.out,
                 parallel_plan_json(report, report.plans.front(), on.framework).dump(2) + "\n");
  }
  if (written) {
    write_output(exported->file, text);
  }
  return interrupted.value_or(0);
}

}  // namespace stepcast::cli
