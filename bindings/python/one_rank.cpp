#include "cli/support/launch_ranks.h"

namespace stepcast::cli {

/// A call is one rank, whatever started Python.
std::unique_ptr<runtime::MpiSession> join_ranks() { return nullptr; }

}  // namespace stepcast::cli
