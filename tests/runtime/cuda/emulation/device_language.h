#pragma once
// Comes before every device source that a host compiler reads: the words of the CUDA language that
// its headers keep from host compilers, over emulation/block.h. Semantics as in the CUDA C++
// Programming Guide ("Warp Shuffle Functions", "Warp Match Functions", "Warp Vote Functions",
// "Synchronization Functions").
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tests/runtime/cuda/emulation/block.h"

#undef __shared__
#define __shared__ static  // one block at a time
#undef __launch_bounds__
#define __launch_bounds__(...)

#define threadIdx (::stepcast::emulation::place().thread)
#define blockIdx (::stepcast::emulation::place().block)
#define blockDim (::stepcast::emulation::place().block_size)
#define gridDim (::stepcast::emulation::place().grid_size)

inline void __syncthreads() { stepcast::emulation::block_barrier(); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFFU) { stepcast::emulation::warp_barrier(mask); }

namespace stepcast::emulation {

template <class T>
T read(const Shown& shown, int lane) {
  T value;
  std::memcpy(&value, shown.of(lane), sizeof(T));
  return value;
}

}  // namespace stepcast::emulation

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int first = stepcast::emulation::lane() / width * width;
  const auto shown = stepcast::emulation::warp_exchange(mask, &value, sizeof(T));
  return stepcast::emulation::read<T>(shown, first + source % width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int = 32) {
  const int lane = stepcast::emulation::lane();
  const auto shown = stepcast::emulation::warp_exchange(mask, &value, sizeof(T));
  return stepcast::emulation::read<T>(shown, lane ^ bits);
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
  const auto shown = stepcast::emulation::warp_exchange(mask, &value, sizeof(T));
  unsigned same = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if ((shown.lanes >> lane & 1U) != 0 && stepcast::emulation::read<T>(shown, lane) == value) {
      same |= 1U << lane;
    }
  }
  return same;
}
inline unsigned __ballot_sync(unsigned mask, bool yes) {
  const auto shown = stepcast::emulation::warp_exchange(mask, &yes, sizeof yes);
  unsigned all = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if ((shown.lanes >> lane & 1U) != 0 && stepcast::emulation::read<bool>(shown, lane)) {
      all |= 1U << lane;
    }
  }
  return all;
}
inline int __popc(unsigned x) { return std::popcount(x); }

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T value) {
  *p = value;
}
template <class T>
T atomicAdd(T* p, T value) {
  const stepcast::emulation::Atomic whole;
  return std::exchange(*p, *p + value);
}
template <class T>
T atomicMin(T* p, T value) {
  const stepcast::emulation::Atomic whole;
  return std::exchange(*p, std::min(*p, value));
}
