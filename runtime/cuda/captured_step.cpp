#include "runtime/cuda/captured_step.h"

#include "core/error.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/host_clock.h"

namespace stepcast::runtime::cuda {

CapturedStep::~CapturedStep() {
  if (graph_ != nullptr) {
    let_go(cudaGraphExecDestroy(graph_));
  }
}

bool CapturedStep::serves(const BatchLayout& batch) {
  const bool same = last_batch_ == batch;
  if (!same && graph_ != nullptr) {
    check(cudaGraphExecDestroy(graph_), "cudaGraphExecDestroy");
    graph_ = nullptr;
  }
  last_batch_ = batch;
  return same;
}

std::int64_t CapturedStep::launch(const Stream& stream, const std::function<void()>& issue) {
  if (graph_ == nullptr) {
    capture(stream, issue);
  }
  const std::int64_t launched = now_ns();
  check(cudaGraphLaunch(graph_, stream.handle()), "cudaGraphLaunch");
  return launched;
}

void CapturedStep::capture(const Stream& stream, const std::function<void()>& issue) {
  check(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
  issue();
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream.handle(), &graph), "cudaStreamEndCapture");
  const cudaError_t code = cudaGraphInstantiate(&graph_, graph, 0);
  let_go(cudaGraphDestroy(graph));
  check(code, "cudaGraphInstantiate");
}

void reject_capture(const Program& program, bool pipelined) {
  for (const Op& op : program.ops) {
    if (op.kind == OpKind::kAllToAllV) {
      throw InputError("--cuda-graph",
                       fmt::format("'{}' exchanges parts whose sizes are known only while the step "
                                   "runs; leave --cuda-graph out",
                                   program.name(op)));
    }
    if ((op.flags & op_flags::kEveryInterval) != 0) {
      throw InputError(
          "--cuda-graph",
          fmt::format("'{}' is executed once in {} steps (embedding.sync_interval) and "
                      "the graph would replay it in each; set the interval to 1 or "
                      "leave --cuda-graph out",
                      program.name(op), program.interval));
    }
  }
  if (!program.routings.empty()) {
    throw InputError("--cuda-graph",
                     "each step sends other numbers of tokens to the experts, which the shapes of "
                     "its products follow; leave --cuda-graph out");
  }
  if (!program.tiers.empty()) {
    throw InputError("--cuda-graph",
                     "the host decides in each step which rows of slower tiers are fetched; keep "
                     "all rows in device memory or leave --cuda-graph out");
  }
  if (pipelined) {
    throw InputError("--cuda-graph",
                     "parallel.dlrm_pipeline swaps tensors between steps; set it to none or leave "
                     "--cuda-graph out");
  }
}

}  // namespace stepcast::runtime::cuda
