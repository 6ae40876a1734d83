#include "runtime/cuda/cudnn_attention.h"

#include <cuda_runtime_api.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.h"
#include "runtime/cuda/cudnn_graph.h"

namespace stepcast::runtime::cuda {
namespace {

void require(cudaError_t code, const char* call) {
  if (code != cudaSuccess) {
    throw RunError(fmt::format("{}: {}", call, cudaGetErrorString(code)));
  }
}

int current_device() {
  int device = 0;
  require(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

constexpr std::size_t kAlignment = 256;

std::string text_of(const AttentionProblem& p) {
  const AttentionShape& s = p.shape;
  return fmt::format("attention {} {} x {} heads ({} of keys) x {} x {} x {}{} in {}",
                     p.backward ? "backward" : "forward", s.batch, s.heads, s.kv_heads,
                     s.query_length, s.kv_length, s.head_dim, s.causal ? ", causal," : "",
                     name_of(p.format));
}

}  // namespace

struct CudnnAttention::Impl {
  struct Planned {
    CudnnGraph graph;
    CudnnDescriptor configuration, plan;
    std::size_t of_plan = 0;  ///< bytes of workspace, rounded up: scratch tensors stand behind
    std::size_t of_scratch = 0;
  };

  /// Result of asking for a problem on a device.
  struct Answer {
    AttentionProblem problem;
    int device = 0;
    std::string why_not;
    std::unique_ptr<const Planned> planned;
  };

  explicit Impl(const CudnnFunctions& f) : cudnn(f), handle(handle_of(0)) {
    const std::size_t v = cudnn.version();
    version = fmt::format("cudnn {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// One a thread that plans, made when it is first asked for and kept: plans refer to it.
  [[nodiscard]] cudnnHandle_t handle_of(std::size_t thread) {
    const std::lock_guard lock(mutex);
    while (handles.size() <= thread) {
      check(cudnn, cudnn.create(&handles.emplace_back()), "cudnnCreate");
    }
    return handles[thread];
  }
  /// Null where nobody has asked.
  [[nodiscard]] const Answer* known(const AttentionProblem& problem) const {
    const int device = current_device();
    const std::lock_guard lock(mutex);
    const auto found = std::find_if(answers.begin(), answers.end(), [&](const Answer& a) {
      return a.device == device && a.problem == problem;
    });
    return found != answers.end() ? &*found : nullptr;
  }
  [[nodiscard]] const Planned& of(const AttentionProblem& problem) const {
    const Answer* answer = known(problem);
    STEPCAST_CHECK(answer != nullptr && answer->planned != nullptr,
                   "attention that cuDNN has not planned");
    return *answer->planned;
  }
  /// The first configuration of the graph that compiles; null and why, where none does.
  static std::unique_ptr<const Planned> planned(const CudnnTarget& target,
                                                const AttentionProblem& problem, CudnnGraph graph,
                                                std::string& why);
  [[nodiscard]] Answer ask(const AttentionProblem& problem, cudnnHandle_t by) const;

  const CudnnFunctions cudnn;
  mutable std::mutex mutex;
  std::vector<cudnnHandle_t> handles;
  const cudnnHandle_t handle;  ///< of the thread that runs; others plan with their own
  std::string version;
  std::list<Answer> answers;  ///< stay where they are
};

CudnnAttention::CudnnAttention(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudnnAttention::~CudnnAttention() = default;

CudnnAttention& CudnnAttention::open() {
  static std::mutex one_at_a_time;
  static CudnnAttention* opened = nullptr;  // kept to the end: plans outlive whoever asked for them
  const std::lock_guard lock(one_at_a_time);
  if (opened != nullptr) {
    return *opened;
  }
  std::string missing;
  const auto functions = cudnn_functions(missing);
  if (!functions) {
    throw without_cudnn(missing);
  }
  try {
    opened = new CudnnAttention(std::make_unique<Impl>(*functions));
  } catch (const CudnnRejection& e) {
    throw without_cudnn(e.what());
  }
  return *opened;
}

const std::string& CudnnAttention::version() const { return impl_->version; }

std::unique_ptr<const CudnnAttention::Impl::Planned> CudnnAttention::Impl::planned(
    const CudnnTarget& target, const AttentionProblem& problem, CudnnGraph graph,
    std::string& why) {
  why = "no engine supports the graph";
  for (CudnnDescriptor& configuration : engine_configurations(target, graph.graph)) {
    try {
      CudnnDescriptor plan = execution_plan(target, configuration);
      const auto bytes = plan.number(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
      const std::size_t rounded =
          (static_cast<std::size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
      const std::size_t scratch = scratch_bytes(graph, problem);
      return std::make_unique<const Planned>(
          Planned{std::move(graph), std::move(configuration), std::move(plan), rounded, scratch});
    } catch (const CudnnRejection& e) {
      why = e.what();
    }
  }
  return nullptr;
}

CudnnAttention::Impl::Answer CudnnAttention::Impl::ask(const AttentionProblem& problem,
                                                       cudnnHandle_t by) const {
  Answer answer{problem, current_device(), not_for_cudnn(problem), nullptr};
  if (!answer.why_not.empty()) {
    return answer;
  }
  const CudnnTarget target{cudnn, by, nullptr};
  for (const bool one_op : {true, false}) {
    if (one_op && problem.shape.causal) {
      continue;
    }
    try {
      CudnnGraph graph =
          one_op ? attention_as_one_op(target, problem) : attention_op_by_op(target, problem);
      answer.planned = planned(target, problem, std::move(graph), answer.why_not);
    } catch (const CudnnRejection& e) {
      answer.why_not = e.what();
    }
    if (answer.planned != nullptr) {
      answer.why_not.clear();
      break;
    }
  }
  return answer;
}

std::string CudnnAttention::plan(const AttentionProblem& problem) {
  if (const Impl::Answer* answer = impl_->known(problem); answer != nullptr) {
    return answer->why_not;
  }
  Impl::Answer answer = impl_->ask(problem, impl_->handle);
  const std::lock_guard lock(impl_->mutex);
  return impl_->answers.emplace_back(std::move(answer)).why_not;
}

void CudnnAttention::prepare(std::span<const AttentionProblem> problems, int ranks) {
  plan_all(problems, ranks);
  for (const AttentionProblem& p : problems) {
    if (const std::string why = plan(p); !why.empty()) {
      throw InputError("attention", fmt::format("{} has no plan for {}: {}; use unfused", version(),
                                                text_of(p), why));
    }
  }
}

void CudnnAttention::plan_all(std::span<const AttentionProblem> problems, int ranks) {
  std::vector<const AttentionProblem*> fresh;
  for (const AttentionProblem& p : problems) {
    const auto same = [&](const AttentionProblem* other) { return *other == p; };
    if (impl_->known(p) == nullptr && std::none_of(fresh.begin(), fresh.end(), same)) {
      fresh.push_back(&p);
    }
  }
  const int device = current_device();
  std::atomic<std::size_t> next = 0;
  const auto work = [&](std::size_t thread) {
    try {
      require(cudaSetDevice(device), "cudaSetDevice");
      const cudnnHandle_t own = impl_->handle_of(thread);
      for (std::size_t i = next++; i < fresh.size(); i = next++) {
        Impl::Answer answer = impl_->ask(*fresh[i], own);
        const std::lock_guard lock(impl_->mutex);
        impl_->answers.push_back(std::move(answer));
      }
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): plan() asks again, and says
    }
  };
  cpu_set_t allowed;
  const int cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  const auto threads = static_cast<std::size_t>(std::max(1, cores / std::max(1, ranks)));
  std::vector<std::thread> others;
  for (std::size_t t = 1; t < std::min(threads, fresh.size()); ++t) {
    others.emplace_back(work, t);
  }
  work(0);
  for (std::thread& t : others) {
    t.join();
  }
}

std::size_t CudnnAttention::workspace_bytes(const AttentionProblem& problem) const {
  const Impl::Planned& planned = impl_->of(problem);
  return planned.of_plan + planned.of_scratch;
}

void CudnnAttention::run(const AttentionProblem& problem, const AttentionTensors& t,
                         kernels::Workspace workspace, cudaStream_t stream) const {
  const Impl::Planned& planned = impl_->of(problem);
  float scale = problem.shape.scale();
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
  } catch (const CudnnRejection& e) {
    throw RunError(e.what());
  }
}

}  // namespace stepcast::runtime::cuda
