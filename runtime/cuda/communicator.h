#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/program.h"
#include "runtime/cuda/communicator_plan.h"
#include "runtime/cuda/module.h"

namespace stepcast::runtime::cuda {

/// One NCCL communicator of this rank, set up without blocking so that a lost rank is noticed.
class Communicator {
 public:
  Communicator(ncclComm_t handle, std::string name, std::chrono::duration<double> timeout,
               std::atomic<std::int64_t>* looked);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] ncclComm_t handle() const { return handle_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] const std::string& name() const { return name_; }

  /// Looks at the code of a call on this communicator; one still in progress is waited for.
  /// Errors: RunError for a failure, or none of it done within the timeout.
  void complete(ncclResult_t code, const char* call) const;
  /// Errors that NCCL has met since in the background: RunError.
  void check_background() const;
  /// Aborts: kernels in flight end, nothing more may be called.
  void abort();

 private:
  friend class Communicators;
  ncclComm_t handle_;
  std::string name_;
  std::chrono::duration<double> timeout_;
  std::atomic<std::int64_t>* looked_;  ///< of all, see Communicators::last_look_ns
  int rank_ = 0;
  int size_ = 1;
};

/// All communicators of this rank: one for the collectives of each communicator of the graph, one
/// for each pair of ranks that exchange messages. All ranks make theirs together.
class Communicators {
 public:
  Communicators(const ExecutionGraph& graph, const Ranks& ranks, const Options& options);
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  /// Null where this rank takes no part.
  [[nodiscard]] Communicator* collective(std::int32_t communicator) const;
  /// The pair's own communicator; the sender is its rank 0.
  [[nodiscard]] Communicator* pair(std::int32_t communicator, std::int32_t sender,
                                   std::int32_t receiver) const;
  void check_background() const;
  /// Waits until a stream has done all it was given, looking after NCCL meanwhile. Errors: RunError
  /// after the timeout.
  void wait_for(cudaStream_t stream, std::string_view what) const;
  /// When a wait for one of them, or for a stream, looked last; 0: never.
  [[nodiscard]] std::int64_t last_look_ns() const { return last_look_ns_; }
  void abort();

 private:
  void connect_pairs(std::int32_t rank);

  std::chrono::duration<double> timeout_;
  mutable std::atomic<std::int64_t> last_look_ns_{0};
  CommunicatorPlan plan_;
  std::vector<std::unique_ptr<Communicator>> all_;  ///< the one of all ranks first
  std::vector<Communicator*> by_round_;
};

}  // namespace stepcast::runtime::cuda
