#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace stepcast::runtime::cuda {

/// One message of a grouped exchange, in elements of the send or the receive buffer.
struct Message {
  int peer = 0;
  bool sends = false;
  std::size_t offset = 0;
  std::size_t count = 0;
};

/// The sends and receives of an all-to-all-v of member `rank`: parts stand side by side in the
/// order of members; empty parts are left out on both sides. A member starts with itself and goes
/// on with its neighbour, so that not everybody talks to member 0 first. Errors: InternalError when
/// the part for itself is not as long as it expects.
std::vector<Message> message_plan(int rank, std::span<const std::int64_t> send_counts,
                                  std::span<const std::int64_t> receive_counts);

}  // namespace stepcast::runtime::cuda
