#pragma once
#include <cstdint>
#include <vector>

#include "core/graph/program_fwd.h"


namespace stepcast::simulator {

/// One simulated rank: it stands for `ranks` real ones that run the same program among equal
/// partners. `rank` is the lowest of them.
struct Instance {
  std::int32_t program = 0;
  std::int32_t rank = 0;
  std::int32_t ranks = 1;
};

/// Partners of a communicator, seen folded: `members[p]` is the instance at position p of the
/// group. `distinct` lists each of those instances once, `count` how many positions it fills.
/// `ranks` are the real ranks of one such group, ascending.
struct Group {
  std::int32_t communicator = 0;
  std::vector<std::int32_t> members;
  std::vector<std::int32_t> ranks;
  std::vector<std::int32_t> distinct;
  std::vector<std::int32_t> count;
};

/// Which ranks are simulated and how they meet.
///
/// Ranks of one class are simulated once if all of them meet the same instances, position by
/// position, in every communicator their program uses; else the class is split until that holds.
/// So a fold never changes who waits for whom. With `unfold` every rank is simulated.
struct Folding {
  std::vector<Instance> instances;        ///< ascending by rank
  std::vector<Group> groups;              ///< equal folded groups are stored once
  std::vector<std::int32_t> group_of;     ///< [instance * communicators + communicator], -1 none
  std::vector<std::int32_t> instance_of;  ///< by rank
  std::int32_t communicators = 0;

  [[nodiscard]] std::int32_t group(std::int32_t instance, std::int32_t communicator) const {
    return communicator < 0
               ? -1
               : group_of[static_cast<std::size_t>(instance * communicators + communicator)];
  }
};

Folding fold(const ExecutionGraph& graph, bool unfold = false);

}  // namespace stepcast::simulator
