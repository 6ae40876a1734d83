// Which rows of a plan a batch looks up, on the device against loops: ranges, orders, distinct
// rows; rows that move between a table and a cache.
#include <map>
#include <set>

#include "runtime/cuda/kernels/internal/owner.h"
#include "runtime/cuda/kernels/row_selection.h"
#include "tests/runtime/cuda/kernels/kernel_fixture.h"

namespace stepcast::runtime::cuda::kernels::test {
namespace {

struct Lookups {
  std::vector<std::int64_t> ids, offsets{0};
};

/// Bags of 0 to `most` ids; the `spare` positions behind the last are never lookups.
Lookups draw_lookups(Draw& draw, Index bags, Index most, Index rows, Index spare) {
  Lookups l;
  for (Index b = 0; b < bags; ++b) {
    for (Index i = draw.below(most + 1); i > 0; --i) {
      l.ids.push_back(draw.below(2) == 0 ? draw.below(rows) : draw.below(std::min<Index>(rows, 5)));
    }
    l.offsets.push_back(static_cast<std::int64_t>(l.ids.size()));
  }
  l.ids.resize(l.ids.size() + static_cast<std::size_t>(spare), 0);
  return l;
}

}  // namespace

DEVICE_TEST_CASE("kernels: lookups in a range of rows", "[cuda][kernels][gpu]") {
  Draw draw(61);
  for (const auto& [bags, most, rows] :
       std::vector<std::array<Index, 3>>{{1, 1, 1}, {3, 40, 100}, {70, 9, 33}, {300, 3, 1000}}) {
    for (const bool reordered : {false, true}) {
      CAPTURE(bags, most, rows, reordered);
      const Lookups l = draw_lookups(draw, bags, most, rows, 3);
      std::vector<std::uint32_t> place;
      for (Index r = 0; r < rows; ++r) {
        place.push_back(static_cast<std::uint32_t>(rows - 1 - r));
      }
      const Array<std::int64_t> ids(l.ids), offsets(l.offsets);
      const Array<std::uint32_t> remap(place);
      const RowRange range{rows / 4, rows - rows / 4 - rows / 3,
                           reordered ? remap.data() : nullptr};
      std::vector<std::int32_t> lengths;
      std::vector<std::int64_t> first{0}, expected;
      for (std::size_t b = 0; b + 1 < l.offsets.size(); ++b) {
        for (auto i = static_cast<std::size_t>(l.offsets[b]);
             i < static_cast<std::size_t>(l.offsets[b + 1]); ++i) {
          const Index at = reordered ? rows - 1 - l.ids[i] : l.ids[i];
          if (at >= range.first && at < range.first + range.rows) {
            expected.push_back(at - range.first);
          }
        }
        first.push_back(static_cast<std::int64_t>(expected.size()));
        lengths.push_back(static_cast<std::int32_t>(first[b + 1] - first[b]));
      }
      const Bags all{ids.data(), offsets.data(), bags, static_cast<Index>(l.ids.size())};
      const Array<std::int32_t> counted(static_cast<std::size_t>(bags));
      count_in_range(all, range, counted.data(), nullptr);
      CHECK(counted.read() == lengths);
      const Array<std::int64_t> firsts(first), out(expected.size() + 1);
      fill_in_range(all, range, firsts.data(), out.data(), nullptr);
      expected.push_back(-1);  // nobody writes behind the last
      CHECK(out.read() == expected);
    }
  }
}

DEVICE_TEST_CASE("kernels: distinct rows by owner", "[cuda][kernels][gpu]") {
  Draw draw(62);
  for (const auto& [bags, most, rows, parts] : std::vector<std::array<Index, 4>>{
           {1, 0, 7, 1}, {1, 1, 1, 1}, {5, 60, 100, 3}, {70, 9, 33, 4}, {40, 20, 900, 2}}) {
    for (const bool blocks : {false, true}) {
      CAPTURE(bags, most, rows, parts, blocks);
      const Lookups l = draw_lookups(draw, bags, most, rows, most > 0 ? 5 : 0);
      const auto used = static_cast<std::size_t>(l.offsets.back());
      const Index part_rows = (rows + parts - 1) / parts;
      std::vector<std::int64_t> boundaries;
      for (Index p = 0; p <= parts; ++p) {
        boundaries.push_back(std::min(p * part_rows, rows));
      }
      const Array<std::int64_t> ids(l.ids), offsets(l.offsets), bounds(boundaries);
      const Array<std::int64_t> found(l.ids.size()), dealt(static_cast<std::size_t>(bags) + 1),
          inverse(l.ids.size());
      const RowSplit split{parts, blocks ? bounds.data() : nullptr};
      const Bags all{ids.data(), offsets.data(), bags, static_cast<Index>(l.ids.size())};
      const Memory workspace(distinct_rows_workspace(all));
      distinct_rows(all, split, part_rows, {found.data(), dealt.data(), inverse.data()},
                    workspace.workspace(), nullptr);
      std::set<std::pair<Index, Index>> expected;  // (owner, row)
      for (std::size_t i = 0; i < used; ++i) {
        const Index row = l.ids[i];
        expected.insert({blocks ? row / part_rows : row % parts, row});
      }
      const std::vector<std::int64_t> list = found.read(), where = inverse.read(),
                                      bag = dealt.read();
      REQUIRE(bag.front() == 0);
      REQUIRE(bag.back() == static_cast<std::int64_t>(expected.size()));
      CHECK(std::is_sorted(bag.begin(), bag.end()));
      std::size_t next = 0;
      for (const auto& [owner, row] : expected) {
        CHECK(list[next++] == row);
      }
      for (std::size_t i = 0; i < l.ids.size(); ++i) {
        if (i < used) {
          CHECK(list.at(static_cast<std::size_t>(where[i])) == l.ids[i]);
        } else {
          CHECK(where[i] == -1);  // untouched
        }
      }
    }
  }
}

DEVICE_TEST_CASE("kernels: rows move into slots and back", "[cuda][kernels][gpu]") {
  Draw draw(63);
  constexpr Index kRows = 50, kSlots = 20;
  // Words of 16, 4 and 2 bytes; several parts of a row.
  for (const auto& [format, width, parts] :
       std::vector<std::tuple<Format, Index, int>>{{Format::kFp32, 64, 1},
                                                   {Format::kFp32, 5, 3},
                                                   {Format::kBf16, 7, 1},
                                                   {Format::kBf16, 128, 2}}) {
    CAPTURE(name_of(format), width, parts);
    const auto count = static_cast<std::size_t>(parts);
    std::vector<std::unique_ptr<Matrix>> tables, caches;
    std::vector<Numbers> before;
    RowParts all;
    for (std::size_t p = 0; p < count; ++p) {
      before.push_back(draw.values(kRows * width));
      tables.push_back(std::make_unique<Matrix>(format, kRows, width, before.back()));
      caches.push_back(
          std::make_unique<Matrix>(format, kSlots, width, draw.values(kSlots * width)));
      all.at[all.count++] = {tables[p]->view().data, caches[p]->view().data,
                             width * static_cast<Index>(element_bytes(format))};
    }
    std::vector<RowMove> moves;
    for (Index s = 0; s < kSlots; s += 2) {
      moves.push_back({(7 * s + 3) % kRows, kSlots - 1 - s});
    }
    const Array<RowMove> on_device(moves);
    const auto n = static_cast<Index>(moves.size());
    for (std::size_t p = 0; p < count; ++p) {
      const Numbers was = caches[p]->read();
      move_rows(all, on_device.data(), n, true, nullptr);
      Numbers expected = was;
      for (const RowMove& m : moves) {
        std::copy_n(before[p].begin() + m.row * width, width, expected.begin() + m.slot * width);
      }
      CHECK(caches[p]->read() == expected);
    }
    for (std::size_t p = 0; p < count; ++p) {
      const Numbers updated = draw.values(kSlots * width);
      caches[p]->write(updated);
      move_rows(all, on_device.data(), n, false, nullptr);
      Numbers expected = before[p];
      for (const RowMove& m : moves) {
        std::copy_n(updated.begin() + m.slot * width, width, expected.begin() + m.row * width);
      }
      CHECK(tables[p]->read() == expected);
    }
  }
}

}  // namespace stepcast::runtime::cuda::kernels::test
