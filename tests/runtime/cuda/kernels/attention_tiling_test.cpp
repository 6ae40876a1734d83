// The tensor-core attention without a GPU: the kernels' own index functions drive an emulation of
// one warp at a time, and the result is that of the CPU kernel.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "runtime/cpu/kernels/attention.h"
#include "runtime/cuda/kernels/internal/attention_tile.h"
#include "runtime/cuda/kernels/internal/mma_layout.h"

namespace {

using namespace stepcast::runtime::cuda::kernels::internal;
namespace cpu = stepcast::runtime::kernels;
using cpu::Index;

constexpr int kLanes = 32;

/// A tile in shared memory, [rows][tile_pitch(columns)].
struct SharedTile {
  SharedTile(int row_count, int column_count)
      : columns(column_count),
        data(static_cast<std::size_t>(row_count * tile_pitch(column_count)), NAN) {}
  float& at(int row, int column) {
    return data.at(static_cast<std::size_t>(row * tile_pitch(columns) + column));
  }
  int columns;
  std::vector<float> data;
};

using InputRegisters =
    std::array<std::array<std::array<float, 2>, 4>, kLanes>;  // [lane][register][half]
using SumRegisters = std::array<std::array<float, 4>, kLanes>;

/// What PTX says of ldmatrix.x4: register m of a lane holds two neighbours of row lane / 4 of the 8
/// x 8 matrix m (of its transpose with .trans), whose rows begin where lanes 8 m .. 8 m + 7 point.
template <class Address>
InputRegisters ldmatrix(SharedTile& tile, bool trans, Address address) {
  InputRegisters r{};
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int m = 0; m < 4; ++m) {
      for (int half = 0; half < 2; ++half) {
        const int row = trans ? lane % 4 * 2 + half : lane / 4;
        const int column = trans ? lane / 4 : lane % 4 * 2 + half;
        const Place from = address(8 * m + row);
        r[static_cast<std::size_t>(lane)][static_cast<std::size_t>(m)]
         [static_cast<std::size_t>(half)] = tile.at(from.row, from.column + column);
      }
    }
  }
  return r;
}

/// c += a b, all 32 lanes; b is registers `first` and first + 1.
void mma(SumRegisters& c, const InputRegisters& a, const InputRegisters& b, int first) {
  float am[16][16];
  float bm[16][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto l = static_cast<std::size_t>(lane);
    for (int half = 0; half < 2; ++half) {
      const auto h = static_cast<std::size_t>(half);
      for (int r = 0; r < 4; ++r) {
        const Place p = mma_a(lane, r, half);
        am[p.row][p.column] = a[l][static_cast<std::size_t>(r)][h];
      }
      for (int r = 0; r < 2; ++r) {
        const Place p = mma_b(lane, r, half);
        bm[p.row][p.column] = b[l][static_cast<std::size_t>(first + r)][h];
      }
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int r = 0; r < 4; ++r) {
      const Place p = mma_c(lane, r);
      for (int k = 0; k < 16; ++k) {
        c[static_cast<std::size_t>(lane)][static_cast<std::size_t>(r)] +=
            am[p.row][k] * bm[k][p.column];
      }
    }
  }
}

/// As multiply_transposed in the kernel: 16 rows of `own` from `first` on times all rows of
/// `other`, transposed.
std::vector<SumRegisters> multiply_transposed(SharedTile& own, int first, SharedTile& other,
                                              int count) {
  std::vector<SumRegisters> c(static_cast<std::size_t>(count / 8));
  for (int step = 0; step < own.columns / 16; step += 2) {
    const auto a = [&](int s) {
      return ldmatrix(own, false, [&](int lane) {
        const Place p = ldmatrix_a(lane);
        return Place{first + p.row, s * 16 + p.column};
      });
    };
    const InputRegisters a0 = a(step);
    const InputRegisters a1 = a(step + 1);
    for (int n = 0; n < count / 8; ++n) {
      const InputRegisters b = ldmatrix(other, false, [&](int lane) {
        const Place p = ldmatrix_b_two_steps(lane);
        return Place{n * 8 + p.row, step * 16 + p.column};
      });
      mma(c[static_cast<std::size_t>(n)], a0, b, 0);
      mma(c[static_cast<std::size_t>(n)], a1, b, 2);
    }
  }
  return c;
}

