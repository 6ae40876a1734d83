#pragma once
#include <array>
#include <cstdint>

namespace stepcast {

/// A dimension along which ranks differ.
enum class Axis : std::uint8_t { kTensor, kContext, kPipeline, kData, kCount };

/// Axes from the innermost, whose neighbours have neighbouring rank numbers, to the outermost.
using MeshOrder = std::array<Axis, static_cast<std::size_t>(Axis::kCount)>;
constexpr MeshOrder kUsualOrder{Axis::kTensor, Axis::kContext, Axis::kPipeline, Axis::kData};

/// Ranks as coordinates: rank = sum of coordinate * stride, the stride of an axis being the extents
/// of all axes inside it.
struct Mesh {
  std::int32_t tensor = 1, context = 1, pipeline = 1, data = 1;
  MeshOrder order = kUsualOrder;
  [[nodiscard]] std::int32_t size() const { return tensor * context * pipeline * data; }
  [[nodiscard]] std::int32_t extent(Axis a) const;
  [[nodiscard]] std::int32_t stride(Axis a) const;
  [[nodiscard]] std::int32_t coordinate(std::int32_t rank, Axis a) const {
    return rank / stride(a) % extent(a);
  }
};

}  // namespace stepcast
