#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stepcast {

enum class ScheduleKind : std::uint8_t {
  kGpipe,
  kOneFOneB,
  kZbH1,
  kZbH2,
  kZbV,
  kVHalf,
  kVMin,
  kDualPipeV
};

/// Order in which the virtual stages of a pipeline are placed on its ranks, as layers go.
enum class ChunkPlacement : std::uint8_t {
  kRound,  ///< chunk c of stage i is virtual stage c * stages + i
  kV,      ///< odd chunks run back: the last stage holds two virtual stages in a row
};

/// Passes between the start of a pass on one stage and on the next one it goes to, in a V of two
/// chunks: forward through chunk 0 and chunk 1, backward through chunk 1 and chunk 0. A micro-batch
/// takes 6 passes of a stage; the smaller the sums of two, the fewer are in flight: (forward_0 +
/// backward_0) / 6 of what 1F1B's first stage keeps.
struct VHops {
  std::int32_t forward_0 = 0, forward_1 = 0, backward_1 = 0, backward_0 = 0;
  bool pairs = false;  ///< each forward pass is followed by the backward of another micro-batch
};

/// All that a schedule is: the generator of its passes (workloads/schedule/schedule.h) and the rest
/// of the toolkit read this row and know no schedule by name.
struct ScheduleTraits {
  ScheduleKind kind;
  std::string_view name;
  bool splits_weights;  ///< weight gradients are a pass of their own
  ChunkPlacement placement;
  std::int64_t least_chunks, most_chunks;  ///< virtual stages per stage; 0: no limit
  /// Forwards that a stage of one chunk runs before its first backward, for each stage behind it;
  /// 0: all.
  std::int32_t ahead;
  VHops hops = {};  ///< of kV
};
inline constexpr std::array kSchedules{
    ScheduleTraits{ScheduleKind::kGpipe, "gpipe", false, ChunkPlacement::kRound, 1, 1, 0},
    ScheduleTraits{ScheduleKind::kOneFOneB, "1f1b", false, ChunkPlacement::kRound, 1, 0, 1},
    ScheduleTraits{ScheduleKind::kZbH1, "zb-h1", true, ChunkPlacement::kRound, 1, 1, 1},
    ScheduleTraits{ScheduleKind::kZbH2, "zb-h2", true, ChunkPlacement::kRound, 1, 1, 2},
    ScheduleTraits{ScheduleKind::kZbV, "zb-v", true, ChunkPlacement::kV, 2, 2, 1, {4, 2, 4, 2}},
    ScheduleTraits{ScheduleKind::kVHalf, "v-half", true, ChunkPlacement::kV, 2, 2, 1, {2, 1, 2, 1}},
    ScheduleTraits{ScheduleKind::kVMin, "v-min", true, ChunkPlacement::kV, 2, 2, 1, {1, 1, 1, 1}},
    ScheduleTraits{ScheduleKind::kDualPipeV,
                   "dualpipe-v",
                   true,
                   ChunkPlacement::kV,
                   2,
                   2,
                   1,
                   {3, 3, 3, 3, true}},
};
constexpr const ScheduleTraits& traits_of(ScheduleKind kind) {
  return kSchedules[static_cast<std::size_t>(kind)];
}
constexpr std::string_view name_of(ScheduleKind kind) { return traits_of(kind).name; }
constexpr bool splits_weights(ScheduleKind kind) { return traits_of(kind).splits_weights; }
/// Forward and backward of one chunk in turn, with weight gradients apart or not: its passes cost
/// what those of any schedule do that splits them or not.
constexpr ScheduleKind plain_schedule(bool splits) {
  for (const ScheduleTraits& s : kSchedules) {
    if (s.splits_weights == splits && s.ahead == 1) {
      return s.kind;
    }
  }
  return kSchedules.front().kind;
}
static_assert(plain_schedule(false) == ScheduleKind::kOneFOneB &&
              plain_schedule(true) == ScheduleKind::kZbH1);

/// The virtual stages of a pipeline of `stages` ranks with `chunks` each.
struct VirtualStages {
  std::int64_t stages = 1, chunks = 1;
  ChunkPlacement placement = ChunkPlacement::kRound;
  [[nodiscard]] constexpr std::int64_t count() const { return stages * chunks; }
  [[nodiscard]] constexpr std::int64_t at(std::int64_t stage, std::int64_t chunk) const {
    return chunk * stages + (back(chunk) ? stages - 1 - stage : stage);
  }
  [[nodiscard]] constexpr std::int64_t stage_of(std::int64_t virtual_stage) const {
    const std::int64_t in_chunk = virtual_stage % stages;
    return back(chunk_of(virtual_stage)) ? stages - 1 - in_chunk : in_chunk;
  }
  [[nodiscard]] constexpr std::int64_t chunk_of(std::int64_t virtual_stage) const {
    return virtual_stage / stages;
  }

 private:
  [[nodiscard]] constexpr bool back(std::int64_t chunk) const {
    return placement == ChunkPlacement::kV && chunk % 2 == 1;
  }
};

}  // namespace stepcast
