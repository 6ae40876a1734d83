#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/system.h"

namespace stepcast::runtime {

/// The links of a described fabric as token buckets in memory that all ranks share. A link is a
/// clock, "booked until": a chunk of b bytes takes b / rate on each link of its path, from when the
/// link is free, so flows that share a port or NIC slow each other down by what they really send.
///
/// Every device has one port (at the innermost level) or NIC (further out) per level and direction;
/// an oversubscribed level adds one uplink and one downlink per unit that it joins, of the units'
/// total bandwidth / oversubscription. A transfer uses the level that the two devices first share.
/// Nothing here knows how long a collective should take.
class PacedFabric {
 public:
  struct alignas(64) Link {
    std::atomic<std::int64_t> booked_until;  ///< ns, steady clock; zero memory is a free link
  };

  /// Books `duration` on a link, from `earliest` or when it is free; returns the beginning.
  static std::int64_t book(Link& link, std::int64_t earliest, std::int64_t duration);

  PacedFabric(const System& system, int devices, Link* links);
  static std::size_t links_needed(const System& system, int devices);

  struct Delivery {
    std::int64_t sent = 0;     ///< the sender's port is free again
    std::int64_t arrived = 0;  ///< the last byte is there, latency included
  };
  /// Books a message chunk by chunk from `start` on. With `sleep` the calling thread keeps at most
  /// a millisecond ahead of the clock, so that others can book in between; without, all at once.
  Delivery transfer(int from, int to, double bytes, std::int64_t start, bool sleep);
  /// When a message that starts at 0 is sent and arrives over links that nothing else uses.
  [[nodiscard]] Delivery alone(int from, int to, double bytes) const;
  /// When a member has sent and received everything; 0 until that is known.
  using End = std::atomic<std::int64_t>;
  /// Books an exchange of all pairs at once from `start` on, chunk by chunk: next is the chunk that
  /// can start first, of the message that has had least. Keeps at most a millisecond ahead of the
  /// clock, so that what runs meanwhile shares its links; calls `idle` while it waits. `bytes` is
  /// [from][to] over `members`.
  void exchange(std::span<const std::int32_t> members, std::span<const double> bytes,
                std::int64_t start, std::span<End> ends,
                const std::function<void()>& idle = nullptr);

  [[nodiscard]] std::size_t levels() const { return levels_.size(); }
  /// Devices in one unit of a level.
  [[nodiscard]] std::int64_t unit(std::size_t level) const { return levels_[level].unit; }

 private:
  struct Level {
    std::int64_t unit = 1;   ///< devices in one unit of this level
    std::int64_t inner = 1;  ///< devices in one unit of the level below
    double bytes_per_ns = 1;
    double uplink_bytes_per_ns = 0;  ///< 0: not oversubscribed
    std::int64_t latency = 0;
  };
  struct Hop {
    Link* link = nullptr;
    double bytes_per_ns = 1;
  };
  [[nodiscard]] std::size_t level_between(int from, int to) const;
  std::size_t path(int from, int to, std::size_t level, Hop (&hops)[4]) const;
  /// A message on its way: what is left of it and when its last booked chunk is through.
  struct Flow {
    Hop hops[4];
    std::size_t hop_count = 0;
    double chunk = 0, left = 0;
    std::int64_t clock = 0;
    std::int64_t latency = 0;
  };
  [[nodiscard]] Flow flow(int from, int to, double bytes, std::int64_t start) const;
  static void book_chunk(Flow& flow);
  Link& link(std::size_t level, int kind, int index) const;

  std::vector<Level> levels_;
  int devices_;
  Link* links_;
};

}  // namespace stepcast::runtime
