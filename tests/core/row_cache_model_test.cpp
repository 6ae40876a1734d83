#include <algorithm>
#include <catch2/catch.hpp>
#include <list>
#include <unordered_map>
#include <unordered_set>

#include "core/access/row_cache_model.h"

using namespace stepcast;

namespace {

/// A list of rows in the order of their last lookup; what a batch lacks is fetched before it, what
/// is over the capacity leaves after it.
class SimulatedCache {
 public:
  explicit SimulatedCache(std::size_t capacity) : capacity_(capacity) {}
  RowTraffic batch(AccessSampler& sampler, int lookups) {
    RowTraffic t;
    t.lookups = lookups;
    std::unordered_set<std::int64_t> seen;
    for (int i = 0; i < lookups; ++i) {
      const std::int64_t row = sampler.next_rank();
      t.touched += seen.insert(row).second ? 1 : 0;
      const auto at = where_.find(row);
      if (at == where_.end()) {
        t.fetched += 1;
      } else {
        order_.erase(at->second);
      }
      order_.push_front(row);
      where_[row] = order_.begin();
    }
    for (; order_.size() > capacity_; t.written += 1) {
      where_.erase(order_.back());
      order_.pop_back();
    }
    return t;
  }

 private:
  std::size_t capacity_;
  std::list<std::int64_t> order_;
  std::unordered_map<std::int64_t, std::list<std::int64_t>::iterator> where_;
};

}  // namespace

TEST_CASE("rows fetched and written are those of a simulated cache", "[core][cache][oracle]") {
  // Capacities below, near and above the distinct rows of a batch.
  const double exponent = GENERATE(0.0, 0.7, 1.1);
  const int capacity = GENERATE(0, 150, 900, 2'500, 5'000);
  constexpr int kRows = 5'000;
  constexpr int kLookups = 1'500;
  constexpr int kBatches = 40;
  CAPTURE(exponent, capacity);
  const Access access = exponent > 0 ? Access::zipf(kRows, exponent, 3) : Access::uniform(kRows);
  const RowCacheModel model(access, capacity, kLookups);
  SimulatedCache cache(static_cast<std::size_t>(capacity));
  AccessSampler sampler(access, 11);
  RowTraffic late;
  for (int b = 0; b < kBatches; ++b) {
    const RowTraffic real = cache.batch(sampler, kLookups);
    const RowTraffic expected = model.batch(b);
    CAPTURE(b);
    // The standard deviation of a number of distinct rows is below its root.
    CHECK(std::abs(real.fetched - expected.fetched) <= 5 * std::sqrt(expected.touched));
    CHECK(std::abs(real.written - expected.written) <= 5 * std::sqrt(expected.touched));
    if (b >= kBatches / 2) {
      late += real;
    }
  }
  late *= 2.0 / kBatches;
  if (capacity > kRows / 2) {
    return;  // forty batches have not seen the coldest rows yet
  }
  const RowTraffic steady = model.batch();
  CHECK(late.touched == Approx(steady.touched).epsilon(0.02));
  CHECK(late.fetched == Approx(steady.fetched).epsilon(0.03).margin(4));
  CHECK(late.written == Approx(steady.written).epsilon(0.03).margin(4));
}

TEST_CASE("a cache of nothing fetches every distinct row, one of everything none",
          "[core][cache]") {
  const Access access = Access::zipf(10'000, 1.0, 1);
  const RowTraffic none = RowCacheModel(access, 0, 3'000).batch();
  CHECK(none.fetched == Approx(access.unique(3'000).value));
  CHECK(none.written == Approx(none.fetched));
  const RowTraffic all = RowCacheModel(access, 10'000, 3'000).batch();
  CHECK(all.fetched == Approx(0).margin(1e-6));
  CHECK(all.written == Approx(0).margin(1e-6));
  // An empty one fills first.
  CHECK(RowCacheModel(access, 10'000, 3'000).batch(0).fetched == Approx(none.fetched));
  CHECK(RowCacheModel(access, 10'000, 3'000).batch(0).written == Approx(0).margin(1e-6));
}

TEST_CASE("with one lookup a batch the hit rate is Che's", "[core][cache][oracle]") {
  const Access access = Access::zipf(20'000, 0.9, 1);
  for (const double capacity : {10.0, 400.0, 6'000.0}) {
    CAPTURE(capacity);  // U(T + 1) - U(T) against U'(T): T is at least the capacity
    CHECK(
        1 - RowCacheModel(access, capacity, 1).batch().fetched ==
        Approx(access.hit_rate(capacity, CachePolicy::kLru).value).epsilon(0.2 / capacity + 2e-4));
  }
}

TEST_CASE("a larger cache never fetches more", "[core][cache][property]") {
  const Access access = Access::zipf(50'000, GENERATE(0.5, 1.05), 1);
  double before = 1e18;
  for (double capacity = 0; capacity <= 50'000; capacity += 2'500) {
    const double fetched = RowCacheModel(access, capacity, 4'000).batch().fetched;
    CHECK(fetched <= before * (1 + 1e-9));
    before = fetched;
  }
}

TEST_CASE("a cache of the rows looked up most often fetches what the hottest rows are not",
          "[core][cache][oracle]") {
  const double exponent = GENERATE(0.8, 1.1);
  // Counts of the rows around the last one kept have to settle: no colder ones than these.
  const int capacity = GENERATE(0, 150, 900, 1'500);
  constexpr int kRows = 5'000;
  constexpr int kLookups = 1'500;
  constexpr int kBatches = 400;
  CAPTURE(exponent, capacity);
  const Access access = Access::zipf(kRows, exponent, 3);
  const RowCacheModel model(access, capacity, kLookups, RowCachePolicy::kLfu);
  // Here every row is kept with its count; the `capacity` largest counts stay.
  AccessSampler sampler(access, 11);
  std::vector<int> count(kRows, 0);
  std::unordered_set<std::int64_t> cached;
  RowTraffic late;
  for (int b = 0; b < kBatches; ++b) {
    RowTraffic t;
    for (int i = 0; i < kLookups; ++i) {
      const std::int64_t row = sampler.next_rank();
      ++count[static_cast<std::size_t>(row)];
      t.fetched += cached.insert(row).second ? 1 : 0;
    }
    std::vector<std::int64_t> rows(cached.begin(), cached.end());
    std::sort(rows.begin(), rows.end(), [&](std::int64_t a, std::int64_t c) {
      return std::pair(count[static_cast<std::size_t>(a)], a) >
             std::pair(count[static_cast<std::size_t>(c)], c);
    });
    for (std::size_t i = static_cast<std::size_t>(capacity); i < rows.size(); ++i) {
      cached.erase(rows[i]);
      t.written += 1;
    }
    CHECK(model.batch(b).fetched <= t.fetched + 5 * std::sqrt(model.batch(b).touched));
    if (b >= kBatches / 2) {
      late += t;
    }
  }
  late *= 2.0 / kBatches;
  const RowTraffic steady = model.batch();
  CHECK(late.fetched == Approx(steady.fetched).epsilon(0.03).margin(4));
  CHECK(late.written == Approx(steady.written).epsilon(0.03).margin(4));
  CHECK(steady.fetched <= RowCacheModel(access, capacity, kLookups).batch().fetched + 1e-9);
}
