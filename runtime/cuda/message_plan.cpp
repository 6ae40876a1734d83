#include "runtime/cuda/message_plan.h"

#include "core/error.h"

namespace stepcast::runtime::cuda {
namespace {

std::vector<std::size_t> offsets_of(std::span<const std::int64_t> counts) {
  std::vector<std::size_t> offsets;
  std::size_t next = 0;
  for (const std::int64_t count : counts) {
    STEPCAST_CHECK(count >= 0, "a part of {} elements", count);
    offsets.push_back(next);
    next += static_cast<std::size_t>(count);
  }
  return offsets;
}

}  // namespace

std::vector<Message> message_plan(int rank, std::span<const std::int64_t> send_counts,
                                  std::span<const std::int64_t> receive_counts) {
  const std::size_t members = send_counts.size();
  const auto own = static_cast<std::size_t>(rank);
  STEPCAST_CHECK(receive_counts.size() == members && own < members,
                 "member {} sends to {} members and receives from {}", rank, members,
                 receive_counts.size());
  STEPCAST_CHECK(send_counts[own] == receive_counts[own],
                 "member {} sends itself {} elements and expects {}", rank, send_counts[own],
                 receive_counts[own]);
  const auto send_offsets = offsets_of(send_counts);
  const auto receive_offsets = offsets_of(receive_counts);
  std::vector<Message> messages;
  for (std::size_t i = 0; i < members; ++i) {
    const std::size_t to = (own + i) % members;
    const std::size_t from = (own + members - i) % members;
    if (send_counts[to] > 0) {
      messages.push_back({static_cast<int>(to), true, send_offsets[to],
                          static_cast<std::size_t>(send_counts[to])});
    }
    if (receive_counts[from] > 0) {
      messages.push_back({static_cast<int>(from), false, receive_offsets[from],
                          static_cast<std::size_t>(receive_counts[from])});
    }
  }
  return messages;
}

}  // namespace stepcast::runtime::cuda
