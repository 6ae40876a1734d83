#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stepcast {

enum class ScheduleKind : std::uint8_t { kGpipe, kOneFOneB, kZbH1, kZbV };

/// Order in which the virtual stages of a pipeline are placed on its ranks, as layers go.
enum class ChunkPlacement : std::uint8_t {
  kRound,  ///< chunk c of stage i is virtual stage c * stages + i
  kV,      ///< odd chunks run back: the last stage holds two virtual stages in a row
};

/// Properties of a schedule that the rest of the toolkit asks for; the order of its passes is
/// workloads/schedule/schedule.h.
struct ScheduleTraits {
  ScheduleKind kind;
  std::string_view name;
  bool splits_weights;  ///< weight gradients are a pass of their own
  ChunkPlacement placement;
  std::int64_t least_chunks, most_chunks;  ///< virtual stages per stage; 0: no limit
};
inline constexpr std::array kSchedules{
    ScheduleTraits{ScheduleKind::kGpipe, "gpipe", false, ChunkPlacement::kRound, 1, 1},
    ScheduleTraits{ScheduleKind::kOneFOneB, "1f1b", false, ChunkPlacement::kRound, 1, 0},
    ScheduleTraits{ScheduleKind::kZbH1, "zb-h1", true, ChunkPlacement::kRound, 1, 1},
    ScheduleTraits{ScheduleKind::kZbV, "zb-v", true, ChunkPlacement::kV, 2, 2},
};
constexpr const ScheduleTraits& traits_of(ScheduleKind kind) {
  return kSchedules[static_cast<std::size_t>(kind)];
}
constexpr std::string_view name_of(ScheduleKind kind) { return traits_of(kind).name; }
constexpr bool splits_weights(ScheduleKind kind) { return traits_of(kind).splits_weights; }

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
