// Distinct lists of ids on the device against a map of lists; rows spread over the samples that
// have them.
#include "runtime/cuda/kernels/distinct_lists.h"

#include <map>
#include <optional>

#include "runtime/cuda/kernels/index_exchange.h"
#include "runtime/cuda/kernels/internal/list_hash.h"
#include "tests/runtime/cuda/kernels/kernel_fixture.h"

namespace stepcast::runtime::cuda::kernels::test {
namespace {

using List = std::vector<std::int64_t>;

/// Bags on host and device, with `first` ids before them and `spare` behind.
struct Lists {
  std::vector<std::int64_t> ids, offsets;

  Lists(const std::vector<List>& bags, std::size_t first, std::size_t spare) : ids(first, 7) {
    offsets.push_back(static_cast<std::int64_t>(first));
    for (const List& bag : bags) {
      ids.insert(ids.end(), bag.begin(), bag.end());
      offsets.push_back(static_cast<std::int64_t>(ids.size()));
    }
    ids.insert(ids.end(), spare, 7);
  }
};

/// Checks that distinct_lists finds what a map of lists finds.
void check_distinct(const std::vector<List>& bags, std::size_t first, std::size_t spare) {
  const Lists of(bags, first, spare);
  const Array<std::int64_t> ids(of.ids), offsets(of.offsets);
  const Array<std::int64_t> found(of.ids.size() + 1), starts(bags.size() + 1),
      inverse(bags.size() + 1), count(std::size_t{1});
  const Bags all{ids.data(), offsets.data(), static_cast<Index>(bags.size()),
                 static_cast<Index>(of.ids.size())};
  const Memory workspace(distinct_lists_workspace(all.count));
  distinct_lists(all, {found.data(), starts.data(), inverse.data(), count.data()},
                 workspace.workspace(), nullptr);
  std::map<List, std::int64_t> known;
  std::vector<std::int64_t> expected_ids, expected_starts{0}, expected_inverse;
  for (const List& bag : bags) {
    const auto [at, is_new] = known.try_emplace(bag, static_cast<std::int64_t>(known.size()));
    expected_inverse.push_back(at->second);
    if (is_new) {
      expected_ids.insert(expected_ids.end(), bag.begin(), bag.end());
      expected_starts.push_back(static_cast<std::int64_t>(expected_ids.size()));
    }
  }
  CHECK(count.read() == std::vector<std::int64_t>{static_cast<std::int64_t>(known.size())});
  expected_starts.resize(bags.size() + 1, static_cast<std::int64_t>(expected_ids.size()));
  CHECK(starts.read() == expected_starts);
  expected_inverse.push_back(-1);  // nobody writes behind the last
  CHECK(inverse.read() == expected_inverse);
  expected_ids.resize(of.ids.size() + 1, -1);
  CHECK(found.read() == expected_ids);
}

/// Two different ids whose lists of one have the same key: by the birthday bound about 20 pairs
/// among 400,000 ids (n^2 / 2 / 2^32).
std::optional<std::pair<std::int64_t, std::int64_t>> ids_of_one_key() {
  std::vector<std::pair<std::uint32_t, std::int64_t>> keys;
  for (std::int64_t id = 0; id < 400'000; ++id) {
    keys.emplace_back(internal::list_key(internal::list_hash_term(id, 0)), id);
  }
  std::sort(keys.begin(), keys.end());
  const auto same = std::adjacent_find(
      keys.begin(), keys.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
  if (same == keys.end()) {
    return {};
  }
  return std::pair(same->second, (same + 1)->second);
}

}  // namespace

DEVICE_TEST_CASE("kernels: distinct lists in the order of their first bag",
                 "[cuda][kernels][gpu]") {
  check_distinct({}, 0, 0);
  check_distinct({{}}, 0, 0);
  check_distinct({{}, {}, {3}, {}}, 2, 3);
  check_distinct({{1, 2}, {2, 1}, {1, 2}, {1}, {2}, {1, 2, 2}}, 0, 0);
  Draw draw(71);
  for (const auto& [bags, most, rows] :
       std::vector<std::array<Index, 3>>{{40, 3, 2}, {300, 2, 5}, {70, 40, 3}, {257, 9, 100}}) {
    CAPTURE(bags, most, rows);
    std::vector<List> lists;
    for (Index b = 0; b < bags; ++b) {
      if (b > 0 && draw.below(3) == 0) {  // that of a bag before
        lists.push_back(lists[static_cast<std::size_t>(draw.below(b))]);
        continue;
      }
      List& list = lists.emplace_back(static_cast<std::size_t>(draw.below(most + 1)));
      for (std::int64_t& id : list) {
        id = draw.below(rows);
      }
    }
    check_distinct(lists, static_cast<std::size_t>(draw.below(4)), 5);
  }
  // Long lists that differ in one place, wherever it is.
  std::vector<List> nearly(38, List(37, 5));
  for (std::size_t b = 0; b < 37; ++b) {
    nearly[b][b] = 6;
  }
  nearly.insert(nearly.end(), nearly.begin(), nearly.end());
  check_distinct(nearly, 1, 0);
}

DEVICE_TEST_CASE("kernels: unlike lists whose hashes are equal stay apart",
                 "[cuda][kernels][gpu]") {
  const auto pair = ids_of_one_key();
  REQUIRE(pair);
  const List a{pair->first};
  const List b{pair->second};
  check_distinct({a, b, b, a, {}, a, b}, 0, 0);
  std::vector<List> turns;
  for (std::size_t i = 0; i < 90; ++i) {
    turns.push_back(i % 3 == 0 ? a : i % 3 == 1 ? b : List{static_cast<std::int64_t>(i % 7)});
  }
  check_distinct(turns, 3, 2);
}

DEVICE_TEST_CASE("kernels: lists that are not there are marked, and not counted",
                 "[cuda][kernels][gpu]") {
  constexpr Index kParts = 3, kBags = 70;
  for (const std::int64_t count : {0, 1, 33, 70}) {
    CAPTURE(count);
    std::vector<std::int32_t> lengths, expected;
    std::vector<std::int64_t> first, sums, bags;
    for (Index p = 0; p < kParts; ++p) {
      first.push_back(p * kBags);
      sums.push_back(0);
      bags.push_back(count);
      for (Index b = 0; b < kBags; ++b) {
        lengths.push_back(static_cast<std::int32_t>((p + b) % 5));
        expected.push_back(b < count ? lengths.back() : -9);
        sums.back() += b < count ? lengths.back() : 0;
      }
    }
    const Array<std::int32_t> from(lengths), marked(lengths.size());
    const Array<std::int64_t> there(std::vector<std::int64_t>{count}), starts(first),
        totals(first.size()), counted(first.size());
    mark_absent(from.data(), kParts, kBags, there.data(), -9, marked.data(), nullptr);
    CHECK(marked.read() == expected);
    segment_sums(marked.data(), starts.data(), kParts, kBags, totals.data(), counted.data(),
                 nullptr);
    CHECK(totals.read() == sums);
    CHECK(counted.read() == bags);
    mark_absent(from.data(), kParts, kBags, there.data(), -9, from.data(), nullptr);  // in place
    CHECK(from.read() == expected);
  }
}

DEVICE_TEST_CASE("kernels: rows spread over the samples that have them", "[cuda][kernels][gpu]") {
  Draw draw(72);
  for (const Format f : stored_formats()) {
    for (const Format g : {f, Format::kFp32}) {
      for (const Index dim : {1, 7, 64, 130}) {
        for (const bool accumulate : {false, true}) {
          CAPTURE(name_of(f), name_of(g), dim, accumulate);
          constexpr Index kRows = 23, kSamples = 61;
          std::vector<std::int64_t> places;
          for (Index i = 0; i < kSamples; ++i) {
            places.push_back(draw.below(kRows));
          }
          const Numbers x = draw.values(kRows * dim), before = draw.values(kSamples * dim);
          const Array<std::int64_t> where(places);
          const Matrix rows(f, kRows, dim, x, 2), out(g, kSamples, dim, 3);
          if (accumulate) {
            out.write(before);
          }
          spread_rows(rows.view(), where.data(), accumulate, out.view(), nullptr);
          check_near(out.read(),
                     each(kSamples, dim,
                          [&](Index i, Index j) {
                            const auto at = static_cast<std::size_t>(i * dim + j);
                            const auto row = places[static_cast<std::size_t>(i)];
                            return x[static_cast<std::size_t>(row * dim + j)] +
                                   (accumulate ? before[at] : 0);
                          }),
                     tolerance_of(g));
        }
      }
    }
  }
}

}  // namespace stepcast::runtime::cuda::kernels::test
