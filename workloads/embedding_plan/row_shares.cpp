#include "workloads/embedding_plan/row_shares.h"

#include <algorithm>

#include "core/numbers.h"

namespace stepcast::workloads {
namespace {

constexpr std::int64_t kHottest = 512;

/// Share of lookups that go to the ranks of popularity [first, last).
double mass_of_ranks(const Access* law, const RowSplit& s, std::int64_t first, std::int64_t last) {
  if (law == nullptr) {
    return real(last - first) / real(s.table_rows);
  }
  return std::max(0.0, law->cdf(real(last)).value - law->cdf(real(first)).value);
}

}  // namespace

bool is_skewed(const Access* law) {
  return law != nullptr && law->kind() != AccessKind::kUniform &&
         (law->kind() != AccessKind::kZipf || law->exponent() > 0);
}

std::vector<HotRow> hottest_rows(const Access* law) {
  std::vector<HotRow> rows;
  if (is_skewed(law)) {
    const std::int64_t count = std::min(kHottest, law->rows());
    rows.reserve(index(count));
    for (std::int64_t k = 0; k < count; ++k) {
      rows.push_back({law->row_of_rank(k), law->probability(real(k))});
    }
  }
  return rows;
}

std::vector<HotRow> hot_rows_of(const LookupsInOrder& lookups) {
  std::vector<HotRow> rows;
  rows.reserve(index(lookups.followed()));
  for (std::int64_t k = 0; k < lookups.followed(); ++k) {
    rows.push_back({lookups.position_of_rank(k), lookups.popularity(k)});
  }
  return rows;
}

RowShares::RowShares(const Access* law, const RowSplit& split, std::span<const HotRow> hottest)
    : split_(split) {
  const std::int64_t members = split.split == Split::kReplicate ? 1 : split.members;
  struct Hot {
    double popularity = 0;
    std::int64_t rows = 0;
  };
  std::vector<Hot> hot(index(members));
  double found = 0;        // lookups of the hottest rows, wherever they lie
  std::int64_t count = 0;  // of them
  std::int64_t all_rows = split.table_rows;
  double all = 1;
  const auto note = [&](std::int64_t row, double popularity) {
    found += popularity;
    ++count;
    const std::int64_t offset = row - split.first_row;
    if (offset >= 0 && offset < split.rows) {
      Hot& member = hot[index(members == 1 ? 0 : split.owner(offset))];
      member.popularity += popularity;
      ++member.rows;
    }
  };
  if (split.frequency_order) {
    const std::int64_t end = split.first_row + split.rows;
    all_rows = split.rows;
    all = mass_of_ranks(law, split, split.first_row, end);
    if (members > 1 && split.split == Split::kBlock) {
      std::int64_t first = split.first_row;
      for (std::int64_t m = 0; m < members; ++m) {
        const std::int64_t last = first + split.held(m);
        uneven_.push_back({m, mass_of_ranks(law, split, first, last)});
        first = last;
      }
    } else if (members > 1 && is_skewed(law)) {
      for (std::int64_t k = split.first_row; k < std::min(end, split.first_row + kHottest); ++k) {
        note(k, law->probability(real(k)));
      }
    }
  } else {
    for (const HotRow& row : hottest) {
      note(row.row, row.popularity);
    }
  }
  per_row_ = all_rows > count ? std::max(0.0, all - found) / real(all_rows - count) : 0;
  if (uneven_.empty()) {
    for (std::int64_t m = 0; m < members; ++m) {
      const Hot& here = hot[index(m)];
      if (here.rows > 0) {
        uneven_.push_back({m, here.popularity + per_row_ * real(split.held(m) - here.rows)});
      }
    }
  }
  total_ = split.frequency_order ? all : 0;
  most_ = per_row_ * real(split.held(0));
  std::int64_t rows_left = split.rows;
  for (const Member& m : uneven_) {
    most_ = std::max(most_, m.share);
    rows_left -= split.held(m.position);
    total_ += split.frequency_order ? 0 : m.share;
  }
  if (!split.frequency_order) {
    total_ += per_row_ * real(rows_left);
  }
}

double RowShares::of(std::int64_t position) const {
  const auto at =
      std::lower_bound(uneven_.begin(), uneven_.end(), position,
                       [](const Member& m, std::int64_t wanted) { return m.position < wanted; });
  return at != uneven_.end() && at->position == position ? at->share
                                                         : per_row_ * real(split_.held(position));
}

std::vector<double> RowShares::by_member() const {
  std::vector<double> shares;
  shares.reserve(index(split_.members));
  for (std::int64_t m = 0; m < split_.members; ++m) {
    shares.push_back(per_row_ * real(split_.held(m)));
  }
  for (const Member& m : uneven_) {
    shares[index(m.position)] = m.share;
  }
  return shares;
}

double RowShares::even(std::int64_t position) const {
  if (split_.frequency_order && split_.split == Split::kBlock) {
    return of(position);
  }
  const double range = split_.frequency_order || split_.own_order
                           ? total_
                           : real(split_.rows) / real(split_.table_rows);
  return split_.rows > 0 ? range * real(split_.held(position)) / real(split_.rows) : 0;
}

}  // namespace stepcast::workloads
