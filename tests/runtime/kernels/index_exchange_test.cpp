#include "runtime/cpu/kernels/index_exchange.h"

#include <numeric>

#include "tests/runtime/kernels/gradient_check.h"

namespace stepcast::runtime::kernels {
namespace {

using Ids = std::vector<std::int64_t>;

struct Packed {
  Ids lengths, ids, starts;
};

Packed pack(const Bags& bags, const RowSplit& split) {
  Packed out{Ids(static_cast<std::size_t>(split.parts * bags.count)),
             Ids(static_cast<std::size_t>(bags.lookups())),
             {}};
  count_by_owner(bags, split, out.lengths.data());
  out.starts.push_back(0);
  for (Index p = 0; p < split.parts; ++p) {
    const auto own = out.lengths.begin() + p * bags.count;
    out.starts.push_back(std::accumulate(own, own + bags.count, out.starts.back()));
  }
  Ids cursors(out.starts.begin(), out.starts.end() - 1);
  fill_by_owner(bags, split, cursors.data(), out.ids.data());
  CHECK(Ids(out.starts.begin() + 1, out.starts.end()) == cursors);
  return out;
}

}  // namespace

TEST_CASE("lookups are sorted by the rank that owns their row", "[runtime][kernels][exchange]") {
  const Ids indices{5, 0, 9, 3, 5, 4}, offsets{0, 2, 2, 6};  // bags {5, 0}, {}, {9, 3, 5, 4}
  const Bags bags{indices.data(), offsets.data(), 3};
  SECTION("by unequal ranges [0, 4), [4, 4), [4, 10)") {
    const Ids boundaries{0, 4, 4, 10};
    const Packed packed = pack(bags, {3, boundaries.data()});
    CHECK(packed.lengths == Ids{1, 0, 1, 0, 0, 0, 1, 0, 3});
    CHECK(packed.ids == Ids{0, 3, 1, 5, 1, 0});
    CHECK(packed.starts == Ids{0, 2, 2, 6});
  }
  SECTION("by row mod 2") {
    const Packed packed = pack(bags, {2, nullptr});
    CHECK(packed.lengths == Ids{1, 0, 1, 1, 0, 3});
    CHECK(packed.ids == Ids{0, 2, 2, 4, 1, 2});  // even: 0, 4; odd: 5, 9, 3, 5
  }
}

TEST_CASE("every lookup reaches its owner, in order, and maps back to its row",
          "[runtime][kernels][exchange][property]") {
  const Index parts = GENERATE(1, 2, 7, 16, 40);
  const bool ranges = GENERATE(true, false);
  CAPTURE(parts, ranges);
  const Index rows = 1000, count = 30;
  Ids indices, offsets{0}, boundaries;
  std::mt19937 engine(9);
  for (Index b = 0; b < count; ++b) {
    for (unsigned i = engine() % 20; i > 0; --i) {
      indices.push_back(engine() % 1000);
    }
    offsets.push_back(static_cast<std::int64_t>(indices.size()));
  }
  for (Index p = 0; p <= parts; ++p) {
    boundaries.push_back(p * rows / parts);
  }
  const Bags bags{indices.data(), offsets.data(), count};
  const Packed packed = pack(bags, {parts, ranges ? boundaries.data() : nullptr});
  for (Index p = 0; p < parts; ++p) {
    Index at = packed.starts[static_cast<std::size_t>(p)];
    for (Index b = 0; b < count; ++b) {
      Ids mine;
      for (Index i = bags.begin(b); i < bags.end(b); ++i) {
        const std::int64_t row = indices[static_cast<std::size_t>(i)];
        const auto part = static_cast<std::size_t>(p);
        if (ranges ? row >= boundaries[part] && row < boundaries[part + 1] : row % parts == p) {
          mine.push_back(row);
        }
      }
      REQUIRE(packed.lengths[static_cast<std::size_t>(p * count + b)] ==
              static_cast<std::int64_t>(mine.size()));
      for (const std::int64_t row : mine) {
        const std::int64_t local = packed.ids[static_cast<std::size_t>(at++)];
        REQUIRE((ranges ? local + boundaries[static_cast<std::size_t>(p)] : local * parts + p) ==
                row);
      }
    }
  }
}

}  // namespace stepcast::runtime::kernels
