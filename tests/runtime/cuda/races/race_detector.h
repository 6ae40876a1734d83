#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/runtime/cuda/emulation/block.h"

namespace stepcast::test {

/// Finds races of emulated kernels whose sources were compiled with -fsanitize=thread: every load
/// and store is seen with its block, its thread and where that stands between barriers.
///
/// Two accesses to a byte of shared or device memory race when one of them writes, not both are
/// atomic, they are of different threads, and nothing orders them: of one block, no barrier of the
/// block between them and, in one warp, none of the warp that both took part in (shuffles and votes
/// order no memory); of two blocks, never. What a schedule happened to do plays no part, so a race
/// shows in every run in which its two accesses happen.
///
/// The last 12 unordered accesses of each word are kept. Local memory is not looked at.
/// Errors: RunError when a launch with races ends: each pair of source lines once.
/// Source: happens-before by vector clocks, Flanagan, Freund, "FastTrack", PLDI 2009.
class RaceDetector final : public emulation::Observer {
 public:
  void launch_begins(const char* kernel) override;
  void launch_ends() override;
  void block_begins(std::size_t threads, const void* shared, std::size_t bytes) override;
  void barrier_opens() override;
  void warp_barrier_opens(unsigned warp, std::uint32_t lanes) override;

  void access(const void* first, std::size_t bytes, bool written, const void* code);
  [[nodiscard]] std::uint64_t accesses() const { return accesses_; }
  [[nodiscard]] std::uint64_t launches() const { return launches_; }

  static RaceDetector& current();
  /// From now on current() sees all launches.
  static void watch();

 private:
  static constexpr std::size_t kLanes = 32;
  static constexpr std::size_t kKept = 12;
  struct Access {
    std::uint64_t block;
    std::uint32_t thread;
    std::uint32_t interval;  ///< barriers of the block before it
    std::uint32_t clock;     ///< warp barriers of the thread before it
    std::uint8_t bytes;      ///< of the word, a bit each
    bool written;
    bool atomic;
    const void* code;
  };
  struct Word {
    std::uint64_t epoch = 0;
    std::vector<Access> kept;
  };
  static constexpr std::uint64_t kPageWords = 256;
  using Page = std::array<Word, kPageWords>;
  struct Thread {
    std::array<std::uint32_t, kLanes> seen{};  ///< clocks of its warp that come before it
  };
  /// `a` comes before `b`, which happens now.
  [[nodiscard]] bool ordered(const Access& a, const Access& b) const;
  Word& word_at(std::uint64_t word);
  [[nodiscard]] bool in_device_memory(const std::byte* first, std::size_t bytes);
  void access_word(std::uint64_t word, std::uint64_t epoch, const Access& now);
  void report(const Access& a, const Access& b, const void* address);

  const char* kernel_ = "";
  std::uint64_t launches_ = 0, blocks_ = 0, accesses_ = 0;
  std::uint32_t interval_ = 0;
  const std::byte* shared_ = nullptr;
  std::size_t shared_bytes_ = 0;
  std::vector<Thread> threads_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;  ///< by number
  std::uint64_t last_page_ = 0;
  Page* page_ = nullptr;                                              ///< of that number
  std::pair<const std::byte*, const std::byte*> piece_{};             ///< of memory looked up last
  std::map<std::pair<const void*, const void*>, std::string> races_;  ///< by the two places
};

}  // namespace stepcast::test
