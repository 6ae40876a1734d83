#include "runtime/cuda/cudnn_graph.h"

#include <algorithm>

#include "core/error.h"

// The attributes that name a handle are deprecated in favour of descriptors of device properties,
// which older versions of the library lack.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace stepcast::runtime::cuda {
namespace {

using Dims = std::vector<std::int64_t>;

/// A tensor of a graph under construction.
struct Node {
  const CudnnDescriptor* descriptor = nullptr;
  Dims dims;
};

/// Adds tensors and operations to a graph. Arithmetic is fp32.
class Builder {
 public:
  Builder(const CudnnTarget& target, const AttentionProblem& problem)
      : target_(target),
        p_(problem),
        stored_(problem.format == Format::kBf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF) {}

  /// [batch, heads, length, head_dim] in matrices whose rows are tokens; `turned`: the last two
  /// exchanged.
  Node heads(CudnnOperand operand, std::int64_t heads, std::int64_t length, std::int64_t row,
             bool turned = false) {
    const std::int64_t d = p_.shape.head_dim;
    Dims dims{p_.shape.batch, heads, length, d};
    Dims strides{length * row, d, row, 1};
    if (turned) {
      std::swap(dims[2], dims[3]);
      std::swap(strides[2], strides[3]);
    }
    return bound(operand, std::move(dims), std::move(strides), stored_, false);
  }
  Node query(CudnnOperand o, std::int64_t row) {
    return heads(o, p_.shape.heads, p_.shape.query_length, row);
  }
  Node key(CudnnOperand o, std::int64_t row, bool turned = false) {
    return heads(o, p_.shape.kv_heads, p_.shape.kv_length, row, turned);
  }
  Node statistics() {
    const Dims dims = per_query();
    return bound(CudnnOperand::kStatistics, dims, packed(dims), CUDNN_DATA_FLOAT, false);
  }
  /// Stored in fp32, packed.
  Node scratch(CudnnOperand operand, const Dims& dims) {
    return bound(operand, dims, packed(dims), CUDNN_DATA_FLOAT, false);
  }
  Node number(CudnnOperand operand) {
    return bound(operand, {1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, true);
  }

  /// A value that is never stored.
  Node inner(const Dims& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return inner(dims, packed(dims), type);
  }
  [[nodiscard]] Dims scores() const {
    return {p_.shape.batch, p_.shape.heads, p_.shape.query_length, p_.shape.kv_length};
  }
  [[nodiscard]] Dims per_query() const {
    return {p_.shape.batch, p_.shape.heads, p_.shape.query_length, 1};
  }
  [[nodiscard]] cudnnDataType_t stored() const { return stored_; }

  void multiply(const Node& a, const Node& b, const Node& out) {
    const CudnnDescriptor& how = part(CUDNN_BACKEND_MATMUL_DESCRIPTOR, "product", [](auto& d) {
      d.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    });
    operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "product", [&](auto& d) {
      d.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, *a.descriptor);
      d.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, *b.descriptor);
      d.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, *out.descriptor);
      d.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    });
  }
  void reduce(cudnnReduceTensorOp_t op, const Node& x, const Node& out) {
    const CudnnDescriptor& how =
        part(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "reduction", [&](auto& d) {
          d.set(CUDNN_ATTR_REDUCTION_OPERATOR, op);
          d.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
        });
    operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "reduction", [&](auto& d) {
      d.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, *x.descriptor);
      d.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, *out.descriptor);
      d.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    });
  }
  /// out = op(x, b); with `choice`: x where it is true, b elsewhere. `axis` of a generated index.
  void pointwise(cudnnPointwiseMode_t mode, const Node& x, const Node& out, const Node* b = nullptr,
                 const Node* choice = nullptr, std::int64_t axis = -1) {
    const CudnnDescriptor& how =
        part(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "pointwise", [&](auto& d) {
          d.set(CUDNN_ATTR_POINTWISE_MODE, mode);
          d.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
          if (axis >= 0) {
            d.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
          }
        });
    operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise operation", [&](auto& d) {
      d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
      d.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x.descriptor);
      d.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *out.descriptor);
      if (b != nullptr) {
        d.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b->descriptor);
      }
      if (choice != nullptr) {
        d.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *choice->descriptor);
      }
    });
  }
  [[nodiscard]] Node mapped(cudnnPointwiseMode_t mode, const Node& x, const Node* b = nullptr) {
    Node out = inner(x.dims);
    pointwise(mode, x, out, b);
    return out;
  }
  [[nodiscard]] Node reduced(cudnnReduceTensorOp_t op, const Node& x) {
    Node out = inner(per_query());
    reduce(op, x, out);
    return out;
  }
  /// `x` as it is stored, with its last two dimensions exchanged.
  [[nodiscard]] Node transposed(const Node& x) {
    Dims dims = x.dims;
    Dims strides = packed(dims);
    std::swap(dims[2], dims[3]);
    std::swap(strides[2], strides[3]);
    Node out = inner(dims, strides, stored_);
    operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, "transposition", [&](auto& d) {
      d.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, *x.descriptor);
      d.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, *out.descriptor);
    });
    return out;
  }
  template <class Fill>
  void operation(cudnnBackendDescriptorType_t type, const std::string& what, const Fill& fill) {
    operations_.push_back(part(type, what, fill).handle());
  }

  CudnnGraph finish() {
    CudnnDescriptor graph(target_.cudnn, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (target_.handle != nullptr) {
      graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, target_.handle);
    }
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_);
    graph.finalize("operation graph");
    return {std::move(parts_), std::move(graph), std::move(operands_)};
  }

 private:
  static Dims packed(const Dims& dims) {
    Dims strides(dims.size(), 1);
    for (std::size_t i = dims.size() - 1; i > 0; --i) {
      strides[i - 1] = strides[i] * dims[i];
    }
    return strides;
  }
  template <class Fill>
  const CudnnDescriptor& part(cudnnBackendDescriptorType_t type, const std::string& what,
                              const Fill& fill) {
    CudnnDescriptor& d = parts_.emplace_back(target_.cudnn, type);
    fill(d);
    d.finalize(what);
    return d;
  }
  Node tensor(std::int64_t id, Dims dims, const Dims& strides, cudnnDataType_t type,
              cudnnBackendAttributeName_t flag) {
    const CudnnDescriptor& d = part(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor", [&](auto& t) {
      t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
      t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims);
      t.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
      t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
      t.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t{16});
      if (flag != CUDNN_ATTR_TENSOR_UNIQUE_ID) {
        t.set(flag, true);
      }
    });
    return {&d, std::move(dims)};
  }
  Node bound(CudnnOperand operand, Dims dims, const Dims& strides, cudnnDataType_t type,
             bool by_value) {
    operands_.push_back(operand);
    return tensor(static_cast<std::int64_t>(operand), std::move(dims), strides, type,
                  by_value ? CUDNN_ATTR_TENSOR_IS_BY_VALUE : CUDNN_ATTR_TENSOR_UNIQUE_ID);
  }
  Node inner(const Dims& dims, const Dims& strides, cudnnDataType_t type) {
    constexpr std::int64_t kFirstInner = 100;
    return tensor(kFirstInner + inner_++, dims, strides, type, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  }

  const CudnnTarget& target_;
  const AttentionProblem& p_;
  const cudnnDataType_t stored_;
  std::deque<CudnnDescriptor> parts_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::vector<CudnnOperand> operands_;
  std::int64_t inner_ = 0;
};

