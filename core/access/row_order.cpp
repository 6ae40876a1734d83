#include "core/access/row_order.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/access/internal/access_data.h"
#include "core/error.h"

namespace stepcast {
namespace {

constexpr std::int64_t kFollowed = 1 << 16;      // rows, at least
constexpr std::int64_t kMostFollowed = 1 << 22;  // beyond, a range is larger than any that is hot

}  // namespace

RowOrder RowOrder::seeded(std::int64_t rows, std::uint64_t seed) { return {rows, seed}; }

RowOrder RowOrder::listed(std::int64_t rows, std::vector<std::int64_t> ids) {
  RowOrder order(rows, std::nullopt);
  order.ids_ = std::move(ids);
  order.sorted_.reserve(order.ids_.size());
  for (std::size_t i = 0; i < order.ids_.size(); ++i) {
    const std::int64_t id = order.ids_[i];
    if (id < 0 || id >= rows) {
      throw InputError("row order", fmt::format("id {} at position {} is outside the table's rows "
                                                "0..{}",
                                                id, i, rows - 1));
    }
    order.sorted_.emplace_back(id, static_cast<std::int64_t>(i));
  }
  std::sort(order.sorted_.begin(), order.sorted_.end());
  const auto twice =
      std::adjacent_find(order.sorted_.begin(), order.sorted_.end(),
                         [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != order.sorted_.end()) {
    throw InputError("row order",
                     fmt::format("id {} is at positions {} and {}; list each row "
                                 "once",
                                 twice->first, twice->second, std::next(twice)->second));
  }
  return order;
}

std::optional<RowOrder> RowOrder::of(const Access& access, std::int64_t hot) {
  switch (access.kind()) {
    case AccessKind::kHistogram:
      return std::nullopt;
    case AccessKind::kZipf:
      return seeded(access.rows(), access.seed());
    case AccessKind::kUniform:
    case AccessKind::kIndices:
      break;
  }
  std::vector<std::int64_t> ids;
  for (std::int64_t k = 0; access.kind() == AccessKind::kIndices && k < hot; ++k) {
    ids.push_back(access.row_of_rank(k));
  }
  return listed(access.rows(), std::move(ids));
}

std::int64_t RowOrder::row_at(std::int64_t position) const {
  STEPCAST_CHECK(position >= 0 && position < rows_, "position {} of {} rows", position, rows_);
  if (seed_) {
    return internal::Permutation(rows_, *seed_)(position);
  }
  const auto listed = static_cast<std::int64_t>(ids_.size());
  if (position < listed) {
    return ids_[static_cast<std::size_t>(position)];
  }
  // The (position - listed)-th id that is not listed: below the listed id at place i of the sorted
  // list there are id - i such.
  const std::int64_t wanted = position - listed;
  std::int64_t first = 0;
  std::int64_t last = listed;
  while (first < last) {
    const std::int64_t middle = (first + last) / 2;
    if (sorted_[static_cast<std::size_t>(middle)].first - middle <= wanted) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return wanted + first;
}

std::int64_t RowOrder::position_of(std::int64_t row) const {
  STEPCAST_CHECK(row >= 0 && row < rows_, "row {} of {}", row, rows_);
  if (seed_) {
    return internal::Permutation(rows_, *seed_).inverse(row);
  }
  const auto it = std::lower_bound(sorted_.begin(), sorted_.end(),
                                   std::pair<std::int64_t, std::int64_t>(row, 0));
  if (it != sorted_.end() && it->first == row) {
    return it->second;
  }
  return static_cast<std::int64_t>(ids_.size()) + row - (it - sorted_.begin());
}

bool RowOrder::follows(const Access& access) const {
  return access.kind() == AccessKind::kZipf && seed_ == access.seed() && rows_ == access.rows();
}

LookupsInOrder::LookupsInOrder(const Access& access, const RowOrder& order, std::int64_t hot)
    : access_(access) {
  STEPCAST_CHECK(access.rows() == order.rows() && can_follow(access),
                 "an order of {} rows for a law of {}", order.rows(), access.rows());
  const std::int64_t count = std::min(access.rows(), std::clamp(hot, kFollowed, kMostFollowed));
  positions_.reserve(static_cast<std::size_t>(count));
  for (std::int64_t k = 0; k < count; ++k) {
    positions_.push_back(order.position_of(access.row_of_rank(k)));
  }
}

std::pair<Access, double> LookupsInOrder::range(std::int64_t first, std::int64_t last) const {
  std::vector<std::int64_t> ranks;
  for (std::size_t k = 0; k < positions_.size(); ++k) {
    if (positions_[k] >= first && positions_[k] < last) {
      ranks.push_back(static_cast<std::int64_t>(k));
    }
  }
  return access_.chosen(ranks, followed(), last - first - static_cast<std::int64_t>(ranks.size()));
}

}  // namespace stepcast
