#include "runtime/cuda/cudnn_attention.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "core/error.h"
#include "runtime/cuda/cudnn_graph.h"

namespace stepcast::runtime::cuda {
namespace {

struct Planned {
  AttentionProblem problem;
  CudnnGraph graph;
  CudnnDescriptor configuration, plan;
  std::size_t of_plan = 0;  ///< bytes of workspace, rounded up: scratch tensors stand behind
  std::size_t of_scratch = 0;
};

constexpr std::size_t kAlignment = 256;

/// The first configuration of the graph that compiles.
std::optional<Planned> planned(const CudnnTarget& target, const AttentionProblem& problem,
                               CudnnGraph graph, std::string& why) {
  why = "no engine supports the graph";
  for (CudnnDescriptor& configuration : engine_configurations(target, graph.graph)) {
    try {
      CudnnDescriptor plan = execution_plan(target, configuration);
      const auto bytes = plan.number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
      const std::size_t rounded =
          (static_cast<std::size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
      const std::size_t scratch = scratch_bytes(graph, problem);
      return Planned{problem,         std::move(graph), std::move(configuration),
                     std::move(plan), rounded,          scratch};
    } catch (const CudnnRefusal& e) {
      why = e.what();
    }
  }
  return std::nullopt;
}

}  // namespace

struct CudnnAttention::Impl {
  explicit Impl(const CudnnFunctions& f) : cudnn(f) {
    check(cudnn, cudnn.create(&handle), "cudnnCreate");
    const std::size_t v = cudnn.version();
    version = fmt::format("cudnn {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
  }
  ~Impl() {
    plans.clear();
    static_cast<void>(cudnn.destroy(handle));  // nothing can be done about it
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] const Planned& of(const AttentionProblem& problem) const {
    const auto found = std::find_if(plans.begin(), plans.end(),
                                    [&](const Planned& p) { return p.problem == problem; });
    STEPCAST_CHECK(found != plans.end(), "attention that cuDNN has not planned");
    return *found;
  }

  const CudnnFunctions cudnn;
  cudnnHandle_t handle = nullptr;
  std::string version;
  std::vector<Planned> plans;
};

CudnnAttention::CudnnAttention(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudnnAttention::~CudnnAttention() = default;

CudnnAttention::Opened CudnnAttention::open() {
  std::string missing;
  const auto functions = cudnn_functions(missing);
  if (!functions) {
    return {nullptr, missing};
  }
  try {
    return {std::unique_ptr<CudnnAttention>(new CudnnAttention(std::make_unique<Impl>(*functions))),
            {}};
  } catch (const CudnnRefusal& e) {
    return {nullptr, e.what()};
  }
}

const std::string& CudnnAttention::version() const { return impl_->version; }

std::string CudnnAttention::plan(const AttentionProblem& problem) {
  std::string why = not_for_cudnn(problem);
  if (!why.empty()) {
    return why;
  }
  const CudnnTarget target{impl_->cudnn, impl_->handle, nullptr};
  for (const bool one_op : {true, false}) {
    if (one_op && problem.shape.causal) {
      continue;
    }
    try {
      CudnnGraph graph =
          one_op ? attention_as_one_op(target, problem) : attention_op_by_op(target, problem);
      if (auto found = planned(target, problem, std::move(graph), why)) {
        impl_->plans.push_back(std::move(*found));
        return {};
      }
    } catch (const CudnnRefusal& e) {
      why = e.what();
    }
  }
  return why;
}

std::size_t CudnnAttention::workspace_bytes(const AttentionProblem& problem) const {
  const Planned& planned = impl_->of(problem);
  return planned.of_plan + planned.of_scratch;
}

void CudnnAttention::run(const AttentionProblem& problem, const AttentionTensors& t,
                         kernels::Workspace workspace, cudaStream_t stream) const {
  const Planned& planned = impl_->of(problem);
  float scale = attention_scale(problem.shape);
  float one = 1;
  // dQ first: its rows are multiples of 16 bytes.
  auto* const sums = static_cast<std::byte*>(workspace.data) + planned.of_plan;
  const auto rows = static_cast<std::size_t>(problem.shape.batch * problem.shape.heads *
                                             problem.shape.query_length);
  float hidden = std::numeric_limits<float>::lowest();
  const auto address = [&](CudnnOperand operand) -> const void* {
    switch (operand) {
      case CudnnOperand::kQuery:
        return t.q.data;
      case CudnnOperand::kKey:
      case CudnnOperand::kKeyTransposed:
        return t.k.data;
      case CudnnOperand::kValue:
      case CudnnOperand::kValueTransposed:
        return t.v.data;
      case CudnnOperand::kOut:
        return t.out.data;
      case CudnnOperand::kStatistics:
        return t.log_sum_exp;
      case CudnnOperand::kOutGradient:
        return t.d_out.data;
      case CudnnOperand::kQueryGradient:
        return t.d_q.data;
      case CudnnOperand::kKeyGradient:
        return t.d_k.data;
      case CudnnOperand::kValueGradient:
        return t.d_v.data;
      case CudnnOperand::kQuerySums:
        return sums;
      case CudnnOperand::kRowSums:
        return sums + rows * static_cast<std::size_t>(problem.shape.head_dim) * sizeof(float);
      case CudnnOperand::kOne:
        return &one;
      case CudnnOperand::kScale:
        return &scale;
      case CudnnOperand::kHidden:
        return &hidden;
    }
    return nullptr;
  };
  std::vector<std::int64_t> ids;
  std::vector<void*> addresses;
  for (const CudnnOperand operand : planned.graph.operands) {
    ids.push_back(static_cast<std::int64_t>(operand));
    addresses.push_back(const_cast<void*>(address(operand)));
  }
  try {
    CudnnDescriptor pack(impl_->cudnn, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             static_cast<std::int64_t>(addresses.size()), addresses.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace.data);
    pack.finalize("variant pack");
    check(impl_->cudnn, impl_->cudnn.set_stream(impl_->handle, stream), "cudnnSetStream");
    check(impl_->cudnn, impl_->cudnn.execute(impl_->handle, planned.plan.handle(), pack.handle()),
          "cudnnBackendExecute");
  } catch (const CudnnRefusal& e) {
    throw RunError(e.what());
  }
}

}  // namespace stepcast::runtime::cuda
