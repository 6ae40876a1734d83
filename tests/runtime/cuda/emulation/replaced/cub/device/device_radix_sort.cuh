#pragma once
// In place of cub's: the one call the kernels make of it.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/runtime/cuda/standin/device.h"

namespace cub {

template <class T>
struct DoubleBuffer {
  DoubleBuffer() = default;
  DoubleBuffer(T* first, T* second) : d_buffers{first, second} {}
  [[nodiscard]] T* Current() const { return d_buffers[selector]; }
  T* d_buffers[2] = {};
  int selector = 0;
};

struct DeviceRadixSort {
  /// Stable, by bits [begin, end) of the keys; the result lies in the other buffers.
  template <class Key, class Value>
  static cudaError_t SortPairs(void* memory, std::size_t& bytes, DoubleBuffer<Key>& keys,
                               DoubleBuffer<Value>& values, int count, int begin, int end,
                               cudaStream_t) {
    if (memory == nullptr) {
      bytes = 1;
      return cudaSuccess;
    }
    const Key* key = keys.Current();
    const Value* value = values.Current();
    keys.selector = values.selector = 1 - keys.selector;
    stepcast::standin::enqueue([=, to = keys.Current(), values_to = values.Current()] {
      std::vector<int> order(static_cast<std::size_t>(count));
      std::iota(order.begin(), order.end(), 0);
      const std::uint64_t wanted =
          end - begin < 64 ? (std::uint64_t{1} << (end - begin)) - 1 : ~std::uint64_t{0};
      const auto part = [&](int i) {
        return (static_cast<std::uint64_t>(key[i]) >> begin) & wanted;
      };
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return part(a) < part(b); });
      for (int i = 0; i < count; ++i) {
        to[i] = key[order[static_cast<std::size_t>(i)]];
        values_to[i] = value[order[static_cast<std::size_t>(i)]];
      }
      std::memset(const_cast<Key*>(key), 0xff,
                  static_cast<std::size_t>(count) * sizeof(Key));  // scratch now
    });
    return cudaSuccess;
  }
};

}  // namespace cub
