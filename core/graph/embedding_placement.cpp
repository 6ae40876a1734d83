#include "core/graph/embedding_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace stepcast {
namespace {

std::string_view name_of_kind(EmbeddingRoute kind) {
  switch (kind) {
    case EmbeddingRoute::kReplicated:
      return "replicated";
    case EmbeddingRoute::kLocal:
      return "local";
    case EmbeddingRoute::kExchange:
      return "exchange";
    case EmbeddingRoute::kReduce:
      return "reduce";
    case EmbeddingRoute::kNodeReduce:
      return "node_reduce";
    case EmbeddingRoute::kSequence:
      return "sequence";
    case EmbeddingRoute::kGroupReduce:
      return "group_reduce";
    case EmbeddingRoute::kGroupSequence:
      return "group_sequence";
  }
  return "";
}

}  // namespace

std::string name_of(EmbeddingRoute r) {
  const std::string_view kind = name_of_kind(kind_of(r));
  return level_of(r) == 0 ? std::string(kind) : fmt::format("{}_{}", kind, level_of(r) + 1);
}

HeldRows RowSplit::part(std::int64_t position) const {
  if (!splits()) {
    return {first_row, rows, 1};
  }
  if (split == Split::kStripe) {
    const std::int64_t held = std::max<std::int64_t>(0, (rows - position + members - 1) / members);
    return {first_row + std::min(position, rows), held, members};
  }
  const std::int64_t before = std::min(position * block(), rows);
  return {first_row + before, std::min(block(), rows - before), 1};
}

RowSplit row_split(const PlanShard& shard, std::int64_t members) {
  return {.first_row = shard.rows[0],
          .rows = shard.rows[1] - shard.rows[0],
          .split = shard.split,
          .members = members};
}

HeldRows held_rows(const EmbeddingSlice& slice, std::int32_t rank) {
  return slice.row_rule().part(slice.position(rank));
}

std::span<const std::int32_t> EmbeddingPlacement::held_by(std::int32_t rank,
                                                          EmbeddingRoute route) const {
  const auto& all = held[static_cast<std::size_t>(rank)];
  const auto at = [this](std::int32_t s) { return slices[static_cast<std::size_t>(s)].route; };
  const auto first =
      std::partition_point(all.begin(), all.end(), [&](std::int32_t s) { return at(s) < route; });
  const auto last =
      std::partition_point(first, all.end(), [&](std::int32_t s) { return at(s) == route; });
  return {all.data() + (first - all.begin()), static_cast<std::size_t>(last - first)};
}

std::int64_t EmbeddingPlacement::width(std::int32_t rank, EmbeddingRoute route) const {
  std::int64_t sum = 0;
  for (const std::int32_t s : held_by(rank, route)) {
    sum += slices[static_cast<std::size_t>(s)].width();
  }
  return sum;
}

std::array<std::int32_t, 2> EmbeddingPlacement::peers(EmbeddingRoute route,
                                                      std::int32_t rank) const {
  if (is_local(route)) {
    return {rank, rank + 1};
  }
  if (!has_copies(route)) {
    return {0, static_cast<std::int32_t>(devices)};
  }
  const auto size = static_cast<std::int32_t>(group_of(route));
  return {rank / size * size, rank / size * size + size};
}

bool EmbeddingPlacement::exchanges_ids() const {
  return std::any_of(slices.begin(), slices.end(), [](const EmbeddingSlice& s) {
    return s.route != EmbeddingRoute::kReplicated && s.route != EmbeddingRoute::kLocal;
  });
}

}  // namespace stepcast
