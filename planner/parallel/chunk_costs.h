#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/op.h"

namespace stepcast::planner {

/// Which ends of the model a chunk (the layers of one virtual stage) holds; kEmbedding and kHead
/// hold one end and no layer.
enum class ChunkRole : std::uint8_t { kMiddle, kFirst, kLast, kWhole, kEmbedding, kHead };
constexpr std::size_t kChunkRoles = 6;

/// Most kinds of layers of a model that plans are searched for.
constexpr std::size_t kMostBlockKinds = 4;
template <class T>
using ByKind = std::array<T, kMostBlockKinds>;

/// Layers of each kind.
struct LayerCounts {
  ByKind<std::int32_t> of{};
  [[nodiscard]] std::int32_t all() const { return std::accumulate(of.begin(), of.end(), 0); }
  /// True if layers of several kinds are among them.
  [[nodiscard]] bool mixed() const {
    return std::count_if(of.begin(), of.end(), [](std::int32_t n) { return n > 0; }) > 1;
  }
  /// The kinds that some are of, as bits.
  [[nodiscard]] std::size_t present() const {
    std::size_t bits = 0;
    for (std::size_t k = 0; k < kMostBlockKinds; ++k) {
      bits |= of[k] > 0 ? std::size_t{1} << k : 0;
    }
    return bits;
  }
  LayerCounts& operator+=(const LayerCounts& other) {
    for (std::size_t k = 0; k < kMostBlockKinds; ++k) {
      of[k] += other.of[k];
    }
    return *this;
  }
  friend LayerCounts operator-(LayerCounts a, const LayerCounts& b) {
    for (std::size_t k = 0; k < kMostBlockKinds; ++k) {
      a.of[k] -= b.of[k];
    }
    return a;
  }
  bool operator==(const LayerCounts&) const = default;
  bool operator<(const LayerCounts& other) const { return of < other.of; }
};

/// A quantity of a chunk as a function of its layers.
struct Line {
  double base = 0;
  ByKind<double> layer{};  ///< of one more of each kind
  [[nodiscard]] double of(const LayerCounts& layers) const {
    double sum = 0;
    for (std::size_t k = 0; k < kMostBlockKinds; ++k) {
      sum += layer[k] * layers.of[k];
    }
    return sum;
  }
  [[nodiscard]] double at(const LayerCounts& layers) const { return base + of(layers); }
  [[nodiscard]] double most() const { return *std::max_element(layer.begin(), layer.end()); }
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
  /// In the pass that needs most, by LayerCounts::present: layers take turns with them.
  std::array<double, std::size_t{1} << kMostBlockKinds> temporaries{};
};

/// Cost that a chunk's parameters add to the step, whatever the micro-batch: bytes, and seconds of
/// the segments before and after the passes.
struct StateCosts {
  Line parameters, gradients, optimizer;
  /// Per layer its own; in the base those that chunks take in turn, of communicators included.
  Line buffers;
  /// The base where others than layers of the first kind are there, by LayerCounts::present.
  std::array<double, std::size_t{1} << kMostBlockKinds> buffers_of_kinds{};
  /// Each buffer and communicator of a graph, where the model has layers of several kinds; empty
  /// once buffers_of_kinds is known.
  std::vector<std::pair<std::string, double>> held;
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
  /// Buffers that a stage with such layers needs of those that chunks take in turn.
  [[nodiscard]] double shared_buffers(const LayerCounts& layers) const {
    const std::size_t present = layers.present();
    return present <= 1 ? buffers.base : buffers_of_kinds[present];
  }
};

template <class T>
using ByRole = std::array<T, kChunkRoles>;

struct Passes {
  ByRole<PassCosts> role;
  Op forward_message, backward_message;  ///< the receives between stages
  std::uint32_t levels = 0;              ///< fabric levels that collectives inside use, as bits
};

}  // namespace stepcast::planner
