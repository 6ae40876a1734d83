#include "runtime/cpu/kernels/index_exchange.h"

#include <algorithm>

namespace stepcast::runtime::kernels {
namespace {

struct Place {
  Index part;
  std::int64_t row;
};

struct RangeSplit {
  const std::int64_t* boundaries;
  Index parts;
  [[nodiscard]] Place place(std::int64_t row) const {
    Index part = 0;
    if (parts <= 16) {  // counting passed boundaries needs no branches
      for (Index p = 1; p < parts; ++p) {
        part += row >= boundaries[p] ? 1 : 0;
      }
    } else {
      part = std::upper_bound(boundaries + 1, boundaries + parts, row) - (boundaries + 1);
    }
    return {part, row - boundaries[part]};
  }
};

struct ModuloSplit {
  std::uint64_t parts;
  [[nodiscard]] Place place(std::int64_t row) const {
    const auto id = static_cast<std::uint64_t>(row);
    const std::uint64_t local = id / parts;
    return {static_cast<Index>(id - local * parts), static_cast<std::int64_t>(local)};
  }
};

template <class Split>
void count_places(const Bags& bags, const Split& split, std::int64_t* lengths) {
  for (Index bag = 0; bag < bags.count; ++bag) {
    for (Index i = bags.begin(bag); i < bags.end(bag); ++i) {
      ++lengths[split.place(bags.indices[i]).part * bags.count + bag];
    }
  }
}

template <class Split>
void fill_places(const Bags& bags, const Split& split, std::int64_t* cursors, std::int64_t* out) {
  if (bags.count == 0) {
    return;
  }
  for (Index i = bags.begin(0); i < bags.end(bags.count - 1); ++i) {
    const Place place = split.place(bags.indices[i]);
    out[cursors[place.part]++] = place.row;
  }
}

}  // namespace

Index owner_of(std::int64_t row, const RowSplit& split) {
  return split.boundaries != nullptr
             ? RangeSplit{split.boundaries, split.parts}.place(row).part
             : ModuloSplit{static_cast<std::uint64_t>(split.parts)}.place(row).part;
}

void count_by_owner(const Bags& bags, const RowSplit& split, std::int64_t* lengths) {
  std::fill_n(lengths, split.parts * bags.count, 0);
  if (split.boundaries != nullptr) {
    count_places(bags, RangeSplit{split.boundaries, split.parts}, lengths);
  } else {
    count_places(bags, ModuloSplit{static_cast<std::uint64_t>(split.parts)}, lengths);
  }
}

void fill_by_owner(const Bags& bags, const RowSplit& split, std::int64_t* cursors,
                   std::int64_t* out) {
  if (split.boundaries != nullptr) {
    fill_places(bags, RangeSplit{split.boundaries, split.parts}, cursors, out);
  } else {
    fill_places(bags, ModuloSplit{static_cast<std::uint64_t>(split.parts)}, cursors, out);
  }
}

void bag_lengths(const Bags& bags, std::int64_t* lengths) {
  for (Index bag = 0; bag < bags.count; ++bag) {
    lengths[bag] = bags.end(bag) - bags.begin(bag);
  }
}

}  // namespace stepcast::runtime::kernels
