#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "studies/predict/training_run.h"

namespace stepcast::studies {

/// One `--set key=a,b,c`: the values a key takes. A key with one value is fixed, not swept.
struct SweepAxis {
  std::string key;
  std::vector<std::string> values;
};

/// Splits at commas that stand outside brackets, braces and double quotes:
/// "[1,2],[3]" -> {"[1,2]", "[3]"}. Errors: InputError for an empty value, an unclosed bracket or
/// an unclosed quote.
std::vector<std::string> split_values(std::string_view text);

/// One axis per assignment, in the order given. Errors: InputError for a missing `=` and for a key
/// that is set twice.
std::vector<SweepAxis> sweep_axes(const std::vector<std::string>& assignments);

/// Points of the cross product. Errors: InputError above 1,000,000.
std::size_t sweep_size(const std::vector<SweepAxis>& axes);

enum class SweepStatus : std::uint8_t {
  kOk,
  kDoesNotFit,  ///< predicted, but needs more memory than the device has
  kInvalid,     ///< no such job: `reason` is the InputError
  kFailed,      ///< the prediction broke: `reason` says how; a defect or out of memory
};
std::string_view name_of(SweepStatus status);

/// One point: what was set (in the order of the axes) and what came out.
struct SweepPoint {
  std::vector<std::string> values;
  SweepStatus status = SweepStatus::kInvalid;
  Seconds iteration;
  Seconds p5, p95;  ///< nine of ten steps lie between; 0 where that is not known
  double samples_per_second = 0;
  double tokens_per_second = 0;
  double mfu = 0;
  Bytes memory;                                 ///< of the fullest device, reserve included
  double days = 0, device_hours = 0, cost = 0;  ///< of the whole run; 0 where none was asked for
  bool in_calibrated_range = false;
  bool planned_by_rule = false;     ///< its embedding plan: of a rule, not of a file
  bool plan_searched = false;       ///< the planner's quick search
  std::string reason;               ///< why it is not kOk, else empty
  std::vector<std::string> chosen;  ///< settings of its plan, where the job says none
  bool pareto = false;              ///< set by mark_pareto
  [[nodiscard]] bool predicted() const {
    return status == SweepStatus::kOk || status == SweepStatus::kDoesNotFit;
  }
};

struct SweepOptions {
  int threads = 1;
  RunLength length{};  ///< of a whole run; none above 0: none is asked for
  RunTerms terms{};
  /// Called with every point in order, from the calling thread, as soon as it and all before it
  /// are done.
  std::function<void(const SweepPoint&)> on_point = {};
  /// Called now and then from the calling thread: points done, in any order.
  std::function<void(std::size_t)> on_progress = {};
};

struct SweptJob {
  SweptJob(Job of, std::vector<std::string> settings = {})  // NOLINT: a job is one
      : job(std::move(of)), chosen(std::move(settings)) {}
  Job job;
  std::vector<std::string> chosen;  ///< settings of its plan, where the job says none
};
/// Makes the job of a point from `key=value` overrides. Called from several threads at once.
using MakeJob = std::function<SweptJob(const std::vector<std::string>& overrides)>;

/// Predicts every point of the cross product; the last axis varies fastest. The result does not
/// depend on the number of threads. A recommendation model whose job names no `embedding.plan` gets
/// that of the planner's quick search (studies/plan/searched_plan.h): the rule that `predict` takes
/// may be several times slower on many devices, so that points would not compare.
std::vector<SweepPoint> sweep(const std::vector<SweepAxis>& axes, const MakeJob& make_job,
                              const SweepOptions& options);

/// Names of the result columns a front can be taken over; the number of a swept key works as well.
const std::vector<std::string>& sweep_columns();

/// Marks the points that no other point dominates: none is at least as good in all `columns` and
/// better in one. Times, memory and swept keys are better when smaller; samples_per_s,
/// tokens_per_s and mfu when larger; days and cost, of whole runs, when smaller. Only points that
/// fit can be on the front; equal points are all on it. Errors: InputError for a column that is not
/// there or a swept value that is no number.
void mark_pareto(std::vector<SweepPoint>& points, const std::vector<SweepAxis>& axes,
                 const std::vector<std::string>& columns);

}  // namespace stepcast::studies
