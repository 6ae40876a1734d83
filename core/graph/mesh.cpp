#include "core/graph/mesh.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"

namespace stepcast {

std::int32_t Mesh::extent(Axis a) const {
  switch (a) {
    case Axis::kTensor:
      return tensor;
    case Axis::kContext:
      return context;
    case Axis::kPipeline:
      return pipeline;
    case Axis::kData:
      return data;
    case Axis::kCount:
      break;
  }
  throw InternalError("unknown mesh axis");
}

std::int32_t Mesh::stride(Axis a) const {
  std::int32_t stride = 1;
  for (const Axis inner : order) {
    if (inner == a) {
      break;
    }
    stride *= extent(inner);
  }
  return stride;
}

std::vector<std::vector<std::int32_t>> expert_holders(const Mesh& mesh, ExpertSplit split) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::int32_t>> holders;
  for (std::int32_t rank = 0; rank < mesh.size(); ++rank) {
    const std::int32_t columns = split.tensor > 1 ? mesh.coordinate(rank, Axis::kTensor) : 0;
    holders[{mesh.coordinate(rank, Axis::kPipeline), columns}].push_back(rank);
  }
  std::vector<std::vector<std::int32_t>> lists;
  for (auto& [place, members] : holders) {
    lists.push_back(std::move(members));
  }
  return lists;
}

std::vector<std::int32_t> expert_group(const Mesh& mesh, ExpertSplit split, std::int32_t rank) {
  for (const std::vector<std::int32_t>& holders : expert_holders(mesh, split)) {
    const auto at = std::find(holders.begin(), holders.end(), rank);
    if (at != holders.end()) {
      const auto first = at - (at - holders.begin()) % split.ranks;
      return {first, first + split.ranks};
    }
  }
  throw InternalError("a rank outside its mesh");
}

std::optional<std::int32_t> expert_units(const Mesh& mesh, ExpertSplit split, std::int64_t inside) {
  std::optional<std::int32_t> units;
  for (const std::vector<std::int32_t>& holders : expert_holders(mesh, split)) {
    for (std::size_t first = 0; first < holders.size();
         first += static_cast<std::size_t>(split.ranks)) {
      std::map<std::int64_t, std::int32_t> ranks;
      for (std::int32_t i = 0; i < split.ranks; ++i) {
        ++ranks[holders[first + static_cast<std::size_t>(i)] / inside];
      }
      const auto here = static_cast<std::int32_t>(ranks.size());
      const bool alike = std::all_of(ranks.begin(), ranks.end(), [&](const auto& unit) {
        return unit.second * here == split.ranks;
      });
      if (!alike || (units && *units != here)) {
        return std::nullopt;
      }
      units = here;
    }
  }
  return units;
}

std::int32_t expert_place(const Mesh& mesh, ExpertSplit split, std::int32_t rank) {
  const std::vector<std::int32_t> group = expert_group(mesh, split, rank);
  return static_cast<std::int32_t>(std::find(group.begin(), group.end(), rank) - group.begin());
}

}  // namespace stepcast