/// scale Q K^T, keys after the query at `hidden`.
Node scores(Builder& g, const AttentionProblem& p, const Node& q, const Node& scale) {
  const Node key = g.key(CudnnOperand::kKeyTransposed, p.k, true);
  const Node product = g.inner(g.scores());
  g.multiply(q, key, product);
  Node scaled = g.mapped(CUDNN_POINTWISE_MUL, product, &scale);
  if (!p.shape.causal) {
    return scaled;
  }
  const Node row = g.inner(g.scores(), CUDNN_DATA_INT32);
  const Node column = g.inner(g.scores(), CUDNN_DATA_INT32);
  const Node seen = g.inner(g.scores(), CUDNN_DATA_BOOLEAN);
  g.pointwise(CUDNN_POINTWISE_GEN_INDEX, scaled, row, nullptr, nullptr, 2);
  g.pointwise(CUDNN_POINTWISE_GEN_INDEX, scaled, column, nullptr, nullptr, 3);
  g.pointwise(CUDNN_POINTWISE_CMP_GE, row, seen, &column);
  const Node hidden = g.number(CudnnOperand::kHidden);
  Node masked = g.inner(g.scores());
  g.pointwise(CUDNN_POINTWISE_BINARY_SELECT, scaled, masked, &hidden, &seen);
  return masked;
}

