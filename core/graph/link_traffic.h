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

/// Ways through a collective schedule (core/graph/collective_schedule.h): reduced, gathered, both.
enum class RingUse : std::uint8_t { kReduceScatter, kAllGather, kAllReduce };

/// Adds the bytes that the member at `position` sends in an all-to-all, pair by pair; what a rank
/// keeps is not sent. `sent`: by level.
void add_pair_bytes(const LinkLevels& levels, std::span<const std::int32_t> members, int position,
                    std::span<const double> bytes_to, std::span<double> sent);

}  // namespace stepcast
