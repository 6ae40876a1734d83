#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/ptx/machine.h"

namespace stepcast::models::ptx {

/// Arguments of a kernel from text, and the memory that they name. Values fill the parameter space
/// in order, each at the next multiple of its size, so a structure is its members one after the
/// other:
///
///   u8 u16 u32 u64 s8 ... f32 f64 : VALUE     "u32:1024", "f32:0.5"
///   mem:BYTES                                 address of so many zero bytes, "mem:4194304"
///   mem:BYTES:f32                             of numbers in [-1, 1), the same every time
///   mem:BYTES:u32<N, mem:BYTES:u64<N          of indices below N
class Arguments final : public GlobalMemory {
 public:
  /// Errors: InputError naming the argument; or the kernel's parameters where they do not end where
  /// the arguments do.
  Arguments(const std::vector<std::string>& texts, const Kernel& kernel);
  [[nodiscard]] const std::vector<std::byte>& parameters() const { return parameters_; }
  [[nodiscard]] Piece piece_of(std::uint64_t address) const override;

 private:
  struct Memory {
    std::vector<std::byte> bytes;
    [[nodiscard]] Piece piece() const;
  };
  void add(const void* value, std::size_t bytes);
  void add_memory(const std::string& text);
  void add_number(const std::string& text);

  std::vector<std::byte> parameters_;
  std::vector<std::unique_ptr<Memory>> memory_;
};

}  // namespace stepcast::models::ptx
