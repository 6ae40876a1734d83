#include "workloads/dlrm.h"

#include <map>
#include <string>

#include "core/error.h"
#include "workloads/dlrm_step.h"

namespace stepcast::workloads {
namespace {

double flops_of_mlp(std::int64_t in, const std::vector<std::int64_t>& widths) {
  double flops = 0;
  for (const std::int64_t out : widths) {
    flops += 2.0 * static_cast<double>(in) * static_cast<double>(out);
    in = out;
  }
  return flops;
}

std::int64_t stack_width(const DlrmWorkload& w) {
  std::int64_t width = w.bottom_mlp.back();
  for (const EmbeddingTable& t : w.tables) {
    width += t.dim;
  }
  return width;
}

void check_shapes(const Job& job, const DlrmWorkload& w) {
  const std::string place = fmt::format("workload '{}'", job.workload.name);
  if (job.devices < 1 || job.batch.global % job.devices != 0 || job.batch.global < job.devices) {
    throw InputError("job: batch.global",
                     fmt::format("{} samples do not divide over {} devices; use a multiple",
                                 job.batch.global, job.devices));
  }
  if (w.bottom_mlp.empty() || w.top_mlp.empty() || w.dense_features < 1) {
    throw InputError(place, "bottom_mlp, top_mlp and dense_features must not be empty");
  }
  if (w.top_mlp.back() != 1) {
    throw InputError(place + ": top_mlp",
                     fmt::format("ends in width {}; the logit needs 1", w.top_mlp.back()));
  }
  if (w.interaction.kind == InteractionKind::kDot) {
    for (const EmbeddingTable& t : w.tables) {
      if (t.dim != w.bottom_mlp.back()) {
        throw InputError(place + ": interaction",
                         fmt::format("dot needs equal widths, but table '{}' has dim {} and "
                                     "bottom_mlp ends in {}; use cat or "
                                     "dcnv2, or equal widths",
                                     t.name, t.dim, w.bottom_mlp.back()));
      }
    }
  }
  if (w.interaction.kind == InteractionKind::kDcnV2 &&
      (w.interaction.layers < 1 || w.interaction.rank < 1)) {
    throw InputError(place + ": interaction", "dcnv2 needs layers >= 1 and rank >= 1");
  }
}

/// Ranks with equal entries run the same ops on the same sizes.
struct RankSignature {
  std::vector<std::array<std::int64_t, 3>>
      shards;  // slice, rows held, first row if the law depends on it
  auto operator<=>(const RankSignature&) const = default;
};

RankSignature signature_of(const EmbeddingLayout& layout, const ShardLaws& laws,
                           std::int32_t rank) {
  RankSignature signature;
  for (const std::int32_t id : layout.held[static_cast<std::size_t>(rank)]) {
    const EmbeddingSlice& s = layout.slices[static_cast<std::size_t>(id)];
    const HeldRows held = held_rows(s, rank);
    signature.shards.push_back({id, held.rows, laws.placed(s) ? held.first : -1});
  }
  return signature;
}

/// Ranks in units of `size`, and ranks of equal place in their units.
void add_grid(std::vector<Communicator>& all, const char* inside, const char* across,
              std::int64_t devices, std::int64_t size) {
  std::vector<std::vector<std::int32_t>> units(static_cast<std::size_t>(devices / size));
  std::vector<std::vector<std::int32_t>> places(static_cast<std::size_t>(size));
  for (std::int64_t r = 0; r < devices; ++r) {
    units[static_cast<std::size_t>(r / size)].push_back(static_cast<std::int32_t>(r));
    places[static_cast<std::size_t>(r % size)].push_back(static_cast<std::int32_t>(r));
  }
  all.push_back({.name = inside, .axes = {}, .groups = std::move(units)});
  all.push_back({.name = across, .axes = {}, .groups = std::move(places)});
}

std::vector<Communicator> communicators_of(const EmbeddingLayout& layout) {
  std::vector<Communicator> all;
  for (const char* name : {"input", "exchange", "data"}) {
    all.push_back({.name = name, .axes = {Axis::kData}, .groups = {}});
  }
  const DlrmCommunicators index(layout);
  if (index.node >= 0) {
    add_grid(all, "node", "across", layout.devices, layout.node);
  }
  if (index.group >= 0) {
    add_grid(all, "group", "copies", layout.devices, layout.group);
  }
  return all;
}

}  // namespace

std::int64_t interaction_width(const DlrmWorkload& w) {
  if (w.interaction.kind == InteractionKind::kDot) {
    const auto features = static_cast<std::int64_t>(w.tables.size()) + 1;
    return w.bottom_mlp.back() + features * (features - 1) / 2;
  }
  return stack_width(w);
}

DlrmSampleFlops dlrm_forward_flops(const DlrmWorkload& w) {
  const double mlp =
      flops_of_mlp(w.dense_features, w.bottom_mlp) + flops_of_mlp(interaction_width(w), w.top_mlp);
  double interaction = 0;
  if (w.interaction.kind == InteractionKind::kDot) {
    const double features = static_cast<double>(w.tables.size()) + 1;
    interaction = features * (features - 1) / 2 * 2 * static_cast<double>(w.bottom_mlp.back());
  } else if (w.interaction.kind == InteractionKind::kDcnV2) {
    interaction = static_cast<double>(w.interaction.layers) * 4 *
                  static_cast<double>(w.interaction.rank) * static_cast<double>(stack_width(w));
  }
  return {Flops(mlp), Flops(interaction)};
}

StepFlops dlrm_flops(const Job& job) {
  const DlrmWorkload& w = *job.workload.dlrm();
  const DlrmSampleFlops forward = dlrm_forward_flops(w);
  const double first_layer =
      2.0 * static_cast<double>(w.dense_features) * static_cast<double>(w.bottom_mlp.front());
  const Flops total = Flops(static_cast<double>(job.batch.global) *
                            (3 * (forward.mlp + forward.interaction).base() - first_layer));
  return {total, total, total};
}

ExecutionGraph build_dlrm(const Job& job) {
  const DlrmWorkload* w = job.workload.dlrm();
  STEPCAST_CHECK(w != nullptr, "build_dlrm of '{}'", job.workload.name);
  check_shapes(job, *w);
  const EmbeddingLayout layout = embedding_layout(job);
  ShardLaws laws(job);
  ExecutionGraph graph;
  graph.mesh.data = static_cast<std::int32_t>(job.devices);
  graph.communicators = communicators_of(layout);
  std::map<RankSignature, std::size_t> classes;
  for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(job.devices); ++rank) {
    const auto [it, fresh] =
        classes.try_emplace(signature_of(layout, laws, rank), graph.classes.size());
    if (fresh) {
      graph.classes.push_back({static_cast<std::int32_t>(it->second), {}});
    }
    graph.classes[it->second].ranks.push_back(rank);
  }
  for (const RankClass& c : graph.classes) {
    graph.programs.push_back(
        DlrmStep(job, layout, laws, c.ranks.front(), c.ranks.size() > 1).build());
  }
  return graph;
}

}  // namespace stepcast::workloads
