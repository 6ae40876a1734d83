#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/graph/program_fwd.h"
#include "core/system.h"

namespace stepcast::simulator {

/// Memory of one rank at its peak, by purpose.
///
/// Weights, gradients, optimizer states, embeddings and buffers are there for the whole step.
/// Activations are the peak of live per-micro-batch tensors over the calls of the step, so what a
/// pipeline schedule has in flight, plus the temporaries of the largest segment. Logits (fp32) and
/// the gather buffers of sharded models are listed apart, as is the cache of keys and values.
///
/// Memory outside the framework comes from the device's fitted "memory" (framework_memory.h).
/// Source: Korthikanti et al., arXiv 2205.05198 (activations); Rajbhandari et al., arXiv 1910.02054
/// (states). Checked by tests/workloads/transformer_memory_test.cpp.
struct MemoryLedger {
  std::int32_t rank = 0;  ///< the lowest of its class
  Bytes weights, gradients, optimizer, embeddings;
  Bytes in_flight;  ///< activations of micro-batches between their passes, but logits
  Bytes logits;
  Bytes temporaries;     ///< of the largest segment
  Bytes gather_buffers;  ///< weights and gradients of the units at work (ZeRO 2, 3)
  Bytes cache;           ///< keys and values of inference
  Bytes buffers;         ///< others
  Bytes context, communicators, fragmentation;
  Bytes workspaces;  ///< the part of the context that a framework's own allocator holds
  Bytes host;        ///< of the memory of the host (kHostTier); no part of the total

  /// Parts by the words that all outputs use, for people and as keys: weights, gradients,
  /// optimizer, activations, temporary, communication, embeddings, cache, context. They sum to the
  /// total.
  [[nodiscard]] std::vector<std::pair<std::string_view, Bytes>> parts() const;
  /// The same in finer lines, for details.
  [[nodiscard]] std::vector<std::pair<std::string_view, Bytes>> lines() const;
  [[nodiscard]] Bytes total() const;
};

/// Buffers of the communicators that a program's ops use; `ranks_in` says how many a communicator
/// joins.
Bytes communicator_bytes(const Program& program, const Device& device,
                         const std::function<std::size_t(std::int32_t)>& ranks_in);
/// The ledger of the class of ranks number `rank_class`.
MemoryLedger memory_ledger(const ExecutionGraph& graph, std::size_t rank_class,
                           const Device& device);
/// That of the class with the largest total.
MemoryLedger fullest_ledger(const ExecutionGraph& graph, const Device& device);

}  // namespace stepcast::simulator
