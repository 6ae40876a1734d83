// What lanes do together: shuffles, votes, matches (PTX ISA 9.7.9, 9.7.13), matrix products
// (9.7.14), and the instructions that steer a warp.
#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "models/ptx/apply.h"
#include "models/ptx/numbers.h"
#include "models/ptx/warp_memory.h"

namespace stepcast::models::ptx {
namespace {

/// Lane that a lane reads in a shuffle, and whether it lies in range. Source: PTX ISA, "shfl.sync".
struct Source {
  int lane;
  bool in_range;
};
enum Shuffle : std::uint8_t { kUp, kDown, kButterfly, kIndex };
Source source_of(std::uint8_t how, int lane, std::uint32_t b, std::uint32_t c) {
  const auto shift = static_cast<int>(b & 0x1f);
  const auto limit = static_cast<int>(c & 0x1f), segment = static_cast<int>(c >> 8 & 0x1f);
  const int most = (lane & segment) | (limit & ~segment);
  const int least = lane & segment;
  const int from = how == kUp          ? lane - shift
                   : how == kDown      ? lane + shift
                   : how == kButterfly ? lane ^ shift
                                       : least | (shift & ~segment);
  const bool in_range = how == kUp ? from >= most : from <= most;
  return {in_range ? from : lane, in_range};
}

void shuffle(Warp& w, const Instruction& i, std::uint32_t mask) {
  const std::uint32_t present = w.members(i, i.reg(4), mask) | mask;
  w.require_defined(i, i.reg(2), mask, "says from which lane a shuffle reads");
  w.require_defined(i, i.reg(3), mask, "limits a shuffle");
  const Lanes a = w.lanes(i.reg(1));
  const Lanes &b = w.lanes(i.reg(2)), &c = w.lanes(i.reg(3)), &masks = w.lanes(i.reg(4));
  std::array<Source, kLanes> from{};
  for_lanes(mask, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    from[l] = source_of(i.detail, lane, static_cast<std::uint32_t>(b[l]),
                        static_cast<std::uint32_t>(c[l]));
    const auto named = static_cast<std::uint32_t>(masks[l]);
    if (((named & present) >> from[l].lane & 1U) == 0) {
      w.fail(i, lane, fmt::format("reads from lane {}, which takes no part", from[l].lane));
    }
  });
  std::uint32_t defined = 0;
  const std::uint32_t had = w.defined(i.reg(1));
  for_lanes(mask, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    w.lanes(i.reg(0))[l] = a[static_cast<std::size_t>(from[l].lane)] & kAllLanes;
    defined |= (had >> from[l].lane & 1U) << lane;
    if (i.parts(0) > 1) {
      w.lanes(i.reg(0, 1))[l] = from[l].in_range ? 1 : 0;
    }
  });
  w.define(i.reg(0), mask, defined);
  if (i.parts(0) > 1) {
    w.define(i.reg(0, 1), mask, kAllLanes);
  }
}
Execute shuffle_form(Instruction& i) {
  i.detail = i.has("up") ? kUp : i.has("down") ? kDown : i.has("bfly") ? kButterfly : kIndex;
  return i.has("sync") && bytes_of(i.type) == 4 ? &shuffle : nullptr;
}

enum Vote : std::uint8_t { kAllVote, kAnyVote, kUniformVote, kBallot };
void vote(Warp& w, const Instruction& i, std::uint32_t mask) {
  w.members(i, i.reg(2), mask);
  w.require_defined(i, i.reg(1), mask, "is a vote");
  std::uint32_t yes = 0;
  for_lanes(mask, [&](int lane) {
    const bool p = (w.lanes(i.reg(1))[static_cast<std::size_t>(lane)] != 0) != i.negated;
    yes |= static_cast<std::uint32_t>(p) << lane;
  });
  for_lanes(mask, [&](int lane) {
    const auto named =
        static_cast<std::uint32_t>(w.lanes(i.reg(2))[static_cast<std::size_t>(lane)]) & mask;
    const std::uint32_t of = yes & named;
    w.lanes(i.reg(0))[static_cast<std::size_t>(lane)] = i.detail == kBallot    ? of
                                                        : i.detail == kAnyVote ? (of != 0 ? 1U : 0U)
                                                        : i.detail == kAllVote
                                                            ? (of == named ? 1U : 0U)
                                                            : (of == named || of == 0 ? 1U : 0U);
  });
  w.define(i.reg(0), mask, kAllLanes);
}
Execute vote_form(Instruction& i) {
  i.detail = i.has("ballot") ? kBallot
             : i.has("any")  ? kAnyVote
             : i.has("all")  ? kAllVote
                             : kUniformVote;
  return i.has("sync") ? &vote : nullptr;
}

