#include "core/access/repeated_lists.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_set>
#include <vector>

#include "core/access/access.h"

namespace stepcast {
namespace {

constexpr std::size_t kBins = 384;
/// Lists drawn less often than this in a batch are taken as never drawn twice.
constexpr double kRare = 1e-3;
/// Probability of popular lists that is left out.
constexpr double kLeftOut = 1e-7;

/// Probability of lists by -ln P(list), in bins of `width` from 0 on; rarer ones are left out.
class ListLaw {
 public:
  ListLaw(const Access& access, double samples)
      : width_(std::log(samples / kRare) / static_cast<double>(kBins)), one_(kBins) {
    const auto rows = static_cast<double>(access.rows());
    double before = 0;
    for (double first = 0; first < rows;) {
      // Ranks one by one, then in blocks that grow by a tenth: few enough to be alike.
      const double last = std::min(rows, first + std::max(1.0, std::floor(first / 10)));
      const double upto = access.cdf(last).value;
      const double mass = upto - before;
      if (mass > 0) {
        add(one_, -std::log(mass / (last - first)), mass);
      }
      before = upto;
      first = last;
    }
    lists_.assign(kBins, 0.0);
    lists_[0] = 1;
  }

  /// Lists grow by one id.
  void lengthen() {
    std::vector<double> longer(kBins);
    for (std::size_t i = 0; i < kBins; ++i) {
      for (std::size_t j = 0; lists_[i] > 0 && i + j < kBins; ++j) {
        longer[i + j] += lists_[i] * one_[j];
      }
    }
    lists_ = std::move(longer);
  }

  /// Whether lists of this length are practically never alike.
  [[nodiscard]] bool all_rare() const {
    double left = 0;
    for (const double mass : lists_) {
      left += mass;
    }
    return left < kLeftOut;
  }

  /// Expected distinct lists among `n` of this length.
  [[nodiscard]] double distinct(double n) const {
    double alike = 0;  // share that repeats another
    for (std::size_t i = 0; i < kBins; ++i) {
      const double x = n * std::exp(-width_ * static_cast<double>(i));
      alike += lists_[i] * (1 + std::expm1(-x) / x);
    }
    return n * (1 - alike);
  }

 private:
  /// Split between two bins such that the mean of the logarithm stays.
  void add(std::vector<double>& to, double at, double mass) const {
    const double place = std::max(0.0, at) / width_;
    const auto bin = static_cast<std::size_t>(std::min(place, static_cast<double>(kBins)));
    const double share = place - static_cast<double>(bin);
    if (bin < kBins) {
      to[bin] += mass * (1 - share);
    }
    if (bin + 1 < kBins) {
      to[bin + 1] += mass * share;
    }
  }

  double width_;
  std::vector<double> one_, lists_;
};

std::span<const std::int64_t> list_at(std::span<const std::int64_t> ids,
                                      std::span<const std::int64_t> begins, std::size_t i) {
  const auto begin = static_cast<std::size_t>(begins[i]);
  const std::size_t end =
      i + 1 < begins.size() ? static_cast<std::size_t>(begins[i + 1]) : ids.size();
  return ids.subspan(begin, end - begin);
}

std::uint64_t hash_of(std::span<const std::int64_t> list) {
  constexpr std::uint64_t kMultiplier = 0x9e3779b97f4a7c15ULL;
  std::uint64_t hash = list.size() * kMultiplier;
  for (const std::int64_t id : list) {
    hash = (std::rotl(hash, 23) ^ static_cast<std::uint64_t>(id)) * kMultiplier;
    hash ^= hash >> 29U;
  }
  return hash;
}

double poisson(double mean, double k) {
  return std::exp(k * std::log(mean) - mean - std::lgamma(k + 1));
}

}  // namespace

DistinctLists distinct_lists(const EmbeddingTable& table, double samples) {
  const double repeats =
      table.session ? dedup_factor(table.session->samples, table.session->keep) : 1;
  const double n = std::max(1.0, samples / repeats);
  const Access access = table.access ? *table.access : Access::uniform(table.rows);
  const bool whole = table.pooling == std::floor(table.pooling);
  if (whole && table.pooling == 1) {
    const double distinct = std::min(n, access.unique(n).value);
    return {distinct, distinct};
  }
  ListLaw law(access, n);
  if (whole) {
    for (double k = 0; k < table.pooling && !law.all_rare(); ++k) {
      law.lengthen();
    }
    const double distinct = law.distinct(n);
    return {distinct, distinct * table.pooling};
  }
  DistinctLists all;
  const double most = table.pooling + 10 * std::sqrt(table.pooling) + 10;
  for (double k = 0; k <= most; ++k) {
    const double of_length = n * poisson(table.pooling, k);
    const double distinct = law.distinct(of_length);
    all.lists += distinct;
    all.ids += distinct * k;
    if (!law.all_rare()) {
      law.lengthen();
    }
  }
  return all;
}

DistinctLists distinct_lists(std::span<const std::int64_t> ids,
                             std::span<const std::int64_t> begins, std::int64_t samples) {
  const std::size_t each = std::min(static_cast<std::size_t>(samples), begins.size());
  const std::size_t batches = begins.size() / each;
  DistinctLists sum;
  std::unordered_set<std::uint64_t> seen;
  for (std::size_t i = 0; i < batches * each; ++i) {
    if (i % each == 0) {
      seen.clear();
    }
    const auto list = list_at(ids, begins, i);
    if (seen.insert(hash_of(list)).second) {
      sum.lists += 1;
      sum.ids += static_cast<double>(list.size());
    }
  }
  const auto count = static_cast<double>(batches);
  return {sum.lists / count, sum.ids / count};
}

double kept_lists(std::span<const std::int64_t> ids, std::span<const std::int64_t> begins) {
  std::size_t kept = 0;
  for (std::size_t i = 1; i < begins.size(); ++i) {
    const auto list = list_at(ids, begins, i);
    const auto before = list_at(ids, begins, i - 1);
    kept += std::equal(list.begin(), list.end(), before.begin(), before.end()) ? 1 : 0;
  }
  return begins.size() < 2 ? 0 : static_cast<double>(kept) / static_cast<double>(begins.size() - 1);
}

}  // namespace stepcast
