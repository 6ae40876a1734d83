#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>
#include <vector>

#include "core/formats.h"

namespace stepcast::standin {

/// A number of one stored format in memory, read and written as fp32.
inline float load(const void* data, Format format, std::int64_t i) {
  switch (format) {
    case Format::kBf16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
    case Format::kFp16:
      return __half2float(static_cast<const __half*>(data)[i]);
    default:
      return static_cast<const float*>(data)[i];
  }
}

inline void store(void* data, Format format, std::int64_t i, float value) {
  switch (format) {
    case Format::kBf16:
      static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value);
      return;
    case Format::kFp16:
      static_cast<__half*>(data)[i] = __float2half_rn(value);
      return;
    default:
      static_cast<float*>(data)[i] = value;
  }
}

}  // namespace stepcast::standin
