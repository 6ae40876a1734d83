#pragma once
#include <array>
#include <cstdint>

#include "core/graph/op.h"

namespace stepcast::planner {

/// Which ends of the model a chunk (the layers of one virtual stage) holds; kEmbedding and kHead
/// hold one end and no layer.
enum class ChunkRole : std::uint8_t { kMiddle, kFirst, kLast, kWhole, kEmbedding, kHead };
constexpr std::size_t kChunkRoles = 6;

/// A quantity of a chunk as a function of its number of layers.
struct Line {
  double base = 0, layer = 0;
  double dense = 0;  ///< of a layer without experts, where others have some
  [[nodiscard]] double at(std::int64_t layers, std::int64_t of_them_dense) const {
    return base + layer * static_cast<double>(layers - of_them_dense) +
           dense * static_cast<double>(of_them_dense);
  }
};

/// The passes of a chunk: seconds on the rank's own clock, ops issued, bytes. Those of weight
/// gradients are 0 unless the schedule makes them in a pass of their own.
struct PassCosts {
  Line forward, backward, weights;
  Line forward_ops, backward_ops, weights_ops;
  Line kept;             ///< of a micro-batch, from its forward to its backward
  Line kept_to_weights;  ///< from its forward to its weight gradients
  Line gradients_kept;   ///< from its backward to its weight gradients
  Line forward_only, backward_only, weights_only;  ///< of a micro-batch, during one pass
  /// Seconds of gathers and reductions on a stream of their own, of a micro-batch.
  Line overlapped;
  /// Seconds of a pass by Clock::kLeast that its transfers add to compute alone, where layers are
  /// of two kinds: next to a layer of the other kind compute may hide those of a layer.
  Line forward_exposed, backward_exposed;
  /// In the pass that needs most; layers of one kind take turns with them. In a model where some
  /// layers have experts: of those, of the others, of a chunk with both.
  Line temporaries;
  double dense_temporaries = 0;
  double mixed_temporaries = 0;  ///< from LayerCostProbe::add_mixed on
  [[nodiscard]] double temporaries_of(std::int64_t layers, std::int64_t of_them_dense) const {
    return of_them_dense == 0        ? temporaries.at(layers, 0)
           : of_them_dense == layers ? dense_temporaries
                                     : mixed_temporaries;
  }
};

/// Cost that a chunk's parameters add to the step, whatever the micro-batch: bytes, and seconds of
/// the segments before and after the passes.
struct StateCosts {
  Line parameters, gradients, optimizer;
  Line buffers;      ///< those of communicators included
  Line temporaries;  ///< of the segments below
  Line begin;        ///< load the batch, zero gradients
  Line first;        ///< what the first forward pass takes more: gathering weights
  Line exchange;     ///< gradients, before the tied embeddings of both ends meet
  Line after_ends;   ///< gradients, from that meeting on, its transfer included
  Line update;       ///< optimizer, and gathering weights
  Line ops;          ///< issued by these segments
  /// Where the exchange is taken as hidden: seconds of its transfers from the last backward pass
  /// on, of which it hides no more than it lasts itself; 0 where they are not told.
  Line transfers;
  bool meets_ends = false;
};

template <class T>
using ByRole = std::array<T, kChunkRoles>;

struct Passes {
  ByRole<PassCosts> role;
  Op forward_message, backward_message;  ///< the receives between stages
  std::uint32_t levels = 0;              ///< fabric levels that collectives inside use, as bits
  std::array<bool, kChunkRoles> lacks_mixed{};  ///< mixed_temporaries are not known yet
};

}  // namespace stepcast::planner
