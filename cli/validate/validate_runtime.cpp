#include "cli/support/console.h"
#include "cli/validate/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "cli/support/cuda_backend.h"
#include "cli/support/launch_ranks.h"
#include "cli/support/progress.h"
#include "cli/version.h"
#include "core/config/config.h"
#include "core/error.h"
#include "core/statistics.h"
#include "core/temporary_folder.h"
#include "studies/run/core_speed.h"
#include "validation/from_traces.h"
#include "validation/runtime.h"

namespace stepcast::cli {
namespace {

using validation::RuntimeCase;

DataTable case_predictions(const std::vector<RuntimeCase>& cases, bool bounds) {
  using Case = Numbered<RuntimeCase>;
  return table_of(
      "predictions", "",
      Columns<Case>{
          {"case", "", [](auto& r) { return r.number; }},
          {"job", "", [](auto& r) { return r.of.job.workload.name; }},
          {"bound", "", [](auto& r) { return name_of(r.of.bound); }, bounds ? kInCsv : kNowhere},
          {"predicted_s", "", [](auto& r) { return r.of.predicted; }},
          {"measured_s", "",
           [](auto& r) { return r.of.measured > 0 ? cell(r.of.measured) : empty_cell(); }},
          {"linear_s", "", [](auto& r) { return r.of.linear; }},
          {"in_calibrated_range", "", [](auto& r) { return r.of.in_range; }}},
      numbered(cases));
}

int validate_calibrated(const ValidateOptions& options, const System& system,
                        const Context& context, runtime::MpiSession& session) {
  Progress progress("validating");
  validation::ValidateRuntimeOptions study;
  study.seed = options.seed;
  study.traces = options.keep_traces;
  const std::int64_t count = options.count.value_or(36);
  study.transformers = count / 3;
  study.dlrm = count - study.transformers;
  study.experts = options.experts;
  if (options.backend == "cuda") {
    study.executor = timed_cuda_executors(context, session);
  }
  study.predicted = [&options, first = true](const std::vector<RuntimeCase>& cases) mutable {
    write_predictions(
        options, "runtime", case_predictions(cases, true),
        std::exchange(first, false) ? fmt::format("{} predictions", cases.size()) : "");
  };
  study.progress = std::ref(progress);
  const std::vector<RuntimeCase> cases = validation::validate_runtime(system, study, session);
  const validation::Suite suite = validation::runtime_suite(cases);
  if (session.rank() == 0) {
    print_suites({suite}, options.format, answer());
    std::vector<double> probes;
    for (const RuntimeCase& c : cases) {
      probes.push_back(c.core_probe.base());
    }
    if (const auto warning = studies::core_speed_warning(Seconds(median_of(probes)), system)) {
      fmt::print(stderr, "stepcast: warning: {}\n", *warning);
    }
  }
  // A "no" of the check is rank 0's to tell: a rank that exits with another code than 0 would end
  // the run for the launcher.
  return suite.pass ? 0 : 1;
}

int validate_from_traces(const ValidateOptions& options, const Context& context,
                         runtime::MpiSession& session) {
  Progress progress("validating");
  validation::FromTracesOptions study;
  study.seed = options.seed;
  study.traces = options.from_traces;
  study.cases = static_cast<std::size_t>(std::max<std::int64_t>(1, options.count.value_or(36) / 2));
  study.library = context.library.root;
  study.producer = std::string(kVersionText);
  std::optional<TemporaryFolder> temporary;
  study.folder = options.keep_traces;
  if (options.keep_traces.empty()) {  // one folder for all ranks
    std::string name;
    if (session.rank() == 0) {
      temporary.emplace("stepcast-traces");
      name = temporary->path().string();
    }
    name.resize(
        static_cast<std::size_t>(session.from_rank_zero(static_cast<std::int64_t>(name.size()))));
    session.broadcast_bytes(name.data(), name.size());
    study.folder = name;
  }
  study.predicted = [&options, first = true](const std::vector<RuntimeCase>& cases) mutable {
    write_predictions(
        options, "from-traces", case_predictions(cases, false),
        std::exchange(first, false) ? fmt::format("{} predictions", cases.size()) : "");
  };
  study.progress = std::ref(progress);
  const validation::Suite suite =
      validation::from_traces_suite(validation::validate_from_traces(study, session));
  if (session.rank() == 0) {
    print_suites({suite}, options.format, answer());
  }
  return suite.pass ? 0 : 1;
}

}  // namespace

int validate_runtime(const ValidateOptions& options, Context& context) {
  const bool cuda = options.backend == "cuda";
  const bool calibrated = options.from_traces == 0;
  if (calibrated && options.system.empty()) {
    throw InputError("--system",
                     "is needed: the file that `stepcast calibrate --backend cpu --out FILE` wrote "
                     "on this machine");
  }
  if (calibrated && cuda) {
    require_cuda(context);
  }
  System system;
  if (calibrated) {
    system = config::load_system(options.system, {context.library});
  }
  const auto session = as_ranks(context, options.ranks.value_or(cuda ? 1 : 2),
                                {.timeout = std::chrono::seconds(60)});
  if (session == nullptr) {
    return context.exit_code;
  }
  return as_one_rank(*session, [&] {
    return calibrated ? validate_calibrated(options, system, context, *session)
                      : validate_from_traces(options, context, *session);
  });
}

}  // namespace stepcast::cli
