#include "core/graph/collective_schedule.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "core/graph/op_traits.h"

namespace stepcast {
namespace {

/// The units that hold a group's members, level by level: each lists its parts, units of the level
/// below (at level 0: members by their order among all ranks).
class GroupUnits {
 public:
  /// `units[i]`: devices in one unit of level i; the last level joins everything.
  GroupUnits(std::span<const std::int64_t> units, std::span<const std::int32_t> members)
      : order_(members.size()) {
    std::iota(order_.begin(), order_.end(), 0);
    if (!std::is_sorted(members.begin(), members.end())) {
      std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) {
        return members[static_cast<std::size_t>(a)] < members[static_cast<std::size_t>(b)];
      });
    }
    std::vector<std::int64_t> part;  // a rank of each part
    for (const int i : order_) {
      part.push_back(members[static_cast<std::size_t>(i)]);
    }
    for (std::size_t level = 0; level < units.size(); ++level) {
      Level& l = levels_.emplace_back();
      std::vector<std::int64_t> above;
      for (std::size_t p = 0; p < part.size(); ++p) {
        const bool joins =
            !above.empty() &&
            (level + 1 == units.size() || part[p] / units[level] == above.back() / units[level]);
        if (!joins) {
          l.first.push_back(static_cast<int>(p));
          above.push_back(part[p]);
        }
        l.unit_of.push_back(static_cast<int>(l.first.size()) - 1);
      }
      l.first.push_back(static_cast<int>(part.size()));
      part = std::move(above);
      if (part.size() == 1) {
        break;
      }
    }
  }

  /// Levels up to the one that joins all members.
  [[nodiscard]] std::size_t levels() const { return levels_.size(); }
  [[nodiscard]] int position(int index) const { return order_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] int index(int position) const {
    return static_cast<int>(std::find(order_.begin(), order_.end(), position) - order_.begin());
  }
  [[nodiscard]] int unit_of(std::size_t level, int part) const {
    return levels_[level].unit_of[static_cast<std::size_t>(part)];
  }
  [[nodiscard]] int first(std::size_t level, int unit) const {
    return levels_[level].first[static_cast<std::size_t>(unit)];
  }
  [[nodiscard]] int parts(std::size_t level, int unit) const {
    return first(level, unit + 1) - first(level, unit);
  }
  /// Parts of the emptiest unit, and of the fullest.
  [[nodiscard]] std::pair<int, int> range(std::size_t level) const {
    std::pair<int, int> range{parts(level, 0), parts(level, 0)};
    for (int u = 1; u + 1 < static_cast<int>(levels_[level].first.size()); ++u) {
      range = {std::min(range.first, parts(level, u)), std::max(range.second, parts(level, u))};
    }
    return range;
  }

 private:
  struct Level {
    std::vector<int> first;    // part of each unit, and their end
    std::vector<int> unit_of;  // by part
  };
  std::vector<int> order_;  // positions
  std::vector<Level> levels_;
};

/// Channel of a ring: the part it enters each unit of a level by, the outermost aside.
using Entries = std::vector<int>;

/// The member before (`ahead` = false) or after one on a channel, by index.
int neighbour(const GroupUnits& units, const Entries& entries, int member, bool ahead) {
  int part = member;
  for (std::size_t level = 0; level < units.levels(); ++level) {
    const int unit = units.unit_of(level, part);
    const int first = units.first(level, unit);
    const int n = units.parts(level, unit);
    const bool outermost = level + 1 == units.levels();
    const int end = ahead ? entries[level] + n - 1 : entries[level];
    if (outermost || (part - first) % n != end % n) {
      part = first + (part - first + (ahead ? 1 : n - 1)) % n;
      while (level-- > 0) {  // into that unit
        const int parts = units.parts(level, part);
        part = units.first(level, part) + (entries[level] + (ahead ? 0 : parts - 1)) % parts;
      }
      return part;
    }
    part = unit;
  }
  return member;
}

void add_share(std::vector<Round::Message>& sends, int to, double share) {
  const auto known = std::find_if(sends.begin(), sends.end(),
                                  [to](const Round::Message& m) { return m.to == to; });
  if (known == sends.end()) {
    sends.push_back({to, share});
  } else {
    known->share += share;
  }
}

/// One pass of a ring: every step alike.
Round ring_pass(const GroupUnits& units, std::size_t size, int member) {
  Round round;
  round.times = static_cast<std::int64_t>(size) - 1;
  std::vector<int> fewest;
  int channels = 1;
  for (std::size_t level = 0; level < units.levels(); ++level) {
    fewest.push_back(level + 1 < units.levels() ? units.range(level).first : 1);
    channels *= fewest.back();
  }
  const double share = 1.0 / static_cast<double>(size) / channels;
  for (int c = 0; c < channels; ++c) {
    Entries entries;
    for (int left = c; const int n : fewest) {
      entries.push_back(left % n);
      left /= n;
    }
    add_share(round.sends, units.position(neighbour(units, entries, member, true)), share);
    const int from = units.position(neighbour(units, entries, member, false));
    if (std::find(round.receives.begin(), round.receives.end(), from) == round.receives.end()) {
      round.receives.push_back(from);
    }
  }
  return round;
}

