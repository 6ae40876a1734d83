#include "runtime/cuda/fused_attention.h"

#include <algorithm>

#include "core/error.h"

namespace stepcast::runtime::cuda {
namespace {

std::string text_of(const AttentionProblem& p) {
  const kernels::AttentionShape& s = p.shape;
  return fmt::format("attention {} {} x {} heads ({} of keys) x {} x {} x {}{} in {}",
                     p.backward ? "backward" : "forward", s.batch, s.heads, s.kv_heads,
                     s.query_length, s.kv_length, s.head_dim, s.causal ? ", causal," : "",
                     name_of(p.format));
}

}  // namespace

void FusedAttention::prepare(const AttentionProblem& problem) { choice(problem); }

void FusedAttention::prepare(std::span<const AttentionProblem> problems) {
  if (wanted_ != AttentionKernels::kOwn && !problems.empty()) {
    open_library();
    if (cudnn_ != nullptr) {
      cudnn_->plan_all(problems);
    }
  }
  for (const AttentionProblem& p : problems) {
    choice(p);
  }
}

void FusedAttention::open_library() {
  if (cudnn_ == nullptr && missing_.empty()) {
    const auto [library, missing] = CudnnAttention::open();
    cudnn_ = library;
    missing_ = missing;
  }
}

/// Where in `choices_` a problem's is, made now where there is none.
std::size_t FusedAttention::choice(const AttentionProblem& problem) {
  const auto known = std::find_if(choices_.begin(), choices_.end(),
                                  [&](const Choice& c) { return c.problem == problem; });
  if (known != choices_.end()) {
    return static_cast<std::size_t>(known - choices_.begin());
  }
  Choice made{problem, false, {}, false};
  if (wanted_ != AttentionKernels::kOwn) {
    open_library();
    made.why_not = cudnn_ == nullptr ? missing_ : cudnn_->plan(problem);
    made.cudnn = made.why_not.empty();
    if (wanted_ == AttentionKernels::kCudnn && cudnn_ == nullptr) {
      throw EnvironmentError(
          fmt::format("--attention cudnn: {}; or use --attention auto", missing_));
    }
    if (wanted_ == AttentionKernels::kCudnn && !made.cudnn) {
      throw InputError("--attention",
                       fmt::format("{} has no plan for {}: {}; use auto", cudnn_->version(),
                                   text_of(problem), made.why_not));
    }
  }
  choices_.push_back(std::move(made));
  return choices_.size() - 1;
}

std::size_t FusedAttention::workspace_bytes(const AttentionProblem& problem) {
  const std::size_t own =
      problem.backward ? kernels::attention_backward_workspace(problem.shape) : 0;
  return choices_[choice(problem)].cudnn ? std::max(own, cudnn_->workspace_bytes(problem)) : own;
}

void FusedAttention::run(const AttentionProblem& problem, const AttentionTensors& t,
                         kernels::Workspace workspace, cudaStream_t stream) {
  last_ = choice(problem);
  Choice& chosen = choices_[last_];
  if (chosen.cudnn) {
    try {
      cudnn_->run(problem, t, workspace, stream);
      chosen.ran = true;
      return;
    } catch (const RunError& e) {
      if (chosen.ran || wanted_ == AttentionKernels::kCudnn) {
        throw;
      }
      chosen.cudnn = false;
      chosen.why_not = e.what();
    }
  }
  if (problem.backward) {
    kernels::attention_backward(problem.shape,
                                {t.q, t.k, t.v, t.out, t.d_out, t.log_sum_exp, t.d_q, t.d_k, t.d_v},
                                workspace, stream);
  } else {
    kernels::attention_forward(problem.shape, t.q, t.k, t.v, t.out, t.log_sum_exp, stream);
  }
}

KernelUse FusedAttention::last() const {
  return choices_.empty() ? KernelUse{} : use_of({&choices_[last_], 1});
}

KernelUse FusedAttention::use_of(std::span<const Choice> choices) const {
  KernelUse use;
  bool own = false;
  bool cudnn = false;
  for (const Choice& c : choices) {
    (c.cudnn ? cudnn : own) = true;
    if (use.reason.empty() && !c.why_not.empty()) {
      use.reason = fmt::format("{}: {}", text_of(c.problem), c.why_not);
    }
  }
  if (cudnn) {
    use.kernels = own ? cudnn_->version() + " and own" : cudnn_->version();
  } else if (own) {
    use.kernels = "own";
  }
  if (own && use.reason.empty()) {
    use.reason = "--attention own";
  }
  return use;
}

}  // namespace stepcast::runtime::cuda