CudnnGraph forward(const CudnnTarget& target, const AttentionProblem& p) {
  Builder g(target, p);
  const Node scale = g.number(CudnnOperand::kScale);
  const Node s = scores(g, p, g.query(CudnnOperand::kQuery, p.q), scale);
  const Node largest = g.reduced(CUDNN_REDUCE_TENSOR_MAX, s);
  const Node powers = g.mapped(CUDNN_POINTWISE_EXP, g.mapped(CUDNN_POINTWISE_SUB, s, &largest));
  const Node sum = g.reduced(CUDNN_REDUCE_TENSOR_ADD, powers);
  const Node logarithm = g.mapped(CUDNN_POINTWISE_LOG, sum);
  g.pointwise(CUDNN_POINTWISE_ADD, largest, g.statistics(), &logarithm);
  const Node probabilities = g.inner(g.scores(), g.stored());
  g.pointwise(CUDNN_POINTWISE_DIV, powers, probabilities, &sum);
  g.multiply(probabilities, g.key(CudnnOperand::kValue, p.v), g.query(CudnnOperand::kOut, p.out));
  return g.finish();
}

CudnnGraph backward(const CudnnTarget& target, const AttentionProblem& p) {
  Builder g(target, p);
  const AttentionShape& shape = p.shape;
  const Node scale = g.number(CudnnOperand::kScale);
  const Node q = g.query(CudnnOperand::kQuery, p.q);
  const Node out = g.query(CudnnOperand::kOut, p.out);
  const Node d_out = g.query(CudnnOperand::kOutGradient, p.d_out);
  const Node one = g.number(CudnnOperand::kOne);
  const Node along = g.scratch(CudnnOperand::kRowSums, g.per_query());
  g.pointwise(CUDNN_POINTWISE_MUL,
              g.reduced(CUDNN_REDUCE_TENSOR_ADD, g.mapped(CUDNN_POINTWISE_MUL, d_out, &out)), along,
              &one);
  const Node s = scores(g, p, q, scale);
  const Node statistics = g.statistics();
  const Node probabilities =
      g.mapped(CUDNN_POINTWISE_EXP, g.mapped(CUDNN_POINTWISE_SUB, s, &statistics));
  // Gradients of a key that several query heads read are added.
  const auto of_key = [&](const Node& by_score, const Node& x, CudnnOperand operand,
                          std::int64_t row) {
    const Node gradient = g.key(operand, row);
    const Node turned = g.transposed(by_score);
    if (shape.heads == shape.kv_heads) {
      g.multiply(turned, x, gradient);
      return;
    }
    const Node by_head =
        g.inner({shape.batch, shape.heads, shape.kv_length, shape.head_dim}, g.stored());
    g.multiply(turned, x, by_head);
    g.reduce(CUDNN_REDUCE_TENSOR_ADD, by_head, gradient);
  };
  of_key(probabilities, d_out, CudnnOperand::kValueGradient, p.d_v);
  const Node d_probabilities = g.inner(g.scores());
  g.multiply(d_out, g.key(CudnnOperand::kValueTransposed, p.v, true), d_probabilities);
  const Node d_scores = g.mapped(
      CUDNN_POINTWISE_MUL, g.mapped(CUDNN_POINTWISE_SUB, d_probabilities, &along), &probabilities);
  const Node d_products = g.inner(g.scores(), g.stored());
  g.pointwise(CUDNN_POINTWISE_MUL, d_scores, d_products, &scale);
  of_key(d_products, q, CudnnOperand::kKeyGradient, p.d_k);
  const Node sums = g.scratch(CudnnOperand::kQuerySums,
                              {shape.batch, shape.heads, shape.query_length, shape.head_dim});
  g.multiply(d_products, g.key(CudnnOperand::kKey, p.k), sums);
  g.pointwise(CUDNN_POINTWISE_IDENTITY, sums, g.query(CudnnOperand::kQueryGradient, p.d_q));
  return g.finish();
}

}  // namespace

