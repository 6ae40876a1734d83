#pragma once
#include <cstdint>
#include <vector>

#include "core/graph/embedding_placement.h"

namespace stepcast {

/// One communicator of a data-parallel step with embedding tables.
struct EmbeddingCommunicator {
  enum class Purpose : std::uint8_t {
    kIds,        ///< lengths and ids, over all ranks
    kOutputs,    ///< pooled rows and their gradients, over all ranks
    kGradients,  ///< dense gradients, over all ranks
    kTower,      ///< ranks of a node that share a tower
    kNode,       ///< members of a group that splits rows
    kCopy,       ///< members of a group that holds one of several copies
  };
  Purpose purpose = Purpose::kIds;
  /// Not the members of a group but ranks of equal place in their groups.
  bool across = false;
  std::size_t level = 0;   ///< of the group's size (EmbeddingPlacement::group_sizes)
  std::int64_t group = 0;  ///< ranks of a group; 0 where all ranks are joined
  std::int64_t ranks = 0;  ///< that it joins
  bool used = false;       ///< by some op of the step
};

/// The communicators of a step under a placement, in the order in which its graph numbers them.
/// The graph builder makes them from this list, and the planner counts their buffers by it.
/// `towers`: columns of whole tables travel by way of towers (sptt).
/// Checked by tests/studies/plan_fits_test.cpp against the ops of graphs.
std::vector<EmbeddingCommunicator> embedding_communicators(const EmbeddingPlacement& placement,
                                                           bool towers);

}  // namespace stepcast
