#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "runtime/mpi/session.h"

namespace stepcast::cli {

/// Makes this command run as `ranks` ranks. Several under no launcher: it runs itself again under
/// mpirun, waits, sets the exit code and returns nothing. As one of the ranks, or the only one, it
/// returns the session.
/// `standard_input` is what this process has read of its own; the ranks read it again.
/// A launcher that started another number of ranks ends them all, with code 2.
/// Errors: EnvironmentError for tasks of srun that cannot find each other.
std::unique_ptr<runtime::MpiSession> as_ranks(Context& context, int ranks,
                                              runtime::MpiOptions options,
                                              std::string_view standard_input = {});

/// Whether this process is the only one of the command, or rank 0 of several.
bool speaks_for_ranks();

/// Property of a command that all its ranks must have in common.
struct SharedFact {
  std::string name, value;
  bool is_json = false;  ///< then ranks compare hashes first, and tell the key that differs
};
/// Ends the run on all ranks with code 2 if one was started otherwise than most others: names the
/// rank and the first fact that differs.
void require_agreement(runtime::MpiSession& session, const std::vector<SharedFact>& facts);

/// Names, in the environment of ranks that a command starts, the file that stands for its standard
/// input: a launcher would give that to one rank only, and the command has read it.
constexpr const char* kStandardInputVariable = "STEPCAST_STANDARD_INPUT";

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