/// match.any: lanes with an equal value.
void match(Warp& w, const Instruction& i, std::uint32_t mask) {
  w.members(i, i.reg(2), mask);
  w.require_defined(i, i.reg(1), mask, "is matched");
  const Lanes a = w.lanes(i.reg(1));
  const Lanes masks = w.lanes(i.reg(2));
  for_lanes(mask, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    std::uint32_t same = 0;
    for_lanes(mask & static_cast<std::uint32_t>(masks[l]), [&](int other) {
      same |= static_cast<std::uint32_t>(a[static_cast<std::size_t>(other)] == a[l]) << other;
    });
    w.lanes(i.reg(0))[l] = same;
  });
  w.define(i.reg(0), mask, kAllLanes);
}
Execute match_form(Instruction& i) { return i.has("any") && i.has("sync") ? &match : nullptr; }

/// All lanes of the mask are here already: a check.
void meet(Warp& w, const Instruction& i, std::uint32_t mask) { w.members(i, i.reg(0), mask); }
void nothing(Warp&, const Instruction&, std::uint32_t) {}
Execute no_effect(Instruction&) { return &nothing; }
void active(Warp& w, const Instruction& i, std::uint32_t mask) {
  for_lanes(mask, [&](int lane) { w.lanes(i.reg(0))[static_cast<std::size_t>(lane)] = mask; });
  w.define(i.reg(0), mask, kAllLanes);
}
Execute active_form(Instruction&) { return &active; }

void require_warp(Warp& w, const Instruction& i, std::uint32_t mask) {
  if (mask != kAllLanes) {
    w.fail(i, __builtin_ctz(mask), "needs all 32 lanes of its warp");
  }
}

/// mma.m16n8k16, 16-bit inputs, fp32 sums: who holds what is in the PTX ISA, "Matrix Fragments for
/// mma.m16n8k16 with floating point type".
void multiply_matrices(Warp& w, const Instruction& i, std::uint32_t mask) {
  require_warp(w, i, mask);
  const SmallFloat format = i.has("bf16") ? kBfloat16 : kHalf;
  std::array<std::array<float, 16>, 16> a;
  std::array<std::array<float, 8>, 16> b;
  std::uint32_t defined = kAllLanes;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const auto put = [&](int operand, int reg, auto place) {
      const std::uint64_t bits = w.lanes(i.reg(operand, reg))[lane];
      place(0) = from_small(format, static_cast<std::uint32_t>(bits & 0xffff));
      place(1) = from_small(format, static_cast<std::uint32_t>(bits >> 16 & 0xffff));
    };
    for (std::size_t reg = 0; reg < 4; ++reg) {
      put(1, static_cast<int>(reg), [&](std::size_t half) -> float& {
        return a[lane / 4 + reg % 2 * 8][lane % 4 * 2 + half + reg / 2 * 8];
      });
    }
    for (std::size_t reg = 0; reg < 2; ++reg) {
      put(2, static_cast<int>(reg),
          [&](std::size_t half) -> float& { return b[lane % 4 * 2 + half + reg * 8][lane / 4]; });
    }
  }
  for (int operand = 1; operand < 4; ++operand) {
    for (int p = 0; p < i.parts(operand); ++p) {
      // A sum runs over a whole row and column: undefined anywhere is undefined everywhere.
      defined = w.defined(i.reg(operand, p)) == kAllLanes ? defined : 0;
    }
  }
  for (std::size_t reg = 0; reg < 4; ++reg) {
    const Lanes& c = w.lanes(i.reg(3, static_cast<int>(reg)));
    Lanes d;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      float sum = value_of<float>(c[lane]);
      for (std::size_t k = 0; k < 16; ++k) {
        sum += a[lane / 4 + reg / 2 * 8][k] * b[k][lane % 4 * 2 + reg % 2];
      }
      d[lane] = bits_of(sum);
    }
    w.lanes(i.reg(0, static_cast<int>(reg))) = d;
    w.define(i.reg(0, static_cast<int>(reg)), kAllLanes, defined);
  }
  ++w.block().counts.tensor_products;
  w.block().counts.tensor_flops += static_cast<unsigned>(i.opcode->operations);
}
Execute product_form(Instruction& i) {
  const bool known = i.has("sync") && i.has("m16n8k16") && i.has("row") && i.has("col") &&
                     i.type == Type::kF32 && i.from == Type::kF32 &&
                     (i.has("bf16") || i.has("f16")) && i.parts(0) == 4 && i.parts(1) == 4 &&
                     i.parts(2) == 2 && i.parts(3) == 4;
  return known ? &multiply_matrices : nullptr;
}

