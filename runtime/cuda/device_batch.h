#pragma once
#include <vector>

#include "runtime/cuda/device_memory.h"
#include "runtime/cuda/kernels/matrix_view.h"
#include "runtime/host_batch.h"

namespace stepcast::runtime::cuda {

/// Place of each list of a batch in one block of bytes, all aligned; the same block on host and
/// device, so that one copy moves a batch.
struct BatchLayout {
  struct List {
    std::size_t offset = 0;  ///< bytes
    std::size_t count = 0;   ///< elements
    bool operator==(const List&) const = default;
  };
  List dense, labels, tokens;
  std::vector<List> lookups, offsets;  ///< by table
  std::size_t bytes = 0;
  bool operator==(const BatchLayout&) const = default;
};
BatchLayout batch_layout(const HostBatch& batch);

/// The batch a step works on, in device memory.
///
///   batch.stage(host);       // host thread, before the step
///   batch.upload(stream);    // enqueued by the load_batch op
class DeviceBatch {
 public:
  explicit DeviceBatch(Ledger& ledger)
      : pinned_(Buffer::Kind::kPinned, "batch"), device_(Buffer::Kind::kDevice, "batch", &ledger) {}

  /// Copies the batch into page-locked memory; the copy of the batch before must have ended.
  void stage(const HostBatch& batch);
  void upload(cudaStream_t stream);

  [[nodiscard]] const BatchLayout& layout() const { return layout_; }
  template <class T>
  [[nodiscard]] const T* list(const BatchLayout::List& list) const {
    return reinterpret_cast<const T*>(device_.as<std::byte>() + list.offset);
  }

 private:
  BatchLayout layout_;
  Buffer pinned_, device_;
};

}  // namespace stepcast::runtime::cuda
