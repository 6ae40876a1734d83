#pragma once
#include "runtime/cuda/kernels/matrix_view.h"

namespace stepcast::runtime::cuda::kernels {

/// Arrays that say where copies of routed tokens stand (runtime/expert_plan.h). `bounds` [experts +
/// 1] and `sent` [parts * experts + 1] are device memory.
struct ExpertPlaces {
  Index rows = 0;
  Index per_token = 1;
  Index experts = 1;
  Index parts = 1;
  std::uint64_t first_token = 0;
  std::uint64_t phase = 0;
  const std::uint64_t* bounds = nullptr;  ///< core/graph/expert_points.h
  const std::int64_t* sent = nullptr;     ///< first copy of each [part][expert]
};

/// For each [row][choice], in device memory: the expert, and its copy's place among those sent; -1
/// where the expert has no room.
struct PlacedCopies {
  Index per_token = 1;
  std::int32_t* chosen = nullptr;
  std::int32_t* copy_of = nullptr;
};

/// Every choice by itself: how many tokens before it chose its expert is a closed form of the draw.
/// Bound by integer arithmetic, some 10 instructions a bit of the token's number; writes 8 bytes a
/// choice.
void place_copies(const ExpertPlaces& places, const PlacedCopies& copies, cudaStream_t stream);

/// probabilities = softmax of the rows of logits, fp32; backward: gradient = p * (gradient - sum of
/// p * gradient over the row), in place. At most kMostExperts columns, held in registers by up to
/// 32 lanes a row: each byte is read once and written once, which bounds them.
constexpr Index kMostExperts = 1024;
void route_forward(ConstMatrixView logits, MatrixView probabilities, cudaStream_t stream);
void route_backward(ConstMatrixView probabilities, MatrixView gradient, cudaStream_t stream);

/// copies[copy] = its row. A row is read once and written for each of its copies: bound by
/// (1 + per_token) rows of bytes. Copies and rows have one format here and below.
void dispatch_copies(ConstMatrixView rows, const PlacedCopies& placed, MatrixView copies,
                     cudaStream_t stream);

/// rows[i] = sum over its copies, in the order of its choices, of their expert's probability *
/// copy; without probabilities the plain sum, which is the backward of dispatch_copies. Bound by (1
/// + per_token) rows of bytes; the loads of four copies are in flight at a time.
void combine_copies(ConstMatrixView copies, const PlacedCopies& placed,
                    ConstMatrixView probabilities, MatrixView rows, cudaStream_t stream);

/// d_copies[copy] = its expert's probability * d_rows[i]; d_probabilities[i][expert] = dot of
/// d_rows[i] and what the expert made of the copy, 0 for experts that have none. Bound by
/// (1 + 2 * per_token) rows of bytes, with up to 8 choices a row; more read d_rows again from the
/// cache for each 8.
void combine_copies_backward(ConstMatrixView d_rows, ConstMatrixView made,
                             ConstMatrixView probabilities, const PlacedCopies& placed,
                             MatrixView d_copies, MatrixView d_probabilities, cudaStream_t stream);

/// Blocks of rows between the order [source][local expert] in which they come (`first_come`) and
/// that of the experts, [local expert][source] (`first_sorted`): device memory, sources * local + 1
/// rows each.
struct SortedBlocks {
  Index sources = 1;
  Index local = 1;
  const std::int64_t* first_come = nullptr;
  const std::int64_t* first_sorted = nullptr;
  bool there = true;  ///< from the order of coming to the sorted one
  Index first = 0;    ///< row written first, in the order of `to`
  Index rows = 0;     ///< of all blocks
};

/// to = from, block by block; other rows stay. A row finds its block by bisection. Bound by the
/// bytes of a copy.
void sort_copies(const SortedBlocks& blocks, ConstMatrixView from, MatrixView to,
                 cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels
