#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/graph/program.h"
#include "core/job/job.h"
#include "planner/parallel/plan_point.h"

namespace stepcast::planner {

/// Part of the step that a segment of a stage's program is.
enum class Part : std::uint8_t {
  kBegin,
  kFirstForward,
  kForward,
  kBackward,
  kWeights,
  kLastBackward,
  kFinish
};
Part part_of(const Segment& segment);
/// True if the first forward pass gathers what the last step updated.
bool gathers_first(const Program& program);

/// A pipeline stage of the graph of a reduced job.
struct ReducedStage {
  std::shared_ptr<const ExecutionGraph> graph;
  std::int32_t index = 0;
  [[nodiscard]] const Program& program() const {
    return graph->programs[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::int32_t rank() const { return index * graph->mesh.stride(Axis::kPipeline); }
};

/// Kinds of the layers of each stage.
using StageLayers = std::vector<std::vector<BlockKind>>;
/// A stage that is the whole model: the first. Else the first, one in the middle, the last.
inline std::size_t middle_of(const StageLayers& stages) { return stages.size() / 2; }

/// True if a graph with layers of that kind has experts, also in those that predict further tokens.
bool has_experts(const TransformerWorkload& model, const BlockKind& kind);

/// Stages of the job under the point but with such layers, and one micro-batch, or the first two of
/// several where `two`: with more than one, sharded gradients need another buffer. `build` makes
/// the graph: workloads::build_graph or build_passes. Errors: InputError where the builder rejects
/// the split.
std::vector<ReducedStage> probed_stages(const Job& job, const PlanPoint& point,
                                        const StageLayers& layers, bool two,
                                        ExecutionGraph (*build)(const Job&));

/// The mesh of the job under the point.
Mesh mesh_of(const Job& job, const PlanPoint& point);

/// The group a communicator of the stage has in the mesh `to`, seen from the stage.
std::vector<std::int32_t> real_ranks(const ReducedStage& stage, const Mesh& to,
                                     std::int32_t communicator);

}  // namespace stepcast::planner
