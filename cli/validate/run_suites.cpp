#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cli/support/checks.h"
#include "cli/support/cuda_backend.h"
#include "cli/support/launch_ranks.h"
#include "cli/support/progress.h"
#include "cli/validate/validate.h"
#include "cli/version.h"
#include "core/config/config.h"
#include "core/error.h"
#include "core/statistics.h"
#include "core/temporary_folder.h"
#include "core/whole_file.h"
#include "studies/fit/paced_calibration.h"
#include "studies/run/core_speed.h"
#include "validation/plans.h"
#include "validation/runtime.h"

// Suites of jobs that are drawn, predicted and then run as ranks.
namespace stepcast::cli {
namespace {

using validation::Suite;

/// Writes rows as CSV before the predicted cases are run, and reports the path: --predictions, or a
/// name with `suite` and the seed. After every case again, with what was measured, which so
/// survives a run that fails later.
auto predictions_writer(const ValidateOptions& options, const char* suite) {
  return [&options, suite, first = true](const Suite& predicted) mutable {
    const std::string file = options.predictions.empty()
                                 ? fmt::format("{}-predictions-{}.csv", suite, options.seed)
                                 : options.predictions;
    std::ostringstream text;
    print_suites({predicted}, OutputFormat::kCsv, text);
    write_whole_file(file, text.str());
    if (std::exchange(first, false)) {
      fmt::print(stderr, "stepcast: {} predictions written to {} before the first run\n",
                 predicted.rows.size(), file);
    }
  };
}

/// One folder for all ranks, where none was given.
std::string shared_folder(std::optional<TemporaryFolder>& own, runtime::MpiSession& session) {
  std::string name;
  if (session.rank() == 0) {
    own.emplace("stepcast-traces");
    name = own->path().string();
  }
  name.resize(
      static_cast<std::size_t>(session.from_rank_zero(static_cast<std::int64_t>(name.size()))));
  session.broadcast_bytes(name.data(), name.size());
  return name;
}

Suite run_cases(const ValidateOptions& options, const std::optional<System>& system,
                const Context& context, runtime::MpiSession& session) {
  Progress progress("validating");
  const std::int64_t count = options.count.value_or(36);
  validation::ValidateRuntimeOptions study;
  study.seed = options.seed;
  study.traces = options.keep_traces;
  study.progress = std::ref(progress);
  if (!system) {
    study.traced = options.from_traces;
    study.cases = static_cast<std::size_t>(std::max<std::int64_t>(1, count / 2));
    study.library = context.library.root;
    study.producer = std::string(kVersionText);
    study.predicted = predictions_writer(options, "from-traces");
    std::optional<TemporaryFolder> temporary;
    if (options.keep_traces.empty()) {
      study.traces = shared_folder(temporary, session);
    }
    return validation::from_traces_suite(validation::validate_from_traces(study, session));
  }
  study.transformers = count / 3;
  study.dlrm = count - study.transformers;
  study.experts = options.experts;
  study.predicted = predictions_writer(options, "runtime");
  if (options.backend == "cuda") {
    study.executor = timed_cuda_executors(context, session);
  }
  const auto cases = validation::validate_runtime(*system, study, session);
  std::vector<double> probes;
  for (const validation::RuntimeCase& c : cases) {
    probes.push_back(c.core_probe.base());
  }
  const auto warning = studies::core_speed_warning(Seconds(median_of(probes)), *system);
  if (warning && session.rank() == 0) {
    fmt::print(stderr, "stepcast: warning: {}\n", *warning);
  }
  return validation::runtime_suite(cases);
}

/// The calibrated system, on every rank.
System calibrated(const ValidateOptions& options, const System& fabric, const Context& context,
                  runtime::MpiSession& session) {
  if (!options.system.empty()) {
    return system_of("--system", options.system, {context.library});
  }
  Progress progress("calibrating");
  studies::PacedCalibrationOptions calibrate;
  calibrate.emulate = &fabric;
  calibrate.seed = options.seed;
  calibrate.date = today();
  calibrate.job = [&](std::int64_t i) {
    return validation::plan_calibration_job(i, options.seed, session.size());
  };
  calibrate.progress = std::ref(progress);
  System system = studies::calibrate_paced(calibrate, session);
  if (session.rank() == 0 && !options.save_system.empty()) {
    write_whole_file(options.save_system, config::system_to_json(system) + "\n");
  }
  return system;
}

Suite run_plans(const ValidateOptions& options, const System& fabric, const Context& context,
                runtime::MpiSession& session) {
  const System system = calibrated(options, fabric, context, session);
  Progress progress("validating");
  validation::ValidatePlansOptions study;
  study.seed = options.seed;
  study.count = options.count.value_or(24);
  study.budget = options.budget;
  study.emulate = &fabric;
  study.predicted = [write = predictions_writer(options, "plans")](const auto& tasks) mutable {
    write(validation::plans_suite(tasks));
  };
  study.progress = std::ref(progress);
  return validation::plans_suite(validation::validate_plans(system, study, session));
}

/// Runs as ranks. Only rank 0 has an answer: a rank that exits with another code than 0 would end
/// the run for the launcher.
std::optional<Suite> as_ranks_of(Context& context, int ranks,
                                 const std::function<Suite(runtime::MpiSession&)>& run) {
  const auto session = as_ranks(context, ranks, {.timeout = std::chrono::seconds(60)});
  std::optional<Suite> suite;
  if (session != nullptr) {
    as_one_rank(*session, [&] {
      suite = run(*session);
      return 0;
    });
    if (session->rank() != 0) {
      suite.reset();
    }
  }
  return suite;
}

}  // namespace

std::optional<Suite> validate_runtime(const ValidateOptions& options, Context& context) {
  const bool cuda = options.backend == "cuda";
  std::optional<System> system;
  if (options.from_traces == 0) {
    if (options.system.empty()) {
      throw InputError(
          "--system",
          "is needed: the file that `stepcast calibrate --backend cpu --out FILE` wrote "
          "on this machine");
    }
    if (cuda) {
      require_cuda(context);
    }
    system = system_of("--system", options.system, {context.library});
  }
  return as_ranks_of(context, options.ranks.value_or(cuda ? 1 : 2),
                     [&](auto& session) { return run_cases(options, system, context, session); });
}

std::optional<Suite> validate_plans(const ValidateOptions& options, Context& context) {
  const int ranks = options.ranks.value_or(4);
  const System fabric = options.emulate.empty()
                            ? validation::two_rank_nodes(ranks)
                            : system_of("--emulate", options.emulate, {context.library});
  if (ranks < 2) {
    throw InputError("--ranks", "a plan needs at least 2 ranks to choose between");
  }
  return as_ranks_of(context, ranks,
                     [&](auto& session) { return run_plans(options, fabric, context, session); });
}

}  // namespace stepcast::cli
