#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/graph/observer.h"
#include "simulator/event_queue.h"
#include "simulator/rank_state.h"

namespace stepcast::simulator {

/// Wants a core; earliest `ready` first, then lowest `order`: compute by stream, then transfers in
/// an order all ranks agree on, so that no two transfers can hold each other's core.
struct CoreTask {
  std::int64_t ready = 0;
  std::uint64_t order = 0;
  std::int32_t stream = -1;    ///< compute of this stream, or ...
  std::uint32_t transfer = 0;  ///< ... this rank's part of a transfer
};

/// Host threads, one of each rank: they issue ops to the streams while their queues have room, and
/// wait for events where an op says so. With StepCosts::shares_core also the cores that they, their
/// ranks' compute and, where it holds a core, communication take turns on.
class Hosts {
 public:
  /// Who is told of what cores are given to.
  class Client {
   public:
    virtual ~Client() = default;
    virtual void wake_rank(std::uint32_t rank) = 0;
    virtual void begin_compute(std::uint32_t rank, std::uint32_t stream, std::int64_t begin) = 0;
    /// Gives that many parties of a transfer their cores.
    virtual void give_cores(std::uint32_t transfer, std::size_t parties) = 0;
  };

  /// Cores have event sources from `first_source` on. Ops are issued into `ranks`.
  Hosts(const StepCosts& costs, EventQueue& queue, std::uint32_t first_source,
        std::span<RankState> ranks, Client& client);

  /// Host spans go there, as those of a step.
  void observe(Observer* observer, std::int32_t step) {
    observer_ = observer;
    step_ = step;
  }
  /// The host of a rank whose queues cannot fill has issued all ops without delay.
  void issue_all(std::uint32_t rank);
  void finish(std::uint32_t rank, std::int64_t end);  ///< reports what the host did until the end
  [[nodiscard]] std::int64_t time(std::uint32_t rank) const { return threads_[rank].time; }
  [[nodiscard]] std::uint32_t cores() const { return static_cast<std::uint32_t>(cores_.size()); }

  /// Issues what the host thread can.
  void issue(std::uint32_t rank);
  /// An op has left the queue of a stream.
  void make_room(std::uint32_t rank, std::uint32_t stream) {
    Thread& host = threads_[rank];
    if (host.block == static_cast<std::int32_t>(stream)) {
      host.block = -1;
      ranks_[rank].host_ready = true;
    }
  }
  void note_record(std::uint32_t rank, std::uint32_t record) {
    Thread& host = threads_[rank];
    if (host.record == record) {
      host.record = -1;
      ranks_[rank].host_ready = true;
      client_.wake_rank(rank);
    }
  }

  void want_core(std::uint32_t rank, const CoreTask& task) { threads_[rank].tasks.push_back(task); }
  /// The core of a rank is free, or its tasks have changed: it is granted once all of the present
  /// is known.
  void list_core(std::uint32_t rank) {
    Core& core = cores_[threads_[rank].core];
    if (costs_.shares_core && !core.busy && !core.listed) {
      core.listed = true;
      grants_.push_back(threads_[rank].core);
    }
  }
  [[nodiscard]] bool grants_wait() const { return !grants_.empty(); }
  void grant();
  /// Compute of a rank has ended.
  void end_compute(std::uint32_t rank) { cores_[threads_[rank].core].busy = false; }
  /// A transfer of the rank has left its core.
  void release(std::uint32_t rank) { release_core(threads_[rank].core); }
  void handle(const EventQueue::Event& event) { release_core(event.source - first_core_); }

 private:
  struct Thread {
    std::int32_t block = -1;   // stream whose queue is full
    std::int64_t record = -1;  // record it waits for
    std::int64_t time = 0;
    std::uint64_t issued = 0;
    std::uint32_t call = 0, op = 0;
    HostSpan::Kind idle = HostSpan::Kind::kQueueFull;  // why it last left the core
    std::int64_t room = 0;                             // when it can go on, if it is not blocked
    std::uint32_t core = 0;
    std::vector<CoreTask> tasks;
  };
  /// Core that hosts and compute run on; several ranks may share one.
  struct Core {
    bool busy = false;
    bool listed = false;     // among those to grant
    std::uint32_t last = 0;  // rank that had it last: keeps it until it has nothing to compute
    std::vector<std::uint32_t> ranks;
  };

  bool may_issue(std::uint32_t rank, std::uint32_t op, std::int64_t& burst);
  void grant_core(std::uint32_t core);
  [[nodiscard]] bool grant_host(std::uint32_t core, std::int64_t& next);
  void grant_transfer(const Core& core, std::uint32_t transfer);
  void release_core(std::uint32_t core);
  void emit(std::uint32_t rank, HostSpan::Kind kind, std::int64_t begin, std::int64_t end);

  const StepCosts& costs_;
  EventQueue& queue_;
  std::span<RankState> ranks_;
  Client& client_;
  Observer* observer_ = nullptr;
  std::int32_t step_ = 0;
  const std::uint32_t first_core_;
  std::vector<Thread> threads_;  // by rank
  std::vector<Core> cores_;
  std::vector<std::uint32_t> grants_;  // free cores
};

}  // namespace stepcast::simulator