/// Rounds of a reduce-scatter among `peers`, each of which holds `share` of the buffer.
void scatter_among(const std::vector<int>& peers, std::size_t own, double share, bool halves,
                   std::vector<Round>& rounds) {
  const std::size_t n = peers.size();
  if (!halves || !std::has_single_bit(n)) {
    rounds.push_back({static_cast<std::int64_t>(n) - 1,
                      {{peers[(own + 1) % n], share / static_cast<double>(n)}},
                      {peers[(own + n - 1) % n]}});
    return;
  }
  for (std::size_t distance = n / 2; distance > 0; distance /= 2) {
    share /= 2;
    const int other = peers[own ^ distance];
    rounds.push_back({1, {{other, share}}, {other}});
  }
}

/// One way of a hierarchical collective, from the innermost level out.
std::vector<Round> scatter_by_level(const GroupUnits& units, int member) {
  std::vector<Round> rounds;
  double share = 1;
  int part = member;
  int members_below = 1;
  for (std::size_t level = 0; level < units.levels(); ++level) {
    const int unit = units.unit_of(level, part);
    const int n = units.parts(level, unit);
    const int first = units.first(level, unit);
    if (n > 1) {
      std::vector<int> peers;
      for (int p = first; p < first + n; ++p) {  // of equal place in their units
        peers.push_back(units.position(p * members_below + member % members_below));
      }
      scatter_among(peers, static_cast<std::size_t>(part - first), share, level > 0, rounds);
    }
    share /= n;
    members_below *= n;
    part = unit;
  }
  return rounds;
}

}  // namespace

std::size_t GroupShape::outermost() const {
  std::size_t outermost = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (static_cast<double>(members[i]) > members_below(i)) {
      outermost = i;
    }
  }
  return outermost;
}

bool GroupShape::even(std::size_t level) const {
  for (std::size_t i = 0; i <= level && i < channels.size(); ++i) {
    if (channels[i] != members[i]) {
      return false;
    }
  }
  return true;
}

GroupShape group_shape(const System& system, std::span<const std::int32_t> ranks,
                       std::int64_t devices) {
  GroupShape shape;
  shape.size = static_cast<std::int64_t>(ranks.size());
  std::vector<std::int64_t> sizes;
  for (std::size_t level = 0; level < system.fabric.size(); ++level) {
    sizes.push_back(std::max<std::int64_t>(1, system.devices_in_level(level)));
  }
  const GroupUnits units(sizes, ranks);
  std::int64_t channels = 1;
  std::vector<std::int64_t> held(ranks.size(), 1);  // members of each unit
  for (std::size_t level = 0; level < sizes.size(); ++level) {
    if (level < units.levels()) {
      std::vector<std::int64_t> above;
      for (std::size_t p = 0; p < held.size(); ++p) {
        above.resize(static_cast<std::size_t>(units.unit_of(level, static_cast<int>(p))) + 1, 0);
        above.back() += held[p];
      }
      held = std::move(above);
      channels *= units.range(level).first;
    }
    shape.members.push_back(*std::max_element(held.begin(), held.end()));
    shape.channels.push_back(channels);
    const std::int64_t present = devices > 0 ? std::min(sizes[level], devices) : sizes[level];
    shape.siblings.push_back(std::max<std::int64_t>(1, present / shape.members.back()));
  }
  return shape;
}

Algorithm plain_algorithm(RingUse use, const GroupShape& group) {
  const std::size_t outermost = group.outermost();
  if (outermost == 0 || !group.even(outermost)) {
    return Algorithm::kRing;
  }
  return use == RingUse::kAllReduce   ? Algorithm::kHierarchical
         : group.members.front() == 1 ? Algorithm::kAggregatedTrees
                                      : Algorithm::kRing;
}

