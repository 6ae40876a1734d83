#pragma once
#include <string_view>

#include "models/ptx/module.h"

namespace stepcast::models::ptx {

/// What an instruction does to the order of a warp's instructions.
enum class Flow : std::uint8_t { kNext, kBranch, kExit, kBarrier, kBarrierReduce };

/// What a count of an instruction's lanes is part of.
enum class Work : std::uint8_t { kOther, kFloat, kSpecial, kTensor };

/// One row of the table of opcodes: what they are is data, not code.
struct Opcode {
  std::string_view name;
  Flow flow = Flow::kNext;
  int least_operands = 0;
  int most_operands = 0;
  std::string_view modifiers;  ///< words it may have besides types and state spaces
  /// How it is executed with its modifiers and types; nullptr: it has no such form.
  Execute (*select)(Instruction&) = nullptr;
  Work work = Work::kOther;
  int operations = 0;  ///< floating-point operations of a lane; of a warp where work is kTensor
};

/// nullptr: not in the tables. `modifiers` are the words behind the name: those of a float type
/// find floating-point opcodes.
const Opcode* find_opcode(std::string_view name, std::string_view modifiers);
const Opcode* find_arithmetic(std::string_view name);
const Opcode* find_float(std::string_view name);
const Opcode* find_conversion(std::string_view name);
const Opcode* find_memory(std::string_view name);
const Opcode* find_warp_wide(std::string_view name);

template <std::size_t N>
const Opcode* find_in(const Opcode (&table)[N], std::string_view name) {
  for (const Opcode& o : table) {
    if (o.name == name) {
      return &o;
    }
  }
  return nullptr;
}

}  // namespace stepcast::models::ptx
