#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/graph/program.h"
#include "simulator/arrival.h"
#include "simulator/links.h"
#include "simulator/rank_state.h"

namespace stepcast::simulator {

/// A stream that has reached an op of several ranks.
struct Attendance {
  std::uint32_t rank = 0, stream = 0;
  std::uint32_t call = 0, op = 0;
  std::int64_t time = 0;
};

/// Meeting point of ranks: members of a collective, senders and receivers of messages.
/// What all needed members have reached is launched as a transfer.
class Rendezvous {
 public:
  Rendezvous(const ExecutionGraph& graph, const StepCosts& costs, std::span<const RankState> ranks,
             Links& links);

  void reach(const Attendance& at);         ///< a collective
  void post_send(const Attendance& at);     ///< the stream goes on
  void post_receive(const Attendance& at);  ///< the stream waits for the message
  /// When a collective is ready of ranks that this one stands for, on links that nothing else uses:
  /// it is no transfer, and ends as much later as it costs.
  std::int64_t ready_among_equals(const Attendance& at);
  /// A collective of the rank has ended.
  void note_end(std::uint32_t rank, std::int64_t end) {
    last_end_[rank] = std::max(last_end_[rank], end);
  }

  /// Ranks (their instances) that have not come to a collective of the communicator which the rank
  /// has reached.
  [[nodiscard]] std::vector<std::int32_t> missing(std::uint32_t rank,
                                                  std::int32_t communicator) const;
  /// The instance an op is sent to, or received from.
  [[nodiscard]] std::int32_t peer_of(std::uint32_t rank, const Op& op) const;

 private:
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
    std::int64_t ready_for_all = kUnknownTime;  // last arrival of all members, once asked for
    std::vector<Member> members;
  };
  struct Posted {
    std::int64_t tag = 0;
    std::int32_t microbatch = 0;
    std::uint32_t stream = 0, op = 0;
    std::int64_t time = 0;
  };
  /// Sends and receives of one direction between two ranks that have not met.
  struct Channel {
    std::int32_t communicator = 0, target = 0;
    std::vector<Posted> sends, receives;
    std::size_t first_send = 0;
  };

  [[nodiscard]] const Op& op_of(const Attendance& at) const {
    return ranks_[at.rank].order->program().ops[at.op];
  }
  [[nodiscard]] std::int32_t group_of(std::uint32_t rank, std::int32_t communicator) const {
    return costs_.folding.group(static_cast<std::int32_t>(rank), communicator);
  }
  [[nodiscard]] double spread_at(const Attendance& at) const;
  void reach_alone(const Attendance& at, const Group& group, std::uint32_t sequence);
  void reach_root(Meeting& meeting, std::size_t index, bool root);
  void reach_partners(Meeting& meeting, std::size_t index, std::int32_t need);
  std::uint32_t meeting_for(std::uint32_t group, std::uint32_t sequence, OpKind kind);
  void start_member(Meeting& meeting, std::size_t index);
  void start_all(Meeting& meeting);
  [[nodiscard]] std::int64_t ready_time(Meeting& meeting, std::size_t index);
  [[nodiscard]] std::int64_t last_of_all(Meeting& meeting);
  void close(std::uint32_t meeting);
  Channel& channel(std::int32_t communicator, std::int32_t source, std::int32_t target);
  void send(const Posted& sent, const Posted& received, std::int32_t source,
            const Channel& channel);
  [[nodiscard]] Posted posted(const Attendance& at) const;

  const ExecutionGraph& graph_;
  const StepCosts& costs_;
  std::span<const RankState> ranks_;
  Links& links_;
  double spread_ = 0;                              // standard deviation per tick of segment time
  std::vector<std::int64_t> last_end_;             // by rank: of its last rendezvous
  std::vector<std::int32_t> member_;               // [rank * communicators + communicator]
  std::vector<std::vector<std::uint32_t>> sends_;  // by rank: its channels
  std::vector<Meeting> meetings_;
  std::vector<std::uint32_t> free_;
  std::vector<std::vector<std::uint32_t>> open_;  // by group
  std::vector<Channel> channels_;
  std::vector<Arrival> arrivals_;  // scratch
};

}  // namespace stepcast::simulator
