#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "runtime/cuda/kernels/internal/launch.cuh"
#include "runtime/cuda/kernels/matrix_view.h"

namespace stepcast::runtime::cuda::kernels::internal {

/// The element type of an operand whose format is only known at run time: read and written through
/// a branch that all threads take alike.
struct Any {};

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_float(__half x) { return __half2float(x); }

template <class T>
__device__ T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}

/// Elements in the widest access, 16 bytes.
template <class T>
constexpr int kPack = 16 / static_cast<int>(sizeof(T));
template <>
inline constexpr int kPack<Any> = 8;

/// The access that moves a pack of so many bytes: as wide as divides it.
template <int Bytes>
using Word = std::conditional_t<
    Bytes % 16 == 0, uint4,
    std::conditional_t<Bytes % 8 == 0, uint2,
                       std::conditional_t<Bytes % 4 == 0, unsigned, unsigned short>>>;

/// N elements as they lie in memory, not yet converted: loads of several stay in flight together.
template <class T, int N>
struct Raw {
  using W = Word<N* static_cast<int>(sizeof(T))>;
  static constexpr int kWords = N * static_cast<int>(sizeof(T)) / static_cast<int>(sizeof(W));
  W words[kWords];

  __device__ void load(const T* p) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      words[w] = reinterpret_cast<const W*>(p)[w];
    }
  }
  /// Through the read-only cache: nobody writes the array while the kernel runs.
  __device__ void load_constant(const T* p) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      words[w] = __ldg(reinterpret_cast<const W*>(p) + w);
    }
  }
  __device__ void store(T* p) const {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      reinterpret_cast<W*>(p)[w] = words[w];
    }
  }
  /// Data that is not read again soon.
  __device__ void store_streaming(T* p) const {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      __stcs(reinterpret_cast<W*>(p) + w, words[w]);
    }
  }
  __device__ void to_floats(float (&x)[N]) const {
    const T* elements = reinterpret_cast<const T*>(words);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      x[i] = to_float(elements[i]);
    }
  }
  __device__ void from_floats(const float (&x)[N]) {
    T* elements = reinterpret_cast<T*>(words);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      elements[i] = from_float<T>(x[i]);
    }
  }
};

/// N consecutive elements; p is aligned to the access.
template <class T, int N>
__device__ inline void load_pack(const T* p, float (&x)[N]) {
  Raw<T, N> raw;
  raw.load(p);
  raw.to_floats(x);
}
template <class T, int N>
__device__ inline void store_pack(T* p, const float (&x)[N]) {
  Raw<T, N> raw;
  raw.from_floats(x);
  raw.store(p);
}
template <class T, int N>
__device__ inline void store_pack_streaming(T* p, const float (&x)[N]) {
  Raw<T, N> raw;
  raw.from_floats(x);
  raw.store_streaming(p);
}

/// Elements [first, first + N) of an array of type T, or of `format` where T is Any.
template <class T, int N>
__device__ inline void load(const void* data, Format format, Index first, float (&x)[N]) {
  if constexpr (std::is_same_v<T, Any>) {
    if (format == Format::kBf16) {
      load_pack(static_cast<const __nv_bfloat16*>(data) + first, x);
    } else if (format == Format::kFp16) {
      load_pack(static_cast<const __half*>(data) + first, x);
    } else {
      load_pack(static_cast<const float*>(data) + first, x);
    }
  } else {
    load_pack(static_cast<const T*>(data) + first, x);
  }
}
template <class T, int N>
__device__ inline void store(void* data, Format format, Index first, const float (&x)[N]) {
  if constexpr (std::is_same_v<T, Any>) {
    if (format == Format::kBf16) {
      store_pack(static_cast<__nv_bfloat16*>(data) + first, x);
    } else if (format == Format::kFp16) {
      store_pack(static_cast<__half*>(data) + first, x);
    } else {
      store_pack(static_cast<float*>(data) + first, x);
    }
  } else {
    store_pack(static_cast<T*>(data) + first, x);
  }
}

template <int N>
__device__ inline void store_streaming(void* data, Format format, Index first,
                                       const float (&x)[N]) {
  if (format == Format::kBf16) {
    store_pack_streaming(static_cast<__nv_bfloat16*>(data) + first, x);
  } else if (format == Format::kFp16) {
    store_pack_streaming(static_cast<__half*>(data) + first, x);
  } else {
    store_pack_streaming(static_cast<float*>(data) + first, x);
  }
}

__device__ inline float load_one(const void* data, Format format, Index i) {
  float x[1];
  load<Any, 1>(data, format, i, x);
  return x[0];
}
__device__ inline void store_one(void* data, Format format, Index i, float value) {
  const float x[1] = {value};
  store<Any, 1>(data, format, i, x);
}

/// The part of a view a kernel needs.
struct Operand {
  void* data = nullptr;
  Index stride = 0;
  Format format = Format::kFp32;
};
inline Operand operand(const MatrixView& m) { return {m.data, m.stride, m.format}; }
inline Operand operand(const ConstMatrixView& m) {
  return {const_cast<void*>(m.data), m.stride, m.format};  // kernels do not write through it
}

template <class T>
struct Type {
  using type = T;
};

/// Calls visit(Type<T>) with the element type of a format.
template <class Visit>
void with_element(Format format, Visit visit) {
  if (format == Format::kBf16) {
    visit(Type<__nv_bfloat16>{});
  } else if (format == Format::kFp16) {
    visit(Type<__half>{});
  } else {
    require(element_bytes(format) == 4, "a device matrix is fp32, tf32, bf16 or fp16");
    visit(Type<float>{});
  }
}

/// Whether rows of the matrix can be read in packs of `n` elements.
template <class Void>
bool packs(const BasicView<Void>& m, int n) {
  const std::size_t bytes = element_bytes(m.format) * static_cast<std::size_t>(n);
  const std::size_t access = bytes < 16 ? bytes : 16;
  return m.columns % n == 0 && (m.stride % n == 0 || m.rows <= 1) &&
         reinterpret_cast<std::uintptr_t>(m.data) % access == 0;
}

inline Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }
inline Index round_up(Index a, Index b) { return ceil_div(a, b) * b; }

/// Least power of two that is at least x.
inline Index power_of_two(Index x) {
  Index p = 1;
  while (p < x) {
    p *= 2;
  }
  return p;
}

}  // namespace stepcast::runtime::cuda::kernels::internal