/// As multiply_rounded: sum += p times the rows of `other`.
void multiply(std::vector<SumRegisters>& sum, const std::vector<SumRegisters>& p,
              SharedTile& other) {
  for (std::size_t step = 0; step < p.size() / 2; ++step) {
    InputRegisters a{};
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      for (int r = 0; r < 4; ++r) {
        const FromSums from = a_from_c(r);
        for (std::size_t half = 0; half < 2; ++half) {
          a[lane][static_cast<std::size_t>(r)][half] =
              p[2 * step + static_cast<std::size_t>(from.tile)][lane]
               [static_cast<std::size_t>(from.first) + half];
        }
      }
    }
    for (std::size_t n = 0; n < sum.size(); n += 2) {
      const InputRegisters b = ldmatrix(other, true, [&](int lane) {
        const Place at = ldmatrix_b_trans(lane);
        return Place{static_cast<int>(step) * 16 + at.row, static_cast<int>(n) * 8 + at.column};
      });
      mma(sum[n], a, b, 0);
      mma(sum[n + 1], a, b, 2);
    }
  }
}

std::vector<float> random_floats(std::size_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) {
    v = normal(random);
  }
  return x;
}

SharedTile tile_of(const std::vector<float>& rows, Index first, int count, int dim) {
  SharedTile tile(count, dim);
  const auto all = static_cast<Index>(rows.size()) / dim;
  for (int i = 0; i < count; ++i) {
    for (int j = 0; j < dim; ++j) {
      tile.at(i, j) =
          first + i < all ? rows[static_cast<std::size_t>((first + i) * dim + j)] : 0.0F;
    }
  }
  return tile;
}

struct Case {
  Index queries, keys;
  int dim;
  bool causal;
  Index window = 0;
};

cpu::AttentionShape shape_of(const Case& c) {
  cpu::AttentionShape s;
  s.query_length = c.queries;
  s.kv_length = c.keys;
  s.head_dim = c.dim;
  s.causal = c.causal;
  s.window = c.window;
  s.query_block = c.queries;
  return s;
}

}  // namespace

