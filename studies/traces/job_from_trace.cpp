#include "studies/traces/job_from_trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/device_names.h"
#include "core/error.h"
#include "studies/predict/predict.h"
#include "studies/traces/internal/job_sketch.h"
#include "studies/traces/recorded_step.h"
#include "studies/traces/step_views.h"
#include "traces/measured_step.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {

namespace {

constexpr double kOtherWork = 3;  ///< times as much or as little compute as recorded
constexpr double kMatters = 0.1;  ///< share of the step from which such an error matters

/// The machine it was recorded on.
void sketch_system(const traces::Recording& recording, const JobFromTraceOptions& options,
                   InferredWorkload& sketch) {
  if (!options.system.empty()) {
    sketch.tell("system", options.system, "--system");
    return;
  }
  const auto& devices = recording.ranks.front().devices;
  const std::string device = devices.empty() ? "" : devices.front();
  const auto named = device_named(device);
  if (!named || named->system.empty()) {
    throw InputError("--system",
                     device.empty()
                         ? "is needed: the trace does not say what it was recorded on"
                         : fmt::format("is needed: the trace was recorded on \"{}\", and none of "
                                       "`stepcast list systems` is a machine of it",
                                       device));
  }
  sketch.tell("system", std::string(named->system),
              fmt::format("recorded on \"{}\": its usual machine", device));
}

std::int64_t world_of(const traces::Recording& recording) {
  std::int64_t world = std::ssize(recording.ranks);
  for (const traces::RankRecording& r : recording.ranks) {
    world = std::max<std::int64_t>(world, r.world_size);
  }
  return world;
}

/// The longest of the ranks' own host time in a step of a capture: mean over those that count.
Seconds host_time_of(const traces::MeasuredRun& run) {
  const std::vector<StepView> steps = step_views(run);
  Seconds sum;
  for (const StepView& step : steps) {
    Seconds longest;
    for (const RankView& rank : step.ranks) {
      longest = std::max(longest, *rank.issuing);
    }
    sum += longest;
  }
  return sum / static_cast<double>(steps.size());
}

/// Ops that a rank issues in a step: mean over the ranks.
double ops_per_rank(const ExecutionGraph& graph) {
  double ops = 0;
  for (std::int32_t r = 0; r < graph.ranks(); ++r) {
    const Program& program = graph.program_of(r);
    for (const Call& call : program.calls) {
      ops += static_cast<double>(program.segments[call.segment].op_count);
    }
  }
  return ops / static_cast<double>(std::max(1, graph.ranks()));
}

Job job_of(const InferredWorkload& sketch, const JobFromTraceOptions& options) {
  return config::load_job(config::text_source(sketch.job.dump(), "job of the trace"), {},
                          options.library);
}

RecordedAndPredicted side_by_side(const traces::MeasuredRun& run, const Job& job,
                                  Seconds host_per_op) {
  const RecordedStep recorded = recorded_step(run);
  const auto busiest =
      std::max_element(recorded.by_rank.begin(), recorded.by_rank.end(),
                       [](const RankStep& a, const RankStep& b) { return a.compute < b.compute; });
  const StepPrediction predicted = predict(job);
  return {recorded.step,
          predicted.iteration,
          busiest->compute,
          predicted.split.compute,
          busiest->exposed_communication,
          predicted.split.exposed_communication,
          host_per_op,
          predicted.split.host > 0.5 * predicted.iteration};
}

/// A job that computes another amount of work than was recorded is another model's.
void check_compute(const RecordedAndPredicted& b, const std::string& source) {
  const double ratio = b.predicted_compute / b.recorded_compute;
  const Seconds apart = b.predicted_compute > b.recorded_compute
                            ? b.predicted_compute - b.recorded_compute
                            : b.recorded_compute - b.predicted_compute;
  if ((ratio > kOtherWork || ratio < 1 / kOtherWork) && apart > kMatters * b.recorded) {
    throw InputError(
        source,
        fmt::format("is no job that shapes tell: it computed {:.3g} ms in a step of {:.3g} "
                    "ms, and the model found in it would compute {:.3g} ms; name the ranges "
                    "of one model with --mark",
                    b.recorded_compute.base() * 1e3, b.recorded.base() * 1e3,
                    b.predicted_compute.base() * 1e3));
  }
}

}  // namespace

JobFromTrace job_from_trace(const traces::Recording& recording,
                            const JobFromTraceOptions& options) {
  InferredWorkload sketch;
  sketch.set("stepcast", 1);
  const std::int64_t world = world_of(recording);
  const std::vector<SeenRank> ranks = inferred_workload(recording, options.mark);
  if (ranks.front().ops.empty()) {
    throw InputError(recording.ranks.front().source,
                     "tells no operator's shape; record it with shapes (PyTorch profiler: "
                     "record_shapes=True)");
  }
  if (!infer_dlrm(ranks, world, sketch) &&
      !sketch_transformer(ranks, world, recording.ranks.front().source, sketch)) {
    throw InputError(
        recording.ranks.front().source,
        "is neither a recommender (embedding lookups between two chains of products) nor a "
        "transformer (attention with a product after it) by the shapes of its operators");
  }
  sketch_system(recording, options, sketch);
  JobFromTrace result;
  if (recording.ranks.front().timing == traces::Timing::kTimeline) {
    const traces::MeasuredRun run = traces::measured_run(recording, options.mark);
    Job job = job_of(sketch, options);
    const Seconds host = host_time_of(run) / ops_per_rank(workloads::build_graph(job));
    sketch.tell("host.issue", fmt::format("{:.4g} us", host.base() * 1e6),
                "the host's own time in the longest rank's step, over the ops of the job");
    job = job_of(sketch, options);
    result.comparison = side_by_side(run, job, host);
    result.warnings = run.warnings;
    check_compute(*result.comparison, recording.ranks.front().source);
  } else {
    (void)job_of(sketch, options);  // it must load
  }
  result.job = sketch.job.dump(2) + "\n";
  result.told = std::move(sketch.told);
  result.open = std::move(sketch.open);
  return result;
}

}  // namespace stepcast::studies
