#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/graph/execution_order.h"
#include "simulator/arrival.h"
#include "simulator/event_queue.h"
#include "simulator/network.h"
#include "simulator/simulate.h"

namespace stepcast::simulator {

/// The event engine behind simulate(); one object per run. Not part of the room's interface.
///
/// Where nothing depends on the order of events in time (no shared links, no slowdown, no shared
/// core), a stream runs ahead through its ops on its own clock until it needs another stream or
/// rank: begin and end follow from maxima and sums alone. Otherwise ends are events in time order.
class Engine {
 public:
  Engine(const ExecutionGraph& graph, const StepCosts& costs, const SimulationOptions& options,
         Observer* observer);
  SimulationResult run();

 private:
  static constexpr std::int64_t kUnknown = -1;
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int32_t kAll = -1;

  enum class State : std::uint8_t {
    kReady,
    kUnissued,
    kOnRecord,
    kInCollective,
    kOnCore,
    kRunning,
    kDone
  };

  struct Stream {
    std::int64_t free = 0;   // end of the previous op
    std::uint64_t next = 0;  // executed ops; number of the current one
    std::uint64_t issued = 0;
    std::uint64_t total = 0;
    std::uint32_t call = 0;
    std::uint32_t at = 0, at_end = 0;  // current row of ExecutionOrder::entries
    // Ring over the last `capacity` ops: issue time until the op ends, then its end.
    std::int64_t* ring = nullptr;
    std::uint32_t capacity = 0, end_slot = 0, issue_slot = 0;
    State state = State::kReady;
    std::uint32_t record = 0;  // kOnRecord: the record waited for
    // The current op.
    std::int64_t issued_at = 0, begin = 0, ready = 0, work = 0;
    double remaining = 0;  // kRunning: ticks left at `mark`
    std::int64_t mark = 0, end = 0;
    bool slowed = false;
  };

  /// Wants the core; earliest `ready` first, then lowest `order`: compute by stream, then transfers
  /// in an order all ranks agree on, so that no two transfers can hold each other's core.
  struct CoreTask {
    std::int64_t ready = 0;
    std::uint64_t order = 0;
    std::int32_t stream = -1;    // compute of this stream, or ...
    std::uint32_t transfer = 0;  // ... this rank's part of a transfer
  };
  /// CoreTask::order of a collective.
  static std::uint64_t collective_order(std::int32_t communicator, std::uint32_t sequence) {
    return 64 + (static_cast<std::uint64_t>(communicator) << 33) + sequence;
  }
  /// Of a message; after the collectives of its communicator.
  static std::uint64_t message_order(std::int32_t communicator, std::int32_t microbatch,
                                     std::int64_t tag) {
    return collective_order(communicator, 0) + (1ULL << 32) +
           ((static_cast<std::uint64_t>(microbatch) << 12) ^
            (static_cast<std::uint64_t>(tag) & 0xfff));
  }

  struct Posted {
    std::int64_t tag = 0;
    std::int32_t microbatch = 0;
    std::int32_t stream = 0;
    std::int64_t time = 0;
  };
  /// Sends and receives of one direction between two ranks that have not met.
  struct Channel {
    std::int32_t communicator = 0, source = 0, target = 0;
    std::vector<Posted> sends, receives;
    std::size_t first_send = 0;
  };

