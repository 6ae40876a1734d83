#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/job/job.h"
#include "studies/predict/predict.h"
#include "traces/measured_step.h"

namespace stepcast::studies {

/// One named op of one phase, as far as the step of its rank is put down to it: the ticks it is the
/// one thing the rank computes, transfers or waits in. An op hidden behind another counts nothing.
struct AccountRow {
  std::string name;  ///< "layer.mlp.fc1 [forward]", or what no op accounts for: "host", "done", ...
  std::string kind;
  double executions = 0;  ///< per step
  Seconds compute, exposed_communication, bubble, host, other;
  [[nodiscard]] Seconds total() const {
    return compute + exposed_communication + bubble + host + other;
  }
};

/// Parts of a step, predicted or recorded; the rows sum to it exactly.
struct StepAccount {
  std::string label;
  std::int32_t rank = 0;  ///< the critical one
  Seconds step;           ///< of a job: at the ideal rate
  Seconds expected;       ///< at the efficiency of such runs, where one is known; else `step`
  std::vector<AccountRow> rows;
};

/// On the predicted critical rank.
StepAccount account_of(const Job& job);
/// On the critical rank of a recorded run, means over its steps (step_views.h).
StepAccount account_of(const traces::MeasuredRun& run);

/// One row of a waterfall from A to B; the deltas of a waterfall sum to step B - step A exactly.
struct WaterfallRow {
  std::string name;
  std::string kind;
  double executions_a = 0, executions_b = 0;
  Seconds a, b;
  /// Parts of b - a, by what the ticks were spent in.
  Seconds compute, exposed_communication, bubble, host, other;
  [[nodiscard]] Seconds delta() const { return b - a; }
};

/// One change on the way from job A to job B, applied on top of those before it.
struct ChangeRow {
  std::vector<config::Difference> changes;  ///< several where none alone gives a legal job
  Seconds step;                             ///< with this change and all before
  Seconds delta;
};

struct Explanation {
  StepAccount a, b;
  bool by_name = true;  ///< rows are named ops; else op kinds, when few names occur in both
  std::vector<WaterfallRow> rows;  ///< largest |delta| first
  std::vector<ChangeRow> changes;  ///< two jobs only, in the order of the keys of a job
};

/// Row by row. Ops are matched by name and phase where these cover most of both steps (two jobs of
/// one workload, two recordings of one program), else by kind.
Explanation explain(StepAccount a, StepAccount b);

/// Makes a job from `base` with `changes` set; throws InputError where there is no such job.
using ChangeJob =
    std::function<Job(const Job& base, const std::vector<config::Difference>& changes)>;
/// Two jobs: row by row and change by change. A change that gives no legal job is taken together
/// with the next ones until one does.
Explanation explain(const Job& a, const Job& b, const ChangeJob& change);

}  // namespace stepcast::studies