CudnnGraph attention_as_one_op(const CudnnTarget& target, const AttentionProblem& p) {
  STEPCAST_CHECK(!p.shape.causal, "cuDNN's one operation has no mask");
  Builder g(target, p);
  const Node scale = g.number(CudnnOperand::kScale);
  const Node q = g.query(CudnnOperand::kQuery, p.q);
  const Node k = g.key(CudnnOperand::kKey, p.k);
  const Node v = g.key(CudnnOperand::kValue, p.v);
  const Node out = g.query(CudnnOperand::kOut, p.out);
  const Node statistics = g.statistics();
  if (!p.backward) {
    g.operation(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, "attention", [&](auto& d) {
      d.set(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, *q.descriptor);
      d.set(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, *k.descriptor);
      d.set(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, *v.descriptor);
      d.set(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, *out.descriptor);
      d.set(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, *statistics.descriptor);
      d.set(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, *scale.descriptor);
    });
    return g.finish();
  }
  const Node d_out = g.query(CudnnOperand::kOutGradient, p.d_out);
  const Node d_q = g.query(CudnnOperand::kQueryGradient, p.d_q);
  const Node d_k = g.key(CudnnOperand::kKeyGradient, p.d_k);
  const Node d_v = g.key(CudnnOperand::kValueGradient, p.d_v);
  g.operation(CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR, "attention's backward", [&](auto& d) {
    d.set(CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, *q.descriptor);
    d.set(CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, *k.descriptor);
    d.set(CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, *v.descriptor);
    d.set(CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, *out.descriptor);
    d.set(CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC, *statistics.descriptor);
    d.set(CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC, *scale.descriptor);
    d.set(CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, *d_out.descriptor);
    d.set(CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, *d_q.descriptor);
    d.set(CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, *d_k.descriptor);
    d.set(CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, *d_v.descriptor);
  });
  return g.finish();
}

CudnnGraph attention_op_by_op(const CudnnTarget& target, const AttentionProblem& problem) {
  return problem.backward ? backward(target, problem) : forward(target, problem);
}

std::size_t scratch_bytes(const CudnnGraph& graph, const AttentionProblem& p) {
  const bool stored = std::find(graph.operands.begin(), graph.operands.end(),
                                CudnnOperand::kQuerySums) != graph.operands.end();
  const AttentionShape& s = p.shape;
  const auto rows = static_cast<std::size_t>(s.batch * s.heads * s.query_length);
  return stored ? rows * static_cast<std::size_t>(s.head_dim + 1) * sizeof(float) : 0;
}

std::vector<CudnnDescriptor> engine_configurations(const CudnnTarget& target,
                                                   const CudnnDescriptor& graph) {
  CudnnDescriptor heuristics(target.cudnn, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A);
  if (target.properties != nullptr) {
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.properties);
  }
  heuristics.finalize("heuristics");
  constexpr std::size_t kMost = 8;
  std::vector<CudnnDescriptor> found;
  for (std::size_t i = 0; i < kMost; ++i) {
    found.emplace_back(target.cudnn, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  }
  const auto count =
      static_cast<std::size_t>(heuristics.read(CUDNN_ATTR_ENGINEHEUR_RESULTS, found));
  while (found.size() > count) {
    found.pop_back();
  }
  return found;
}

CudnnDescriptor execution_plan(const CudnnTarget& target, const CudnnDescriptor& configuration) {
  CudnnDescriptor plan(target.cudnn, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (target.handle != nullptr) {
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle);
  }
  if (target.properties != nullptr) {
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.properties);
  }
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  plan.finalize("execution plan");
  return plan;
}

std::string not_for_cudnn(const AttentionProblem& p) {
  const AttentionShape& s = p.shape;
  if (p.format != Format::kBf16 && p.format != Format::kFp16) {
    return fmt::format("operands in {}, not in bf16 or fp16", name_of(p.format));
  }
  if (s.head_dim % 8 != 0) {
    return fmt::format("heads {} wide, not a multiple of 8", s.head_dim);
  }
  if (s.window > 0) {
    return "a sliding window";
  }
  if (s.causal && s.query_length != s.kv_length) {
    return "causal, with queries and keys of unequal number";
  }
  if (!p.aligned) {
    return "an operand that does not begin at a multiple of 16 bytes";
  }
  return {};
}

}  // namespace stepcast::runtime::cuda
