// Routed tokens on the device against loops in double, and their places against the draw itself.
#include "core/graph/expert_draw.h"
#include "runtime/cuda/kernels/experts.h"
#include "tests/runtime/cuda/kernels/kernel_fixture.h"

namespace stepcast::runtime::cuda::kernels::test {
namespace {

std::size_t at(Index row, Index columns, Index column) {
  return static_cast<std::size_t>(row * columns + column);
}

/// Who gets which copy, counted token by token; each expert takes at most `capacity`.
struct RoutedTokens {
  std::vector<double> shares;
  Index per_token, rows, capacity, parts;
  std::uint64_t first_token, phase;
};

struct Places {
  std::vector<std::int32_t> chosen, copy_of;
  std::vector<std::int64_t> sent{0};
  Index copies = 0;
};

Places places_of(const RoutedTokens& d) {
  const ExpertDraw draw(d.shares, d.per_token);
  const Index experts = draw.experts();
  Places p;
  p.chosen.resize(static_cast<std::size_t>(d.rows * d.per_token));
  p.copy_of.assign(p.chosen.size(), -1);
  std::vector<std::vector<std::size_t>> of_expert(static_cast<std::size_t>(experts));
  for (Index row = 0; row < d.rows; ++row) {
    const std::span<std::int32_t> chosen(p.chosen.data() + row * d.per_token,
                                         static_cast<std::size_t>(d.per_token));
    draw.experts_of(static_cast<std::int64_t>(d.first_token) + row, d.phase, chosen);
    for (Index c = 0; c < d.per_token; ++c) {
      auto& list = of_expert[static_cast<std::size_t>(chosen[static_cast<std::size_t>(c)])];
      if (static_cast<Index>(list.size()) < d.capacity) {
        list.push_back(at(row, d.per_token, c));
      }
    }
  }
  // Part by part, expert by expert: equal shares of each expert's copies, in their order.
  std::int32_t next = 0;
  for (Index part = 0; part < d.parts; ++part) {
    for (const auto& list : of_expert) {
      const auto n = static_cast<Index>(list.size());
      for (Index i = n * part / d.parts; i < n * (part + 1) / d.parts; ++i) {
        p.copy_of[list[static_cast<std::size_t>(i)]] = next++;
      }
      p.sent.push_back(next);
    }
  }
  p.copies = next;
  return p;
}

std::vector<RoutedTokens> draws() {
  const std::vector<double> even(8, 0.25);
  return {{{1.0}, 1, 1, 1, 1, 0, 0},                              // one token, one expert
          {{1.0, 0, 0, 0}, 1, 37, 37, 1, 5, 0x9e3779b97f4a7c15},  // one expert takes all
          {even, 2, 64, 64, 1, 128, 77},
          {even, 2, 33, 7, 3, 7, 0xdeadbeefcafe},  // some find no room, three parts
          {{1.0, 0.5, 0.5, 0, 0.875, 0.125}, 3, 50, 30, 2, 1000003, 42},
          {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 10, 5, 5, 1, 0, 1},  // all experts take all
          {even, 2, 20, 0, 1, 0, 3}};                           // none has room
}

}  // namespace

DEVICE_TEST_CASE("kernels: places of copies are those of the draw", "[cuda][kernels][gpu]") {
  for (const RoutedTokens& d : draws()) {
    CAPTURE(d.rows, d.per_token, d.capacity, d.parts);
    const Places expected = places_of(d);
    const ExpertDraw draw(d.shares, d.per_token);
    std::vector<std::uint64_t> ends{0};  // shares are multiples of 2^-3: exact
    for (const double share : d.shares) {
      ends.push_back(ends.back() + static_cast<std::uint64_t>(std::ldexp(share, 48)));
    }
    const Array<std::uint64_t> bounds(ends);
    const Array<std::int64_t> sent(expected.sent);
    const Array<std::int32_t> chosen(expected.chosen.size()), copy_of(expected.chosen.size());
    place_copies({d.rows, d.per_token, draw.experts(), d.parts, d.first_token, d.phase,
                  bounds.data(), sent.data()},
                 {d.per_token, chosen.data(), copy_of.data()}, nullptr);
    CHECK(chosen.read() == expected.chosen);
    CHECK(copy_of.read() == expected.copy_of);
  }
}

DEVICE_TEST_CASE("kernels: router", "[cuda][kernels][gpu]") {
  Draw draw(61);
  for (const Shape& s : std::vector<Shape>{{1, 1, 0},
                                           {7, 3, 2},
                                           {70, 8, 0},
                                           {5, 32, 1},
                                           {9, 33, 0},
                                           {3, 256, 4},
                                           {2, 257, 0},
                                           {2, 1024, 0}}) {
    CAPTURE(s.rows, s.columns, s.gap);
    const Index n = s.columns;
    const Numbers x = draw.values(s.rows * n), g = draw.values(s.rows * n);
    const Matrix logits(Format::kFp32, s.rows, n, x, s.gap), p(Format::kFp32, s.rows, n, s.gap);
    route_forward(logits.view(), p.view(), nullptr);
    Numbers weights(x.size());
    for (Index i = 0; i < s.rows; ++i) {
      double sum = 0;
      for (Index j = 0; j < n; ++j) {
        sum += std::exp(x[at(i, n, j)]);
      }
      for (Index j = 0; j < n; ++j) {
        weights[at(i, n, j)] = std::exp(x[at(i, n, j)]) / sum;
      }
    }
    check_near(p.read(), weights, 1e-5);
    const Matrix d(Format::kFp32, s.rows, n, g, s.gap);
    p.write(weights);
    route_backward(p.view(), d.view(), nullptr);
    check_near(d.read(),
               each(s.rows, n,
                    [&](Index i, Index j) {
                      double sum = 0;
                      for (Index e = 0; e < n; ++e) {
                        sum += weights[at(i, n, e)] * g[at(i, n, e)];
                      }
                      return weights[at(i, n, j)] * (g[at(i, n, j)] - sum);
                    }),
               1e-5);
  }
}

DEVICE_TEST_CASE("kernels: copies of routed rows and their sums", "[cuda][kernels][gpu]") {
  Draw draw(62);
  for (const RoutedTokens& d : draws()) {
    const Places placed = places_of(d);
    const Array<std::int32_t> chosen(placed.chosen), copy_of(placed.copy_of);
    const PlacedCopies lists{d.per_token, chosen.data(), copy_of.data()};
    const auto experts = static_cast<Index>(d.shares.size());
    const Index k = d.per_token;
    // For each copy: its row and its expert.
    std::vector<Index> row_of(static_cast<std::size_t>(placed.copies)), expert_of(row_of);
    for (std::size_t i = 0; i < placed.copy_of.size(); ++i) {
      if (placed.copy_of[i] >= 0) {
        row_of[static_cast<std::size_t>(placed.copy_of[i])] = static_cast<Index>(i) / k;
        expert_of[static_cast<std::size_t>(placed.copy_of[i])] = placed.chosen[i];
      }
    }
    for (const auto& [width, gap] :
         std::vector<std::pair<Index, Index>>{{1, 0}, {33, 3}, {64, 8}, {2112, 0}}) {
      for (const Format f : stored_formats()) {
        CAPTURE(name_of(f), d.rows, k, d.capacity, width, gap);
        const Index room = placed.copies + 2;  // rows beyond the copies stay as they are
        const Numbers x = draw.values(d.rows * width), made = draw.values(room * width),
                      p = draw.positive(d.rows * experts);
        const Matrix rows(f, d.rows, width, x, gap),
            probabilities(Format::kFp32, d.rows, experts, p);
        const Matrix copies(f, room, width, gap), out(f, d.rows, width, gap);
        const auto poisoned = [&](const Numbers& found) {
          const auto end = found.begin() + placed.copies * width;
          CHECK(std::all_of(end, found.end(), [](double v) { return std::isnan(v); }));
          return Numbers(found.begin(), found.begin() + placed.copies * width);
        };
        dispatch_copies(rows.view(), lists, copies.view(), nullptr);
        check_near(poisoned(copies.read()),
                   each(placed.copies, width,
                        [&](Index c, Index j) {
                          return x[at(row_of[static_cast<std::size_t>(c)], width, j)];
                        }),
                   0);

        const Matrix results(f, room, width, made, gap);
        const auto sums = [&](bool weighted) {
          return each(d.rows, width, [&](Index i, Index j) {
            double sum = 0;
            for (Index c = 0; c < k; ++c) {
              const std::int32_t copy = placed.copy_of[at(i, k, c)];
              if (copy >= 0) {
                sum += (weighted ? p[at(i, experts, placed.chosen[at(i, k, c)])] : 1) *
                       made[at(copy, width, j)];
              }
            }
            return sum;
          });
        };
        combine_copies(results.view(), lists, probabilities.view(), out.view(), nullptr);
        check_near(out.read(), sums(true), tolerance_of(f));
        combine_copies(results.view(), lists, {}, out.view(), nullptr);
        check_near(out.read(), sums(false), tolerance_of(f));

        const Matrix d_copies(f, room, width, gap), d_p(Format::kFp32, d.rows, experts, 1);
        combine_copies_backward(rows.view(), results.view(), probabilities.view(), lists,
                                d_copies.view(), d_p.view(), nullptr);
        check_near(poisoned(d_copies.read()),
                   each(placed.copies, width,
                        [&](Index c, Index j) {
                          const Index r = row_of[static_cast<std::size_t>(c)];
                          return p[at(r, experts, expert_of[static_cast<std::size_t>(c)])] *
                                 x[at(r, width, j)];
                        }),
                   tolerance_of(f));
        Numbers dots(static_cast<std::size_t>(d.rows * experts), 0);
        for (Index c = 0; c < placed.copies; ++c) {
          const Index r = row_of[static_cast<std::size_t>(c)];
          for (Index j = 0; j < width; ++j) {
            dots[at(r, experts, expert_of[static_cast<std::size_t>(c)])] +=
                x[at(r, width, j)] * made[at(c, width, j)];
          }
        }
        check_near(d_p.read(), dots, 2e-5);
      }
    }
  }
}

DEVICE_TEST_CASE("kernels: copies between the order of coming and that of experts",
                 "[cuda][kernels][gpu]") {
  Draw draw(63);
  for (const auto& [sources, local, most] :
       std::vector<std::array<Index, 3>>{{1, 1, 5}, {2, 3, 1}, {4, 2, 9}, {3, 5, 40}, {7, 1, 3}}) {
    // Blocks of 0 to `most` rows by source and expert, some of them empty.
    std::vector<Index> size;
    for (Index i = 0; i < sources * local; ++i) {
      size.push_back(draw.below(3) == 0 ? 0 : draw.below(most + 1));
    }
    const Index before = 3;  // rows of another part
    std::vector<std::int64_t> come{before}, sorted{before};
    for (Index s = 0; s < sources; ++s) {
      for (Index l = 0; l < local; ++l) {
        come.push_back(come.back() + size[at(s, local, l)]);
      }
    }
    for (Index l = 0; l < local; ++l) {
      for (Index s = 0; s < sources; ++s) {
        sorted.push_back(sorted.back() + size[at(s, local, l)]);
      }
    }
    const Array<std::int64_t> first_come(come), first_sorted(sorted);
    const Index rows = come.back();
    for (const auto& [width, gap] :
         std::vector<std::pair<Index, Index>>{{1, 0}, {33, 3}, {64, 8}, {2112, 0}}) {
      for (const Format f : {Format::kFp32, Format::kBf16}) {
        CAPTURE(name_of(f), sources, local, rows, width);
        const Numbers x = draw.values(rows * width);
        const Matrix from(f, rows, width, x, gap), there(f, rows, width, gap),
            back(f, rows, width, gap);
        SortedBlocks blocks{sources, local,  first_come.data(), first_sorted.data(),
                            true,    before, rows - before};
        sort_copies(blocks, from.view(), there.view(), nullptr);
        const Numbers found = there.read();
        Index wrong = 0;
        for (Index s = 0; s < sources; ++s) {
          for (Index l = 0; l < local; ++l) {
            for (Index r = 0; r < size[at(s, local, l)]; ++r) {
              const Index a = come[at(s, local, l)] + r;
              const Index b = sorted[at(l, sources, s)] + r;
              for (Index j = 0; j < width; ++j) {
                wrong += found[at(b, width, j)] == x[at(a, width, j)] ? 0 : 1;
              }
            }
          }
        }
        blocks.there = false;
        sort_copies(blocks, there.view(), back.view(), nullptr);
        const Numbers again = back.read();
        for (Index e = 0; e < rows * width; ++e) {
          const double value = again[static_cast<std::size_t>(e)];
          const bool right = e < before * width ? std::isnan(value)  // nobody wrote them
                                                : value == x[static_cast<std::size_t>(e)];
          wrong += right ? 0 : 1;
        }
        CHECK(wrong == 0);
      }
    }
  }
}

}  // namespace stepcast::runtime::cuda::kernels::test
