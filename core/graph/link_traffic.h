#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/system.h"

namespace stepcast {

/// The levels of a fabric as messages between ranks use them: the innermost one whose unit holds
/// both. Ranks fill units in order.
class LinkLevels {
 public:
  /// A system without a fabric has one level, "links".
  explicit LinkLevels(const System& system);
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  [[nodiscard]] std::size_t count() const { return names_.size(); }
  [[nodiscard]] const std::vector<std::int64_t>& units() const { return units_; }
  [[nodiscard]] std::size_t between(std::int64_t a, std::int64_t b) const;

 private:
  std::vector<std::string> names_;
  std::vector<std::int64_t> units_;  ///< devices in one unit of each level
};

/// The rings of one member of a group, level by level: positions of the members that differ from it
/// only in which unit of the level below they are in, in ring order. `units[i]`: devices in one
/// unit of level i. Where units do not hold equally many members in equal places, one ring of all.
std::vector<std::vector<int>> ring_levels(std::span<const std::int64_t> units,
                                          std::span<const std::int32_t> members, int position);

/// How the bytes of a collective travel.
enum class RingUse : std::uint8_t { kReduceScatter, kAllGather, kAllReduce };

/// Adds the bytes that the member at `position` sends in a collective that runs as rings, level by
/// level (ring_levels): each of the n members of a ring sends (n - 1) / n of what the ring works
/// on. `bytes`: of the whole input (reduce-scatter), the whole output (all-gather), the buffer
/// (all-reduce). `sent`: by level.
void add_ring_bytes(const LinkLevels& levels, std::span<const std::int32_t> members, int position,
                    RingUse use, double bytes, std::span<double> sent);

/// The same of an all-to-all, pair by pair; what a rank keeps is not sent.
void add_pair_bytes(const LinkLevels& levels, std::span<const std::int32_t> members, int position,
                    std::span<const double> bytes_to, std::span<double> sent);

}  // namespace stepcast
