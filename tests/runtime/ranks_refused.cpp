// Calls of MPI that fail, through MPI's own profiling interface: this program's MPI_X stands before
// the library's, which is PMPI_X.
#include <mpi.h>

#include <functional>
#include <string>

#include "core/error.h"
#include "ranks_scenarios.h"

namespace {

bool rejecting = false;

}  // namespace

extern "C" {

int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op operation,
                  MPI_Comm communicator) {
  return rejecting ? MPI_ERR_OTHER
                   : PMPI_Allreduce(send, receive, count, type, operation, communicator);
}

int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm communicator) {
  return rejecting ? MPI_ERR_OTHER : PMPI_Bcast(data, count, type, root, communicator);
}

int MPI_Ibarrier(MPI_Comm communicator, MPI_Request* request) {
  return rejecting ? MPI_ERR_OTHER : PMPI_Ibarrier(communicator, request);
}

int MPI_Comm_split(MPI_Comm communicator, int color, int key, MPI_Comm* split) {
  return rejecting ? MPI_ERR_OTHER : PMPI_Comm_split(communicator, color, key, split);
}
}

namespace stepcast::runtime::scenarios {

void rejected(MpiSession& session) {
  // While MPI obeys: texts of different lengths reach all ranks, an empty one too.
  const auto text_of = [](int rank) {
    return std::string(static_cast<std::size_t>(7 * rank), 'x');
  };
  const auto texts = session.everyones(text_of(session.rank()));
  for (int r = 0; r < session.size(); ++r) {
    require(texts[static_cast<std::size_t>(r)] == text_of(r), "everyones");
  }
  const auto fails = [](const char* what, const std::function<void()>& exchange) {
    rejecting = true;
    bool told = false;
    try {
      exchange();
    } catch (const RunError&) {
      told = true;
    }
    rejecting = false;
    require(told, what);
  };
  fails("sum", [&] { session.sum({1, 2}); });
  fails("maximum", [&] { session.maximum({1, 2}); });
  fails("local_sum", [&] { session.local_sum(1); });
  fails("from_rank_zero", [&] { session.from_rank_zero(1); });
  char data[8] = {};
  fails("broadcast_bytes", [&] { session.broadcast_bytes(data, sizeof data); });
  fails("everyones", [&] { session.everyones("text"); });
  fails("rank_zero_does", [&] { session.rank_zero_does([] {}); });
  ExecutionGraph graph;
  graph.mesh.data = session.size();
  graph.communicators.push_back({.name = "data", .axes = {Axis::kData}, .groups = {}});
  fails("communicators", [&] { session.communicators(graph); });
}

}  // namespace stepcast::runtime::scenarios
