#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/ptx/types.h"

namespace stepcast::models::ptx {

class Warp;
class Lexer;
struct Instruction;
struct Opcode;

/// What the lanes of `mask` do for one instruction.
using Execute = void (*)(Warp& warp, const Instruction& instruction, std::uint32_t mask);

/// One instruction, ready to run. Immediates, special registers and addresses of symbols are
/// registers too, filled when a warp starts.
struct Instruction {
  const Opcode* opcode = nullptr;
  Execute execute = nullptr;
  std::vector<std::string_view> modifiers;  ///< words of the opcode behind its name
  Type type = Type::kNone;                  ///< the first type named: of the result
  Type from = Type::kNone;                  ///< the last: of the sources
  Space space = Space::kGeneric;
  int lanes_of_vector = 1;              ///< .v2, .v4
  std::vector<int> registers;           ///< of all operands, one after the other
  std::array<std::uint8_t, 8> first{};  ///< register with which operand i begins
  int operands = 0;
  std::array<std::int64_t, 4> offsets{};  ///< of operands in brackets
  std::uint8_t detail = 0;                ///< what the opcode's select keeps for its execute
  bool negated = false;                   ///< the last operand is a predicate with !
  int guard = -1;                         ///< predicate of @p
  bool guard_negated = false;
  int target = -1;           ///< of a branch; index of an instruction
  int reconverge = -1;       ///< where lanes that part here meet again; -1: at the end
  int line = 0;              ///< of the PTX text
  std::uint32_t source = 0;  ///< line of the source it was compiled from, 0 unknown
  std::uint32_t source_file = 0;

  [[nodiscard]] int reg(int operand, int part = 0) const {
    return registers[first[static_cast<std::size_t>(operand)] + static_cast<std::size_t>(part)];
  }
  [[nodiscard]] int parts(int operand) const {
    return first[static_cast<std::size_t>(operand) + 1] - first[static_cast<std::size_t>(operand)];
  }
  [[nodiscard]] bool has(std::string_view modifier) const;
};

/// A parameter of an entry point, at `offset` of the parameter space.
struct Parameter {
  std::string name;
  std::size_t offset = 0;
  std::size_t bytes = 0;
  std::size_t alignment = 1;
};

enum class Special : std::uint8_t {
  kThreadX,
  kThreadY,
  kThreadZ,
  kThreadsX,
  kThreadsY,
  kThreadsZ,
  kBlockX,
  kBlockY,
  kBlockZ,
  kBlocksX,
  kBlocksY,
  kBlocksZ,
  kLane,
  kWarp,
  kWarps,
  kLanesEq,
  kLanesLe,
  kLanesLt,
  kLanesGe,
  kLanesGt,
  kDynamicShared,
  kCount
};

/// An entry point, ready to run.
struct Kernel {
  std::string name;
  std::string file;
  std::vector<Parameter> parameters;
  std::size_t parameter_bytes = 0;
  std::size_t shared_bytes = 0;  ///< static; dynamic memory begins there, at a multiple of 16
  std::size_t local_bytes = 0;   ///< of a thread
  std::size_t global_bytes = 0;  ///< of variables of the module
  std::array<std::uint32_t, 3> most_threads{};  ///< .maxntid, 0 none
  std::vector<Instruction> code;
  std::vector<Type> registers;  ///< type of each
  std::vector<std::pair<int, std::uint64_t>> constants;
  std::vector<std::pair<int, Special>> specials;
  std::vector<std::pair<int, std::uint64_t>> globals;  ///< register, offset among global variables
  /// "source.cu:12" where the text has line information, else "FILE:line".
  [[nodiscard]] std::string place(const Instruction& i) const;
  std::map<std::uint32_t, std::string> sources;
  std::shared_ptr<const std::string> text;  ///< that modifiers are words of
};

/// A PTX file: its entry points are found at once and read when asked for.
///
///   const Module module(text, "norm.ptx");
///   const Kernel kernel = module.kernel(module.entries().front());
///
/// Valid: what nvcc emits for kernels without calls, textures, wgmma or bulk copies. Errors:
/// InputError with file and line for anything else. Source: PTX ISA 9.0.
class Module {
 public:
  Module(std::string text, std::string file);
  [[nodiscard]] std::vector<std::string> entries() const;
  [[nodiscard]] bool has(const std::string& entry) const { return entries_.contains(entry); }
  [[nodiscard]] Kernel kernel(const std::string& entry) const;
  [[nodiscard]] const std::string& target() const { return target_; }

  /// A variable outside or inside of an entry point.
  struct Variable {
    std::string name;
    Space space = Space::kGlobal;
    std::size_t bytes = 0;
    std::size_t alignment = 1;
    bool initialised = false;
  };

 private:
  struct Entry {
    std::vector<Parameter> parameters;
    std::array<std::uint32_t, 3> most_threads{};
    std::string_view body;
    int line = 0;
  };
  void read_entry(Lexer& in);
  void read_directive(Lexer& in);

  std::shared_ptr<const std::string> text_;
  std::string file_;
  std::string target_;
  std::map<std::string, Entry> entries_;
  std::vector<Variable> variables_;
  std::map<std::uint32_t, std::string> sources_;
};

/// Reads "[.align N] .b8 name[count]" behind the word of its space, up to what ends it.
Module::Variable read_variable(Lexer& in, Space space);
/// The value of an integer word.
std::int64_t integer(Lexer& in, std::string_view word, int line);

}  // namespace stepcast::models::ptx
