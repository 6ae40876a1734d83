#include "models/ptx/warp.h"

#include <algorithm>

#include "core/error.h"
#include "models/ptx/opcode.h"

namespace stepcast::models::ptx {
namespace {

std::array<std::uint32_t, 3> place_of(std::uint32_t index,
                                      const std::array<std::uint32_t, 3>& size) {
  return {index % size[0], index / size[0] % size[1], index / size[0] / size[1]};
}

std::size_t round_up(std::size_t at, std::size_t alignment) {
  return (at + alignment - 1) / alignment * alignment;
}

}  // namespace

Warp::Warp(Block& block, int index)
    : block_(block),
      index_(index),
      registers_(block.kernel.registers.size()),
      defined_(block.kernel.registers.size()),
      copies_(kLanes) {
  local_.resize(kLanes, PoisonedMemory(block.kernel.local_bytes));
  for (const auto& [r, bits] : block.kernel.constants) {
    registers_[static_cast<std::size_t>(r)].fill(bits);
  }
}

void Warp::start() {
  std::fill(defined_.begin(), defined_.end(), 0U);
  const auto& size = block_.launch.block;
  const std::uint32_t threads = size[0] * size[1] * size[2];
  const auto first = static_cast<std::uint32_t>(index_) * kLanes;
  alive_ = threads - first >= kLanes ? kAllLanes : (1U << (threads - first)) - 1;
  for (const auto& [r, bits] : block_.kernel.constants) {
    defined_[static_cast<std::size_t>(r)] = kAllLanes;
  }
  for (const auto& [r, offset] : block_.kernel.globals) {
    lanes(r).fill(reinterpret_cast<std::uint64_t>(block_.globals.data()) + offset);
    defined_[static_cast<std::size_t>(r)] = kAllLanes;
  }
  fill_specials();
  for (PoisonedMemory& m : local_) {
    m.poison();
  }
  std::fill(copies_.begin(), copies_.end(), Copies{});
  paths_.assign(1, {0, -1, alive_});
  state_ = State::kRuns;
}

void Warp::fill_specials() {
  const Launch& launch = block_.launch;
  for (const auto& [r, which] : block_.kernel.specials) {
    defined_[static_cast<std::size_t>(r)] = kAllLanes;
    const auto of = [which = which](Special first) {
      return static_cast<std::size_t>(which) - static_cast<std::size_t>(first);
    };
    for (int lane = 0; lane < kLanes; ++lane) {
      const std::uint32_t bit = 1U << lane;
      const auto thread = static_cast<std::uint32_t>(index_ * kLanes + lane);
      std::uint64_t value = 0;
      if (which <= Special::kThreadZ) {
        value = place_of(thread, launch.block)[of(Special::kThreadX)];
      } else if (which <= Special::kThreadsZ) {
        value = launch.block[of(Special::kThreadsX)];
      } else if (which <= Special::kBlockZ) {
        value = block_.at[of(Special::kBlockX)];
      } else if (which <= Special::kBlocksZ) {
        value = launch.grid[of(Special::kBlocksX)];
      } else {
        const std::uint64_t values[] = {
            static_cast<std::uint64_t>(lane),
            static_cast<std::uint64_t>(index_),
            round_up(std::size_t{launch.block[0]} * launch.block[1] * launch.block[2], kLanes) /
                kLanes,
            bit,
            bit | (bit - 1),
            bit - 1,
            static_cast<std::uint32_t>(~(bit - 1)),
            static_cast<std::uint32_t>(~(bit | (bit - 1))),
            round_up(block_.kernel.shared_bytes, 16)};
        value = values[of(Special::kLane)];
      }
      lanes(r)[static_cast<std::size_t>(lane)] = value;
    }
  }
}

void Warp::fail(const Instruction& i, int lane, const std::string& what) const {
  const auto& [x, y, z] =
      place_of(static_cast<std::uint32_t>(index_ * kLanes + lane), block_.launch.block);
  throw RunError(fmt::format("{}: kernel {}: block ({}, {}, {}), thread ({}, {}, {}): {}",
                             block_.kernel.place(i), block_.kernel.name, block_.at[0], block_.at[1],
                             block_.at[2], x, y, z, what));
}

void Warp::require_defined(const Instruction& i, int r, std::uint32_t mask, std::string_view use) {
  const std::uint32_t missing = mask & ~defined(r);
  if (missing != 0) {
    fail(i, __builtin_ctz(missing), fmt::format("an undefined value {}", use));
  }
}

std::uint32_t Warp::members(const Instruction& i, int mask_register, std::uint32_t mask) {
  require_defined(i, mask_register, mask, "says which lanes take part");
  const Lanes& masks = lanes(mask_register);
  const auto wanted =
      static_cast<std::uint32_t>(masks[static_cast<std::size_t>(__builtin_ctz(mask))]);
  for_lanes(mask, [&](int lane) {
    const auto own = static_cast<std::uint32_t>(masks[static_cast<std::size_t>(lane)]);
    if ((own >> lane & 1U) == 0) {
      fail(i, lane, fmt::format("executes with mask {:#x}, which does not contain it", own));
    }
    if ((own & alive_ & ~mask) != 0) {
      fail(i, lane,
           fmt::format("waits for lanes {:#x}, of which {:#x} are elsewhere", own,
                       own & alive_ & ~mask));
    }
  });
  return wanted & mask;
}

std::uint32_t Warp::guarded(const Instruction& i, std::uint32_t active) {
  if (i.guard < 0) {
    return active;
  }
  require_defined(i, i.guard, active, "decides whether an instruction is done");
  const Lanes& p = lanes(i.guard);
  std::uint32_t yes = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    yes |= static_cast<std::uint32_t>(p[static_cast<std::size_t>(lane)] & 1U) << lane;
  }
  return active & (i.guard_negated ? ~yes : yes);
}

