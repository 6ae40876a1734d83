#pragma once
// In place of cub's: the one call the kernels make of it.
#include "tests/runtime/cuda/standin/device.h"

namespace cub {

struct DeviceScan {
  template <class In, class Out, class Combine, class Value>
  static cudaError_t InclusiveScanInit(void* memory, std::size_t& bytes, In in, Out out,
                                       Combine combine, Value initial, int count, cudaStream_t) {
    if (memory == nullptr) {
      bytes = 1;
      return cudaSuccess;
    }
    stepcast::standin::enqueue([=] {  // may be replayed: keeps nothing
      Value sum = initial;
      for (int i = 0; i < count; ++i) {
        out[i] = sum = combine(sum, in[i]);
      }
    });
    return cudaSuccess;
  }
};

}  // namespace cub
