#include "workloads/dlrm/dlrm.h"

#include <algorithm>
#include <array>
#include <string>

#include "core/error.h"
#include "core/graph/embedding_communicators.h"
#include "workloads/dlrm/step.h"

namespace stepcast::workloads {
namespace {

std::string place_of(const Job& job) { return fmt::format("workload '{}'", job.workload.name); }

void check_shapes(const Job& job, const LayeredWorkload& w, const LayerList& list) {
  const std::int64_t shared = list.ranks_per_sample();
  if (job.devices < 1 || job.devices % shared != 0) {
    throw InputError("job: devices", fmt::format("{} devices do not divide into groups of {} ranks "
                                                 "that share a sample; use a multiple",
                                                 job.devices, shared));
  }
  const std::int64_t replicas = job.devices / shared;
  if (job.batch.global % replicas != 0 || job.batch.global < replicas) {
    throw InputError("job: batch.global",
                     fmt::format("{} samples do not divide over {} devices; use a multiple",
                                 job.batch.global, replicas));
  }
  if (shared > 1 && !w.tables.empty()) {
    throw InputError(place_of(job) + ": groups",
                     "a model with embedding tables whose samples are shared by ranks is not "
                     "implemented in this version; remove the groups or the tables");
  }
}

/// Checks what the builders of layers assume.
void check_model(const Job& job, const LayeredWorkload& w) {
  if (w.layers != nullptr) {
    return;
  }
  if (w.bottom_mlp.empty() || w.top_mlp.empty() || w.dense_features < 1) {
    throw InputError(place_of(job), "bottom_mlp, top_mlp and dense_features must not be empty");
  }
  if (w.top_mlp.back() != 1) {
    throw InputError(place_of(job) + ": top_mlp",
                     fmt::format("ends in width {}; the logit needs 1", w.top_mlp.back()));
  }
  if (w.interaction.kind == InteractionKind::kDot) {
    for (const EmbeddingTable& t : w.tables) {
      if (t.dim != w.bottom_mlp.back()) {
        throw InputError(place_of(job) + ": interaction",
                         fmt::format("dot needs equal widths, but table '{}' has dim {} and "
                                     "bottom_mlp ends in {}; use cat or "
                                     "dcnv2, or equal widths",
                                     t.name, t.dim, w.bottom_mlp.back()));
      }
    }
  }
  if (w.interaction.kind == InteractionKind::kDcnV2 &&
      (w.interaction.layers < 1 || w.interaction.rank < 1)) {
    throw InputError(place_of(job) + ": interaction", "dcnv2 needs layers >= 1 and rank >= 1");
  }
}

/// Mesh axes that the groups of a list lie along, the innermost first.
constexpr std::array kGroupAxes{Axis::kTensor, Axis::kContext, Axis::kPipeline};

std::string communicator_name(const EmbeddingCommunicator& c) {
  using Purpose = EmbeddingCommunicator::Purpose;
  const auto name = [&c](const char* inside, const char* across) {
    return std::string(c.across ? across : inside) +
           (c.level > 0 ? fmt::format("_{}", c.level + 1) : "");
  };
  switch (c.purpose) {
    case Purpose::kIds:
      return "input";
    case Purpose::kOutputs:
      return "exchange";
    case Purpose::kGradients:
      return "data";
    case Purpose::kTower:
      return name("tower", "across_towers");
    case Purpose::kNode:
      return name("node", "across");
    case Purpose::kCopy:
      return name("group", "copies");
  }
  return "";
}

/// All ranks along the data axis; ranks in groups; ranks of equal place in their groups.
Communicator communicator_of(const EmbeddingCommunicator& c, std::int64_t devices) {
  if (c.group == 0) {
    return {.name = communicator_name(c), .axes = {Axis::kData}, .groups = {}};
  }
  std::vector<std::vector<std::int32_t>> groups(static_cast<std::size_t>(devices / c.ranks));
  for (std::int64_t r = 0; r < devices; ++r) {
    groups[static_cast<std::size_t>(c.across ? r % c.group : r / c.group)].push_back(
        static_cast<std::int32_t>(r));
  }
  return {.name = communicator_name(c), .axes = {}, .groups = std::move(groups)};
}

std::vector<Communicator> communicators_of(const EmbeddingPlacement& layout, const LayerList& list,
                                           bool towers) {
  std::vector<Communicator> all;
  for (const EmbeddingCommunicator& c : embedding_communicators(layout, towers)) {
    all.push_back(communicator_of(c, layout.devices));
  }
  for (std::size_t i = 0; i < list.groups.size(); ++i) {
    all.push_back({.name = list.groups[i].name, .axes = {kGroupAxes.at(i)}, .groups = {}});
  }
  if (std::any_of(list.layers.begin(), list.layers.end(),
                  [&](const Layer& l) { return scored_items(list, l) > 0; })) {
    all.push_back({.name = "items", .axes = {Axis::kData}, .groups = {}});
  }
  return all;
}

/// Without tables no rank holds a shard.
EmbeddingPlacement layout_of(const Job& job) {
  if (!job.workload.layered()->tables.empty()) {
    return embedding_layout(job);
  }
  EmbeddingPlacement layout;
  layout.devices = job.devices;
  layout.held.resize(static_cast<std::size_t>(job.devices));
  return layout;
}

LayerList layers_of(const Job& job) {
  check_model(job, *job.workload.layered());
  return stepcast::layers_of(*job.workload.layered(), job.parallel.tensor, place_of(job),
                             compression_of(job));
}

}  // namespace

StepFlops layered_flops(const Job& job) {
  const LayerList list = layers_of(job);
  const bool trains = job.phase == JobPhase::kTrain;
  double of_sample = (trains ? training_flops(list) : forward_flops(list)) *
                     static_cast<double>(list.ranks_per_sample());
  if (compression_of(job) > 1) {  // every sample passes every tower
    const EmbeddingPlacement layout = layout_of(job);
    for (std::int64_t h = 0; h < job.devices / layout.node; ++h) {
      double width = 0;
      for (std::int64_t i = h * layout.node; i < (h + 1) * layout.node; ++i) {
        width += static_cast<double>(
            layout.width(static_cast<std::int32_t>(i), EmbeddingRoute::kExchange));
      }
      of_sample += (trains ? 6 : 2) * width * width / job.tower_compression;
    }
  }
  for (const Layer& l : list.layers) {  // each query scores the items of all samples
    if (const std::int64_t items = scored_items(list, l); items > 0 && trains) {
      of_sample += 6 * static_cast<double>(list.input(l).elements() * items * job.batch.global);
    }
  }
  const Flops total = Flops(static_cast<double>(job.batch.global) * of_sample);
  return {total, total, total};
}

GraphUnderConstruction build_layered(const Job& job) {
  const LayeredWorkload* w = job.workload.layered();
  STEPCAST_CHECK(w != nullptr, "build_layered of '{}'", job.workload.name);
  const LayerList list = layers_of(job);
  check_shapes(job, *w, list);
  const auto placement = std::make_shared<const EmbeddingPlacement>(layout_of(job));
  const EmbeddingPlacement& layout = *placement;
  ShardLaws laws(job, layout);
  GraphUnderConstruction draft;
  ExecutionGraph& graph = draft.graph;
  graph.inputs = {.batch = job.batch,
                  .dense_features = w->dense_features,
                  .tables = w->tables,
                  .distinct_ids = job.embedding_dedup};
  graph.placement = placement;
  const auto extent = [&](std::size_t i) {
    return i < list.groups.size() ? static_cast<std::int32_t>(list.groups[i].size) : 1;
  };
  graph.mesh.tensor = extent(0);
  graph.mesh.context = extent(1);
  graph.mesh.pipeline = extent(2);
  graph.mesh.data = static_cast<std::int32_t>(job.devices / list.ranks_per_sample());
  graph.communicators = communicators_of(layout, list, job.sptt);
  graph.classes = rank_classes(job, layout, laws);
  SentToHolders sent;
  for (const RankClass& c : graph.classes) {
    OpWriter::Written step =
        LayeredStep(job, list, layout, laws, sent, c.ranks.front(), c.ranks.size() > 1).build();
    graph.programs.push_back(std::move(step.program));
    draft.orders.push_back(std::move(step.order));
  }
  return draft;
}

}  // namespace stepcast::workloads
