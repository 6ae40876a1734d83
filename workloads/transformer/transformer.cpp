#include "workloads/transformer/transformer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/graph/embedding_placement.h"
#include "workloads/transformer/shape.h"
#include "workloads/transformer/stage.h"

namespace stepcast::workloads {
namespace {

std::int32_t add_axis(ExecutionGraph& graph, const char* name, Axis axis,
                      CommunicatorRole role = CommunicatorRole::kOther) {
  if (graph.mesh.extent(axis) == 1) {
    return -1;
  }
  graph.communicators.push_back({name, {axis}, {}, role});
  return static_cast<std::int32_t>(graph.communicators.size() - 1);
}

/// Ranks that hold the same parameters.
std::int32_t add_replicas(ExecutionGraph& graph) {
  if (graph.mesh.context == 1) {
    return add_axis(graph, "data", Axis::kData, CommunicatorRole::kReplicas);
  }
  graph.communicators.push_back(
      {"data", {Axis::kContext, Axis::kData}, {}, CommunicatorRole::kReplicas});
  return static_cast<std::int32_t>(graph.communicators.size() - 1);
}

/// Pairs half a ring apart, for what goes from rank to rank around a context group; the whole group
/// where it has no halves.
std::int32_t add_ring(ExecutionGraph& graph) {
  const Mesh& mesh = graph.mesh;
  if (mesh.context % 2 != 0) {
    return add_axis(graph, "ring", Axis::kContext);
  }
  Communicator ring{"ring", {}, {}};
  const std::int32_t half = mesh.context / 2;
  for (std::int32_t rank = 0; rank < mesh.size(); ++rank) {
    if (mesh.coordinate(rank, Axis::kContext) < half) {
      ring.groups.push_back({rank, rank + half * mesh.stride(Axis::kContext)});
    }
  }
  graph.communicators.push_back(std::move(ring));
  return static_cast<std::int32_t>(graph.communicators.size() - 1);
}

/// Pairs of (first, last) stage, one per tensor and data rank.
std::int32_t add_ends(ExecutionGraph& graph) {
  Communicator ends{"embedding", {}, {}, CommunicatorRole::kPipelineEnds};
  const Mesh& mesh = graph.mesh;
  for (std::int32_t rank = 0; rank < mesh.size(); ++rank) {
    if (mesh.coordinate(rank, Axis::kPipeline) == 0) {
      ends.groups.push_back({rank, rank + (mesh.pipeline - 1) * mesh.stride(Axis::kPipeline)});
    }
  }
  graph.communicators.push_back(std::move(ends));
  return static_cast<std::int32_t>(graph.communicators.size() - 1);
}

/// `copies` neighbouring tensor ranks at a time: they hold the same key and value heads.
std::int32_t add_key_value(ExecutionGraph& graph, std::int32_t copies) {
  Communicator shared{"key_value", {}, {}};
  for (std::int32_t rank = 0; rank < graph.mesh.size(); ++rank) {
    if (graph.mesh.coordinate(rank, Axis::kTensor) % copies == 0) {
      shared.groups.emplace_back();  // tensor ranks are neighbours
    }
    shared.groups.back().push_back(rank);
  }
  graph.communicators.push_back(std::move(shared));
  return static_cast<std::int32_t>(graph.communicators.size() - 1);
}

/// Ranks that exchange tokens, and those that hold the same experts.
void add_expert_groups(ExecutionGraph& graph, const ExpertShape& experts,
                       TransformerCommunicators& communicators, ReplicaGroup& data) {
  Communicator exchange{"expert", {}, {}};
  Communicator replicas{"expert_data", {}, {}, CommunicatorRole::kReplicas};
  const auto ranks = static_cast<std::size_t>(experts.ranks);
  const ExpertSplit split = experts.split();
  for (const auto& members : expert_holders(graph.mesh, split)) {
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
  data.replicas = experts.replicas;
  // Tensor ranks that hold different experts come first.
  data.data_ranks = std::max(1, split.ranks * split.tensor / graph.mesh.tensor);
  data.all = data.inside = experts.replicas > 1 ? add(std::move(replicas)) : -1;
}

/// Replicas that shard together inside a unit of a level of the fabric, and those across that hold
/// the same shard.
void add_shard_groups(ExecutionGraph& graph, const Job& job, ReplicaGroup& data) {
  Communicator shards{"shards", {}, {}, CommunicatorRole::kReplicas};
  Communicator replicas{"replicas", {}, {}, CommunicatorRole::kReplicas};
  const auto inside = static_cast<std::int32_t>(*job.system.devices_in(job.parallel.zero_level));
  std::vector<bool> seen(static_cast<std::size_t>(graph.mesh.size()), false);
  for (std::int32_t rank = 0; rank < graph.mesh.size(); ++rank) {
    if (seen[static_cast<std::size_t>(rank)]) {
      continue;
    }
    std::map<std::int32_t, std::vector<std::int32_t>> units;
    for (const std::int32_t member : graph.members(data.all, rank)) {
      seen[static_cast<std::size_t>(member)] = true;
      units[member / inside].push_back(member);
    }
    for (std::size_t i = 0; i < units.begin()->second.size(); ++i) {
      std::vector<std::int32_t>& across = replicas.groups.emplace_back();
      for (const auto& [unit, members] : units) {
        across.push_back(members[i]);
      }
    }
    for (auto& [unit, members] : units) {
      shards.groups.push_back(std::move(members));
    }
  }
  graph.communicators.push_back(std::move(shards));
  graph.communicators.push_back(std::move(replicas));
  data.inside = static_cast<std::int32_t>(graph.communicators.size()) - 2;
  data.across = data.inside + 1;
}

/// Weights and activations of a model whose products run below 16 bits stay in the device's 16-bit
/// format (Micikevicius et al., arXiv 2209.05433, section 3).
Format stored_format(const Job& job) {
  const Format f = job.formats.compute;
  if (bits_per_element(f, 1024) >= 16) {
    return f;
  }
  const auto& peak = job.system.device.peak;
  return peak.count(Format::kBf16) == 0 && peak.count(Format::kFp16) != 0 ? Format::kFp16
                                                                          : Format::kBf16;
}

}  // namespace

GraphUnderConstruction build_transformer(const Job& job) {
  const TransformerShape shape = transformer_shape(job);
  GraphUnderConstruction draft;
  ExecutionGraph& graph = draft.graph;
  graph.mesh = job.parallel.mesh();
  graph.inputs = {.batch = job.batch, .vocabulary = shape.model.vocabulary, .tables = {}};
  TransformerCommunicators communicators;
  ParameterHolders& holders = draft.holders;
  communicators.tensor = add_axis(graph, "tensor", Axis::kTensor);
  communicators.forward = communicators.backward = add_axis(graph, "pipeline", Axis::kPipeline);
  // A communicator belongs to one stream, and in each direction between two ranks its messages are
  // received in the order in which they were sent: in a V both passes run in both directions.
  if (job.parallel.overlap.pipeline || shape.stages.placement == ChunkPlacement::kV) {
    communicators.backward = add_axis(graph, "pipeline_backward", Axis::kPipeline);
  }
  if (shape.context > 1) {
    communicators.context = add_axis(graph, "context", Axis::kContext);
    communicators.ring = add_ring(graph);
  }
  holders.data.all = holders.data.inside = add_replicas(graph);
  if (shape.shards > 1 && shape.shards < shape.replicas) {
    add_shard_groups(graph, job, holders.data);
  }
  if ((shape.model.tied_embeddings || shape.predictions > 0) && shape.ends_apart()) {
    holders.ends = add_ends(graph);
  }
  holders.data.replicas = shape.replicas;
  holders.data.shards = shape.shards;
  if (shape.kv_copies > 1) {
    communicators.key_value = add_key_value(graph, static_cast<std::int32_t>(shape.kv_copies));
  }
  if (shape.experts) {
    add_expert_groups(graph, *shape.experts, communicators, holders.experts);
    holders.experts.shards = job.parallel.zero > 0 ? shape.experts->replicas : 1;
  }
  Job stored = job;
  holders.tensor = communicators.tensor;
  holders.compute = stored.formats.compute = stored_format(job);
  graph.classes.resize(static_cast<std::size_t>(shape.pipeline));
  for (std::int32_t stage = 0; stage < graph.mesh.pipeline; ++stage) {
    OpWriter::Written written =
        TransformerStage(stored, shape, communicators, stage, job.formats.compute).write();
    graph.programs.push_back(std::move(written.program));
    draft.orders.push_back(std::move(written.order));
    graph.classes[static_cast<std::size_t>(stage)].program = stage;
  }
  for (std::int32_t rank = 0; rank < graph.mesh.size(); ++rank) {
    graph.classes[static_cast<std::size_t>(graph.mesh.coordinate(rank, Axis::kPipeline))]
        .ranks.push_back(rank);
  }
  return draft;
}

}  // namespace stepcast::workloads
