#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/graph/program.h"
#include "workloads/passes/parameters.h"

namespace stepcast::workloads {

/// Kind of links that a transfer goes over, which decides whether it may have a stream of its own.
enum class Channel : std::uint8_t {
  kCompute,      ///< in order with the ops of the compute stream
  kTensor,       ///< between tensor ranks
  kTensorParts,  ///< likewise, cut up so that a product works on one part while another travels
  kData,         ///< gradients and weights between replicas
  kForward,      ///< activations along the pipeline
  kBackward,     ///< their gradients
  kContext,      ///< around a ring of context ranks
  kExpert,       ///< tokens on their way to experts and back
  kInput,        ///< a batch and its ids
  kExchange,     ///< rows of embedding tables and their gradients
  kReduce,       ///< dense gradients of a recommender
  kTier,         ///< between memory tiers
  kAcross,       ///< gradients between copies of shards: other links than those of the shards
};
constexpr std::size_t kLanes = 13;

/// Names a transfer of a program, whatever stream it will have; kNoTransfer names none.
using AsyncHandle = std::int32_t;
constexpr AsyncHandle kNoTransfer = -1;
/// Stands among the transfers that are waited for: the host issues nothing more until the latest op
/// of the compute stream is done.
constexpr AsyncHandle kHostSynchronises = -2;

/// Index of an op of a program that other ops follow; kNoOp: none.
using OpId = std::int32_t;
constexpr OpId kNoOp = -1;

/// A part of a layer, from the ops that make its values in the forward pass to those of the
/// backward pass that need them.
enum class LayerPart : std::uint8_t {
  kLayer,             ///< all of it, from the residual stream to the residual stream
  kAttentionCore,     ///< scores and what is kept of them
  kFirstNorm,         ///< before attention
  kSecondNorm,        ///< before the feed-forward block or the experts
  kFeedForward,       ///< a dense feed-forward block from its norm on
  kExpertActivation,  ///< of one part of the tokens where they travel in several
  kLatentUp,          ///< queries from their compressed vectors; a second part has keys and values
};

/// Values of layers that the backward pass reads, and what each is in any layer: "qkv".
class LayerValues {
 public:
  void emplace(TensorId id, std::string what) {
    if (what_.size() <= id) {
      what_.resize(id + 1);
    }
    what_[id] = std::move(what);
  }
  [[nodiscard]] bool contains(TensorId id) const { return id < what_.size() && !what_[id].empty(); }
  [[nodiscard]] const std::string& at(TensorId id) const { return what_.at(id); }
  void clear() { what_.clear(); }
  /// By the number that is `now` a tensor's.
  void renumber(const std::vector<TensorId>& now) {
    LayerValues renumbered;
    for (TensorId id = 0; id < what_.size(); ++id) {
      if (contains(id)) {
        renumbered.emplace(now[id], std::move(what_[id]));
      }
    }
    what_ = std::move(renumbered.what_);
  }

 private:
  std::vector<std::string> what_;  ///< by tensor; empty: no such value
};

/// Order of a program's ops that a builder knows before they have streams: ops of the
/// compute stream follow one another, a transfer needs what was computed before it, and whatever
/// reads its result awaits it. Or ops of all lanes follow ops by name, and nothing else orders them
/// beyond their lane. The program itself has neither events nor waits then.
struct DependencyInfo {
  struct OfOp {
    Channel channel = Channel::kCompute;
    bool transfers = false;
    bool after_compute = true;           ///< false: it needs nothing of this rank (a receive)
    AsyncHandle transfer = kNoTransfer;  ///< its own name
    AsyncHandle after = kNoTransfer;     ///< waited for by it alone
    std::uint32_t first_await = 0, awaits = 0;
  };
  std::vector<OfOp> ops;            ///< as Program::ops
  std::vector<AsyncHandle> awaits;  ///< CSR: stated after the op before, in order
  std::vector<AsyncHandle> unused;  ///< awaited at the end of a segment, where no op follows
  struct Transfer {
    Channel channel = Channel::kCompute;
    std::uint32_t named_at = 0;  ///< ops of the program when it was named
    bool early = false;          ///< before it is issued, so that earlier ops can await it
  };
  std::vector<Transfer> transfers;  ///< by TransferId

  /// `op` starts once `on` is done.
  struct Dependency {
    std::uint32_t op = 0, on = 0;
  };
  std::vector<Dependency> dependencies;  ///< in the order of the ops that depend
  bool by_name = false;                  ///< these alone order lanes, not transfers and awaits

  /// Which part of which layer; `piece` tells those of one kind apart.
  struct PartName {
    LayerPart part = LayerPart::kLayer;
    std::int64_t layer = 0;
    std::int64_t piece = 0;
    auto operator<=>(const PartName&) const = default;
  };
  /// A place between two ops: before op `op`, after `awaits` of what is awaited there.
  struct Place {
    std::uint32_t op = 0, awaits = 0;
  };
  /// The ops of a part in a forward segment; parts nest.
  struct Part {
    PartName name;
    Place begin;
    std::uint32_t end = 0;  ///< op after the last
  };
  std::vector<Part> parts;
  /// From here on a backward pass needs what the part made.
  struct Need {
    PartName name;
    Place place;
  };
  std::vector<Need> needs;  ///< in the order of the ops
  /// A matrix product of a layer, in the order in which layers have them: several where their
  /// matrices stand side by side, columns in this order.
  struct Product {
    struct Matrix {
      const char* name = "";  ///< "query", of a product with this one alone after `block`
      std::int64_t columns = 0;
    };
    std::string block;  ///< "layer.attention"
    std::vector<Matrix> matrices;
    std::uint32_t first = 0, end = 0;  ///< ops
  };
  std::vector<Product> products;

  std::vector<DeclaredParameter> parameters;
  /// A chunk of the model: its parameters, in the order in which its backward pass finishes their
  /// gradients, and the segments of its passes.
  struct Chunk {
    std::uint32_t first_parameter = 0, end_parameter = 0;
    std::optional<std::uint32_t> forward{}, backward{}, weights{};
  };
  std::vector<Chunk> chunks;
  /// From here on a segment reads the weights of a unit, or adds to its gradients.
  struct UnitUse {
    std::int64_t unit = 0;
    bool gradients = false;
    std::uint32_t segment = 0;
    Place place;
  };
  std::vector<UnitUse> unit_uses;  ///< in the order of the ops
  /// Ops of a weight gradient that the backward pass left to a segment of its own.
  struct LeftOver {
    std::uint32_t instead_of = 0;  ///< where the backward pass would have them: before this op
    std::uint32_t first = 0;       ///< where they are
  };
  std::vector<LeftOver> left_over;

  LayerValues values;
  std::set<TensorId> remade;  ///< temporaries that only recomputation made of values
  std::unordered_map<std::string, TensorId> workspaces;  ///< temporaries, by name
  [[nodiscard]] std::span<const AsyncHandle> awaits_of(const OfOp& op) const {
    return {awaits.data() + op.first_await, op.awaits};
  }
};

/// A graph on its way through the passes.
struct GraphUnderConstruction {
  ExecutionGraph graph;
  ParameterHolders holders{};
  /// By program; empty once streams and events are chosen.
  std::vector<DependencyInfo> orders{};
};

}  // namespace stepcast::workloads
