#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "models/fit/fit.h"
#include "studies/fit/linear_baseline.h"
#include "traces/trace.h"

namespace stepcast::studies {

/// One row of what was measured: an op of a real step, or a whole step.
struct MeasuredRow {
  std::string configuration, kind, name;
  std::array<std::int64_t, 6> shape{};
  double flops = 0, bytes = 0, seconds = 0;
  std::int64_t samples = 0;
};

/// Records of a trace that no fit can use.
struct Unexplained {
  std::string reason;  ///< "outside every step", "no tables", ...
  std::string name;    ///< of the op, or the kind of record
  std::int64_t count = 0;
  double seconds = 0;  ///< that they took
};

/// Costs that recorded steps show, ready for every fit. `ops` point into `graphs`, whose
/// elements never move.
struct FitRows {
  struct HostOfJob {
    std::string program = {};  ///< as Origin has it
    double step_seconds = 0;
    models::MeasuredHost medians;  ///< one per rank
    models::MeasuredHost all;      ///< every gap, and issue and rest of every step
  };
  FitRows() = default;
  FitRows(FitRows&&) = default;
  FitRows& operator=(FitRows&&) = default;
  FitRows(const FitRows&) = delete;
  FitRows& operator=(const FitRows&) = delete;
  ~FitRows() = default;

  std::deque<ExecutionGraph> graphs;  ///< one per job
  std::vector<models::MeasuredOp> ops;
  std::vector<models::MeasuredCollective> collectives;
  std::vector<HostOfJob> hosts;
  /// Compute between two rendezvous, [repeat][rank] over ranks with equal programs, each relative
  /// to the mean of its segment.
  std::vector<std::vector<double>> segments;
  std::vector<StepSample> steps;
  std::vector<double> core_probes;  ///< of each job whose cores were probed
  /// What a row was recorded of: recordings of one program have equal origins.
  struct Origin {
    std::string program;  ///< the job that ran, whatever it ran on
    std::int32_t rank = 0;
    std::uint32_t call = 0, op = 0;
    auto operator<=>(const Origin&) const = default;
  };
  std::vector<Origin> op_origins, collective_origins;  ///< of each of `ops`, of `collectives`
  std::vector<MeasuredRow> rows;
  std::vector<Unexplained> unexplained;
  double seconds = 0;  ///< of all recorded ops, used or not

  // Adds a row that the fits read, and its row for people; `name` is the op's, empty for one of
  // several.
  void add_op(const std::string& workload, std::string name, const models::MeasuredOp& measured,
              std::int64_t samples);
  void add_collective(const std::string& workload, std::string name,
                      const models::MeasuredCollective& measured,
                      const std::array<std::int64_t, 6>& sizes);
  void add_step(const std::string& workload, const StepSample& step, std::int64_t samples);
};

/// Adds the steps of a trace: kernels from op durations (median per op and rank),
/// collectives from transfer times (last arrival to end; the least over ranks, except where each
/// ends for itself), the host from the gaps between ops. `alone`, where it is not empty: of every
/// rank, steps and the host's part of a run whose ops nothing recorded, which take the place of the
/// trace's. `graph` is the one the trace ran, with tables and exchanges as far as they are known. A
/// step that is not whole on every rank is not used but listed. Returns the number of steps used.
std::int64_t add_steps(FitRows& rows, const Job& job, ExecutionGraph graph, traces::GraphRun trace,
                       const std::vector<traces::RankTrace>& alone = {});

/// Records that the recorders of these traces lost: gaps and issue times beside them are wrong.
std::uint64_t dropped_records(const FitRows& rows);

/// Recordings of one program become one: the median of each op, collective, host cost and step over
/// them. A recording more makes the program's rows surer, and does not outweigh other programs or
/// what few rows leave open. `rows.rows` keeps every recording. For rows that `add_steps` added.
void merge_repeats(FitRows& rows);

/// Sets the rates of a device and its innermost fabric level to the best and the typical that the
/// rows show: facts for people and for forms without constants; fitted forms do not depend on them.
void set_measured_rates(System& system, const FitRows& rows);

/// The innermost fabric level alone.
void set_measured_links(System& system, const FitRows& rows);

/// Fits every model to the rows: kernels, collectives among ranks of one machine, host, linear
/// baseline.
void fit_steps(System& system, const FitRows& rows, const models::FitOptions& options);

}  // namespace stepcast::studies
