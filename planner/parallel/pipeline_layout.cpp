#include "planner/parallel/pipeline_layout.h"

#include <map>
#include <set>
#include <tuple>

#include "core/error.h"
#include "core/job/layer_split.h"

namespace stepcast::planner {

std::int32_t PipelineLayout::most_layers() const {
  std::vector<std::int32_t> of_stage(static_cast<std::size_t>(stages));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    of_stage[i % of_stage.size()] += layers[i];
  }
  return *std::max_element(of_stage.begin(), of_stage.end());
}

std::vector<BlockKind> block_kinds(const TransformerWorkload& model) {
  std::map<BlockKind, std::int64_t> counts;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    ++counts[model.kind_of(i)];
  }
  if (counts.size() > kMostBlockKinds) {
    throw InputError("workload.pattern", fmt::format("{} kinds of layers; plans are searched for "
                                                     "models of at most {}",
                                                     counts.size(), kMostBlockKinds));
  }
  std::vector<BlockKind> kinds;
  for (const auto& [kind, count] : counts) {
    kinds.push_back(kind);
  }
  const auto weight = [&](const BlockKind& kind) {
    return std::tuple(kind.feed_forward == FeedForwardKind::kExperts, counts.at(kind), kind);
  };
  std::sort(kinds.begin(), kinds.end(),
            [&](const BlockKind& a, const BlockKind& b) { return weight(a) > weight(b); });
  return kinds;
}

namespace {

/// Layers of the model before each of them, and of all.
std::vector<LayerCounts> counts_before(const TransformerWorkload& model) {
  const std::vector<BlockKind> kinds = block_kinds(model);
  std::vector<LayerCounts> before(static_cast<std::size_t>(model.layers) + 1);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    before[at + 1] = before[at];
    const auto kind = std::find(kinds.begin(), kinds.end(), model.kind_of(i)) - kinds.begin();
    ++before[at + 1].of[static_cast<std::size_t>(kind)];
  }
  return before;
}

}  // namespace

LayerCounts counts_of(const TransformerWorkload& model) { return counts_before(model).back(); }

PipelineLayout layout_of(const TransformerWorkload& model, std::int32_t stages, std::int32_t chunks,
                         const PipelineSplit& split, ChunkPlacement placement) {
  PipelineLayout layout;
  layout.stages = stages;
  layout.chunks = chunks;
  layout.split = split;
  const std::vector<LayerRange> ranges =
      split_layers(model.layers, std::int64_t{stages} * chunks, split);
  const VirtualStages order{stages, chunks, placement};
  const std::int64_t all = order.count();
  // Between a virtual stage and the next.
  const auto crossing = [&order, all, placement](std::int64_t from) -> std::int32_t {
    if (from < 0 || from + 1 == all || order.stage_of(from) == order.stage_of(from + 1)) {
      return -1;
    }
    const std::int64_t stage = order.stage_of(from);  // in a V odd chunks run back
    return static_cast<std::int32_t>(
        placement == ChunkPlacement::kV ? std::min(stage, order.stage_of(from + 1)) : stage);
  };
  layout.before = counts_before(model);
  for (std::size_t at = 0; at < ranges.size(); ++at) {
    const auto own = static_cast<std::int64_t>(at);
    const std::int64_t i = order.at(own % stages, own / stages);
    const LayerRange& range = ranges[static_cast<std::size_t>(i)];
    layout.layers.push_back(static_cast<std::int32_t>(range.count));
    layout.begins.push_back(range.first);
    layout.kinds.push_back(layout.first(at, layout.layers.back()));
    const bool empty = range.count == 0;
    layout.role.push_back(all == 1       ? ChunkRole::kWhole
                          : i == 0       ? (empty ? ChunkRole::kEmbedding : ChunkRole::kFirst)
                          : i + 1 == all ? (empty ? ChunkRole::kHead : ChunkRole::kLast)
                                         : ChunkRole::kMiddle);
    layout.arrives_over.push_back(crossing(i - 1));
    layout.returns_over.push_back(crossing(i));
  }
  // Among equal stages the first holds most: it has the most in flight, but in a V.
  using Chunk = std::tuple<LayerCounts, ChunkRole>;
  std::set<std::vector<Chunk>> seen;
  for (std::int32_t s = 0; s < layout.stages; ++s) {
    std::vector<Chunk> kind;
    for (std::int32_t c = 0; c < layout.chunks; ++c) {
      const auto at = static_cast<std::size_t>(c * layout.stages + s);
      kind.emplace_back(layout.kinds[at], layout.role[at]);
    }
    if (seen.insert(kind).second || placement == ChunkPlacement::kV) {
      layout.fullest.push_back(s);
    }
  }
  return layout;
}

}  // namespace stepcast::planner
