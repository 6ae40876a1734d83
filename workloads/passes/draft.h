#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/graph/program.h"

namespace stepcast::workloads {

/// What a transfer goes over, which decides whether it may have a stream of its own.
enum class Lane : std::uint8_t {
  kCompute,      ///< in order with the ops of the compute stream
  kTensor,       ///< between tensor ranks
  kTensorParts,  ///< likewise, cut up so that a product works on one part while another travels
  kData,         ///< gradients and weights between replicas
  kForward,      ///< activations along the pipeline
  kBackward,     ///< their gradients
  kContext,      ///< around a ring of context ranks
  kExpert,       ///< tokens on their way to experts and back
};

/// Names a transfer of a program, whatever stream it will have; kNoTransfer names none.
using TransferId = std::int32_t;
constexpr TransferId kNoTransfer = -1;
/// Stands among the transfers that are waited for: the host issues nothing more until the latest op
/// of the compute stream is done.
constexpr TransferId kHostSynchronises = -2;

/// What a builder knows of the order of a program's ops before they have streams: ops of the
/// compute stream follow one another, a transfer needs what was computed before it, and whatever
/// reads its result awaits it. The program itself has neither events nor waits then.
struct ProgramOrder {
  struct OfOp {
    Lane lane = Lane::kCompute;
    bool transfers = false;
    bool after_compute = true;         ///< false: it needs nothing of this rank (a receive)
    TransferId transfer = kNoTransfer;  ///< its own name
    TransferId after = kNoTransfer;     ///< waited for by it alone
    std::uint32_t first_await = 0, awaits = 0;
  };
  std::vector<OfOp> ops;           ///< as Program::ops
  std::vector<TransferId> awaits;  ///< CSR: stated after the op before, in order
  std::vector<TransferId> unused;  ///< awaited at the end of a segment, where no op follows
  struct Transfer {
    Lane lane = Lane::kCompute;
    std::uint32_t named_at = 0;  ///< ops of the program when it was named
    bool early = false;          ///< before it is issued, so that earlier ops can await it
  };
  std::vector<Transfer> transfers;  ///< by TransferId
  [[nodiscard]] std::span<const TransferId> awaits_of(const OfOp& op) const {
    return {awaits.data() + op.first_await, op.awaits};
  }
};

/// A graph on its way through the passes.
struct GraphDraft {
  ExecutionGraph graph;
  /// By program; empty once streams and events are chosen, and from builders that choose them.
  std::vector<ProgramOrder> orders{};
};

}  // namespace stepcast::workloads
