#pragma once
#include <string>

#include "core/input/input.h"

namespace stepcast::traces {

/// All of an input, for formats that cannot be read piece by piece. Errors: InputError where it is
/// more than `limit` bytes.
inline std::string whole_input(Input& input, std::size_t limit) {
  constexpr std::size_t kChunk = std::size_t{1} << 20U;
  std::string all;
  for (std::size_t read = kChunk; read == kChunk;) {
    const std::size_t size = all.size();
    if (size > limit) {
      input.fail(size, "is larger than this format can be read; profile fewer steps");
    }
    all.resize(size + kChunk);
    read = input.read(all.data() + size, kChunk);
    all.resize(size + read);
  }
  return all;
}

}  // namespace stepcast::traces
