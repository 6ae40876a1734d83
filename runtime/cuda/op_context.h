#pragma once
#include <cstdint>

#include "core/graph/program.h"
#include "runtime/cuda/communicator.h"
#include "runtime/cuda/cudnn_attention.h"
#include "runtime/cuda/device_batch.h"
#include "runtime/cuda/device_tensors.h"
#include "runtime/cuda/fused_products.h"
#include "runtime/cuda/kernels/matrix_view.h"
#include "runtime/cuda/matmul.h"
#include "runtime/cuda/quantised_copies.h"
#include "runtime/op_dispatch.h"
#include "runtime/optimizer_settings.h"

namespace stepcast::runtime::cuda {

/// Everything an op's function may touch. It runs on the host thread, in issue order, and enqueues
/// its work on `stream`; what it reads of the host must not change until the step has ended.
class OpContext {
 public:
  const ExecutionGraph& graph;
  const Program& program;
  const Op& op;
  std::int32_t rank;
  std::int32_t microbatch;
  std::int64_t step;  ///< counts all steps, warm-up included
  cudaStream_t stream;
  DeviceTensors& tensors;
  DeviceBatch& batch;          ///< the next step's for ops of the next batch
  Communicator* communicator;  ///< of op.communicator; for a message that of its pair
  const Communicators& communicators;
  Matmul& multiply;
  FusedProducts& products;
  const QuantisedCopies& quantised;
  CudnnAttention* attention;        ///< null in a program without fused attention
  std::size_t issue;                ///< number of this op in the step's order
  Buffer& scratch;                  ///< of the stream: free between ops
  const AdamFactors* adam_factors;  ///< device: this step's, of ops executed as often as this one
  double* loss;                     ///< device: loss ops add their share
  Ledger& ledger;
  OpState* state = nullptr;
  double bytes_sent = 0;  ///< set by collective ops

  [[nodiscard]] kernels::MatrixView tensor(TensorId id) const {
    return tensors.view(id, microbatch);
  }
  [[nodiscard]] kernels::MatrixView input(std::size_t i) const {
    return tensor(program.inputs(op)[i]);
  }
  [[nodiscard]] kernels::MatrixView output(std::size_t i) const {
    return tensor(program.outputs(op)[i]);
  }
  /// fp32 numbers of a tensor. Errors: InternalError for another format.
  [[nodiscard]] float* floats(const kernels::MatrixView& m) const;
  [[nodiscard]] kernels::Vector vector(const kernels::MatrixView& m) const {
    return {m.data, m.format};
  }
  /// Memory for the inside of this op.
  [[nodiscard]] kernels::Workspace workspace(std::size_t bytes) const {
    return {scratch.reserve(bytes), scratch.bytes()};
  }
  /// The host waits until the stream has done everything enqueued so far.
  void wait_for_stream() const { communicators.wait_for(stream, program.name(op)); }
  [[nodiscard]] bool has(std::uint8_t flag) const { return (op.flags & flag) != 0; }
};

using OpFamily = runtime::OpFamily<OpContext, Ledger&>;

/// The functions that execute each op kind, one list per family (runtime/op_table.h).
OpFamily generic_ops();
OpFamily collective_ops();   ///< all collectives but all-to-all-v
OpFamily dlrm_ops();         ///< embeddings, index exchange, all-to-all-v, interaction, bce
OpFamily layer_ops();        ///< of models given as lists of layers
OpFamily transformer_ops();  ///< attention, norms, rope, activations, token embedding, ce

}  // namespace stepcast::runtime::cuda