  struct Rank {
    const ExecutionOrder* order = nullptr;
    const OpCosts* costs = nullptr;
    std::int32_t rank = 0;
    bool ahead = true;           // compute runs ahead of the event clock
    bool unbounded = true;       // no queue can fill: issue times follow from the op's number
    std::uint64_t runnable = 0;  // streams to advance
    bool listed = false;         // in the work list
    // Host.
    bool host_ready = true;
    std::int32_t host_block = -1;   // stream whose queue is full
    std::int64_t host_record = -1;  // record the host thread waits for
    std::int64_t host_time = 0;
    std::uint64_t host_issued = 0;
    std::uint32_t host_call = 0, host_op = 0;
    HostSpan::Kind host_idle = HostSpan::Kind::kQueueFull;  // why it last left the core
    // Core.
    std::int64_t host_room = 0;  // when the host can go on, if it is not blocked
    std::uint32_t core = 0;
    std::vector<CoreTask> core_tasks;
    std::int32_t in_flight = 0;     // transfers
    std::int64_t last_meeting = 0;  // end of the last rendezvous
    std::vector<Stream> streams;
    std::vector<std::int64_t> ring_storage;
    std::vector<std::int64_t> record_time;
    std::vector<std::int64_t> prefix;  // sums of dispatch + ticks over ExecutionOrder::entries
    std::vector<std::int32_t> member;  // by communicator: index in Group::distinct
    /// By op template: a collective of equal partners whose links no other transfer of the rank can
    /// share. It ends when it ends: no event.
    std::vector<char> alone;
    std::vector<std::uint32_t> channels;
    std::int64_t compute = 0, wait = 0, transfer = 0;
  };

  /// What a rank's host and compute run on; several ranks may share one.
  struct Core {
    bool busy = false;
    bool listed = false;     // among those to grant
    std::uint32_t last = 0;  // rank that had it last: keeps it until it has nothing to compute
    std::vector<std::uint32_t> ranks;
  };

  struct Member {
    std::int64_t arrival = 0;  // of the mean of the ranks it stands for
    double spread = 0;         // standard deviation over those ranks
    std::int32_t missing = 0;
    std::int32_t stream = 0;
    std::uint32_t op = 0;
    bool here = false;
  };
  /// A collective that some members have reached.
  struct Meeting {
    std::uint32_t group = 0;
    std::uint32_t sequence = 0;
    OpKind kind = OpKind::kBarrier;
    std::int32_t root = -1;  // broadcast
    std::uint32_t arrived = 0, started = 0;
    std::int64_t ready_for_all = kUnknown;  // last arrival of all members, once it was asked for
    std::vector<Member> members;
  };
  struct Party {
    std::int32_t rank = 0;
    std::int32_t stream = 0;
  };
  struct Transfer {
    enum class Place : std::uint8_t { kScheduled, kFlying, kOnCore };
    Place place = Place::kScheduled;
    std::int64_t ready = 0, duration = 0;
    double speed = 0;
    std::int32_t sender = -1;  // send/recv: whose links and slowdown count too
    std::int32_t path = -1;
    std::uint64_t order = 0;  // CoreTask::order
    bool meets = true;        // counts as a rendezvous for the straggler term
    std::size_t granted = 0;
    std::vector<Party> parties;  // streams that wait for its end
  };

  // engine.cpp: set-up, streams. hosts.cpp: hosts and cores.
  void check_length() const;
  void prepare(std::size_t instance);
  void find_alone(std::size_t instance);
  void drive(std::uint32_t rank);
  void run_host(Rank& rank);
  bool host_may_issue(Rank& rank, std::uint32_t op, std::int64_t& burst);
  void advance(std::uint32_t rank, std::uint32_t stream);
  void run_plain(Rank& rank, Stream& stream, std::uint32_t stream_index);
  /// The first unknown record among an op's waits, else -1 and `time` is at least all of them.
  std::int64_t unknown_record(const Rank& rank, std::uint32_t call, std::uint32_t op,
                              std::int64_t& time) const;
  void seek(const Rank& rank, Stream& stream, std::uint32_t stream_index);
  std::int64_t issue_time(const Rank& rank, const Stream& stream, std::uint32_t op) const;
  [[nodiscard]] static std::int64_t latency_of(const Rank& rank, std::uint32_t op) {
    return rank.costs->latency.empty() ? 0 : rank.costs->latency[op];
  }
  void leave_queue(Rank& rank, Stream& stream, std::uint32_t stream_index, std::int64_t end);
  void start_compute(std::uint32_t rank, std::uint32_t stream, std::int64_t time, std::uint32_t op);
  void start_running(std::uint32_t rank, std::uint32_t stream, std::int64_t begin);
  void rerate(std::uint32_t rank);
  void finish_op(std::uint32_t rank, std::uint32_t stream, std::int64_t end);
  void emit(const Rank& rank, const Stream& stream, std::uint32_t op, std::int64_t issued,
            std::int64_t begin, std::int64_t ready, std::int64_t end);
  void emit_host(const Rank& rank, HostSpan::Kind kind, std::int64_t begin, std::int64_t end);
  void grant_core(std::uint32_t core);
  [[nodiscard]] bool grant_host(std::uint32_t core, std::int64_t& next);
  void grant_transfer(Core& core, std::uint32_t transfer);
  void release_core(std::uint32_t core);
  void enlist(std::uint32_t rank);
  void wake(std::uint32_t rank, std::uint32_t stream);
  void handle(const EventQueue::Event& event);
  void finish_ranks(SimulationResult& result);
  [[nodiscard]] std::int64_t jittered(const Rank& rank, const Stream& stream,
                                      std::uint32_t op) const;