TEST_CASE("forward tiles of the tensor-core attention add up to the CPU's attention",
          "[cuda][attention]") {
  const Case c =
      GENERATE(Case{64, 64, 64, true}, Case{100, 100, 64, true}, Case{70, 130, 128, true},
               Case{33, 90, 64, false}, Case{150, 150, 64, true, 40});
  CAPTURE(c.queries, c.keys, c.dim, c.causal, c.window);
  const auto dim = static_cast<std::size_t>(c.dim);
  const auto q = random_floats(static_cast<std::size_t>(c.queries) * dim, 1);
  const auto k = random_floats(static_cast<std::size_t>(c.keys) * dim, 2);
  const auto v = random_floats(static_cast<std::size_t>(c.keys) * dim, 3);
  std::vector<float> want(q.size());
  std::vector<float> lse(static_cast<std::size_t>(c.queries));
  const cpu::AttentionShape shape = shape_of(c);
  std::vector<float> scratch(static_cast<std::size_t>(shape.scratch_floats()));
  cpu::attention_forward(shape, {q.data(), c.queries, c.dim}, {k.data(), c.keys, c.dim},
                         {v.data(), c.keys, c.dim}, {want.data(), c.queries, c.dim}, lse.data(),
                         scratch.data());

  constexpr int kOwn = 64;
  constexpr int kKeys = 64;
  const Mask mask{c.queries, c.keys, c.causal, c.window};
  const float scale = 1.0F / std::sqrt(static_cast<float>(c.dim));
  Index rows_checked = 0;
  for (Index block = 0; block * kOwn < c.queries; ++block) {
    SharedTile queries = tile_of(q, block * kOwn, kOwn, c.dim);
    const Span span = keys_of(mask, block * kOwn, kOwn);
    for (int warp = 0; warp < 4; ++warp) {
      std::vector<SumRegisters> out(dim / 8);
      std::array<std::array<float, 2>, kLanes> largest;
      std::array<std::array<float, 2>, kLanes> total{};
      for (auto& l : largest) {
        l.fill(-INFINITY);
      }
      const Index own = block * kOwn + warp * 16;
      for (Index first = span.begin; first < span.end; first += kKeys) {
        SharedTile keys = tile_of(k, first, kKeys, c.dim);
        SharedTile values = tile_of(v, first, kKeys, c.dim);
        auto score = multiply_transposed(queries, warp * 16, keys, kKeys);
        const bool whole = mask.all_visible(own, 16, first, kKeys);
        for (int quad = 0; quad < kLanes / 4; ++quad) {  // lanes of a quad share two rows
          for (int half = 0; half < 2; ++half) {
            const auto h = static_cast<std::size_t>(half);
            float top = largest[static_cast<std::size_t>(4 * quad)][h];
            for (int lane = 4 * quad; lane < 4 * quad + 4; ++lane) {
              for (std::size_t n = 0; n < score.size(); ++n) {
                for (int r = 2 * half; r < 2 * half + 2; ++r) {
                  const Place p = mma_c(lane, r);
                  float& x = score[n][static_cast<std::size_t>(lane)][static_cast<std::size_t>(r)];
                  const bool seen =
                      mask.visible(own + p.row, first + static_cast<Index>(n) * 8 + p.column);
                  REQUIRE((!whole || seen));
                  x = seen ? x * scale : -INFINITY;
                  top = std::max(top, x);
                }
              }
            }
            const float base = top == -INFINITY ? 0.0F : top;
            for (int lane = 4 * quad; lane < 4 * quad + 4; ++lane) {
              const auto l = static_cast<std::size_t>(lane);
              const float shrink = std::exp(largest[l][h] - base);
              largest[l][h] = top;
              total[l][h] *= shrink;
              for (auto& o : out) {
                o[l][2 * h] *= shrink;
                o[l][2 * h + 1] *= shrink;
              }
              for (auto& s : score) {
                for (std::size_t r = 2 * h; r < 2 * h + 2; ++r) {
                  s[l][r] = std::exp(s[l][r] - base);
                  total[l][h] += s[l][r];
                }
              }
            }
          }
        }
        multiply(out, score, values);
      }
      for (int lane = 0; lane < kLanes; ++lane) {
        for (int r = 0; r < 4; ++r) {
          const Place p = mma_c(lane, r);
          const auto h = static_cast<std::size_t>(r / 2);
          if (own + p.row >= c.queries) {
            continue;
          }
          float sum = 0;
          for (int other = lane / 4 * 4; other < lane / 4 * 4 + 4; ++other) {
            sum += total[static_cast<std::size_t>(other)][h];
          }
          for (std::size_t n = 0; n < out.size(); ++n) {
            const std::size_t column = n * 8 + static_cast<std::size_t>(p.column);
            REQUIRE(
                out[n][static_cast<std::size_t>(lane)][static_cast<std::size_t>(r)] / sum ==
                Approx(want[static_cast<std::size_t>(own + p.row) * dim + column]).margin(2e-5));
            ++rows_checked;
          }
          REQUIRE(largest[static_cast<std::size_t>(lane)][h] + std::log(sum) ==
                  Approx(lse[static_cast<std::size_t>(own + p.row)]).margin(1e-5));
        }
      }
    }
  }
  CHECK(rows_checked == c.queries * c.dim);  // every element of the output was written once
}

