#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/cuda/ledger.h"

namespace stepcast::runtime::cuda {

/// Memory of the current device, or page-locked memory of the host, that grows when asked to and
/// never shrinks. What it held is lost when it grows, and growing waits for the device: it happens
/// during warm-up.
/// Errors: RunError with the ledger when there is not enough.
class Buffer {
 public:
  enum class Kind : unsigned char { kDevice, kPinned };
  Buffer(Kind kind, std::string what, Ledger* ledger = nullptr)
      : kind_(kind), what_(std::move(what)), ledger_(ledger) {}
  ~Buffer() { release(); }
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&&) = delete;

  /// At least this many bytes, aligned to 256.
  void* reserve(std::size_t bytes);
  template <class T>
  T* reserve_of(std::size_t count) {
    return static_cast<T*>(reserve(count * sizeof(T)));
  }
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  void release();

  Kind kind_;
  std::string what_;
  Ledger* ledger_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Copies host memory of any kind to `to` and waits until all of it has arrived: a plain copy from
/// pageable memory may return before its last bytes do, and streams that do not block do not wait
/// for it. Errors: RunError that names `what`.
void copy_in(void* to, const void* from, std::size_t bytes, std::string_view what);

}  // namespace stepcast::runtime::cuda
