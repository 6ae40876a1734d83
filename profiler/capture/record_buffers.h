#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace stepcast::profiler {

/// The buffers that a profiler library fills and a reader empties: at most `budget` bytes exist at
/// once. A request beyond that is declined and counted, so that the application never waits for
/// the reader and memory stays bounded. Thread-safe; no lock is held while others' code runs.
class RecordBuffers {
 public:
  static constexpr std::size_t kBytes = std::size_t{4} << 20;  ///< of one buffer

  explicit RecordBuffers(std::uint64_t budget);
  ~RecordBuffers();
  RecordBuffers(const RecordBuffers&) = delete;
  RecordBuffers& operator=(const RecordBuffers&) = delete;

  /// A buffer to fill, aligned for any record; null when the budget is spent.
  std::uint8_t* take();
  /// A buffer that take() gave comes back with `valid` bytes of records.
  void filled(std::uint8_t* buffer, std::size_t valid);

  struct Full {
    std::uint8_t* buffer = nullptr;
    std::size_t valid = 0;
  };
  /// Waits up to `milliseconds` until half of the budget is filled, or until woken: a reader that
  /// has time until then takes none from the application. Returns whether it is filled.
  bool half_full(std::uint32_t milliseconds);
  /// The next to read, waiting up to `milliseconds`; the reader hands it back with recycle().
  std::optional<Full> next(std::uint32_t milliseconds);
  void recycle(std::uint8_t* buffer);
  /// Lets a waiting reader go on.
  void wake();

  [[nodiscard]] std::uint64_t declined() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::uint64_t most_, made_ = 0, declined_ = 0;
  std::vector<std::uint8_t*> free_;
  std::deque<Full> full_;
  bool woken_ = false;
};

}  // namespace stepcast::profiler
