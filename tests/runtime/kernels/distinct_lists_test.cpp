#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <vector>

#include "runtime/cpu/kernels/distinct_lists.h"

using namespace stepcast::runtime::kernels;

TEST_CASE("distinct lists are those of a map, in the order of their first bag", "[kernels]") {
  DistinctLists found;
  for (unsigned seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::vector<std::int64_t> ids(seed % 3);  // bags need not start at the first id
    std::vector<std::int64_t> offsets{static_cast<std::int64_t>(ids.size())};
    const auto bags = static_cast<std::int64_t>(random() % 200);
    for (std::int64_t b = 0; b < bags; ++b) {
      for (std::uint64_t length = random() % 4; length > 0; --length) {
        ids.push_back(static_cast<std::int64_t>(random() % 5));
      }
      offsets.push_back(static_cast<std::int64_t>(ids.size()));
    }
    found.find({ids.data(), offsets.data(), bags});
    std::map<std::vector<std::int64_t>, std::int64_t> known;
    const Bags lists = found.lists();
    for (std::int64_t b = 0; b < bags; ++b) {
      const std::vector<std::int64_t> list(ids.begin() + offsets[static_cast<std::size_t>(b)],
                                           ids.begin() + offsets[static_cast<std::size_t>(b) + 1]);
      const auto at = known.try_emplace(list, static_cast<std::int64_t>(known.size())).first;
      const std::int64_t is = found.inverse()[static_cast<std::size_t>(b)];
      REQUIRE(is == at->second);
      CHECK(std::vector<std::int64_t>(lists.indices + lists.begin(is),
                                      lists.indices + lists.end(is)) == list);
    }
    CHECK(lists.count == static_cast<std::int64_t>(known.size()));
  }
}
