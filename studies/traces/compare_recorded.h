#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "studies/fit/step_rows.h"
#include "traces/measured_step.h"

namespace stepcast::studies {

/// One op kind of a recorded run: its distinct ops priced by the models, beside what they took.
struct RecordedKind {
  std::string kind;
  std::int64_t distinct = 0, calls = 0;
  Seconds predicted, measured;  ///< sums over calls, per step and rank; collectives: transfer only
  double median = 0, mean = 0, p90 = 0;  ///< |predicted / measured - 1| over distinct ops
  double in_range = 0;                   ///< share of the distinct ops inside what was fitted
  std::optional<Seconds> job;            ///< what the job's own graph has of this kind
};

struct RecordedComparison {
  std::string system, workload;
  std::int64_t ranks = 0, steps = 0;
  std::vector<RecordedKind> kinds;  ///< by time
  Seconds measured_step;            ///< median
  Seconds wait;                     ///< in collectives, for the last member; per step and rank
  std::optional<Seconds> predicted_step;  ///< of the job
  std::vector<Unexplained> unexplained;
  double seconds = 0;  ///< of device work over all ranks and steps, waits left out
  std::vector<std::string> warnings;
};

/// A capture of any program beside what the models of the job's system say of its kernels and
/// collectives, told by shape (recorded_work.h): each distinct op by its median time. With
/// `of_job` the job is predicted too: its kinds on the critical rank, and its step.
/// Errors: InputError when the capture tells no shape.
RecordedComparison compare_recorded(const traces::MeasuredRun& run, const Job& job, bool of_job);

}  // namespace stepcast::studies
