#include "core/access/id_sketch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>

#include "core/error.h"
#include "core/split_mix.h"

namespace stepcast {
namespace {

constexpr std::size_t kSampleSlots = 1U << 17;
constexpr std::size_t kSampleRows = kSampleSlots / 2;
constexpr std::size_t kHotSlots = 1U << 14;
constexpr std::size_t kHotRows = kHotSlots / 2;
constexpr std::size_t kBlock = 64;          // ids hashed ahead of their look-up
constexpr std::size_t kMedianOf = 1024;     // counters asked for the median
constexpr std::int64_t kSureOf = 20;        // counts at least that many times what may be missed
constexpr double kLeastScale = 1.0 / 1.02;  // of rows: what a histogram's bins allow for rounding

std::uint64_t hash_of(std::int64_t id) { return split_mix(static_cast<std::uint64_t>(id)); }

std::size_t bin_of(std::int64_t count) {
  std::size_t bin = 0;
  while ((std::int64_t{1} << bin) < count) {
    ++bin;
  }
  return bin;
}

}  // namespace

IdSketch::IdSketch()
    : sample_(kSampleSlots),
      hot_(kHotSlots),
      spare_(kHotSlots),
      missed_(kHotSlots, 0),
      spare_missed_(kHotSlots, 0) {}

void IdSketch::add(std::span<const std::int64_t> ids) {
  for (std::size_t at = 0; at < ids.size(); at += kBlock) {
    add_block(ids.data() + at, std::min(kBlock, ids.size() - at));
  }
  lookups_ += static_cast<std::int64_t>(ids.size());
}

/// Hashes first, so that the slots are on their way to the cache when they are asked for.
void IdSketch::add_block(const std::int64_t* ids, std::size_t count) {
  std::array<std::uint64_t, kBlock> hashes{};
  std::int64_t largest = largest_;
  for (std::size_t i = 0; i < count; ++i) {
    hashes[i] = hash_of(ids[i]);
    largest = std::max(largest, ids[i]);
  }
  largest_ = largest;
  if (level_ == 0) {
    for (std::size_t i = 0; i < count; ++i) {
      __builtin_prefetch(&sample_[hashes[i] % kSampleSlots], 1);
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      __builtin_prefetch(&hot_[hashes[i] % kHotSlots], 1);
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (level_ > 0) {
      add_hot(ids[i], hashes[i]);
    }
    if (level_ == 0 || hashes[i] >> (64 - level_) == 0) {
      add_sampled(ids[i], hashes[i]);
    }
  }
}

void IdSketch::add_sampled(std::int64_t id, std::uint64_t hash) {
  std::size_t at = hash % kSampleSlots;
  while (sample_[at].row != id) {
    if (sample_[at].row < 0) {
      sample_[at].row = id;
      ++sampled_;
      break;
    }
    at = (at + 1) % kSampleSlots;
  }
  ++sample_[at].count;
  if (sampled_ > kSampleRows) {
    if (level_ == 0) {
      start_hot();
    }
    halve_sample();
  }
}

void IdSketch::halve_sample() {
  ++level_;
  std::vector<Slot> old(kSampleSlots);
  old.swap(sample_);
  sampled_ = 0;
  for (const Slot& s : old) {
    const std::uint64_t hash = s.row < 0 ? 0 : hash_of(s.row);
    if (s.row < 0 || hash >> (64 - level_) != 0) {
      continue;
    }
    std::size_t at = hash % kSampleSlots;
    while (sample_[at].row >= 0) {
      at = (at + 1) % kSampleSlots;
    }
    sample_[at] = s;
    ++sampled_;
  }
}

/// The counters begin with the hottest rows of the sample, which holds all rows until now.
void IdSketch::start_hot() {
  std::vector<Slot> all;
  std::copy_if(sample_.begin(), sample_.end(), std::back_inserter(all),
               [](const Slot& s) { return s.row >= 0; });
  const auto last = all.begin() + kHotRows / 2;
  std::nth_element(all.begin(), last, all.end(), [](const Slot& a, const Slot& b) {
    return a.count != b.count ? a.count > b.count : a.row < b.row;
  });
  floor_ = last->count;
  std::for_each(all.begin(), last, [this](const Slot& s) { put_hot(s, 0); });
}

void IdSketch::put_hot(const Slot& slot, std::int64_t missed) {
  std::size_t at = hash_of(slot.row) % kHotSlots;
  while (hot_[at].row >= 0) {
    at = (at + 1) % kHotSlots;
  }
  hot_[at] = slot;
  missed_[at] = missed;
  ++hot_count_;
}

void IdSketch::add_hot(std::int64_t id, std::uint64_t hash) {
  std::size_t at = hash % kHotSlots;
  while (hot_[at].row != id) {
    if (hot_[at].row < 0) {
      hot_[at].row = id;
      missed_[at] = floor_;
      if (++hot_count_ > kHotRows) {
        hot_[at].count = 1;
        purge_hot();
        return;
      }
      break;
    }
    at = (at + 1) % kHotSlots;
  }
  ++hot_[at].count;
}

void IdSketch::purge_hot() {
  // The median of counters spread over the table: hashes put them in no order.
  std::vector<std::int64_t> values;
  for (std::size_t at = 0; at < kHotSlots && values.size() < kMedianOf; ++at) {
    if (hot_[at].row >= 0) {
      values.push_back(hot_[at].count + missed_[at]);
    }
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  floor_ = std::max(floor_ + 1, *middle);
  hot_.swap(spare_);
  missed_.swap(spare_missed_);
  std::fill(hot_.begin(), hot_.end(), Slot{});
  hot_count_ = 0;
  for (std::size_t at = 0; at < kHotSlots; ++at) {
    if (spare_[at].row >= 0 && spare_[at].count + spare_missed_[at] > floor_) {
      put_hot(spare_[at], spare_missed_[at]);
    }
  }
}

double IdSketch::distinct() const { return std::ldexp(static_cast<double>(sampled_), level_); }

double IdSketch::distinct_error() const {
  return exact() ? 0 : 1 / std::sqrt(static_cast<double>(sampled_));
}

std::vector<IdSketch::HotRow> IdSketch::hot_rows() const {
  std::vector<HotRow> all;
  const std::vector<Slot>& from = exact() ? sample_ : hot_;
  for (std::size_t at = 0; at < from.size(); ++at) {
    if (from[at].row >= 0) {
      all.push_back({from[at].row, from[at].count, exact() ? 0 : missed_[at]});
    }
  }
  std::sort(all.begin(), all.end(), [](const HotRow& a, const HotRow& b) {
    return a.count != b.count ? a.count > b.count : a.row < b.row;
  });
  return all;
}

std::vector<ReuseBin> IdSketch::bins(std::int64_t rows) const {
  std::vector<ReuseBin> bins;
  const auto add = [&bins](std::int64_t reuse, double count, double accesses) {
    const std::size_t bin = bin_of(reuse);
    while (bins.size() <= bin) {
      const double high = std::exp2(static_cast<double>(bins.size()));
      bins.push_back({bins.empty() ? 0 : high / 2, high, 0, 0});
    }
    bins[bin].unique_rows += count;
    bins[bin].accesses += accesses;
  };
  // Hot rows whose count is sure to a twentieth, one by one; half of what may be missed is added.
  double hot_accesses = 0;
  double hot_rows_count = 0;
  std::unordered_set<std::int64_t> sure;
  if (!exact()) {
    for (const HotRow& h : hot_rows()) {
      if (h.count < kSureOf * h.missed || h.count <= floor_) {
        continue;
      }
      sure.insert(h.row);
      hot_accesses += static_cast<double>(h.count + h.missed / 2);
      ++hot_rows_count;
      add(h.count + h.missed / 2, 1, static_cast<double>(h.count + h.missed / 2));
    }
  }
  // The others from the sample, scaled so that accesses add up to all lookups.
  double others = 0;
  for (const Slot& s : sample_) {
    others += s.row >= 0 && sure.count(s.row) == 0 ? static_cast<double>(s.count) : 0;
  }
  const double scale = others > 0 ? std::max(0.0, lookups() - hot_accesses) / others : 0;
  // A table has no more rows than it has: what the sample has too many of is taken off the rows.
  double tail_rows = 0;
  for (const Slot& s : sample_) {
    tail_rows += s.row >= 0 && sure.count(s.row) == 0 ? scale : 0;
  }
  const double room = static_cast<double>(rows) - hot_rows_count;
  const double fewer = rows > 0 && tail_rows > room ? std::max(kLeastScale, room / tail_rows) : 1;
  for (const Slot& s : sample_) {
    if (s.row >= 0 && sure.count(s.row) == 0) {
      add(s.count, scale * fewer, scale * static_cast<double>(s.count));
    }
  }
  return bins;
}

std::size_t IdSketch::memory_bytes() const {
  return sizeof(Slot) * (2 * sample_.size() + hot_.size() + spare_.size()) +
         sizeof(std::int64_t) * (missed_.size() + spare_missed_.size());
}

}  // namespace stepcast
