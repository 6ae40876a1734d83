#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "models/ptx/counts.h"

namespace stepcast::models::ptx {

/// Global memory as the machine sees it: addresses are those of the process.
class GlobalMemory {
 public:
  /// [begin, end) of the piece of memory around an address; empty: nothing is there.
  struct Piece {
    std::uint64_t begin = 0, end = 0;
    [[nodiscard]] bool holds(std::uint64_t address, std::uint64_t bytes) const {
      return address >= begin && address + bytes <= end;
    }
  };
  GlobalMemory() = default;
  GlobalMemory(const GlobalMemory&) = delete;
  GlobalMemory& operator=(const GlobalMemory&) = delete;
  virtual ~GlobalMemory() = default;
  [[nodiscard]] virtual Piece piece_of(std::uint64_t address) const = 0;
};

/// Which sectors of global memory were touched, and the pieces that were looked up already.
class Footprint {
 public:
  explicit Footprint(const GlobalMemory& memory) : memory_(memory) {}
  /// The piece that holds these bytes; nullptr: none does.
  const GlobalMemory::Piece* find(std::uint64_t address, std::uint64_t bytes);
  void touch(std::uint64_t sector, bool written);
  /// Bytes of different sectors read, written; each piece's times `scale`, or all of it.
  [[nodiscard]] std::array<std::uint64_t, 2> bytes(double scale = 1) const;

 private:
  struct Known {
    GlobalMemory::Piece piece;
    std::array<std::vector<bool>, 2> touched;
  };
  const GlobalMemory& memory_;
  std::vector<Known> known_;
  std::size_t last_ = 0;
};

/// Memory whose bytes begin undefined: shared memory of a block, local memory of a thread.
class PoisonedMemory {
 public:
  explicit PoisonedMemory(std::size_t bytes) : bytes_(bytes), defined_(bytes) {}
  void poison();
  [[nodiscard]] bool holds(std::uint64_t address, std::size_t bytes) const {
    return address <= bytes_.size() && bytes <= bytes_.size() - address;
  }
  /// False: some byte is undefined.
  bool load(std::uint64_t address, void* to, std::size_t bytes) const;
  void store(std::uint64_t address, const void* from, std::size_t bytes, bool defined = true);

 private:
  std::vector<std::byte> bytes_;
  std::vector<std::uint8_t> defined_;
};

/// Cycles in which 32 banks of 4 bytes serve these words (one access of `bytes` each): accesses of
/// 8 bytes go by half warps, of 16 by quarters; lanes that read one word share it. Source: CUDA C++
/// Programming Guide, "Shared Memory".
struct Passes {
  int needed = 0;
  int least = 0;
};
Passes bank_passes(const std::array<std::uint64_t, 32>& addresses, std::uint32_t mask, int bytes);

}  // namespace stepcast::models::ptx
