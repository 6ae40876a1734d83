#pragma once
#include <sched.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/graph/program.h"
#include "runtime/collectives.h"
#include "runtime/mpi/api.h"
#include "runtime/mpi/roll_call.h"
#include "runtime/mpi/watchdog.h"

namespace stepcast::runtime {

struct MpiOptions {
  bool alone = false;  ///< the only rank, started by no launcher: needs no MPI library
  std::chrono::duration<double> timeout{20};  ///< of one collective
  std::string timeout_option{};               ///< that sets it, for messages
  /// Receives the message of a run that is about to be aborted; the process ends right after it.
  std::function<void(const std::string&)> report = nullptr;
};

/// This process as one MPI rank, from MPI_Init to MPI_Finalize. One per process.
/// Errors: EnvironmentError when MPI is not there or lacks thread support.
class MpiSession {
 public:
  explicit MpiSession(MpiOptions options = {});
  /// Finalises MPI; if an exception is passing through, aborts the run instead, because a rank that
  /// leaves alone would let the others wait.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] int local_rank() const { return local_rank_; }  ///< among the ranks of this machine
  [[nodiscard]] int local_size() const { return local_size_; }

  /// While ranks are set up, whose work may differ by minutes, exchanges have 10 times the timeout,
  /// 120 s at least. On all ranks together.
  void set_up(bool begins);

  /// Cores this process could use when the session began: runs pin threads.
  [[nodiscard]] int cores() const { return cores_; }
  /// Lets the calling thread run on all of them, where the one that started it is pinned.
  void use_all_cores() const { sched_setaffinity(0, sizeof core_set_, &core_set_); }

  /// The collectives of every communicator of a graph, in its order; null where this rank is in no
  /// group. All ranks call it together. They stay valid as long as the session.
  std::vector<std::unique_ptr<Collectives>> communicators(const ExecutionGraph& graph,
                                                          Waiting waiting = Waiting::kBlocking);
  /// Collectives over all ranks; blocking and unpaced.
  [[nodiscard]] Collectives& world() { return *world_; }

  // Small exchanges outside the timed step.
  std::vector<double> maximum(std::vector<double> values);  ///< element by element, on all ranks
  std::vector<double> sum(std::vector<double> values);
  std::int64_t local_sum(std::int64_t value);  ///< over the ranks of this machine
  std::int64_t from_rank_zero(std::int64_t value);
  void broadcast_bytes(void* data, std::size_t bytes);  ///< rank 0's reach all
  /// Rank 0 does `work`, the others sleep until it is done, without a deadline: a long computation
  /// is no hang.
  void rank_zero_does(const std::function<void()>& work);

  /// The text of every rank, by rank, on all of them. Ranks that come early sleep, without a
  /// deadline.
  std::vector<std::string> everyones(const std::string& own);

  /// Memory that all ranks of this machine map, zeroed. They let go of it together, before the
  /// session ends.
  std::shared_ptr<void> shared_memory(std::size_t bytes);

  /// Reports and ends the whole run with this exit code, on all ranks. Never returns.
  [[noreturn]] void abort(int exit_code, const std::string& message);
  /// The same for an error that only this rank may have met: code 2, 3, 4 or 70 by its type.
  [[noreturn]] void abort(const std::exception& error);

 private:
  void check(int code, const char* call) const;
  [[nodiscard]] Watchdog::Limit set_up_limit() const;
  [[nodiscard]] std::string lost(const std::string& what) const;
  void meet();  ///< a barrier whose early ranks sleep
  void reduce(std::vector<double>& values, MpiReduction reduction);
  void broadcast_from(int rank, char* data, std::size_t bytes);

  const MpiApi& mpi_;
  MpiOptions options_;
  MpiHandle machine_ = nullptr;  ///< the ranks of this machine
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
  std::unique_ptr<RollCall> roll_call_;  ///< of several ranks; the watchdog's
  std::unique_ptr<Watchdog> watchdog_;
  InFlight* flight_ = nullptr;  ///< of the session's own exchanges
  std::unique_ptr<Collectives> world_;
  int cores_ = 1;
  cpu_set_t core_set_{};
  int uncaught_ = 0;
};

}  // namespace stepcast::runtime
