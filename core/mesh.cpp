#include "core/mesh.h"

#include "core/error.h"

namespace stepcast {

std::int32_t Mesh::extent(Axis a) const {
  switch (a) {
    case Axis::kTensor:
      return tensor;
    case Axis::kContext:
      return context;
    case Axis::kPipeline:
      return pipeline;
    case Axis::kData:
      return data;
    case Axis::kCount:
      break;
  }
  throw InternalError("unknown mesh axis");
}

std::int32_t Mesh::stride(Axis a) const {
  std::int32_t stride = 1;
  for (const Axis inner : order) {
    if (inner == a) {
      break;
    }
    stride *= extent(inner);
  }
  return stride;
}

}  // namespace stepcast
