#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.h"
#include "runtime/cpu/kernels/embedding.h"
#include "runtime/cpu/kernels/internal/radix_sort.h"
#include "runtime/cpu/kernels/internal/simd.h"

namespace stepcast::runtime::kernels {

/// Lookups sorted by row: words of (row << 32 | bag), and room for one row's gradient.
struct EmbeddingRuns {
  const std::uint64_t* words;
  Index count;
  float* gradient;

  static EmbeddingRuns sorted(const Bags& bags, Index rows, EmbeddingWorkspace& workspace) {
    std::uint64_t* words = workspace.keys_.data();
    for (Index bag = 0; bag < bags.count; ++bag) {
      for (Index i = bags.begin(bag); i < bags.end(bag); ++i) {
        *words++ =
            static_cast<std::uint64_t>(bags.indices[i]) << 32U | static_cast<std::uint64_t>(bag);
      }
    }
    const int bits = std::bit_width(static_cast<std::uint64_t>(std::max<Index>(rows - 1, 0)));
    const Index count = bags.lookups();
    return {internal::radix_sort(workspace.keys_.data(), workspace.sorted_.data(), count, bits),
            count, workspace.gradient_.data()};
  }
  [[nodiscard]] Index row(Index i) const { return static_cast<Index>(words[i] >> 32U); }
  [[nodiscard]] Index bag(Index i) const { return static_cast<Index>(words[i] & 0xFFFFFFFFU); }
};

void EmbeddingWorkspace::reserve(Index lookups, Index dim) {
  const auto words = static_cast<std::size_t>(lookups);
  if (keys_.size() < words) {
    keys_.resize(words);
    sorted_.resize(words);
  }
  gradient_.resize(std::max(gradient_.size(), static_cast<std::size_t>(dim)));
}

namespace {

constexpr Index kPrefetchLookups = 8;

struct SgdRow {
  float learning_rate;
  STEPCAST_INLINE void prefetch(Index /*row*/, Index /*dim*/) const {}
  STEPCAST_INLINE void update(Index /*row*/, const float* gradient, Index dim,
                              float* weights) const {
#pragma omp simd
    for (Index j = 0; j < dim; ++j) {
      weights[j] -= learning_rate * gradient[j];
    }
  }
};

struct RowwiseAdagradRow {
  float learning_rate;
  float epsilon;
  float* squares;  // [rows]
  STEPCAST_INLINE void prefetch(Index row, Index /*dim*/) const {
    __builtin_prefetch(squares + row, 1, 3);
  }
  STEPCAST_INLINE void update(Index row, const float* gradient, Index dim, float* weights) const {
    squares[row] += internal::dot_of(gradient, gradient, dim) / static_cast<float>(dim);
    const float rate = learning_rate / (std::sqrt(squares[row]) + epsilon);
#pragma omp simd
    for (Index j = 0; j < dim; ++j) {
      weights[j] -= rate * gradient[j];
    }
  }
};

struct AdagradRow {
  float learning_rate;
  float epsilon;
  float* squares;  // [rows, dim]
  STEPCAST_INLINE void prefetch(Index row, Index dim) const {
    internal::prefetch_row(squares + row * dim, dim);
  }
  STEPCAST_INLINE void update(Index row, const float* gradient, Index dim, float* weights) const {
    float* state = squares + row * dim;
#pragma omp simd
    for (Index j = 0; j < dim; ++j) {
      state[j] += gradient[j] * gradient[j];
      weights[j] -= learning_rate * gradient[j] / (std::sqrt(state[j]) + epsilon);
    }
  }
};

struct AdamRow {
  AdamFactors factors;
  float* first;   // [rows, dim]
  float* second;  // [rows, dim]
  STEPCAST_INLINE void prefetch(Index row, Index dim) const {
    internal::prefetch_row(first + row * dim, dim);
    internal::prefetch_row(second + row * dim, dim);
  }
  STEPCAST_INLINE void update(Index row, const float* gradient, Index dim, float* weights) const {
    float* m = first + row * dim;
    float* v = second + row * dim;
    const AdamFactors f = factors;
#pragma omp simd
    for (Index j = 0; j < dim; ++j) {
      m[j] = f.beta1 * m[j] + (1.0F - f.beta1) * gradient[j];
      v[j] = f.beta2 * v[j] + (1.0F - f.beta2) * gradient[j] * gradient[j];
      weights[j] -= f.rate * m[j] / (std::sqrt(v[j]) * f.second_scale + f.epsilon);
    }
  }
};

struct BackwardTask {
  EmbeddingRuns runs;
  ConstMatrixView grad;
  Bags bags;
  Pooling pooling;
  MatrixView weights;
};

STEPCAST_INLINE float bag_factor(const BackwardTask& task, Index bag) {
  if (task.pooling == Pooling::kSum) {
    return 1.0F;
  }
  const Index size = task.bags.end(bag) - task.bags.begin(bag);
  return 1.0F / static_cast<float>(size);
}

template <class Row>
STEPCAST_INLINE void prefetch_ahead(const BackwardTask& task, const Row& rule, Index ahead) {
  if (ahead >= task.runs.count) {
    return;
  }
  internal::prefetch_row(task.grad.row(task.runs.bag(ahead)), task.grad.columns);
  if (task.runs.row(ahead) != task.runs.row(ahead - 1)) {
    internal::prefetch_row(task.weights.row(task.runs.row(ahead)), task.grad.columns);
    rule.prefetch(task.runs.row(ahead), task.grad.columns);
  }
}

/// One pass over the sorted lookups; each run of equal rows is summed, then updated once.
template <class Row>
STEPCAST_INLINE void update_runs(const BackwardTask& task, const Row& rule) {
  const EmbeddingRuns& runs = task.runs;
  const Index dim = task.grad.columns;
  for (Index i = 0; i < runs.count;) {
    const Index row = runs.row(i);
    float* sum = runs.gradient;
    const float* first = task.grad.row(runs.bag(i));
    const float first_factor = bag_factor(task, runs.bag(i));
#pragma omp simd
    for (Index j = 0; j < dim; ++j) {
      sum[j] = first_factor * first[j];
    }
    prefetch_ahead(task, rule, i + kPrefetchLookups);
    for (++i; i < runs.count && runs.row(i) == row; ++i) {
      prefetch_ahead(task, rule, i + kPrefetchLookups);
      const float* gradient = task.grad.row(runs.bag(i));
      const float factor = bag_factor(task, runs.bag(i));
#pragma omp simd
      for (Index j = 0; j < dim; ++j) {
        sum[j] += factor * gradient[j];
      }
    }
    rule.update(row, sum, dim, task.weights.row(row));
  }
}

STEPCAST_MULTIVERSION void update_sgd(const BackwardTask& task, const SgdRow& rule) {
  update_runs(task, rule);
}
STEPCAST_MULTIVERSION void update_rowwise(const BackwardTask& task, const RowwiseAdagradRow& rule) {
  update_runs(task, rule);
}
STEPCAST_MULTIVERSION void update_adagrad(const BackwardTask& task, const AdagradRow& rule) {
  update_runs(task, rule);
}
STEPCAST_MULTIVERSION void update_adam(const BackwardTask& task, const AdamRow& rule) {
  update_runs(task, rule);
}

}  // namespace

void embedding_bag_backward(ConstMatrixView grad, const Bags& bags, Pooling pooling,
                            const OptimizerSettings& settings, MatrixView weights,
                            EmbeddingState state, EmbeddingWorkspace& workspace) {
  constexpr Index kLimit = Index{1} << 32;
  STEPCAST_CHECK(grad.rows == bags.count && grad.columns == weights.columns,
                 "gradient {}x{} of {} bags of width {}", grad.rows, grad.columns, bags.count,
                 weights.columns);
  STEPCAST_CHECK(weights.rows <= kLimit && bags.count < kLimit && bags.lookups() < kLimit,
                 "{} rows and {} bags: at most 2^32", weights.rows, bags.count);
  if (bags.lookups() == 0) {
    return;
  }
  workspace.reserve(bags.lookups(), grad.columns);
  const BackwardTask task{EmbeddingRuns::sorted(bags, weights.rows, workspace), grad, bags, pooling,
                          weights};
  switch (settings.kind) {
    case OptimizerKind::kSgd:
      return update_sgd(task, {settings.learning_rate});
    case OptimizerKind::kRowwiseAdagrad:
      return update_rowwise(task, {settings.learning_rate, settings.epsilon, state.first});
    case OptimizerKind::kAdagrad:
      return update_adagrad(task, {settings.learning_rate, settings.epsilon, state.first});
    case OptimizerKind::kAdam:
      return update_adam(task, {adam_factors(settings), state.first, state.second});
    case OptimizerKind::kMuon:  // of matrices alone
      return;
  }
}

}  // namespace stepcast::runtime::kernels
