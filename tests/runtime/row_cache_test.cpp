#include <algorithm>
#include <catch2/catch.hpp>
#include <list>
#include <map>
#include <random>
#include <set>

#include "core/error.h"
#include "runtime/tiers/row_cache.h"

using namespace stepcast;
using runtime::RowCache;
using Moves = std::vector<RowCache::Move>;

namespace {

/// Rows by their last lookup, newest first.
struct Reference {
  std::list<std::int64_t> order;
  void look_up(std::int64_t row) {
    order.remove(row);
    order.push_front(row);
  }
};

constexpr int kRows = 300;
constexpr int kLookups = 60;

RowCache cache_of(int capacity, RowCachePolicy policy) {
  return {std::min(kRows, capacity + kLookups + 5), capacity, 0, policy, kRows};
}

/// A batch of random ids, some rows hot, looked up in a cache.
struct Batches {
  std::vector<std::int64_t> ids, slots;
  Moves loads, stores;
  Batches(RowCache& cache, std::mt19937& random) : slots(kLookups) {
    for (int i = 0; i < kLookups; ++i) {
      ids.push_back(random() % 3 == 0 ? random() % 5 : random() % static_cast<unsigned>(kRows));
    }
    cache.begin_batch();
    cache.look_up(ids, slots.data(), loads, stores);
    CHECK(stores.empty());
  }
};

}  // namespace

TEST_CASE("a row cache keeps the rows looked up last, and every slot the row it says",
          "[runtime][tiers]") {
  const int capacity = GENERATE(0, 1, 17, 100, 300);
  std::mt19937 random(static_cast<unsigned>(capacity));
  RowCache cache = cache_of(capacity, RowCachePolicy::kLru);
  Reference reference;
  std::map<std::int64_t, std::int64_t> row_in;  // by slot, as data moves
  for (int b = 0; b < 200; ++b) {
    CAPTURE(capacity, b);
    Batches batch(cache, random);
    const auto& [ids, slots, loads, stores] = batch;
    std::set<std::int64_t> missing(ids.begin(), ids.end());
    const auto distinct = static_cast<std::int64_t>(missing.size());
    for (const std::int64_t row : reference.order) {
      missing.erase(row);
    }
    CHECK(cache.touched() == distinct);
    std::set<std::int64_t> loaded;
    for (const auto& [row, slot] : loads) {
      loaded.insert(row);
      CHECK(row_in.count(slot) == 0);
      row_in[slot] = row;
    }
    CHECK(loaded == missing);
    CHECK(loaded.size() == loads.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      CHECK(row_in.at(slots[i]) == ids[i]);
      reference.look_up(ids[i]);
    }
    cache.trim(batch.stores);
    for (const auto& [row, slot] : stores) {
      CHECK(row_in.at(slot) == row);
      row_in.erase(slot);
      CHECK(reference.order.back() == row);
      reference.order.pop_back();
    }
    CHECK(cache.size() == static_cast<std::int64_t>(reference.order.size()));
    CHECK(cache.size() == std::min<std::int64_t>(capacity, cache.size()));
  }
}

TEST_CASE("rows of a batch under way stay until it is trimmed", "[runtime][tiers]") {
  RowCache cache(8, 2, 1);
  Moves loads;
  Moves stores;
  std::vector<std::int64_t> slots(3);
  const std::vector<std::int64_t> first{1, 2, 3};
  const std::vector<std::int64_t> second{3, 4, 5};
  const std::vector<std::int64_t> third{6, 7, 6};
  cache.begin_batch();
  cache.look_up(first, slots.data(), loads, stores);
  cache.begin_batch();  // looked up beside the first, before its update
  cache.look_up(second, slots.data(), loads, stores);
  CHECK(cache.size() == 5);
  cache.trim(stores);  // after the first: only the second's rows are still needed
  CHECK(cache.size() == 3);
  REQUIRE(stores.size() == 2);
  CHECK(stores[0].row == 1);
  CHECK(stores[1].row == 2);
  cache.begin_batch();
  cache.look_up(third, slots.data(), loads, stores);
  CHECK(cache.size() == 5);
  stores.clear();
  cache.trim(stores);
  CHECK(cache.size() == 2);
}

TEST_CASE("without free slots the oldest rows make room; a batch that needs more says so",
          "[runtime][tiers]") {
  RowCache cache(4, 4, 0);
  Moves loads;
  Moves stores;
  std::vector<std::int64_t> slots(5);
  const std::vector<std::int64_t> full{1, 2, 3, 4};
  const std::vector<std::int64_t> next{5, 4};
  const std::vector<std::int64_t> more{10, 11, 12, 13, 14};
  cache.begin_batch();
  cache.look_up(full, slots.data(), loads, stores);
  cache.begin_batch();
  cache.look_up(next, slots.data(), loads, stores);
  REQUIRE(stores.size() == 1);
  CHECK(stores[0].row == 1);
  CHECK(slots[0] == stores[0].slot);
  cache.begin_batch();
  CHECK_THROWS_AS(cache.look_up(more, slots.data(), loads, stores), RunError);
}

TEST_CASE("a cache that counts keeps the rows looked up most often", "[runtime][tiers]") {
  const int capacity = GENERATE(0, 1, 17, 100, 300);
  std::mt19937 random(static_cast<unsigned>(capacity));
  RowCache cache = cache_of(capacity, RowCachePolicy::kLfu);
  std::map<std::int64_t, int> count, batch_of;
  std::set<std::int64_t> held;
  for (int b = 0; b < 200; ++b) {
    CAPTURE(capacity, b);
    Batches batch(cache, random);
    const auto& [ids, slots, loads, stores] = batch;
    for (const auto& [row, slot] : loads) {
      CHECK(held.insert(row).second);
    }
    for (const std::int64_t row : ids) {
      CHECK(held.count(row) == 1);
      ++count[row];
      batch_of[row] = b;
    }
    cache.trim(batch.stores);
    for (const auto& [row, slot] : stores) {
      CHECK(held.erase(row) == 1);
    }
    CHECK(cache.size() == static_cast<std::int64_t>(held.size()));
    CHECK(cache.size() <= capacity);
    // None that left was looked up more often than one that stayed, nor as often and later.
    const auto rank = [&](std::int64_t row) { return std::tuple(count[row], batch_of[row], row); };
    for (const auto& [row, slot] : stores) {
      for (const std::int64_t kept : held) {
        CHECK(rank(row) < rank(kept));
      }
    }
  }
}
