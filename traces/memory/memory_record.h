#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/input/input.h"
#include "traces/events/recording.h"

namespace stepcast::traces {

/// Classes of what memory holds, as far as the place of its allocation tells.
enum class MemoryUse : std::uint8_t {
  kUnknown,    ///< allocated before the record began, or nothing says where
  kWeights,    ///< made or moved by a module
  kOptimizer,  ///< allocated by an optimizer's step: its states and temporaries
  kBackward,   ///< by autograd: gradients and temporaries of the backward pass
  kForward,    ///< else: activations and temporaries of the forward pass
  kCount
};
std::string_view name_of(MemoryUse use);

/// More than any device has: what a damaged record says is cut to this, so that sums stay whole.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 44;

/// Memory of one device over time, as the allocator of a framework recorded it.
struct MemoryRecord {
  enum class What : std::uint8_t { kAllocate, kFree, kReserve, kRelease, kOutOfMemory };
  struct Event {
    What what = What::kAllocate;
    std::int64_t address = 0, bytes = 0;
    std::int64_t place = -1;        ///< index into `places`, of the allocation
    std::int64_t device_free = -1;  ///< of kOutOfMemory: what the device had left
  };
  struct Place {
    std::string
        name;  ///< "forward model.py:12", or the operator; of the program, not the framework
    MemoryUse use = MemoryUse::kUnknown;
    auto operator<=>(const Place&) const = default;
  };
  std::string source;
  std::int32_t device = 0;
  std::vector<Place> places;
  std::vector<Event> events;  ///< in order of time
  std::vector<Event> live;    ///< blocks that are allocated at the end
  std::int64_t reserved = 0;  ///< of the device by the allocator, at the end
};

/// Contents of memory at one moment.
struct MemoryMoment {
  std::int64_t allocated = 0, reserved = 0;
  struct Row {
    MemoryRecord::Place place;
    std::int64_t bytes = 0, blocks = 0;
  };
  std::vector<Row> rows;  ///< by place, largest first; they sum to `allocated`
  std::array<std::int64_t, static_cast<std::size_t>(MemoryUse::kCount)> by_use{};
};
/// When most was allocated.
MemoryMoment memory_peak(const MemoryRecord& record);

/// A request that the device could not give, and what held its memory then: the last of the record.
struct OutOfMemory {
  std::int64_t asked = 0, device_free = -1;
  MemoryMoment then;
  std::string place;
  /// Part of `reserved` that no block holds. Where it would do, no gap was long enough: fragments.
  [[nodiscard]] std::int64_t unused() const { return then.reserved - then.allocated; }
};
std::optional<OutOfMemory> out_of_memory(const MemoryRecord& record);

/// Whether a file is what torch.cuda.memory._dump_snapshot writes, by its first bytes.
bool is_memory_snapshot(const std::filesystem::path& file);
/// By device, those with memory. Errors: InputError naming file and byte (core/input/pickle.h).
std::vector<MemoryRecord> read_memory_snapshot(Input& input);

/// Memory by rank and device of a trace whose profiler recorded it (Kineto with
/// profile_memory=True): places are modules where the stack was recorded, else the operators of the
/// outermost calls. Errors: InputError naming `source` where no memory was recorded.
std::vector<MemoryRecord> memory_of(const Recording& recording, const std::string& source);

/// The memory of a snapshot or a trace.
std::vector<MemoryRecord> open_memory(const std::filesystem::path& path);

}  // namespace stepcast::traces
