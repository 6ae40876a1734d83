// How kernels divide their work, run on the host.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <vector>

#include "runtime/cpu/kernels/index_exchange.h"
#include "runtime/cuda/kernels/internal/owner.h"
#include "runtime/cuda/kernels/internal/sorted_rows.h"

namespace {

using namespace stepcast::runtime::cuda::kernels::internal;
using stepcast::runtime::cuda::kernels::Index;

/// The three update kernels over one number a pair: sums by row.
std::map<Key, double> tiled_sums(const std::vector<Key>& keys, const std::vector<double>& values,
                                 Key pad) {
  const auto pairs = static_cast<Index>(keys.size());
  const int size = tile_size(pairs);
  const Index tiles = (pairs + size - 1) / size;
  std::vector<double> partial(static_cast<std::size_t>(2 * tiles), -1e300);
  std::map<Key, double> sums;
  std::map<Key, int> updates;
  const auto key = [&](Index i) { return keys[static_cast<std::size_t>(i)]; };
  for (Index tile = 0; tile < tiles; ++tile) {
    const Tile span = tile_at(tile, size, pairs);
    bool begins_before = span.begin > 0 && key(span.begin - 1) == key(span.begin);
    double sum = 0;
    for (Index i = span.begin; i < span.end; ++i) {
      sum += values[static_cast<std::size_t>(i)];
      const bool last = i + 1 == span.end;
      if (!last && key(i + 1) == key(i)) {
        continue;
      }
      const bool goes_on = last && span.end < pairs && key(span.end) == key(i);
      const RunEnd end = run_end(begins_before, goes_on);
      if (key(i) != pad) {
        if (end == RunEnd::kWhole) {
          sums[key(i)] = sum;
          ++updates[key(i)];
        } else {
          partial[static_cast<std::size_t>(partial_row(tile, end))] = sum;
        }
      }
      sum = 0;
      begins_before = false;
    }
  }
  for (Index tile = 0; tile + 1 < tiles; ++tile) {
    const Tile span = tile_at(tile, size, pairs);
    const Key run = key(span.end - 1);
    if (run == pad || key(span.end) != run || (span.begin > 0 && key(span.begin - 1) == run)) {
      continue;
    }
    const Index end = upper_bound(keys.data(), span.end, pairs, run);
    double sum = 0;
    for (Index m = 0; m < (end - 1) / size - tile + 1; ++m) {
      sum += partial[static_cast<std::size_t>(m == 0 ? partial_row(tile, RunEnd::kRight)
                                                     : partial_row(tile + m, RunEnd::kLeft))];
    }
    sums[run] = sum;
    ++updates[run];
  }
  for (const auto& [row, count] : updates) {
    REQUIRE(count == 1);
  }
  return sums;
}

}  // namespace

TEST_CASE("every row's gradients are summed once, wherever its run lies among the tiles",
          "[cuda][embedding]") {
  const int rows = GENERATE(1, 3, 40, 5000);
  const int pairs = GENERATE(1, 4, 31, 64, 1000, 40'000);
  CAPTURE(rows, pairs);
  std::mt19937 random(7);
  std::vector<Key> keys(static_cast<std::size_t>(pairs));
  for (Key& k : keys) {
    const auto draw = random() % static_cast<unsigned>(rows + 1);
    k = draw * draw / static_cast<unsigned>(rows + 1);  // low rows are hot
  }
  std::sort(keys.begin(), keys.end());
  const auto pad = static_cast<Key>(rows);  // rows + 1 values were drawn: the last is padding
  std::vector<double> values(keys.size());
  std::map<Key, double> want;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    values[i] = static_cast<double>(random() % 1000);
    if (keys[i] != pad) {
      want[keys[i]] += values[i];
    }
  }
  CHECK(tiled_sums(keys, values, pad) == want);  // integers: exact in any order
}

TEST_CASE("tiles are whole powers of two and enough for a device", "[cuda][embedding]") {
  for (Index pairs : {Index{1}, Index{1000}, Index{32'768}, Index{1'000'000}, Index{200'000'000}}) {
    const int size = tile_size(pairs);
    CAPTURE(pairs, size);
    CHECK((size == 4 || size == 8 || size == 16 || size == 32));
    CHECK((size == 4 || pairs / size >= 4096));
  }
}

TEST_CASE("owners of rows are those of the CPU's exchange", "[cuda][exchange]") {
  const std::vector<std::int64_t> boundaries =
      GENERATE(std::vector<std::int64_t>{}, std::vector<std::int64_t>{0, 10},
               std::vector<std::int64_t>{0, 4, 4, 9, 20});
  const std::int64_t parts =
      boundaries.empty() ? 3 : static_cast<std::int64_t>(boundaries.size()) - 1;
  const std::int64_t rows = boundaries.empty() ? 20 : boundaries.back();
  for (std::int64_t row = 0; row < rows; ++row) {
    const stepcast::runtime::kernels::Bags bag{&row, nullptr, 1};
    const stepcast::runtime::kernels::RowSplit split{
        parts, boundaries.empty() ? nullptr : boundaries.data()};
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(parts));
    stepcast::runtime::kernels::count_by_owner(bag, split, lengths.data());
    std::vector<std::int64_t> cursors(static_cast<std::size_t>(parts), 0);
    std::int64_t local = -1;
    stepcast::runtime::kernels::fill_by_owner(bag, split, cursors.data(), &local);
    const Owner owner = owner_of(row, parts, split.boundaries);
    CAPTURE(row, owner.part);
    CHECK(lengths[static_cast<std::size_t>(owner.part)] == 1);
    CHECK(owner.row == local);
  }
}