  // transfers.cpp: rendezvous, send and recv, transfers.
  void meet_equals(Rank& rank, std::uint32_t rank_index, std::uint32_t stream, std::uint32_t op);
  void arrive(std::uint32_t rank, std::uint32_t stream, std::uint32_t op);
  void arrive_in(Meeting& meeting, std::size_t index, std::int32_t need);
  std::uint32_t meeting_for(std::uint32_t group, std::uint32_t sequence, OpKind kind);
  void start_member(Meeting& meeting, std::size_t index);
  void start_all(Meeting& meeting);
  [[nodiscard]] std::int64_t ready_time(Meeting& meeting, std::size_t index);
  [[nodiscard]] std::int64_t last_of_all(Meeting& meeting);
  void close(std::uint32_t meeting);
  Channel& channel(std::int32_t communicator, std::int32_t source, std::int32_t target);
  void post_send(std::uint32_t rank, std::uint32_t stream, std::uint32_t op);
  void post_receive(std::uint32_t rank, std::uint32_t stream, std::uint32_t op);
  std::int32_t peer_of(const Rank& rank, const Op& op) const;
  std::uint32_t new_transfer();
  void describe(Transfer& transfer, const OpCosts& costs, std::uint32_t op);
  void launch(std::uint32_t transfer);
  void fly(std::uint32_t transfer);
  void set_in_flight(const Transfer& transfer, std::int32_t change);
  void complete(std::uint32_t transfer, std::int64_t end);
  [[nodiscard]] std::string stuck() const;

  [[nodiscard]] std::uint32_t stream_source(std::uint32_t rank, std::uint32_t stream) const {
    return first_source_[rank] + stream;
  }
  [[nodiscard]] std::uint32_t core_source(std::uint32_t core) const { return first_core_ + core; }

  const ExecutionGraph& graph_;
  const StepCosts& costs_;
  SimulationOptions options_;
  Observer* observer_;
  bool timed_ = false;  // transfers end by events, not at once
  bool core_ = false;   // hosts share a core with their streams
  bool jitter_ = false;
  std::int64_t now_ = 0;
  std::vector<ExecutionOrder> orders_;
  std::vector<Rank> ranks_;
  std::vector<std::uint32_t> work_;
  std::size_t work_first_ = 0;
  std::vector<Core> cores_;
  std::vector<std::uint32_t> grants_;  // free cores, once all of the present is known
  EventQueue queue_;
  Network network_;
  std::vector<Meeting> meetings_;
  std::vector<std::uint32_t> free_meetings_;
  std::vector<std::vector<std::uint32_t>> open_;  // by group
  double spread_ = 0;                             // standard deviation per tick of segment time
  std::vector<Channel> channels_;
  std::vector<Transfer> transfers_;
  std::vector<std::uint32_t> free_transfers_;
  std::vector<std::uint32_t> links_;         // scratch
  std::vector<Arrival> arrivals_;            // scratch
  std::vector<std::uint32_t> first_source_;  // by rank
  std::vector<std::uint32_t> source_rank_;   // by stream source
  std::uint32_t first_core_ = 0;
  std::uint32_t network_source_ = 0;
  std::uint32_t first_transfer_ = 0;
};

}  // namespace stepcast::simulator
