#pragma once
#include <stdexcept>
#include <string>

#include "core/graph/program.h"
#include "core/system.h"
#include "runtime/mpi/session.h"

namespace stepcast::runtime::scenarios {

/// Ends the program with a code no test expects.
inline void require(bool condition, const std::string& what) {
  if (!condition) {
    throw std::logic_error("check failed: " + what);
  }
}

/// A graph without programs: `ranks` data-parallel ranks, one communicator over all, one over
/// pairs.
ExecutionGraph bare_graph(int ranks);
/// One level, `ranks` devices.
System flat_system(int ranks, double bytes_per_second, double latency_seconds);

void collectives(MpiSession& session);
void rejected(MpiSession& session);
void emulated_collectives(MpiSession& session);
void training(MpiSession& session);
void killed(MpiSession& session);
void hanging(MpiSession& session);
void setting_up(MpiSession& session);
void failing(MpiSession& session);
void too_large(MpiSession& session);
void paced(MpiSession& session);
void overlap(MpiSession& session);

/// The checks of `collectives` on any implementation.
void check_collectives(Collectives& c, int world_rank_of_first);

}  // namespace stepcast::runtime::scenarios
