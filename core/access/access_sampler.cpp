#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/access/access.h"
#include "core/access/internal/access_data.h"
#include "core/split_mix.h"

namespace stepcast {

using internal::PopularityCurve;

/// Alias table over the atoms (Walker 1977, Vose 1991) and the ranks of each.
struct AccessSampler::Table {
  struct Slot {
    std::uint64_t keep = 0;  ///< keep this slot below it, of 2^64; else take the alias
    std::uint32_t alias = 0;
  };
  struct Ranks {
    double first = 0;
    double width = 0;
    std::uint64_t accept = 0;  ///< of 2^64: the coldest row of the bin against its hottest
  };
  std::vector<Slot> slots;
  std::vector<Ranks> ranks;
};

namespace {

constexpr double kTwo64 = 18446744073709551616.0;

/// A share as a fraction of 2^64; 1 and above saturate.
std::uint64_t as_threshold(double share) {
  return share >= 1 ? UINT64_MAX : static_cast<std::uint64_t>(std::max(0.0, share) * kTwo64);
}

/// Fills `slots` so that slot i is drawn with chance weights[i] / sum.
template <typename Slot>
void fill_alias(std::vector<Slot>& slots, const std::vector<double>& weights) {
  const auto size = static_cast<double>(weights.size());
  double sum = 0;
  for (const double w : weights) {
    sum += w;
  }
  std::vector<double> scaled;
  std::vector<std::uint32_t> small;
  std::vector<std::uint32_t> large;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    scaled.push_back(weights[i] / sum * size);
    (scaled.back() < 1 ? small : large).push_back(static_cast<std::uint32_t>(i));
  }
  slots.resize(weights.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    slots[i] = {UINT64_MAX, static_cast<std::uint32_t>(i)};
  }
  while (!small.empty() && !large.empty()) {
    const std::uint32_t poor = small.back();
    const std::uint32_t rich = large.back();
    small.pop_back();
    slots[poor] = {as_threshold(scaled[poor]), rich};
    scaled[rich] -= 1 - scaled[poor];
    if (scaled[rich] < 1) {
      large.pop_back();
      small.push_back(rich);
    }
  }
}

}  // namespace

AccessSampler::AccessSampler(const Access& access, std::uint64_t seed) : access_(access) {
  reseed(seed);
  if (!access_.data_->recorded.empty()) {
    return;
  }
  const PopularityCurve& curve = access_.data_->curve;
  Table table;
  std::vector<double> weights;
  for (std::size_t i = 0; i < curve.atoms().size(); ++i) {
    const internal::Atom& atom = curve.atoms()[i];
    if (atom.p <= 0) {
      continue;
    }
    weights.push_back(atom.rows * atom.p);
    Table::Ranks ranks{curve.rows_before(i), atom.rows, UINT64_MAX};
    if (const auto& law = curve.law(); law && atom.rows > 1) {
      ranks.accept = as_threshold(law->at(ranks.first + atom.rows - 1) / law->at(ranks.first));
    }
    table.ranks.push_back(ranks);
  }
  fill_alias(table.slots, weights);
  table_ = std::make_shared<const Table>(std::move(table));
}

void AccessSampler::reseed(std::uint64_t seed) {
  if (!access_.data_->recorded.empty()) {
    state_ = seed % access_.data_->recorded.size();
    return;
  }
  state_ = seed;
  state_ = next_split_mix(state_);  // neighbouring seeds start far apart
}

std::int64_t AccessSampler::next_rank() {
  const Access::Data& data = *access_.data_;
  if (!table_) {
    const std::int64_t rank = data.rank_of[state_];
    state_ = state_ + 1 == data.rank_of.size() ? 0 : state_ + 1;
    return rank;
  }
  // The high half of a 64x64-bit product is a slot, its low half decides between slot and alias.
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(next_split_mix(state_)) * table_->slots.size();
  auto slot = static_cast<std::size_t>(product >> 64);
  if (static_cast<std::uint64_t>(product) >= table_->slots[slot].keep) {
    slot = table_->slots[slot].alias;
  }
  const Table::Ranks& ranks = table_->ranks[slot];
  if (ranks.width == 1 && ranks.first == std::floor(ranks.first)) {
    return static_cast<std::int64_t>(ranks.first);
  }
  for (;;) {
    const double inside = unit_interval(next_split_mix(state_)) * ranks.width;
    const auto rank = std::min(static_cast<std::int64_t>(ranks.first + inside), data.rows - 1);
    if (ranks.accept == UINT64_MAX) {
      return rank;
    }
    const std::uint64_t draw = next_split_mix(state_);
    if (draw < ranks.accept) {
      return rank;
    }
    const internal::PowerLaw& law = *data.curve.law();
    if (unit_interval(draw) * law.at(ranks.first) < law.at(static_cast<double>(rank))) {
      return rank;
    }
  }
}

std::int64_t AccessSampler::next_row() {
  const std::int64_t rank = next_rank();
  return access_.data_->shuffled ? access_.data_->permutation(rank) : access_.row_of_rank(rank);
}

void AccessSampler::fill_rows(std::span<std::int64_t> to) {
  for (std::int64_t& row : to) {
    row = next_row();
  }
}

}  // namespace stepcast
