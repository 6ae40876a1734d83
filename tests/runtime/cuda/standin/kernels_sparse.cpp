#include "runtime/cpu/kernels/elementwise.h"
#include "runtime/cpu/kernels/embedding.h"
#include "runtime/cpu/kernels/index_exchange.h"
#include "runtime/cuda/kernels/embedding.h"
#include "runtime/cuda/kernels/index_exchange.h"
#include "runtime/cuda/kernels/sequence_pool.h"
#include "tests/runtime/cuda/standin/device.h"
#include "tests/runtime/cuda/standin/matrix.h"

// The device kernels of embeddings and index lists, by the CPU backend's or by plain loops.
namespace stepcast::runtime::cuda::kernels {

namespace host = runtime::kernels;
using standin::enqueue;
using standin::Widened;
using standin::Written;

namespace {

host::Bags on_host(const Bags& b) { return {b.indices, b.offsets, b.count}; }
host::Pooling on_host(Pooling p) {
  return p == Pooling::kMean ? host::Pooling::kMean : host::Pooling::kSum;
}
Index owner_of(const RowSplit& split, std::int64_t row) {
  if (split.boundaries == nullptr) {
    return row % split.parts;
  }
  Index part = 0;
  while (row >= split.boundaries[part + 1]) {
    ++part;
  }
  return part;
}

/// The pooled gradient times the bags' factors.
Widened scaled_gradient(const EmbeddingTable& t) {
  Widened gradient(t.pooled);
  if (t.factors != nullptr) {
    host::scale_rows(gradient.view(), t.factors);
  }
  return gradient;
}

}  // namespace

void embedding_forward(const EmbeddingTable* tables, Index count, cudaStream_t) {
  for (Index i = 0; i < count; ++i) {
    enqueue([t = tables[i]] {
      Widened weights(t.weights);
      Written out(t.pooled);
      host::embedding_bag_forward(weights.view(), on_host(t.bags), on_host(t.pooling), out.view());
      if (t.factors != nullptr) {
        host::scale_rows(out.view(), t.factors);
      }
    });
  }
}
std::size_t embedding_backward_workspace(const EmbeddingTable*, Index) { return 0; }
void embedding_backward(const EmbeddingTable* tables, Index count,
                        const OptimizerSettings& settings, const AdamFactors*, Workspace,
                        cudaStream_t) {
  for (Index i = 0; i < count; ++i) {
    enqueue([t = tables[i], settings] {
      Widened gradient = scaled_gradient(t);
      Written weights(t.weights);
      host::EmbeddingWorkspace workspace;
      host::embedding_bag_backward(gradient.view(), on_host(t.bags), on_host(t.pooling), settings,
                                   weights.view(), {t.first, t.second}, workspace);
    });
  }
}
void embedding_gradient(const EmbeddingTable* tables, Index count, Workspace, cudaStream_t) {
  for (Index i = 0; i < count; ++i) {
    enqueue([t = tables[i]] {
      Widened gradient = scaled_gradient(t);
      Written weights(t.weights);
      host::embedding_bag_gradient(gradient.view(), on_host(t.bags), on_host(t.pooling),
                                   weights.view());
    });
  }
}

void count_by_owner(const Bags& bags, const RowSplit& split, std::int32_t* lengths, cudaStream_t) {
  enqueue([=] {
    std::fill_n(lengths, split.parts * bags.count, 0);
    for (Index b = 0; b < bags.count; ++b) {
      for (Index i = bags.offsets[b]; i < bags.offsets[b + 1]; ++i) {
        ++lengths[owner_of(split, bags.indices[i]) * bags.count + b];
      }
    }
  });
}
void fill_by_owner(const Bags& bags, const RowSplit& split, std::int64_t* cursors,
                   std::int64_t* out, cudaStream_t) {
  enqueue([=] {
    for (Index b = 0; b < bags.count; ++b) {
      for (Index i = bags.offsets[b]; i < bags.offsets[b + 1]; ++i) {
        const std::int64_t row = bags.indices[i];
        const Index part = owner_of(split, row);
        out[cursors[part * bags.count + b]++] =
            split.boundaries == nullptr ? row / split.parts : row - split.boundaries[part];
      }
    }
  });
}
void bag_lengths(const Bags& bags, std::int32_t* lengths, cudaStream_t) {
  enqueue([=] {
    for (Index b = 0; b < bags.count; ++b) {
      lengths[b] = static_cast<std::int32_t>(bags.offsets[b + 1] - bags.offsets[b]);
    }
  });
}
void mean_factors(const std::int32_t* lengths, Index count, float* factors, cudaStream_t) {
  enqueue([=] {
    for (Index i = 0; i < count; ++i) {
      factors[i] = 1.0F / static_cast<float>(std::max(1, lengths[i]));
    }
  });
}
void mean_factors(const Bags& bags, float* factors, cudaStream_t) {
  enqueue([=] { host::mean_factors(on_host(bags), factors); });
}
void first_bad_index(const Bags& bags, Index rows, std::int64_t* bad, cudaStream_t) {
  enqueue([=] {
    if (const auto found = host::first_bad_index(on_host(bags), rows)) {
      *bad = std::min<std::int64_t>(*bad, *found);
    }
  });
}
void copy_ids(const Bags& bags, std::int64_t* out, cudaStream_t) {
  enqueue([=] {
    std::copy(bags.indices + bags.offsets[0], bags.indices + bags.offsets[bags.count], out);
  });
}
std::size_t lengths_to_offsets_workspace(Index) { return 0; }
void lengths_to_offsets(const std::int32_t* lengths, Index count, std::int64_t base,
                        std::int64_t* offsets, Workspace, cudaStream_t) {
  enqueue([=] {
    offsets[0] = base;
    for (Index i = 0; i < count; ++i) {
      offsets[i + 1] = offsets[i] + lengths[i];
    }
  });
}
void segment_sums(const std::int32_t* lengths, const std::int64_t* first, Index segments,
                  Index count, std::int64_t* sums, cudaStream_t) {
  enqueue([=] {
    for (Index s = 0; s < segments; ++s) {
      sums[s] = 0;
      for (Index i = 0; i < count; ++i) {
        sums[s] += lengths[first[s] + i];
      }
    }
  });
}

void sequence_mean_forward(ConstMatrixView x, const std::int64_t* offsets,
                           const std::int64_t* size_offsets, bool accumulate, MatrixView out,
                           cudaStream_t) {
  enqueue([=] {
    Widened rows(x);
    Written result(out);
    const std::int64_t* sizes = size_offsets == nullptr ? offsets : size_offsets;
    for (Index b = 0; b < out.rows; ++b) {
      const float factor = 1.0F / static_cast<float>(std::max<Index>(1, sizes[b + 1] - sizes[b]));
      for (Index j = 0; j < out.columns; ++j) {
        float sum = accumulate ? result.view().row(b)[j] : 0;
        for (Index i = offsets[b]; i < offsets[b + 1]; ++i) {
          sum += factor * rows.view().row(i)[j];
        }
        result.view().row(b)[j] = sum;
      }
    }
  });
}
void sequence_mean_backward(ConstMatrixView d_out, const std::int64_t* offsets,
                            const std::int64_t* size_offsets, MatrixView dx, cudaStream_t) {
  enqueue([=] {
    Widened d(d_out);
    Written result(dx);
    const std::int64_t* sizes = size_offsets == nullptr ? offsets : size_offsets;
    for (Index b = 0; b < d_out.rows; ++b) {
      const float factor = 1.0F / static_cast<float>(std::max<Index>(1, sizes[b + 1] - sizes[b]));
      for (Index i = offsets[b]; i < offsets[b + 1]; ++i) {
        for (Index j = 0; j < d_out.columns; ++j) {
          result.view().row(i)[j] = factor * d.view().row(b)[j];
        }
      }
    }
  });
}

}  // namespace stepcast::runtime::cuda::kernels
