#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "models/ptx/machine.h"

namespace stepcast::models::ptx {

constexpr int kLanes = 32;
constexpr std::uint32_t kAllLanes = 0xffffffffU;
using Lanes = std::array<std::uint64_t, kLanes>;

// Windows of the generic space.
constexpr std::uint64_t kSharedWindow = std::uint64_t{1} << 56;
constexpr std::uint64_t kLocalWindow = std::uint64_t{2} << 56;
constexpr std::uint64_t kParameterWindow = std::uint64_t{3} << 56;
constexpr std::uint64_t kWindow = std::uint64_t{1} << 32;  ///< bytes of each

/// Calls f(lane) for the lanes of a mask.
template <class F>
void for_lanes(std::uint32_t mask, F f) {
  if (mask == kAllLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      f(lane);
    }
    return;
  }
  for (; mask != 0; mask &= mask - 1) {
    f(__builtin_ctz(mask));
  }
}

/// What the warps of a running block share.
struct Block {
  const Kernel& kernel;
  const Launch& launch;
  Counts& counts;
  Footprint& footprint;
  PoisonedMemory shared;
  std::vector<std::byte> globals;  ///< variables of the module
  std::array<std::uint32_t, 3> at{};
  /// Votes at a barrier that reduces: true and false ones so far, and of the last one.
  std::array<std::uint64_t, 2> votes{};
};

class Warp {
 public:
  enum class State : std::uint8_t { kRuns, kAtBarrier, kDone };

  Warp(Block& block, int index);
  void start();
  /// Until the warp waits at a barrier or has ended.
  State run();
  /// Goes on behind the barrier, whose votes are counted.
  void pass_barrier();

  [[nodiscard]] Lanes& lanes(int r) { return registers_[static_cast<std::size_t>(r)]; }
  /// Lanes in which a register has a value.
  [[nodiscard]] std::uint32_t defined(int r) const { return defined_[static_cast<std::size_t>(r)]; }
  void define(int r, std::uint32_t mask, std::uint32_t defined) {
    std::uint32_t& d = defined_[static_cast<std::size_t>(r)];
    d = (d & ~mask) | (mask & defined);
  }
  [[nodiscard]] Block& block() { return block_; }
  [[nodiscard]] std::uint32_t alive() const { return alive_; }
  PoisonedMemory& local(int lane) { return local_[static_cast<std::size_t>(lane)]; }
  [[nodiscard]] State state() const { return state_; }

  /// Throws the error of an instruction that only undefined values would carry on.
  void require_defined(const Instruction& i, int r, std::uint32_t mask, std::string_view use);
  /// The lanes that take part in an exchange by mask, all of them here, or an error.
  std::uint32_t members(const Instruction& i, int mask_register, std::uint32_t mask);
  [[noreturn]] void fail(const Instruction& i, int lane, const std::string& what) const;

  /// Asynchronous copies of each lane, by group; they arrive when they are waited for.
  struct Copy {
    std::uint64_t to;
    std::uint64_t from;
    std::uint32_t bytes;
    std::uint32_t valid;
  };
  struct Copies {
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
  };
  Copies& copies(int lane) { return copies_[static_cast<std::size_t>(lane)]; }

 private:
  /// Lanes that go together: where they are and where they meet the others.
  struct Path {
    int at;
    int meets;
    std::uint32_t mask;
  };
  void branch(const Instruction& i, std::uint32_t active, std::uint32_t taken);
  void leave(std::uint32_t mask);
  void reach_barrier(const Instruction& i, std::uint32_t mask);
  [[nodiscard]] std::uint32_t guarded(const Instruction& i, std::uint32_t active);
  void fill_specials();

  Block& block_;
  int index_;
  std::uint32_t alive_ = 0;
  State state_ = State::kRuns;
  std::vector<Lanes> registers_;
  std::vector<std::uint32_t> defined_;
  std::vector<PoisonedMemory> local_;
  std::vector<Copies> copies_;
  std::vector<Path> paths_;
};

}  // namespace stepcast::models::ptx
