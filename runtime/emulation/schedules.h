#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

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
  Mail take();          ///< sleeps while empty
};

/// What the members of one communicator share: a count of arrivals and a mailbox per pair, for
/// collectives and for sends. Zeroed memory is valid.
struct GroupMemory {
  std::atomic<std::uint32_t>* arrivals = nullptr;
  Mailbox* collective = nullptr;  ///< [from * members + to]
  Mailbox* direct = nullptr;      ///< likewise
};

/// Plays the messages of a collective, one by one, over a paced fabric: each member calls the same
/// function and gets back when its own part is done. Times are ns of the steady clock.
///
/// Reductions and gathers run as rings, level by level of the fabric: among the devices of a node,
/// then between devices of equal place in their nodes, so that every NIC carries its share; groups
/// that do not fill nodes evenly run as one ring. All-to-all goes pair by pair. Reduction inside
/// switches is not played.
class Schedules {
 public:
  Schedules(PacedFabric& fabric, std::vector<std::int32_t> members, int position,
            GroupMemory memory);

  std::int64_t reduce_scatter(double bytes, std::int64_t start);  ///< bytes of the whole input
  std::int64_t all_gather(double bytes, std::int64_t start);      ///< bytes of the whole output
  std::int64_t all_reduce(double bytes, std::int64_t start);
  std::int64_t all_to_all(std::span<const double> bytes_to, std::int64_t start);
  std::int64_t broadcast(double bytes, int root, std::int64_t start);
  std::int64_t barrier(std::int64_t start);
  void post(int to, double bytes, std::int64_t tag, std::int64_t start);
  std::int64_t await(int from, std::int64_t tag);  ///< when the send with this tag arrives
  /// Sleeps until all members have come here as often as this one.
  void rendezvous();

 private:
  std::int64_t ring(std::span<const int> peers, double bytes_per_step, std::int64_t start);
  std::int64_t send(int to, double bytes, std::int64_t start);
  std::int64_t receive(int from) { return box(memory_.collective, from, position_).take().arrived; }
  [[nodiscard]] Mailbox& box(Mailbox* boxes, int from, int to) const {
    return boxes[static_cast<std::size_t>(from) * members_.size() + static_cast<std::size_t>(to)];
  }

  PacedFabric& fabric_;
  std::vector<std::int32_t> members_;
  int position_;
  GroupMemory memory_;
  std::vector<std::vector<int>> rings_;  ///< per level with more than one peer: positions, in order
  std::uint32_t arrivals_ = 0;
  std::vector<std::pair<int, Mailbox::Mail>> early_;  ///< direct mail taken before it was asked for
};

}  // namespace stepcast::runtime
