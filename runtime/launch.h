#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace stepcast::runtime {

/// The environment, as `NAME=value` strings: whoever may read it passes it in.
using Environment = std::vector<std::string>;

/// The rank a launcher (Open MPI, MPICH, Intel MPI, srun with PMI) started this process as; empty
/// without one. A Slurm batch script itself is not a rank, although SLURM_PROCID is set in it.
std::string_view launched_rank(const Environment& environment);
/// Tasks that srun started this one with; 1 without srun, and in a batch script itself.
int tasks_of_step(const Environment& environment);

struct LaunchRequest {
  std::string executable;              ///< of this program
  std::vector<std::string> arguments;  ///< without the program's name
  int ranks = 1;
  int cores = 1;  ///< of this machine; more ranks than that yield when idle
  Environment environment;
};

struct LaunchResult {
  /// 0, 1, 2, 3, 4 and 70 as the ranks returned; 128 and a signal that stopped this process;
  /// else 4.
  int exit_code = 0;
  std::string message;  ///< what happened, when the ranks themselves may not have been able to say
};

/// Runs the program again as ranks under mpirun and waits for them. Interrupts are passed on, and
/// ranks end with this process.
/// Errors: EnvironmentError when there is no mpirun in PATH.
LaunchResult run_under_mpirun(const LaunchRequest& request);

/// Cores this process may use, and the n-th of them (counting from 0, going round).
int available_cores();
int nth_core(int n);

}  // namespace stepcast::runtime
