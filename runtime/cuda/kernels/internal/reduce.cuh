#pragma once

namespace stepcast::runtime::cuda::kernels::internal {

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Maximum {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// The reduction over the 32 lanes of a warp, in every lane; the same tree each time.
template <class T, class Combine>
__device__ inline T warp_reduce(T value, Combine combine) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    value = combine(value, __shfl_xor_sync(0xFFFFFFFFU, value, step));
  }
  return value;
}

/// The reduction over a block of whole warps (at most 32), in every thread. `shared` holds 32 values and may be reused
/// after the call. `identity` must be neutral.
template <class T, class Combine>
__device__ inline T block_reduce(T value, T identity, Combine combine, T* shared) {
  value = warp_reduce(value, combine);
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  if (lane == 0) {
    shared[warp] = value;
  }
  __syncthreads();
  value = lane < blockDim.x / 32 ? shared[lane] : identity;
  value = warp_reduce(value, combine);
  __syncthreads();
  return value;
}

}  // namespace stepcast::runtime::cuda::kernels::internal
