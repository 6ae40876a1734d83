#include "workloads/transformer.h"

#include <map>
#include <utility>

#include "workloads/transformer_shape.h"
#include "workloads/transformer_stage.h"

namespace stepcast::workloads {
namespace {

std::int32_t add_axis(ExecutionGraph& graph, const char* name, Axis axis) {
  if (graph.mesh.extent(axis) == 1) {
    return -1;
  }
  graph.communicators.push_back({name, {axis}, {}});
  return static_cast<std::int32_t>(graph.communicators.size() - 1);
}

/// Pairs of (first, last) stage, one per tensor and data rank.
std::int32_t add_ends(ExecutionGraph& graph) {
  Communicator ends{"embedding", {}, {}};
  const Mesh& mesh = graph.mesh;
  for (std::int32_t rank = 0; rank < mesh.size(); ++rank) {
    if (mesh.coordinate(rank, Axis::kPipeline) == 0) {
      ends.groups.push_back({rank, rank + (mesh.pipeline - 1) * mesh.stride(Axis::kPipeline)});
    }
  }
  graph.communicators.push_back(std::move(ends));
  return static_cast<std::int32_t>(graph.communicators.size() - 1);
}

/// Ranks of a stage in the order of their numbers, `experts.ranks` neighbours at a time (of those
/// that hold the same columns, where experts are split): they hold different experts; ranks in the
/// same place of those groups hold the same.
void add_expert_groups(ExecutionGraph& graph, const ExpertShape& experts,
                       TransformerCommunicators& communicators) {
  const Mesh& mesh = graph.mesh;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::int32_t>> holders;
  for (std::int32_t rank = 0; rank < mesh.size(); ++rank) {
    const std::int32_t columns = experts.tensor > 1 ? mesh.coordinate(rank, Axis::kTensor) : 0;
    holders[{mesh.coordinate(rank, Axis::kPipeline), columns}].push_back(rank);
  }
  Communicator exchange{"expert", {}, {}};
  Communicator replicas{"expert_data", {}, {}};
  const auto ranks = static_cast<std::size_t>(experts.ranks);
  for (const auto& [place, members] : holders) {
    const std::size_t groups = members.size() / ranks;
    for (std::size_t g = 0; g < groups; ++g) {
      exchange.groups.emplace_back(members.begin() + static_cast<std::ptrdiff_t>(g * ranks),
                                   members.begin() + static_cast<std::ptrdiff_t>((g + 1) * ranks));
    }
    for (std::size_t i = 0; i < ranks; ++i) {
      auto& group = replicas.groups.emplace_back();
      for (std::size_t g = 0; g < groups; ++g) {
        group.push_back(members[g * ranks + i]);
      }
    }
  }
  const auto add = [&graph](Communicator c) {
    graph.communicators.push_back(std::move(c));
    return static_cast<std::int32_t>(graph.communicators.size() - 1);
  };
  communicators.expert = experts.ranks > 1 ? add(std::move(exchange)) : -1;
  communicators.expert_data = experts.replicas > 1 ? add(std::move(replicas)) : -1;
}

}  // namespace

ExecutionGraph build_transformer(const Job& job) {
  const TransformerShape shape = transformer_shape(job);
  ExecutionGraph graph;
  graph.mesh.tensor = static_cast<std::int32_t>(shape.tensor);
  graph.mesh.pipeline = static_cast<std::int32_t>(shape.pipeline);
  graph.mesh.data = static_cast<std::int32_t>(shape.data);
  TransformerCommunicators communicators;
  communicators.tensor = add_axis(graph, "tensor", Axis::kTensor);
  communicators.forward = communicators.backward = add_axis(graph, "pipeline", Axis::kPipeline);
  if (job.parallel.overlap.pipeline) {  // a communicator belongs to one stream
    communicators.backward = add_axis(graph, "pipeline_backward", Axis::kPipeline);
  }
  communicators.data = add_axis(graph, "data", Axis::kData);
  if (shape.model.tied_embeddings && shape.pipeline > 1) {
    communicators.ends = add_ends(graph);
  }
  if (shape.experts) {
    add_expert_groups(graph, *shape.experts, communicators);
  }
  graph.classes.resize(static_cast<std::size_t>(shape.pipeline));
  for (std::int32_t stage = 0; stage < graph.mesh.pipeline; ++stage) {
    graph.programs.push_back(TransformerStage(job, shape, communicators, stage).write());
    graph.classes[static_cast<std::size_t>(stage)].program = stage;
  }
  for (std::int32_t rank = 0; rank < graph.mesh.size(); ++rank) {
    graph.classes[static_cast<std::size_t>(graph.mesh.coordinate(rank, Axis::kPipeline))]
        .ranks.push_back(rank);
  }
  return graph;
}

}  // namespace stepcast::workloads
