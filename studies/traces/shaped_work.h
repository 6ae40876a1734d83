#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/program.h"
#include "core/system.h"
#include "models/cost_model.h"
#include "studies/fit_rows.h"
#include "traces/measured_step.h"

namespace stepcast::studies {

/// Work and transfers of the ranks of a recorded run, by shape: a run of any program whose
/// profiler recorded operators with their shapes (traces/graph/operator_join.h).
struct ShapedWork {
  /// A distinct op and every time it took: all kernels of one operator's call together.
  struct Kernel {
    std::uint32_t op = 0;  ///< in `program`
    std::vector<double> seconds;
  };
  /// One meeting of a communicator.
  struct Transfer {
    Op op;  ///< all-to-all-v as the equal exchange that moves as much
    GroupShape group;
    double bytes = 0;
    double seconds = 0;  ///< from the last arrival: the least over the members
    double wait = 0;     ///< before it: mean over the members
  };
  Program program;  ///< every distinct op once, with its tables
  std::vector<Kernel> kernels;
  std::vector<Transfer> transfers;
  std::vector<Unexplained> unexplained;  ///< by reason and operator, with their time
  double seconds = 0;  ///< of device work over all ranks and steps, waits in collectives left out
};

/// Errors: none; work without a shape is listed in `unexplained`.
ShapedWork shaped_work(const traces::MeasuredRun& run, const System& system);

/// Adds the work of a recorded run to what the fits are made from: the median of each distinct op,
/// each of them a configuration of its own; transfers; host gaps of every rank and step.
void add_shaped_work(FitRows& rows, const traces::MeasuredRun& run, const std::string& name,
                     const System& system);

}  // namespace stepcast::studies
