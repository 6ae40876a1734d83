#pragma once
#include <vector>

#include "core/graph/program.h"
#include "workloads/embedding_plan/shard_laws.h"

namespace stepcast::workloads {

/// Ranks that share a program: they hold the same slices with as many rows each, and their loads
/// are alike. Up to 16 devices ranks whose rows are looked up unevenly have classes of one. Beyond,
/// the busiest rank of every route and of the ids has a class to itself and the others are binned
/// by their loads: 2 % wide, wider where that makes more than 64 classes. A class works on the mean
/// of its members' loads (`laws` is told so), so what all ranks look up, send and receive adds up.
std::vector<RankClass> rank_classes(const Job& job, const EmbeddingPlacement& layout,
                                    ShardLaws& laws);

}  // namespace stepcast::workloads
