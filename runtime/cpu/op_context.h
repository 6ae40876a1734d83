#pragma once
#include <cstdint>
#include <vector>

#include "core/graph/program.h"
#include "runtime/collectives.h"
#include "runtime/cpu/kernels/matrix_view.h"
#include "runtime/host_batch.h"
#include "runtime/op_dispatch.h"
#include "runtime/tensor_layout.h"
#include "runtime/tiers/tier_port.h"

namespace stepcast::runtime::cpu {

/// A row-major fp32 matrix of this rank. Every tensor is stored as fp32, whatever its format.
struct Matrix {
  float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  [[nodiscard]] std::int64_t elements() const { return rows * columns; }
};
inline kernels::MatrixView view(const Matrix& m) { return {m.data, m.rows, m.columns}; }

/// Everything an op's function may touch while it runs on one rank.
class OpContext {
 public:
  const ExecutionGraph& graph;
  const Program& program;
  const Op& op;
  std::int32_t microbatch;
  std::int64_t step;            ///< counts all steps, warm-up included: Adam's t is step + 1
  const HostBatch& batch;       ///< the next step's for ops of the next batch
  Collectives* collectives;     ///< of op.communicator; null without one
  std::vector<float>& scratch;  ///< reusable, per stream
  OpState* state;               ///< family state of this rank; null where it keeps none
  double bytes_sent = 0;        ///< set by collective ops
  double* loss = nullptr;       ///< loss ops add their (already scaled) share here
  TierPort* tiers = nullptr;  ///< paces moves between memory tiers; null where nothing does

  [[nodiscard]] Matrix input(std::size_t i) const { return tensor(program.inputs(op)[i]); }
  [[nodiscard]] Matrix output(std::size_t i) const { return tensor(program.outputs(op)[i]); }
  [[nodiscard]] Matrix tensor(TensorId id) const;  ///< the instance of this microbatch
  [[nodiscard]] float* scratch_floats(std::size_t count) const;  ///< contents undefined

  const TensorTable* storage = nullptr;
  std::int32_t rank = 0;  ///< global rank of this program's executor
};

using OpFamily = runtime::OpFamily<OpContext>;

/// The functions that execute each op kind, one list per family (runtime/op_table.h).
OpFamily generic_ops();
OpFamily collective_ops();   ///< all collectives but all-to-all-v
OpFamily dlrm_ops();         ///< embeddings, index exchange, all-to-all-v, interaction, bce
OpFamily layer_ops();        ///< of models given as lists of layers
OpFamily expert_ops();       ///< those on copies of routed tokens
OpFamily transformer_ops();  ///< attention, norms, rope, activations, token embedding, ce

}  // namespace stepcast::runtime::cpu
