#include "core/access/stack_distance.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include "core/error.h"
#include "core/split_mix.h"

namespace stepcast {
namespace {

/// Counts at positions, and their sums over prefixes (Fenwick, Software 24(3), 1994).
class PrefixSums {
 public:
  explicit PrefixSums(std::size_t size) : tree_(size + 1, 0) {}
  void add(std::size_t at, std::int64_t value) {
    for (++at; at < tree_.size(); at += at & (~at + 1)) {
      tree_[at] += value;
    }
  }
  /// Sum over [0, end).
  [[nodiscard]] std::int64_t below(std::size_t end) const {
    std::int64_t sum = 0;
    for (; end > 0; end -= end & (~end + 1)) {
      sum += tree_[end];
    }
    return sum;
  }

 private:
  std::vector<std::int64_t> tree_;
};

/// A row's place in [0, 1), the same in every recording.
double hash01(std::int64_t row) {
  return unit_interval(split_mix(static_cast<std::uint64_t>(row)));
}

}  // namespace

StackDistances::StackDistances(std::span<const std::int64_t> lookups, double sample)
    : sample_(sample) {
  if (!(sample > 0 && sample <= 1)) {
    throw InputError("--sample",
                     fmt::format("found {}; expected a rate above 0, at most 1", sample));
  }
  std::vector<std::int64_t> kept;
  for (const std::int64_t row : lookups) {
    if (sample == 1 || hash01(row) < sample) {
      kept.push_back(row);
    }
  }
  if (kept.empty()) {
    throw InputError("--sample", fmt::format("{} keeps none of {} lookups; use a larger rate",
                                             sample, lookups.size()));
  }
  followed_ = static_cast<std::int64_t>(kept.size());
  expected_ = sample * static_cast<double>(lookups.size());
  std::unordered_map<std::int64_t, std::size_t> last;  // position of a row's latest lookup
  PrefixSums latest(kept.size());                      // 1 where a lookup is its row's latest
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const auto [at, first] = last.try_emplace(kept[i], i);
    if (!first) {
      const std::int64_t distance = latest.below(i) - latest.below(at->second + 1);
      if (static_cast<std::size_t>(distance) >= within_.size()) {
        within_.resize(static_cast<std::size_t>(distance) + 1, 0);
      }
      ++within_[static_cast<std::size_t>(distance)];
      latest.add(at->second, -1);
      at->second = i;
    }
    latest.add(i, 1);
  }
  std::partial_sum(within_.begin(), within_.end(), within_.begin());
  distinct_ = static_cast<double>(last.size()) / sample;
}

double StackDistances::hit_rate(double capacity) const {
  const auto scaled = static_cast<std::int64_t>(std::floor(capacity * sample_ + 1e-9));
  if (scaled <= 0 || within_.empty()) {
    return 0;
  }
  const auto at = std::min<std::size_t>(static_cast<std::size_t>(scaled), within_.size()) - 1;
  // Rows of the hottest few decide how many lookups a sample follows; what it follows too few or
  // too many of are hits at distance 0 (the adjustment of SHARDS, section 4).
  const double adjusted =
      static_cast<double>(within_[at]) + expected_ - static_cast<double>(followed_);
  return std::clamp(adjusted / expected_, 0.0, 1.0);
}

std::vector<ReuseBin> reuse_bins(std::span<const std::int64_t> lookups) {
  std::unordered_map<std::int64_t, std::int64_t> counts;
  for (const std::int64_t row : lookups) {
    ++counts[row];
  }
  std::vector<ReuseBin> bins;
  for (const auto& [row, count] : counts) {
    std::size_t bin = 0;
    while ((std::int64_t{1} << bin) < count) {
      ++bin;
    }
    while (bins.size() <= bin) {
      const double high = std::exp2(static_cast<double>(bins.size()));
      bins.push_back({bins.empty() ? 0 : high / 2, high, 0, 0});
    }
    bins[bin].unique_rows += 1;
    bins[bin].accesses += static_cast<double>(count);
  }
  return bins;
}

}  // namespace stepcast
