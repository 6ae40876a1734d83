#pragma once
#include <vector>

#include "core/baseline.h"
#include "studies/guard/guard.h"

// Statistics of the guard: changes on a logarithmic scale, their common part and their spread.
namespace stepcast::studies::internal {

constexpr std::size_t kCommonNeeds = 5;  ///< ops, to tell one from all

/// log medians and their standard errors, by run.
struct LogTimes {
  std::vector<double> median, error;
};

/// `added` seconds are added to every median, where it may be next to nothing.
LogTimes log_of(const BaselineTimes& times, double added);

/// One time to judge, before and after, on the logarithmic scale.
struct Case {
  const BaselineTimes *before_times = nullptr, *after_times = nullptr;
  GuardedTime* time = nullptr;
  LogTimes before, after;
  bool collective = false;
  bool op = false;     ///< contributes to the common change
  bool group = false;  ///< has what is common taken out, like an op
  double level = 0;    ///< median over the runs before
  double change = 0;   ///< of the median over the runs after
  double between = 0;  ///< variance between runs that others of its class have too
  double degrees = 0;
  double error = 0;
};
/// Change that all ops have in common, by run; its own scatter is that of a median over ops.
struct Common {
  LogTimes before, after;
};
/// Takes what all ops have in common out of every run of the ops and groups.
Common take_out_common(std::vector<Case>& cases, std::size_t runs_before, std::size_t runs_after);

/// Fills in the errors of the changes. `steps_*`: steps per run, mean of before and of after.
void spread_of(std::vector<Case>& cases, std::size_t runs, double steps_before, double steps_after);

/// How much wider the changes of all ops scatter than the baseline's spread explains, at least 1:
/// a disturbed run says so itself. The scale of the bulk (median absolute deviation), which one op
/// does not move; B. Devlin, K. Roeder, Genomic control, Biometrics 55, 1999.
double disturbance_of(const std::vector<Case>& cases);

/// Writes the verdict of a case into its row. `false_alarms`: the share of comparisons of equal
/// programs in which this row may be called a regression.
void judge(Case& c, double false_alarms, const GuardOptions& options, bool spread_known);

}  // namespace stepcast::studies::internal
