#pragma once
#include <memory>
#include <optional>
#include <string_view>

#include "cli/command.h"
#include "runtime/mpi/session.h"

namespace stepcast::cli {

/// Makes this command run as `ranks` ranks. Several under no launcher: it runs itself again under
/// mpirun, waits, sets the exit code and returns nothing. As one of the ranks, or the only one, it
/// returns the session.
/// `standard_input` is what this process has read of its own; the ranks read it again.
/// Errors: InputError when a launcher started another number of ranks.
std::unique_ptr<runtime::MpiSession> as_ranks(Context& context, int ranks, double timeout_seconds,
                                              std::string_view standard_input = {});

/// Names, in the environment of ranks that a command starts, the file that stands for its standard
/// input: a launcher would give that to one rank only, and the command has read it.
constexpr const char* kStandardInputVariable = "STEPCAST_STANDARD_INPUT";

/// The session of a command that mpirun or srun started as several ranks; null when it runs alone.
/// For commands that share work out but need no ranks.
std::unique_ptr<runtime::MpiSession> join_ranks();

/// Runs a command's work as one of the ranks: an error on one of several ranks is told and ends the
/// run on all, with the error's own exit code, instead of leaving the others to wait.
template <typename Work>
int as_one_rank(runtime::MpiSession& session, const Work& work) {
  try {
    return work();
  } catch (const std::exception& e) {
    if (session.size() > 1) {
      session.abort(e);
    }
    throw;
  }
}

}  // namespace stepcast::cli
