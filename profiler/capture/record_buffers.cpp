#include "profiler/capture/record_buffers.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace stepcast::profiler {

RecordBuffers::RecordBuffers(std::uint64_t budget)
    : most_(std::max<std::uint64_t>(1, budget / kBytes)) {}

/// Buffers that were taken and never came back are the library's: it may still write to them.
RecordBuffers::~RecordBuffers() {
  for (std::uint8_t* buffer : free_) {
    std::free(buffer);
  }
  for (const Full& full : full_) {
    std::free(full.buffer);
  }
}

std::uint8_t* RecordBuffers::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::uint8_t* buffer = free_.back();
      free_.pop_back();
      return buffer;
    }
    if (made_ >= most_) {
      ++declined_;
      return nullptr;
    }
    ++made_;
  }
  constexpr std::size_t kAlignment = 64;
  auto* buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBytes));
  if (buffer == nullptr) {
    const std::lock_guard lock(mutex_);
    --made_;
    ++declined_;
  }
  return buffer;
}

void RecordBuffers::filled(std::uint8_t* buffer, std::size_t valid) {
  if (buffer == nullptr) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    if (valid == 0) {
      free_.push_back(buffer);
      return;
    }
    full_.push_back({buffer, valid});
  }
  ready_.notify_one();
}

bool RecordBuffers::half_full(std::uint32_t milliseconds) {
  std::unique_lock lock(mutex_);
  const auto filled = [this] { return 2 * full_.size() >= most_; };
  ready_.wait_for(lock, std::chrono::milliseconds(milliseconds),
                  [&] { return filled() || woken_; });
  woken_ = false;
  return filled();
}

std::optional<RecordBuffers::Full> RecordBuffers::next(std::uint32_t milliseconds) {
  std::unique_lock lock(mutex_);
  ready_.wait_for(lock, std::chrono::milliseconds(milliseconds),
                  [this] { return !full_.empty() || woken_; });
  woken_ = false;
  if (full_.empty()) {
    return std::nullopt;
  }
  const Full full = full_.front();
  full_.pop_front();
  return full;
}

void RecordBuffers::recycle(std::uint8_t* buffer) {
  const std::lock_guard lock(mutex_);
  free_.push_back(buffer);
}

void RecordBuffers::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  ready_.notify_all();
}

std::uint64_t RecordBuffers::declined() const {
  const std::lock_guard lock(mutex_);
  return declined_;
}

}  // namespace stepcast::profiler