void Warp::branch(const Instruction& i, std::uint32_t active, std::uint32_t taken) {
  Path& path = paths_.back();
  const int next = path.at + 1;
  if (i.guard >= 0) {
    ++block_.counts.branches;
  }
  if (taken == active || taken == 0) {
    path.at = taken == 0 ? next : i.target;
    return;
  }
  ++block_.counts.divergent;
  if (i.reconverge == path.meets) {
    paths_.pop_back();
  } else {
    path.at = i.reconverge;
    if (i.reconverge < 0) {
      path.mask = 0;
    }
  }
  const auto go = [&](int at, std::uint32_t mask) {
    if (at != i.reconverge) {
      paths_.push_back({at, i.reconverge, mask});
    }
  };
  go(next, active & ~taken);
  go(i.target, taken);
}

void Warp::leave(std::uint32_t mask) {
  alive_ &= ~mask;
  for (Path& p : paths_) {
    p.mask &= ~mask;
  }
}

void Warp::reach_barrier(const Instruction& i, std::uint32_t mask) {
  if (mask != alive_) {
    fail(i, __builtin_ctz(alive_ & ~mask),
         "does not reach the barrier at which other lanes of its warp wait");
  }
  if (i.opcode->flow == Flow::kBarrierReduce) {
    const int vote = i.reg(i.operands - 1);
    require_defined(i, vote, mask, "is a vote at a barrier");
    for_lanes(mask, [&](int lane) {
      ++block_.votes[(lanes(vote)[static_cast<std::size_t>(lane)] != 0) != i.negated ? 1 : 0];
    });
  }
  state_ = State::kAtBarrier;
}

void Warp::pass_barrier() {
  Path& path = paths_.back();
  const Instruction& i = block_.kernel.code[static_cast<std::size_t>(path.at)];
  if (i.opcode->flow == Flow::kBarrierReduce) {
    const auto [no, yes] = block_.votes;
    const std::uint64_t result = i.has("popc") ? yes : i.has("and") ? no == 0 : yes > 0;
    for_lanes(path.mask,
              [&](int lane) { lanes(i.reg(0))[static_cast<std::size_t>(lane)] = result; });
    define(i.reg(0), path.mask, kAllLanes);
  }
  ++path.at;
  state_ = State::kRuns;
}

Warp::State Warp::run() {
  const std::vector<Instruction>& code = block_.kernel.code;
  while (state_ == State::kRuns) {
    while (!paths_.empty() &&
           (paths_.back().mask == 0 ||
            (paths_.back().meets >= 0 && paths_.back().at == paths_.back().meets))) {
      paths_.pop_back();
    }
    if (paths_.empty()) {
      return state_ = State::kDone;
    }
    Path& path = paths_.back();
    const Instruction& i = code[static_cast<std::size_t>(path.at)];
    const std::uint32_t active = path.mask;
    const std::uint32_t mask = guarded(i, active);
    ++block_.counts.instructions;
    block_.counts.lanes += static_cast<unsigned>(__builtin_popcount(mask));
    switch (i.opcode->flow) {
      case Flow::kBranch:
        branch(i, active, mask);
        break;
      case Flow::kExit:
        ++path.at;
        leave(mask);
        break;
      case Flow::kBarrier:
      case Flow::kBarrierReduce:
        reach_barrier(i, mask);
        break;
      case Flow::kNext:
        if (mask != 0) {
          i.execute(*this, i, mask);
          const auto lanes_in = static_cast<unsigned>(__builtin_popcount(mask));
          const auto operations = static_cast<unsigned>(i.opcode->operations);
          if (i.opcode->work == Work::kFloat) {
            block_.counts.flops +=
                i.type == Type::kF32 || i.type == Type::kF64 ? operations * lanes_in : 0;
          } else if (i.opcode->work == Work::kSpecial) {
            block_.counts.special += lanes_in;
          }
        }
        ++path.at;
        break;
    }
  }
  return state_;
}

}  // namespace stepcast::models::ptx
