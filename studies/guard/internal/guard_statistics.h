#pragma once
#include <optional>
#include <vector>

#include "core/baseline.h"
#include "studies/guard/guard.h"

// Statistics of the guard: changes on a logarithmic scale, their common part and their spread.
namespace stepcast::studies::internal {

constexpr std::size_t kCommonNeeds = 5;  ///< ops, to tell one from all

/// Logarithms of a time and their standard errors, by run.
struct LogTimes {
  std::vector<double> value, error;
};

/// `added` seconds are added to every time, where it may be next to nothing.
LogTimes log_of(const BaselineTimes& times, double added);

/// A change between runs before and after: the difference of their means.
struct Change {
  double value = 0;
  double error = 0;    ///< standard error, from how much runs of one side differ
  double steps = 0;    ///< standard error that the steps of each run explain alone
  double degrees = 0;  ///< of freedom of `error`
};

/// One time to judge, before and after, on the logarithmic scale.
struct Case {
  enum class Role : std::uint8_t {
    kOp,      ///< contributes to the common change
    kGroup,   ///< of ops
    kTotal,   ///< stands for itself
    kShared,  ///< the common change
  };
  Role role = Role::kOp;
  bool collective = false;
  const BaselineTimes *before_times = nullptr, *after_times = nullptr;
  GuardedTime* time = nullptr;
  LogTimes before, after;          ///< as recorded
  LogTimes net_before, net_after;  ///< without the common change of their run
  Change in_itself, net;
};

/// Change that all ops have in common, by run; its own scatter is that of a median over ops. None
/// where there are too few ops to tell.
struct Common {
  LogTimes before, after;
};
std::optional<Common> common_of(const std::vector<Case>& cases);
/// Fills in the times of the cases without it.
void take_out(const std::optional<Common>& common, std::vector<Case>& cases);

/// The run that lies apart from the others of its side, farther than they differ would explain in
/// one check of ten thousand: a slow one after, or any before. One process that was disturbed says
/// nothing of the program. Each side keeps two runs or more.
struct Outlier {
  bool after = false;
  std::size_t run = 0;
  double apart = 0;  ///< from the others' mean, as a share
};
std::optional<Outlier> outlier_of(const LogTimes& before, const LogTimes& after);
void leave_out(const Outlier& outlier, std::vector<Case>& cases);

/// Fills in the changes. `steps_*`: steps per run, mean of before and of after.
void measure(std::vector<Case>& cases, double steps_before, double steps_after);

/// How much wider the changes of all ops scatter than the baseline's spread explains, at least 1:
/// a disturbed run says so itself. The scale of the bulk (median absolute deviation), which one op
/// does not move; B. Devlin, K. Roeder, Genomic control, Biometrics 55, 1999.
double disturbance_of(const std::vector<Case>& cases);

/// The noise of each time in itself: its own, and that of the common change (degrees of freedom by
/// B. L. Welch, Biometrika 34, 1947).
void add_noise_of(const Change& common, std::vector<Case>& cases);

/// Change above which noise alone leads in `tail` of the checks, and one that is seen in 95 %.
double noise_threshold(const Change& change, double tail);
double seen_from(const Change& change, double threshold);
/// The change is below this in 95 % of cases.
double at_most(const Change& change);

/// Writes the verdict of a case into its row. `tail`: the share of comparisons of equal programs in
/// which this row may be called a regression; `faster`: all ops together got faster.
void judge(Case& c, double tail, const GuardOptions& options, bool spread_known, bool faster);

}  // namespace stepcast::studies::internal