TEST_CASE("backward tiles add up to the CPU's gradients, whichever side a block owns",
          "[cuda][attention]") {
  const Case c = GENERATE(Case{64, 64, 64, true}, Case{50, 110, 64, true}, Case{40, 70, 128, false},
                          Case{150, 170, 64, true, 30});
  const bool owns_keys = GENERATE(true, false);
  CAPTURE(c.queries, c.keys, c.dim, c.causal, c.window, owns_keys);
  const auto dim = static_cast<std::size_t>(c.dim);
  const auto q = random_floats(static_cast<std::size_t>(c.queries) * dim, 1);
  const auto k = random_floats(static_cast<std::size_t>(c.keys) * dim, 2);
  const auto v = random_floats(static_cast<std::size_t>(c.keys) * dim, 3);
  const auto d_out = random_floats(q.size(), 4);
  std::vector<float> out(q.size());
  std::vector<float> lse(static_cast<std::size_t>(c.queries));
  const cpu::AttentionShape shape = shape_of(c);
  std::vector<float> scratch(2 * static_cast<std::size_t>(shape.scratch_floats()));
  cpu::attention_forward(shape, {q.data(), c.queries, c.dim}, {k.data(), c.keys, c.dim},
                         {v.data(), c.keys, c.dim}, {out.data(), c.queries, c.dim}, lse.data(),
                         scratch.data());
  std::vector<float> d_q(q.size());
  std::vector<float> d_k(k.size());
  std::vector<float> d_v(v.size());
  cpu::AttentionBackward t;
  t.q = {q.data(), c.queries, c.dim};
  t.k = {k.data(), c.keys, c.dim};
  t.v = {v.data(), c.keys, c.dim};
  t.out = {out.data(), c.queries, c.dim};
  t.d_out = {d_out.data(), c.queries, c.dim};
  t.log_sum_exp = lse.data();
  t.d_q = {d_q.data(), c.queries, c.dim};
  t.d_k = {d_k.data(), c.keys, c.dim};
  t.d_v = {d_v.data(), c.keys, c.dim};
  cpu::attention_backward(shape, t, scratch.data());

  constexpr int kOwn = 64;
  constexpr int kOther = 32;
  const Mask mask{c.queries, c.keys, c.causal, c.window};
  const float scale = 1.0F / std::sqrt(static_cast<float>(c.dim));
  const Index own_rows = owns_keys ? c.keys : c.queries;
  Index checked = 0;
  for (Index block = 0; block * kOwn < own_rows; ++block) {
    SharedTile own_x = tile_of(owns_keys ? k : q, block * kOwn, kOwn, c.dim);
    SharedTile own_y = tile_of(owns_keys ? v : d_out, block * kOwn, kOwn, c.dim);
    const Span span = owns_keys ? queries_of(mask, block * kOwn, kOwn, kOther)
                                : keys_of(mask, block * kOwn, kOwn);
    for (int warp = 0; warp < 4; ++warp) {
      const Index own = block * kOwn + warp * 16;
      std::vector<SumRegisters> d_x(dim / 8);
      std::vector<SumRegisters> d_y(dim / 8);
      for (Index first = span.begin; first < span.end; first += kOther) {
        SharedTile other_x = tile_of(owns_keys ? q : k, first, kOther, c.dim);
        SharedTile other_y = tile_of(owns_keys ? d_out : v, first, kOther, c.dim);
        auto p = multiply_transposed(own_x, warp * 16, other_x, kOther);
        auto ds = multiply_transposed(own_y, warp * 16, other_y, kOther);
        for (std::size_t n = 0; n < p.size(); ++n) {
          for (int lane = 0; lane < kLanes; ++lane) {
            for (int r = 0; r < 4; ++r) {
              const Place at = mma_c(lane, r);
              const Index mine = own + at.row;
              const Index other = first + static_cast<Index>(n) * 8 + at.column;
              const Index query = owns_keys ? other : mine;
              const bool seen = mask.visible(query, owns_keys ? mine : other);
              float mean = 0;
              for (std::size_t j = 0; seen && j < dim; ++j) {
                mean += out[static_cast<std::size_t>(query) * dim + j] *
                        d_out[static_cast<std::size_t>(query) * dim + j];
              }
              float& pe = p[n][static_cast<std::size_t>(lane)][static_cast<std::size_t>(r)];
              float& de = ds[n][static_cast<std::size_t>(lane)][static_cast<std::size_t>(r)];
              pe = seen ? std::exp(pe * scale - lse[static_cast<std::size_t>(query)]) : 0.0F;
              de = pe * (de - mean);
            }
          }
        }
        multiply(d_x, ds, other_x);
        multiply(d_y, p, other_y);
      }
      for (int lane = 0; lane < kLanes; ++lane) {
        for (int r = 0; r < 4; ++r) {
          const Place at = mma_c(lane, r);
          if (own + at.row >= own_rows) {
            continue;
          }
          for (std::size_t n = 0; n < d_x.size(); ++n) {
            const std::size_t e = static_cast<std::size_t>(own + at.row) * dim + n * 8 +
                                  static_cast<std::size_t>(at.column);
            const auto l = static_cast<std::size_t>(lane);
            const auto reg = static_cast<std::size_t>(r);
            REQUIRE(scale * d_x[n][l][reg] == Approx((owns_keys ? d_k : d_q)[e]).margin(3e-5));
            if (owns_keys) {
              REQUIRE(d_y[n][l][reg] == Approx(d_v[e]).margin(3e-5));
            }
            ++checked;
          }
        }
      }
    }
  }
  CHECK(checked == own_rows * c.dim);
}

TEST_CASE("pieces of a tile that ldmatrix reads together lie in different banks",
          "[cuda][attention]") {
  for (const int dim : {64, 128}) {
    for (int first = 0; first < 64; first += 8) {
      std::array<bool, 8> used{};  // eight groups of four banks, 16 bytes each
      for (int row = 0; row < 8; ++row) {
        const int bytes = 2 * (first + row) * tile_pitch(dim);
        REQUIRE(bytes % 16 == 0);
        REQUIRE(!used[static_cast<std::size_t>(bytes / 16 % 8)]);
        used[static_cast<std::size_t>(bytes / 16 % 8)] = true;
      }
    }
  }
}
