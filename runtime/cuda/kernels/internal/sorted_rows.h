#pragma once
#include <cstdint>
#include <functional>

#include "core/host_device.h"
#include "runtime/cuda/kernels/matrix_view.h"
#include "runtime/optimizer_settings.h"

namespace stepcast::runtime::cuda::kernels::internal {

// Scatter of gradient rows into table rows, one update per distinct row, without atomics: (row,
// slot) pairs are sorted by row; groups of threads each walk a tile of consecutive pairs and update
// the rows whose run lies inside the tile; a run that crosses tiles leaves one partial sum per
// tile, which the tile where the run begins adds up.

/// Table as the update sees it.
struct SortedTable {
  void* weights = nullptr;
  Index stride = 0;
  Index dim = 0;
  const void* gradient = nullptr;  ///< row s - first_slot is that of slot s
  Index gradient_stride = 0;
  const std::int64_t* offsets = nullptr;  ///< of the bags, where their mean divides the gradient
  const float* factors = nullptr;         ///< by bag, or null
  float* first = nullptr;
  float* second = nullptr;
  Index first_row = 0;   ///< of the table among the rows of all tables
  Index first_slot = 0;  ///< of its bags among all slots
};

constexpr int kSortedTables = 32;
struct SortedTables {
  SortedTable at[kSortedTables];
  int count = 0;
};

/// Effect of a row's summed gradient on it.
struct RowRule {
  bool accumulate = false;  ///< weights += gradient; else the optimizer's update
  OptimizerKind kind = OptimizerKind::kSgd;
  float learning_rate = 0;
  float epsilon = 0;
  AdamFactors adam{};
  const AdamFactors* adam_on_device = nullptr;
};

/// Pairs [begin, end) of a tile.
struct Tile {
  Index begin;
  Index end;
};
STEPCAST_HOST_DEVICE inline Tile tile_at(Index tile, int size, Index pairs) {
  const Index begin = tile * size;
  return {begin, begin + size < pairs ? begin + size : pairs};
}

/// Pairs per tile: few enough that there are tiles for a whole device, at most 32. A power of two.
STEPCAST_HOST_DEVICE inline int tile_size(Index pairs) {
  int size = 4;
  while (size < 32 && pairs / (2 * size) >= 4096) {
    size *= 2;
  }
  return size;
}

/// Destination of the sum over a run's part in a tile.
enum class RunEnd : std::uint8_t {
  kWhole,  ///< the run lies inside the tile: update the row
  kLeft,   ///< it began in an earlier tile: the tile's left partial sum
  kRight,  ///< it begins here and goes on: the tile's right partial sum
};
STEPCAST_HOST_DEVICE inline RunEnd run_end(bool begins_before, bool goes_on) {
  return begins_before ? RunEnd::kLeft : goes_on ? RunEnd::kRight : RunEnd::kWhole;
}

/// Position of a tile's partial sum in the array of [2 * tiles] rows: left, right.
STEPCAST_HOST_DEVICE inline Index partial_row(Index tile, RunEnd end) {
  return 2 * tile + (end == RunEnd::kRight ? 1 : 0);
}

using Key = std::uint32_t;  ///< a row, counted over all tables of a call

/// First position in sorted keys [from, to) whose key exceeds `key`.
STEPCAST_HOST_DEVICE inline Index upper_bound(const Key* keys, Index from, Index to, Key key) {
  while (from < to) {
    const Index middle = from + (to - from) / 2;
    if (keys[middle] > key) {
      to = middle;
    } else {
      from = middle + 1;
    }
  }
  return from;
}

/// Tiles a long run covers beyond which a whole block adds up its partial sums.
constexpr Index kLongRunTiles = 32;

/// All pairs, for `fill` to write: keys[i] = first_row of the table + row, slots[i]; key = `pad`
/// where there is no lookup.
struct PairArrays {
  Key* keys = nullptr;
  std::uint32_t* slots = nullptr;
  Key pad = 0;
};

std::size_t sorted_rows_workspace(Index pairs, Index rows, Index dim);

/// Sorts what `fill` wrote and updates. `rows`: of all tables together; `dim`: the widest. All
/// gradients have one format, all weights one format.
void update_sorted_rows(const SortedTables& tables, Format gradient, Format weights, Index pairs,
                        Index rows, Index dim, bool packed, const RowRule& rule,
                        const std::function<void(const PairArrays&)>& fill, Workspace workspace,
                        cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels::internal
