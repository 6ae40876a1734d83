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

std::int64_t RowSplit::held(std::int64_t position) const {
  if (members <= 1 || split == Split::kReplicate) {
    return rows;
  }
  if (split == Split::kStripe) {
    return std::max<std::int64_t>(0, (rows - position + members - 1) / members);
  }
  const std::int64_t block = (rows + members - 1) / members;
  return std::clamp<std::int64_t>(rows - position * block, 0, block);
}

std::int64_t EmbeddingSlice::block() const { return (rows + members() - 1) / members(); }

HeldRows held_rows(const EmbeddingSlice& slice, std::int32_t rank) {
  if (!slice.row_split()) {
    return {slice.first_row, slice.rows, 1};
  }
  const std::int64_t members = slice.members();
  const std::int64_t position = slice.position(rank);
  const RowSplit split{.rows = slice.rows, .split = slice.split, .members = members};
  const std::int64_t held = split.held(position);
  if (slice.split == Split::kStripe) {
    return {slice.first_row + position, held, members};
  }
  return {slice.first_row + std::min(position * slice.block(), slice.rows), held, 1};
}

std::vector<std::int32_t> EmbeddingPlacement::held_by(std::int32_t rank,
                                                      EmbeddingRoute route) const {
  std::vector<std::int32_t> ids;
  for (const std::int32_t s : held[static_cast<std::size_t>(rank)]) {
    if (slices[static_cast<std::size_t>(s)].route == route) {
      ids.push_back(s);
    }
  }
  return ids;
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
