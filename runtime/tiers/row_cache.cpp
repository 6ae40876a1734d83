#include "runtime/tiers/row_cache.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "core/error.h"

namespace stepcast::runtime {

RowCache::RowCache(std::int64_t slots, std::int64_t capacity, int batches_ahead,
                   RowCachePolicy policy, std::int64_t rows)
    : capacity_(std::min(capacity, slots)),
      ahead_(batches_ahead),
      lookups_(policy == RowCachePolicy::kLfu ? static_cast<std::size_t>(rows) : 0),
      slots_(static_cast<std::size_t>(slots)),
      table_(std::bit_ceil(2 * static_cast<std::size_t>(std::max<std::int64_t>(slots, 1))), kNone) {
  STEPCAST_CHECK(slots >= 0 && slots <= std::int64_t{1} << 30, "a cache of {} slots", slots);
  for (auto slot = static_cast<std::int32_t>(slots); slot > 0; --slot) {
    free_.push_back(slot - 1);
  }
}

std::size_t RowCache::home(std::uint32_t row) const {
  const std::uint64_t mixed = row * 0x9e3779b97f4a7c15ULL;  // Fibonacci hashing
  return static_cast<std::size_t>(mixed >> 32U) & (table_.size() - 1);
}

std::int32_t RowCache::find(std::uint32_t row) const {
  for (std::size_t i = home(row); table_[i] != kNone; i = (i + 1) & (table_.size() - 1)) {
    if (slots_[static_cast<std::size_t>(table_[i])].row == row) {
      return table_[i];
    }
  }
  return kNone;
}

void RowCache::enter(std::uint32_t row, std::int32_t slot) {
  std::size_t i = home(row);
  while (table_[i] != kNone) {
    i = (i + 1) & (table_.size() - 1);
  }
  table_[i] = slot;
}

/// Entries behind the gap move up where their search would stop at it.
void RowCache::forget(std::uint32_t row) {
  const std::size_t mask = table_.size() - 1;
  std::size_t gap = home(row);
  while (slots_[static_cast<std::size_t>(table_[gap])].row != row) {
    gap = (gap + 1) & mask;
  }
  for (std::size_t i = (gap + 1) & mask; table_[i] != kNone; i = (i + 1) & mask) {
    const std::size_t wanted = home(slots_[static_cast<std::size_t>(table_[i])].row);
    if (((i - wanted) & mask) >= ((i - gap) & mask)) {
      table_[gap] = table_[i];
      gap = i;
    }
  }
  table_[gap] = kNone;
}

void RowCache::unlink(std::int32_t slot) {
  const Slot& s = slots_[static_cast<std::size_t>(slot)];
  (s.newer == kNone ? newest_ : slots_[static_cast<std::size_t>(s.newer)].older) = s.older;
  (s.older == kNone ? oldest_ : slots_[static_cast<std::size_t>(s.older)].newer) = s.newer;
}

void RowCache::link_newest(std::int32_t slot) {
  Slot& s = slots_[static_cast<std::size_t>(slot)];
  s.newer = kNone;
  s.older = newest_;
  (newest_ == kNone ? oldest_ : slots_[static_cast<std::size_t>(newest_)].newer) = slot;
  newest_ = slot;
}

void RowCache::collect(std::uint32_t end) {
  leaving_.clear();
  for (std::int32_t slot = oldest_; slot != kNone;
       slot = slots_[static_cast<std::size_t>(slot)].newer) {
    if (slots_[static_cast<std::size_t>(slot)].batch >= end) {
      return;  // so are all newer ones
    }
    leaving_.push_back(slot);
  }
}

void RowCache::least_first(std::int64_t count) {
  const auto rank = [this](std::int32_t slot) {
    const Slot& s = slots_[static_cast<std::size_t>(slot)];
    return std::tuple(lookups_[s.row], s.batch, s.row);
  };
  if (count < static_cast<std::int64_t>(leaving_.size())) {
    std::nth_element(leaving_.begin(), leaving_.begin() + count, leaving_.end(),
                     [&](std::int32_t a, std::int32_t b) { return rank(a) < rank(b); });
    leaving_.resize(static_cast<std::size_t>(count));
  }
}

bool RowCache::evict(std::vector<Move>& stores, std::uint32_t oldest_needed) {
  std::int32_t slot = oldest_;
  if (slot == kNone || slots_[static_cast<std::size_t>(slot)].batch >= oldest_needed) {
    return false;
  }
  if (!lookups_.empty()) {
    collect(oldest_needed);
    least_first(1);
    slot = leaving_.front();
  }
  remove(slot, stores);
  return true;
}

void RowCache::remove(std::int32_t slot, std::vector<Move>& stores) {
  stores.push_back({slots_[static_cast<std::size_t>(slot)].row, slot});
  forget(slots_[static_cast<std::size_t>(slot)].row);
  unlink(slot);
  free_.push_back(slot);
  --size_;
}

void RowCache::look_up(std::span<const std::int64_t> rows, std::int64_t* slots,
                       std::vector<Move>& loads, std::vector<Move>& stores) {
  touched_ = 0;
  const std::uint32_t needed =
      batch_ > static_cast<std::uint32_t>(ahead_) ? batch_ - static_cast<std::uint32_t>(ahead_) : 0;
  for (const std::int64_t id : rows) {
    const auto row = static_cast<std::uint32_t>(id);
    if (!lookups_.empty()) {
      ++lookups_[row];
    }
    std::int32_t slot = find(row);
    if (slot != kNone) {
      touched_ += slots_[static_cast<std::size_t>(slot)].batch != batch_ ? 1 : 0;
      if (slot != newest_) {
        unlink(slot);
        link_newest(slot);
      }
    } else {
      if (free_.empty() && !evict(stores, needed)) {
        throw RunError(fmt::format(
            "a batch looks up more rows of a slower tier than the {} that its cache has room for: "
            "the data repeat less than the table's access law says; give a larger cache",
            slots_.size()));
      }
      slot = free_.back();
      free_.pop_back();
      slots_[static_cast<std::size_t>(slot)].row = row;
      enter(row, slot);
      link_newest(slot);
      loads.push_back({id, slot});
      ++size_;
      ++touched_;
    }
    slots_[static_cast<std::size_t>(slot)].batch = batch_;
    *slots++ = slot;
  }
}

std::vector<RowCache::Move> RowCache::held() const {
  std::vector<Move> all;
  for (std::int32_t slot = oldest_; slot != kNone;
       slot = slots_[static_cast<std::size_t>(slot)].newer) {
    all.push_back({slots_[static_cast<std::size_t>(slot)].row, slot});
  }
  return all;
}

void RowCache::trim(std::vector<Move>& stores) {
  // No row of a batch looked up ahead leaves before its update.
  const std::uint32_t needed = ahead_ > 0 ? batch_ : batch_ + 1;
  if (lookups_.empty()) {
    while (size_ > capacity_ && evict(stores, needed)) {
    }
  } else if (size_ > capacity_) {
    collect(batch_ + 1);
    least_first(size_ - capacity_);
    for (const std::int32_t slot : leaving_) {
      if (slots_[static_cast<std::size_t>(slot)].batch < needed) {
        remove(slot, stores);
      }
    }
  }
}

}  // namespace stepcast::runtime
