#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <set>
#include <vector>

#include "core/access/access.h"
#include "core/access/repeated_lists.h"

using namespace stepcast;

namespace {

EmbeddingTable table(const Access& access, double pooling) {
  EmbeddingTable t;
  t.rows = access.rows();
  t.pooling = pooling;
  t.access = std::make_shared<const Access>(access);
  return t;
}

/// Mean over draws of n lists.
DistinctLists sampled(const EmbeddingTable& t, int n) {
  AccessSampler sampler(*t.access, 3);
  std::mt19937 random(5);
  std::poisson_distribution<int> poisson(t.pooling);
  const int draws = 200'000 / n + 1;
  DistinctLists sum;
  for (int d = 0; d < draws; ++d) {
    std::set<std::vector<std::int64_t>> lists;
    for (int i = 0; i < n; ++i) {
      const bool whole = t.pooling == std::floor(t.pooling);
      std::vector<std::int64_t> list(
          static_cast<std::size_t>(whole ? static_cast<int>(t.pooling) : poisson(random)));
      for (std::int64_t& id : list) {
        id = sampler.next_rank();
      }
      lists.insert(list);
    }
    sum.lists += static_cast<double>(lists.size()) / draws;
    for (const auto& list : lists) {
      sum.ids += static_cast<double>(list.size()) / draws;
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("expected distinct lists are those of sampled ones", "[core][lists]") {
  for (const EmbeddingTable& t :
       {table(Access::zipf(1000, 1.1), 1), table(Access::zipf(1000, 1.1), 2),
        table(Access::zipf(40, 1.3), 3), table(Access::uniform(7), 4), table(Access::uniform(3), 9),
        table(Access::zipf(200, 1.5), 1.5), table(Access::zipf(100'000, 1.05), 12),
        table(Access::zipf(12, 2), 6), table(Access::zipf(100, 1.2), 0.3)}) {
    for (const int n : {16, 512, 8192}) {
      CAPTURE(t.rows, t.pooling, n);
      const DistinctLists expected = distinct_lists(t, n);
      const DistinctLists real = sampled(t, n);
      CHECK(expected.lists == Approx(real.lists).epsilon(0.01));
      CHECK(expected.ids == Approx(real.ids).epsilon(0.01));
    }
  }
}

TEST_CASE("distinct lists of a uniform table follow its closed form", "[core][lists]") {
  // 5^3 lists, each drawn with probability 1/125: of n = 200 draws 125 (1 - exp(-200 / 125)).
  const DistinctLists d = distinct_lists(table(Access::uniform(5), 3), 200);
  CHECK(d.lists == Approx(125 * (1 - std::exp(-1.6))).epsilon(0.003));
  CHECK(d.ids == Approx(3 * d.lists));
  // Wide tables: none is alike.
  CHECK(distinct_lists(table(Access::uniform(1'000'000), 20), 4096).lists == Approx(4096));
}

TEST_CASE("recorded lists are counted batch by batch", "[core][lists]") {
  // (1 2) (1 2) () (2 1) | () () (1 2) (3): 3 and 3 of 4 differ, 4 and 3 ids among them.
  const std::vector<std::int64_t> ids{1, 2, 1, 2, 2, 1, 1, 2, 3};
  const std::vector<std::int64_t> begins{0, 2, 4, 4, 6, 6, 6, 8};
  const DistinctLists d = distinct_lists(ids, begins, 4);
  CHECK(d.lists == 3);
  CHECK(d.ids == 3.5);
  CHECK(distinct_lists(ids, begins, 3).lists == 2);  // (1 2) () | (2 1) (): two lists are left out
  CHECK(distinct_lists(ids, begins, 1000).lists == 4);  // all at once
  CHECK(kept_lists(ids, begins) == 2.0 / 7);
  CHECK(kept_lists(ids, std::vector<std::int64_t>{0}) == 0);
}

TEST_CASE("lists kept in a session are not drawn anew", "[core][lists]") {
  EmbeddingTable t = table(Access::uniform(1'000'000), 20);
  t.session = Session{8, 0.8};
  // An eighth is new, and a fifth of the others: 0.125 + 0.2 * 0.875 = 0.3.
  CHECK(distinct_lists(t, 4096).lists == Approx(0.3 * 4096));
  CHECK(distinct_lists(t, 4096).ids == Approx(0.3 * 4096 * 20));
}
