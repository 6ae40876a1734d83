#pragma once
#include <atomic>
#include <cstdint>

namespace stepcast::runtime {

/// Core of a rank where a machine has fewer cores than ranks: neighbours share one.
constexpr int core_of(int local_rank, int local_size, int cores) {
  return static_cast<int>(std::int64_t{local_rank} * cores / local_size);
}

/// One token per core, in memory that the ranks of a machine share: with more ranks than cores a
/// rank takes its core's token for each compute op, so that an op's duration is its own work.
/// First come, first served; waiting sleeps.
class CoreLease {
 public:
  /// One core's token; zero-initialised shared memory is a valid free token.
  struct alignas(64) Token {
    std::atomic<std::uint32_t> next_ticket;
    std::atomic<std::uint32_t> serving;
  };

  explicit CoreLease(Token& token) : token_(token) {}
  /// Nanoseconds waited for the token.
  std::int64_t acquire();
  void release();

 private:
  Token& token_;
};

}  // namespace stepcast::runtime
