#include "runtime/cuda/kernels/optimizer.h"

#include "runtime/cuda/kernels/internal/element.cuh"
#include "runtime/cuda/kernels/internal/reduce.cuh"

namespace stepcast::runtime::cuda::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kParametersPerLaunch = 40;
constexpr int kPack = 4;

struct Task {
  const void* gradient;
  void* weights;
  float* master;
  float* first;
  float* second;
  Index elements;
  Index columns;
  Format gradient_format;
  Format weight_format;
};
/// A kernel argument; block b works on task t where first_block[t] <= b < first_block[t + 1].
struct Tasks {
  Task at[kParametersPerLaunch];
  unsigned first_block[kParametersPerLaunch + 1];
  int count;
};
static_assert(sizeof(Tasks) < 4096 - 128, "kernel arguments are limited to 4 KiB");

struct Rule {
  OptimizerKind kind;
  float learning_rate;
  float epsilon;
  AdamFactors adam;
  const AdamFactors* adam_on_device;
};

__device__ inline int task_of(const Tasks& tasks, unsigned block) {
  int low = 0;
  int high = tasks.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (tasks.first_block[middle] <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

template <int N>
__device__ inline void load_weights(const Task& t, Index i, float (&w)[N]) {
  if (t.master != nullptr) {
    internal::load_pack(t.master + i, w);
  } else {
    internal::load<internal::Any, N>(t.weights, t.weight_format, i, w);
  }
}
template <int N>
__device__ inline void store_weights(const Task& t, Index i, const float (&w)[N]) {
  if (t.master != nullptr) {
    internal::store_pack(t.master + i, w);
  }
  internal::store<internal::Any, N>(t.weights, t.weight_format, i, w);
}

/// N elements from `i` on.
template <int N>
__device__ void update(const Rule& rule, const AdamFactors& f, const Task& t, Index i,
                       const float (&g)[N]) {
  float w[N];
  load_weights(t, i, w);
  if (rule.kind == OptimizerKind::kAdam) {
    float m[N];
    float v[N];
    internal::load_pack(t.first + i, m);
    internal::load_pack(t.second + i, v);
    for (int k = 0; k < N; ++k) {
      m[k] = f.beta1 * m[k] + (1.0F - f.beta1) * g[k];
      v[k] = f.beta2 * v[k] + (1.0F - f.beta2) * g[k] * g[k];
      w[k] -= f.rate * m[k] / (sqrtf(v[k]) * f.second_scale + f.epsilon);
    }
    internal::store_pack(t.first + i, m);
    internal::store_pack(t.second + i, v);
  } else if (rule.kind == OptimizerKind::kAdagrad) {
    float s[N];
    internal::load_pack(t.first + i, s);
    for (int k = 0; k < N; ++k) {
      s[k] += g[k] * g[k];
      w[k] -= rule.learning_rate * g[k] / (sqrtf(s[k]) + rule.epsilon);
    }
    internal::store_pack(t.first + i, s);
  } else {
    for (int k = 0; k < N; ++k) {
      w[k] -= rule.learning_rate * g[k];
    }
  }
  store_weights(t, i, w);
}

constexpr Index kElementsPerBlock = Index{kThreads} * kPack * 4;

/// Elementwise rules.
template <int N>
__global__ void __launch_bounds__(kThreads) element_kernel(Tasks tasks, Rule rule) {
  const int which = task_of(tasks, blockIdx.x);
  const Task& t = tasks.at[which];
  const AdamFactors f = rule.adam_on_device != nullptr ? *rule.adam_on_device : rule.adam;
  const Index begin = static_cast<Index>(blockIdx.x - tasks.first_block[which]) * kElementsPerBlock;
  const Index limit =
      begin + kElementsPerBlock < t.elements ? begin + kElementsPerBlock : t.elements;
  for (Index i = begin + static_cast<Index>(threadIdx.x) * N; i < limit; i += kThreads * N) {
    float g[N];
    internal::load<internal::Any, N>(t.gradient, t.gradient_format, i, g);
    update(rule, f, t, i, g);
  }
}

constexpr int kRowsPerBlock = kThreads / 32;

/// Rules that look at a whole row: one warp a row. Row-wise Adagrad sums its squares; lazy Adam
/// leaves out a row of zeros.
template <int N>
__global__ void __launch_bounds__(kThreads) row_kernel(Tasks tasks, Rule rule) {
  const int which = task_of(tasks, blockIdx.x);
  const Task& t = tasks.at[which];
  const Index row =
      static_cast<Index>(blockIdx.x - tasks.first_block[which]) * kRowsPerBlock + threadIdx.x / 32;
  const Index begin = row * t.columns;
  if (begin >= t.elements) {
    return;  // the whole warp
  }
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const bool adagrad = rule.kind == OptimizerKind::kRowwiseAdagrad;
  const float before = adagrad && lane == 0 ? t.first[row] : 0.0F;  // whose lane writes it too
  float squares = 0;
  for (Index j = lane * N; j < t.columns; j += 32 * N) {
    float g[N];
    internal::load<internal::Any, N>(t.gradient, t.gradient_format, begin + j, g);
    for (int k = 0; k < N; ++k) {
      squares += adagrad ? g[k] * g[k] : (g[k] != 0 ? 1.0F : 0.0F);
    }
  }
  squares = internal::warp_reduce(squares, internal::Add{});
  if (!adagrad && squares == 0) {
    return;
  }
  Rule applied = rule;
  if (adagrad) {
    const float state =
        __shfl_sync(0xFFFFFFFFU, before, 0) + squares / static_cast<float>(t.columns);
    if (lane == 0) {
      t.first[row] = state;
    }
    applied.kind = OptimizerKind::kSgd;
    applied.learning_rate = rule.learning_rate / (sqrtf(state) + rule.epsilon);
  }
  const AdamFactors f = rule.adam_on_device != nullptr ? *rule.adam_on_device : rule.adam;
  for (Index j = lane * N; j < t.columns; j += 32 * N) {
    float g[N];
    internal::load<internal::Any, N>(t.gradient, t.gradient_format, begin + j, g);
    update(applied, f, t, begin + j, g);
  }
}

bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

}  // namespace

void optimizer_update(const OptimizerSettings& settings, const Parameter* parameters, Index count,
                      bool lazy, const AdamFactors* factors, cudaStream_t stream) {
  const Rule rule{settings.kind, settings.learning_rate, settings.epsilon, adam_factors(settings),
                  factors};
  const bool by_row = settings.kind == OptimizerKind::kRowwiseAdagrad ||
                      (settings.kind == OptimizerKind::kAdam && lazy);
  for (Index next = 0; next < count;) {
    Tasks tasks{};
    Index blocks = 0;
    bool packed = true;
    for (; next < count && tasks.count < kParametersPerLaunch; ++next) {
      const Parameter& p = parameters[next];
      const Index elements = p.weights.elements();
      internal::require(
          p.weights.contiguous() && p.gradient.contiguous() && p.gradient.elements() == elements,
          "a parameter and its gradient are contiguous and of one shape");
      internal::require(element_bytes(p.gradient.format) > 0 && element_bytes(p.weights.format) > 0,
                        "a device matrix is fp32, tf32, bf16 or fp16");
      const Index wanted = by_row ? internal::ceil_div(p.weights.rows, Index{kRowsPerBlock})
                                  : internal::ceil_div(elements, kElementsPerBlock);
      constexpr Index kMostBlocks = (Index{1} << 31) - 1;
      if (elements == 0) {
        continue;
      }
      internal::require(wanted <= kMostBlocks, "a parameter of fewer than 2^31 blocks");
      if (blocks + wanted > kMostBlocks) {
        break;
      }
      tasks.first_block[tasks.count] = static_cast<unsigned>(blocks);
      tasks.at[tasks.count++] = {p.gradient.data,   p.weights.data,    p.master,
                                 p.first,           p.second,          elements,
                                 p.weights.columns, p.gradient.format, p.weights.format};
      blocks += wanted;
      packed = packed && (by_row ? p.weights.columns : elements) % kPack == 0 &&
               aligned(p.gradient.data) && aligned(p.weights.data) && aligned(p.master) &&
               aligned(p.first) && aligned(p.second);
    }
    tasks.first_block[tasks.count] = static_cast<unsigned>(blocks);
    if (blocks == 0) {
      continue;
    }
    const auto grid = static_cast<unsigned>(blocks);
    if (by_row) {
      internal::launch("optimizer_update", packed ? row_kernel<kPack> : row_kernel<1>,
                       {grid, kThreads}, stream, tasks, rule);
    } else if (packed) {
      internal::launch("optimizer_update", element_kernel<kPack>, {grid, kThreads}, stream, tasks,
                       rule);
    } else {
      internal::launch("optimizer_update", element_kernel<1>, {grid, kThreads}, stream, tasks,
                       rule);
    }
  }
}

}  // namespace stepcast::runtime::cuda::kernels
