#include "core/graph/embedding_communicators.h"

namespace stepcast {

std::vector<EmbeddingCommunicator> embedding_communicators(const EmbeddingPlacement& placement,
                                                           bool towers) {
  using Purpose = EmbeddingCommunicator::Purpose;
  const bool several = placement.devices > 1;
  bool outputs = false;
  for (const EmbeddingRoute r : kAllRoutes) {
    const bool by_towers = towers && r == EmbeddingRoute::kExchange;
    outputs = outputs || (placement.uses(r) && !is_local(r) && !is_node_reduce(r) &&
                          !has_copies(r) && !by_towers);
  }
  std::vector<EmbeddingCommunicator> all;
  const auto over_all = [&](Purpose purpose, bool used) {
    all.push_back({.purpose = purpose, .ranks = placement.devices, .used = several && used});
  };
  over_all(Purpose::kIds, placement.exchanges_ids());
  over_all(Purpose::kOutputs, outputs);
  over_all(Purpose::kGradients, true);
  const auto grid = [&](Purpose purpose, std::size_t level, std::int64_t group, bool used) {
    for (const bool across : {false, true}) {
      all.push_back({.purpose = purpose,
                     .across = across,
                     .level = level,
                     .group = group,
                     .ranks = across ? placement.devices / group : group,
                     .used = several && used});
    }
  };
  if (towers) {
    grid(Purpose::kTower, 0, placement.node, placement.uses(EmbeddingRoute::kExchange));
  }
  const std::size_t levels = placement.group_sizes.size();
  for (std::size_t level = 0; level < levels; ++level) {
    if (placement.uses(at_level(EmbeddingRoute::kNodeReduce, level))) {
      grid(Purpose::kNode, level, placement.group_sizes[level], true);
    }
  }
  for (std::size_t level = 0; level < levels; ++level) {
    if (placement.uses(at_level(EmbeddingRoute::kGroupReduce, level)) ||
        placement.uses(at_level(EmbeddingRoute::kGroupSequence, level))) {
      grid(Purpose::kCopy, level, placement.group_sizes[level], true);
    }
  }
  return all;
}

}  // namespace stepcast