std::vector<Algorithm> algorithms(OpKind kind, const GroupShape& group, const System& system) {
  const CollectiveTraits& traits = collective_traits(kind);
  if (!traits.ends_together) {
    return {Algorithm::kDirect};
  }
  std::vector<Algorithm> out{Algorithm::kRing};
  if (group.members.empty()) {
    return out;
  }
  const RingUse use = traits.ring.value_or(RingUse::kAllReduce);  // a barrier
  if (const Algorithm plain = plain_algorithm(use, group); plain != Algorithm::kRing) {
    out.push_back(plain);
  }
  const bool alone = use != RingUse::kAllReduce;  // one way: inside one unit
  for (std::size_t i = 0; traits.ring && i < group.members.size(); ++i) {
    if (static_cast<double>(group.members[i]) > group.members_below(i) &&
        system.fabric[i].in_switch_reduction && (!alone || group.members[0] >= group.size)) {
      out.push_back(Algorithm::kInSwitch);
      break;
    }
  }
  return out;
}

std::vector<double> port_bytes(OpKind kind, Algorithm algorithm, double bytes,
                               const GroupShape& group, const System& system) {
  std::vector<double> out(group.members.size(), 0.0);
  const auto size = static_cast<double>(group.size);
  if (size <= 1) {
    return out;
  }
  const CollectiveTraits& traits = collective_traits(kind);
  const double moved = traits.moved.others * bytes;
  const std::size_t outermost = group.outermost();
  const auto leave = [&group](std::size_t level) {  // by so many members a unit
    return static_cast<double>(group.channels[level]);
  };
  for (std::size_t i = 0; i <= outermost; ++i) {
    const double below = group.members_below(i);
    const auto at = static_cast<double>(group.members[i]);
    switch (traits.pattern) {
      case CollectivePattern::kRing:
        if (algorithm == Algorithm::kRing) {
          const double hops = at <= below ? 0 : i > 0 ? 1 / leave(i - 1) : 1;
          out[i] = moved * (size - 1) / size * hops;
        } else if (algorithm == Algorithm::kInSwitch && system.fabric[i].in_switch_reduction) {
          out[i] = bytes / below;
        } else {
          out[i] = moved * (at - below) / (below * at);
        }
        break;
      case CollectivePattern::kExchange:
        // Members of the emptiest unit have most peers outside; where units share their way out,
        // those of the fullest have least of it.
        out[i] = bytes / size *
                 (i == 0                                  ? at - 1
                  : system.fabric[i].oversubscription > 1 ? size - below
                                                          : size - leave(i - 1));
        break;
      case CollectivePattern::kRooted:
        out[i] = bytes / below;  // one channel per member of the unit below
        break;
      case CollectivePattern::kPair:
        out[i] = i == outermost ? bytes : 0;
        break;
      case CollectivePattern::kNoBytes:
        break;
    }
  }
  return out;
}

std::vector<double> path_hops(Algorithm algorithm, const GroupShape& group, const System& system) {
  std::vector<double> hops;
  const auto size = static_cast<double>(group.size);
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const double below = group.members_below(i);
    const auto at = static_cast<double>(group.members[i]);
    const bool by_switch =
        algorithm == Algorithm::kInSwitch && system.fabric[0].in_switch_reduction;
    hops.push_back(algorithm == Algorithm::kRing ? size / below - size / at
                   : i > 0                       ? std::log2(at / below)
                   : by_switch                   ? 0
                                                 : at - 1);
  }
  return hops;
}

std::vector<Round> rounds_of(RingUse use, std::span<const std::int64_t> units,
                             std::span<const std::int32_t> members, int position) {
  if (members.size() < 2) {
    return {};
  }
  const GroupUnits group(units, members);
  const int member = group.index(position);
  GroupShape shape;
  shape.size = static_cast<std::int64_t>(members.size());
  std::int64_t least = 1;
  std::int64_t most = 1;
  for (std::size_t level = 0; level < group.levels(); ++level) {
    const auto [fewest, fullest] = group.range(level);
    shape.channels.push_back(least *= fewest);
    shape.members.push_back(most *= fullest);
  }
  if (plain_algorithm(use, shape) == Algorithm::kRing) {
    return std::vector<Round>(use == RingUse::kAllReduce ? 2 : 1,
                              ring_pass(group, members.size(), member));
  }
  std::vector<Round> out = scatter_by_level(group, member);
  std::vector<Round> back(out.rbegin(), out.rend());
  if (use == RingUse::kReduceScatter) {
    return out;
  }
  if (use == RingUse::kAllGather) {
    return back;
  }
  out.insert(out.end(), back.begin(), back.end());
  return out;
}

std::vector<double> sent_shares(RingUse use, const LinkLevels& levels,
                                std::span<const std::int32_t> members, int position) {
  std::vector<double> sent(levels.count(), 0.0);
  for (const Round& round : rounds_of(use, levels.units(), members, position)) {
    for (const Round::Message& m : round.sends) {
      sent[levels.between(members[static_cast<std::size_t>(position)],
                          members[static_cast<std::size_t>(m.to)])] +=
          static_cast<double>(round.times) * m.share;
    }
  }
  return sent;
}

}  // namespace stepcast
