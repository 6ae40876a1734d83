#pragma once
#include "models/ptx/warp.h"

namespace stepcast::models::ptx {

/// Where the lanes of one instruction read or write, checked and counted.
struct Access {
  Lanes address{};           ///< inside of the lane's space
  std::uint32_t global = 0;  ///< lanes of each space
  std::uint32_t shared = 0;
  std::uint32_t local = 0;
  std::uint32_t parameter = 0;
};

/// Resolves the addresses of operand `operand`, `bytes` each: RunError where one is undefined, not
/// aligned or outside of memory.
Access resolve(Warp& w, const Instruction& i, int operand, std::uint32_t mask, int bytes,
               bool writes);
/// The same in a given space.
Access resolve_in(Warp& w, const Instruction& i, int operand, std::uint32_t mask, int bytes,
                  bool writes, Space space);

/// Moves bytes of a lane, `at` behind its address. False: some of those read are undefined.
bool read_bytes(Warp& w, const Access& access, int lane, int at, void* to, std::size_t bytes);
void write_bytes(Warp& w, const Access& access, int lane, int at, const void* from,
                 std::size_t bytes, bool defined);

}  // namespace stepcast::models::ptx