/// Lane i names row i % 8 of 8 x 8 matrix i / 8; register m of lane l receives elements (l / 4, 2
/// (l % 4)) and the next of matrix m, or those of its transpose.
void load_matrices(Warp& w, const Instruction& i, std::uint32_t mask) {
  require_warp(w, i, mask);
  const int matrices = i.parts(0);
  const std::uint32_t naming = matrices == 4 ? kAllLanes : (1U << (8 * matrices)) - 1;
  const Access rows = resolve(w, i, 1, naming, 16, false);
  for (int m = 0; m < matrices; ++m) {
    std::uint32_t defined = 0;
    Lanes d{};
    for (int lane = 0; lane < kLanes; ++lane) {
      std::uint16_t pair[2];
      bool whole = true;
      for (int half = 0; half < 2; ++half) {
        const int row = i.detail != 0 ? lane % 4 * 2 + half : lane / 4;
        const int column = i.detail != 0 ? lane / 4 : lane % 4 * 2 + half;
        whole = read_bytes(w, rows, m * 8 + row, 2 * column, &pair[half], 2) && whole;
      }
      defined |= static_cast<std::uint32_t>(whole) << lane;
      d[static_cast<std::size_t>(lane)] = static_cast<std::uint32_t>(pair[1]) << 16 | pair[0];
    }
    w.lanes(i.reg(0, m)) = d;
    w.define(i.reg(0, m), kAllLanes, defined);
  }
}
Execute load_matrices_form(Instruction& i) {
  i.detail = i.has("trans") ? 1 : 0;
  const int matrices = i.has("x4") ? 4 : i.has("x2") ? 2 : 1;
  return i.has("m8n8") && bytes_of(i.type) == 2 && i.parts(0) == matrices ? &load_matrices
                                                                          : nullptr;
}

/// bar.warp.sync stands in the table of `bar`, whose other forms wait for the block.
constexpr Opcode kMeet{"bar.warp", Flow::kNext, 1,
                       1,          "warp sync", [](Instruction&) -> Execute { return &meet; }};

constexpr Opcode kTable[] = {
    {"shfl", Flow::kNext, 5, 5, "sync up down bfly idx", shuffle_form},
    {"vote", Flow::kNext, 3, 3, "sync all any uni ballot", vote_form},
    {"match", Flow::kNext, 3, 3, "any sync", match_form},
    {"activemask", Flow::kNext, 1, 1, "", active_form},
    {"mma", Flow::kNext, 4, 4, "sync aligned m16n8k16 row col", product_form, Work::kTensor,
     2 * 16 * 8 * 16},
    {"ldmatrix", Flow::kNext, 2, 2, "sync aligned m8n8 x1 x2 x4 trans", load_matrices_form},
    {"bra", Flow::kBranch, 1, 1, "uni"},
    {"exit", Flow::kExit, 0, 0, ""},
    {"ret", Flow::kExit, 0, 0, "uni"},
    {"membar", Flow::kNext, 0, 0, "cta gl sys", no_effect},
    {"fence", Flow::kNext, 0, 0, "sc acq_rel cta gpu sys", no_effect},
    {"nanosleep", Flow::kNext, 1, 1, "", no_effect},
};
constexpr Opcode kBarriers[] = {
    {"bar", Flow::kBarrier, 1, 1, "sync cta"},
    {"barrier", Flow::kBarrier, 1, 1, "sync cta aligned"},
};
constexpr Opcode kReducingBarrier{"bar", Flow::kBarrierReduce, 3, 3, "red popc and or cta"};

}  // namespace

const Opcode* find_warp_wide(std::string_view name) { return find_in(kTable, name); }

const Opcode* find_opcode(std::string_view name, std::string_view modifiers) {
  const auto starts = [&](std::string_view word) { return modifiers.starts_with(word); };
  if (name == "bar" || name == "barrier") {
    return starts("warp")                       ? &kMeet
           : starts("red") || starts("cta.red") ? &kReducingBarrier
                                                : find_in(kBarriers, name);
  }
  const bool floats = modifiers.find("f32") != std::string_view::npos ||
                      modifiers.find("f64") != std::string_view::npos ||
                      modifiers.find("f16") != std::string_view::npos;
  if (const Opcode* const o = floats ? find_float(name) : nullptr) {
    return o;
  }
  for (const auto find : {find_arithmetic, find_conversion, find_memory, find_warp_wide}) {
    if (const Opcode* const o = find(name)) {
      return o;
    }
  }
  return nullptr;
}

}  // namespace stepcast::models::ptx
