#pragma once
// In place of runtime/cuda/kernels/internal/mma.cuh: what its instructions do, after the PTX ISA
// ("Matrix Fragments for mma.m16n8k16", "ldmatrix", "cp.async"), lane by lane.
#include "core/error.h"
#include "runtime/cuda/kernels/internal/element.cuh"
#include "runtime/cuda/kernels/internal/mma_layout.h"

namespace stepcast::runtime::cuda::kernels::internal {

/// D [16, 8] += A [16, 16] B [16, 8]. Lane l holds of A rows l / 4 and l / 4 + 8 (registers 0, 2
/// and 1, 3), k 2 (l % 4) and the next one, + 8 in registers 2 and 3; of B column l / 4, the same
/// k; of D the same rows, columns 2 (l % 4) and the next one.
template <class T>
void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const unsigned mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const auto shown = emulation::warp_exchange(0xFFFFFFFFU, mine, sizeof(mine));
  const int lane = emulation::lane();
  float rows[2][16];     // of A
  float columns[2][16];  // of B
  for (int quad = 0; quad < 4; ++quad) {
    const auto put = [&](float* to, int of, int reg) {
      T both[2];
      std::memcpy(both, shown.of(of) + static_cast<std::size_t>(reg) * sizeof(unsigned),
                  sizeof(both));
      to[2 * quad] = to_float(both[0]);
      to[2 * quad + 1] = to_float(both[1]);
    };
    for (int i = 0; i < 2; ++i) {
      for (int half = 0; half < 2; ++half) {
        put(rows[i] + 8 * half, lane / 4 * 4 + quad, i + 2 * half);
        put(columns[i] + 8 * half, (lane % 4 * 2 + i) * 4 + quad, 4 + half);
      }
    }
  }
  for (int r = 0; r < 4; ++r) {
    for (int k = 0; k < 16; ++k) {
      c[r] += rows[r / 2][k] * columns[r % 2][k];
    }
  }
}

/// Lane i names row i % 8 of 8 x 8 matrix i / 8; register m of lane l receives elements (l / 4, 2
/// (l % 4)) and the next of matrix m, or those of its transpose.
inline void ldmatrix_any(unsigned (&r)[4], const void* p, bool transposed) {
  STEPCAST_CHECK(reinterpret_cast<std::uintptr_t>(p) % 16 == 0, "ldmatrix reads aligned rows");
  const auto shown = emulation::warp_exchange(0xFFFFFFFFU, &p, sizeof(p));
  const int lane = emulation::lane();
  for (int m = 0; m < 4; ++m) {
    std::uint16_t pair[2];
    for (int half = 0; half < 2; ++half) {
      const int row = transposed ? lane % 4 * 2 + half : lane / 4;
      const int column = transposed ? lane / 4 : lane % 4 * 2 + half;
      const auto* from = emulation::read<const std::uint16_t*>(shown, m * 8 + row);
      pair[half] = from[column];
    }
    std::memcpy(&r[m], pair, sizeof(pair));
  }
  emulation::warp_exchange(0xFFFFFFFFU, nullptr, 0);  // all lanes have read
}
inline void ldmatrix(unsigned (&r)[4], const void* p) { ldmatrix_any(r, p, false); }
inline void ldmatrix_trans(unsigned (&r)[4], const void* p) { ldmatrix_any(r, p, true); }

inline void copy_async(void* to, const void* from, bool valid) {
  STEPCAST_CHECK(reinterpret_cast<std::uintptr_t>(to) % 16 == 0 &&
                     reinterpret_cast<std::uintptr_t>(from) % 16 == 0,
                 "cp.async moves aligned 16 bytes");
  emulation::copy_later(to, from, 16, valid);
}
inline void copy_async_commit() { emulation::commit_copies(); }
template <int Pending>
void copy_async_wait() {
  emulation::wait_for_copies(Pending);
}

template <class T>
unsigned pack_two(float low, float high) {
  const T pair[2] = {from_float<T>(low), from_float<T>(high)};
  unsigned packed = 0;
  std::memcpy(&packed, pair, sizeof(packed));
  return packed;
}

}  // namespace stepcast::runtime::cuda::kernels::internal
