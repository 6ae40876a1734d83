#pragma once
#include <algorithm>
#include <cstddef>
#include <string_view>

#include "runtime/mpi/api.h"

namespace stepcast::runtime {

/// MPI counts are ints: what is longer moves in pieces of this many elements.
constexpr std::size_t kLargestCount = std::size_t{1} << 30;

/// The MPI library of the module installed with this program, which is loaded on the first call.
/// Errors: EnvironmentError when the module or its library is not there.
const MpiApi& loaded_mpi();

/// Communicators return their errors instead of ending the program, so every call goes through
/// this. Errors: RunError naming the call, the communicator and MPI's reason.
void check_mpi(const MpiApi& mpi, int code, const char* call, std::string_view communicator);

/// `move(first, count)` for consecutive pieces of `count` elements in all; never for none.
template <typename Move>
void in_pieces(std::size_t count, const Move& move, std::size_t largest = kLargestCount) {
  for (std::size_t first = 0; first < count; first += largest) {
    move(first, static_cast<int>(std::min(largest, count - first)));
  }
}

}  // namespace stepcast::runtime
