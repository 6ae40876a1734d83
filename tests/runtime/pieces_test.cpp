#include <catch2/catch.hpp>
#include <utility>
#include <vector>

#include "runtime/mpi/mpi_calls.h"

using namespace stepcast::runtime;

TEST_CASE("what is longer than an MPI count moves in pieces without gaps", "[runtime]") {
  using Pieces = std::vector<std::pair<std::size_t, int>>;
  const auto pieces = [](std::size_t count, std::size_t largest) {
    Pieces all;
    in_pieces(
        count, [&](std::size_t first, int n) { all.emplace_back(first, n); }, largest);
    return all;
  };
  CHECK(pieces(10, 4) == Pieces{{0, 4}, {4, 4}, {8, 2}});
  CHECK(pieces(8, 4) == Pieces{{0, 4}, {4, 4}});
  CHECK(pieces(3, 4) == Pieces{{0, 3}});
  CHECK(pieces(0, 4).empty());
  // 5 Gi elements, more than an int counts.
  const Pieces large = pieces(std::size_t{5} << 30, kLargestCount);
  CHECK(large.size() == 5);
  CHECK(large.back() == Pieces::value_type{std::size_t{4} << 30, 1 << 30});
}
