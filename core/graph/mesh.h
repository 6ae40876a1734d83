#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace stepcast {

/// A dimension along which ranks differ.
enum class Axis : std::uint8_t { kTensor, kContext, kPipeline, kData, kCount };

/// Axes from the innermost, whose neighbours have neighbouring rank numbers, to the outermost.
using MeshOrder = std::array<Axis, static_cast<std::size_t>(Axis::kCount)>;
constexpr MeshOrder kUsualOrder{Axis::kTensor, Axis::kContext, Axis::kPipeline, Axis::kData};
/// Megatron-LM's: replicas, and with them the ranks that share experts, are neighbours.
constexpr MeshOrder kPipelineOutside{Axis::kTensor, Axis::kContext, Axis::kData, Axis::kPipeline};

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

/// How the ranks of a pipeline stage share its experts: `tensor` tensor ranks hold columns of each,
/// and of the ranks with the same columns, in ascending order, `ranks` neighbours at a time hold
/// different experts.
struct ExpertSplit {
  std::int32_t ranks = 1;
  std::int32_t tensor = 1;
};
/// Ranks of a stage that hold the same columns of some expert, ascending: one list for each stage
/// and part of the columns.
std::vector<std::vector<std::int32_t>> expert_holders(const Mesh& mesh, ExpertSplit split);
/// The ranks that exchange tokens with `rank`, itself included, ascending: member i holds the i-th
/// part of the experts.
std::vector<std::int32_t> expert_group(const Mesh& mesh, ExpertSplit split, std::int32_t rank);
/// Units of `inside` neighbouring ranks that an expert group lies in, if every group has as many
/// ranks in each of its units: machines, where `inside` is the devices of one.
std::optional<std::int32_t> expert_units(const Mesh& mesh, ExpertSplit split, std::int64_t inside);
/// `rank`'s place in its expert group.
std::int32_t expert_place(const Mesh& mesh, ExpertSplit split, std::int32_t rank);

}  // namespace stepcast
