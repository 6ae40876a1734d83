#pragma once
#include <cstddef>
#include <map>
#include <string>

#include "core/units.h"

namespace stepcast::runtime::cuda {

/// Uses of this rank's device memory, by name; shown when it is not enough.
class Ledger {
 public:
  void add(const std::string& what, double bytes) { entries_[what] += bytes; }
  [[nodiscard]] Bytes total() const;
  /// One line an entry, largest first, with the sum; for an error message.
  [[nodiscard]] std::string text() const;

 private:
  std::map<std::string, double> entries_;
};

/// The message of a rank that needs `wanted` more bytes while `free` of `capacity` are free: what
/// was wanted, the ledger, and what to do.
std::string out_of_memory(const Ledger& ledger, const std::string& what, std::size_t wanted,
                          std::size_t free, std::size_t capacity);

}  // namespace stepcast::runtime::cuda
