#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/graph/link_traffic.h"
#include "core/graph/program_fwd.h"
#include "core/system.h"

namespace stepcast {

/// How a collective runs over the levels of a fabric. Its time (port_bytes, path_hops), its bytes
/// by level (sent_shares) and the messages of an emulated one (rounds_of) are of one schedule.
///
/// - ring: through every member, in as many channels as members leave the emptiest unit by cards of
///   their own. A channel enters and leaves each unit once, and passes its members in order from
///   where it enters, so the channels' ways out lie on different members. Each of the G - 1 steps
///   carries one G-th of the buffer, cut over the channels. All-reduce makes two passes.
/// - hierarchical: a ring inside the innermost unit, then among members of equal place in their
///   units, level by level, halving what is left at each distance (a ring where the units are no
///   power of two), and the same way back. Only where units have equally many members.
/// - aggregated trees: one direction of the hierarchical one, for one member in each unit.
/// - in the switch: each part is read once and arrives by multicast; not emulated.
/// - direct: a message from each to each at once.
enum class Algorithm : std::uint8_t { kRing, kHierarchical, kInSwitch, kAggregatedTrees, kDirect };

/// How the members of a group lie on the fabric: `members[i]` of them, at most, share one unit of
/// level i; members.back() is the whole group when the fabric spans it. `channels[i]`: by so many
/// different members a ring leaves every unit of level i, as many as `members[i]` where units are
/// filled evenly. `siblings[i]`: how many groups of the same communicator share that unit (their
/// traffic shares its uplink).
struct GroupShape {
  std::int64_t size = 1;
  std::vector<std::int64_t> members;
  std::vector<std::int64_t> channels;
  std::vector<std::int64_t> siblings;

  /// Members in one unit of the level below; 1 below the innermost.
  [[nodiscard]] double members_below(std::size_t level) const {
    return level == 0 ? 1.0 : static_cast<double>(members[level - 1]);
  }
  /// Outermost level that the group's messages cross.
  [[nodiscard]] std::size_t outermost() const;
  /// Units of this level and of those below hold equally many members.
  [[nodiscard]] bool even(std::size_t level) const;
};
/// Siblings are taken as if groups like this one tile the `devices` of the job (0: the whole
/// machine).
GroupShape group_shape(const System& system, std::span<const std::int32_t> ranks,
                       std::int64_t devices = 0);

/// Algorithms that may carry out a collective on this group, as NCCL's: all-gather and
/// reduce-scatter the ring, inside one unit the switch that joins it (NVLS), and over one rank of
/// each unit aggregated trees (PAT); all-reduce ring, tree ("hierarchical", across units) and the
/// switch, also with a tree across units; the rest direct.
std::vector<Algorithm> algorithms(OpKind kind, const GroupShape& group, const System& system);
/// The one of these that runs where links alone decide: the fewest bytes and hops, no switch.
Algorithm plain_algorithm(RingUse use, const GroupShape& group);

/// Bytes through the busiest member's port at each level, out and in alike (m_i members per unit of
/// level i, c_i channels, m_{-1} = c_{-1} = 1, L = m_0, G = size, S = bytes;
/// kernels-and-collectives section 3.3). A port of a level beyond the first carries those of the
/// levels above as well.
/// - ring, aggregated trees: level 0 S (G-1)/G; level i S (G-1)/(G c_{i-1}). A channel has one rate
///   on all its hops, so those that leave by a card do not relieve the links inside a unit: they
///   are busy for longer than their bytes take.
/// - hierarchical: level i S (m_i - m_{i-1}) / (m_{i-1} m_i), the lower bound of any algorithm
///   without reduction in the switch.
/// - in the switch, at the levels whose switches reduce: level i S / m_{i-1} each way: every rank's
///   part is read by one load each, or arrives by multicast; what the members of a unit have summed
///   goes up once and the result comes down once (SHARP). What a rank stores for all, S / L more
///   inside, is left out: rates measured on 4 and 8 members agree without it. Other levels as
///   hierarchical.
/// - all-to-all: level 0 S (L-1)/G; level i S (G - c_{i-1})/G, no division by L.
/// All-reduce is twice the reduce-scatter.
std::vector<double> port_bytes(OpKind kind, Algorithm algorithm, double bytes,
                               const GroupShape& group, const System& system);
/// Links of each level that a message of one pass crosses one after the other. A ring walks every
/// member: G / m_{i-1} - G / m_i hops cross level i. A tree is a chain inside the innermost unit
/// and doubles at each hop across units; where the innermost switch works, nothing is walked
/// inside.
std::vector<double> path_hops(Algorithm algorithm, const GroupShape& group, const System& system);

/// Equal rounds of one member in a collective. A round ends when its messages are sent and those of
/// the others are there.
struct Round {
  struct Message {
    int to = 0;        ///< position in the group
    double share = 0;  ///< of the buffer (NCCL convention)
  };
  std::int64_t times = 1;
  std::vector<Message> sends;
  std::vector<int> receives;  ///< from these positions
};
/// The part of the member at `position` in a ring or a hierarchical collective (plain_algorithm).
/// `units[i]`: devices in one unit of level i.
std::vector<Round> rounds_of(RingUse use, std::span<const std::int64_t> units,
                             std::span<const std::int32_t> members, int position);
/// The shares of the buffer that they send, by level.
std::vector<double> sent_shares(RingUse use, const LinkLevels& levels,
                                std::span<const std::int32_t> members, int position);

}  // namespace stepcast
