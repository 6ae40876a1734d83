#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/graph/collective_schedule.h"
#include "runtime/emulation/paced_fabric.h"

namespace stepcast::runtime {

/// Arrival times from one rank to another, in memory both map: one writer, one reader.
struct alignas(64) Mailbox {
  static constexpr std::uint32_t kCapacity = 128;
  struct Mail {
    std::int64_t arrived;
    std::int64_t tag;
  };
  std::atomic<std::uint32_t> written;
  std::atomic<std::uint32_t> read;
  Mail mails[kCapacity];

  void put(Mail mail);  ///< sleeps while full
  /// Sleeps while empty; `idle` is called now and then meanwhile.
  Mail take(const std::function<void()>& idle = {});
};

/// Members of a group that have come to its collectives, when the last one came, and how many
/// collectives have begun. Zeroed memory is valid.
struct alignas(64) Arrivals {
  std::atomic<std::uint32_t> come;
  std::atomic<std::uint32_t> begun;
  std::atomic<std::int64_t> last[2];  ///< of even and odd collectives: no rank is two ahead
};

/// Memory that the members of one communicator share: arrivals, a mailbox per pair for collectives
/// and for sends, and what an all-to-all-v moves and when each member is done (of even and odd
/// collectives). Zeroed memory is valid.
struct GroupMemory {
  Arrivals* arrivals = nullptr;
  Mailbox* collective = nullptr;     ///< [from * members + to]
  Mailbox* direct = nullptr;         ///< as above
  double* bytes = nullptr;           ///< [parity][from][to]
  PacedFabric::End* ends = nullptr;  ///< [parity][member]
};

/// Plays the messages of a collective, one by one, over a paced fabric: each member calls the same
/// function and gets back when its own part is done. Times are ns of the steady clock.
///
/// Reductions and gathers run in the rounds of core/graph/collective_schedule.h. An all-to-all
/// sends to all peers at once, as grouped sends do. Reduction inside switches is not played.
class Schedules {
 public:
  Schedules(PacedFabric& fabric, std::vector<std::int32_t> members, int position,
            GroupMemory memory, std::function<void()> idle = {});

  /// `bytes` of the whole input (reduce-scatter), the whole output (all-gather), the buffer.
  std::int64_t play(RingUse use, double bytes, std::int64_t start);
  /// Comes together with the others and says what it has for each.
  void meet_for_exchange(std::span<const double> bytes_to);
  /// The exchange that all have met for: the member that moves most, as it is done last, plays it
  /// for everybody.
  std::int64_t exchange();
  std::int64_t broadcast(double bytes, int root, std::int64_t start);
  std::int64_t barrier(std::int64_t start);
  void post(int to, double bytes, std::int64_t tag, std::int64_t start);
  std::int64_t await(int from, std::int64_t tag);  ///< when the send with this tag arrives
  /// Sleeps until all members have come here as often as this one; returns when the last one came.
  std::int64_t rendezvous();

 private:
  std::int64_t meet(const std::function<void()>& last_to_come);
  /// Equal parts of the buffer go through the rounds one behind the other.
  std::int64_t play(std::span<const Round> rounds, double bytes, int parts, std::int64_t start);
  void keep_pace(Round& round) const;
  [[nodiscard]] int parts_of(std::span<const Round> rounds, double bytes) const;
  std::int64_t send(int to, double bytes, std::int64_t start);
  std::int64_t receive(int from) {
    return box(memory_.collective, from, position_).take(idle_).arrived;
  }
  [[nodiscard]] Mailbox& box(Mailbox* boxes, int from, int to) const {
    return boxes[static_cast<std::size_t>(from) * members_.size() + static_cast<std::size_t>(to)];
  }

  PacedFabric& fabric_;
  std::vector<std::int32_t> members_;
  int position_;
  GroupMemory memory_;
  std::array<std::vector<Round>, 3> rounds_;  ///< by RingUse, once played
  std::uint32_t meetings_ = 0;
  std::function<void()> idle_;
  std::vector<std::pair<int, Mailbox::Mail>> early_;  ///< direct mail taken before it was asked for
};

}  // namespace stepcast::runtime
