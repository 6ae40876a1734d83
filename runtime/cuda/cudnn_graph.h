#pragma once
#include <deque>
#include <vector>

#include "runtime/cuda/attention_problem.h"
#include "runtime/cuda/cudnn_descriptor.h"

namespace stepcast::runtime::cuda {

/// Operands that a graph of attention reads and writes in memory; the value is the tensor's unique
/// id. Transposed operands are the same memory seen with its last two dimensions exchanged.
enum class CudnnOperand : std::int64_t {
  kQuery = 1,
  kKey,
  kKeyTransposed,
  kValue,
  kValueTransposed,
  kOut,
  kStatistics,
  kOutGradient,
  kQueryGradient,
  kKeyGradient,
  kValueGradient,
  kRowSums,    ///< scratch: rowsum(dO O), fp32 [batch, heads, queries, 1]
  kQuerySums,  ///< scratch: dQ before it is rounded, fp32 [batch, heads, queries, head_dim]
  kOne,        ///< a float of the host: 1
  kScale,      ///< a float of the host: factor of the scores
  kHidden,     ///< a float of the host: the score of a key that a query does not see
};

/// The device that cuDNN plans for: that of a handle, or one that a finalized descriptor of device
/// properties tells of, which needs no device.
struct CudnnTarget {
  const CudnnFunctions& cudnn;
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* properties = nullptr;
};

/// A finalized operation graph of attention.
struct CudnnGraph {
  std::deque<CudnnDescriptor> parts;  ///< all it is made of
  CudnnDescriptor graph;
  std::vector<CudnnOperand> operands;
};

/// Attention as one operation of cuDNN (9.13 and newer). It has no mask: not for causal problems.
/// Errors: CudnnRefusal.
CudnnGraph attention_as_one_op(const CudnnTarget& target, const AttentionProblem& problem);

/// The same as products, reductions and pointwise operations, which cuDNN recognises as flash
/// attention. Forward: O = softmax(scale Q K^T) V and the logarithms of the softmax denominators.
/// Backward: P = exp(scale Q K^T - statistics), dV = P^T dO, dS = scale P (dO V^T - rowsum(dO O)),
/// dQ = dS K, dK = dS^T Q; gradients of query heads that share a key are added. The row sums, times
/// 1, and dQ in fp32 are stored: with both virtual cuDNN (9.19) stores matrices of scores instead,
/// 6 bytes a score.
/// Errors: CudnnRefusal.
CudnnGraph attention_op_by_op(const CudnnTarget& target, const AttentionProblem& problem);

/// Bytes of kRowSums and kQuerySums together: 4 batch heads queries (head_dim + 1) of a backward op
/// by op, else 0.
std::size_t scratch_bytes(const CudnnGraph& graph, const AttentionProblem& problem);

/// Engine configurations for a graph, best first; empty: cuDNN has none. Errors: CudnnRefusal.
std::vector<CudnnDescriptor> engine_configurations(const CudnnTarget& target,
                                                   const CudnnDescriptor& graph);

/// Compiles a configuration. Errors: CudnnRefusal.
CudnnDescriptor execution_plan(const CudnnTarget& target, const CudnnDescriptor& configuration);

/// Why cuDNN is not asked for a problem: formats, head widths or masks the graphs above do not
/// express. Empty: it is.
std::string not_for_cudnn(const AttentionProblem& problem);

}  // namespace stepcast::runtime::cuda
