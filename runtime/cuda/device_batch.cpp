#include "runtime/cuda/device_batch.h"

#include <cuda_runtime_api.h>

#include <cstring>

#include "runtime/cuda/alignment.h"
#include "runtime/cuda/check.h"

namespace stepcast::runtime::cuda {
namespace {

template <class T>
void place(const std::vector<T>& from, BatchLayout::List& list, std::size_t& bytes) {
  list = {bytes, from.size()};
  bytes += aligned(from.size() * sizeof(T));
}

template <class T>
void place(const std::vector<std::vector<T>>& from, std::vector<BatchLayout::List>& lists,
           std::size_t& bytes) {
  lists.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    place(from[i], lists[i], bytes);
  }
}

template <class T>
void copy(const std::vector<T>& from, const BatchLayout::List& list, std::byte* to) {
  if (!from.empty()) {
    std::memcpy(to + list.offset, from.data(), from.size() * sizeof(T));
  }
}

template <class T>
void copy(const std::vector<std::vector<T>>& from, const std::vector<BatchLayout::List>& lists,
          std::byte* to) {
  for (std::size_t i = 0; i < lists.size(); ++i) {
    copy(from[i], lists[i], to);
  }
}

}  // namespace

BatchLayout batch_layout(const HostBatch& batch) {
  BatchLayout layout;
  place(batch.dense, layout.dense, layout.bytes);
  place(batch.labels, layout.labels, layout.bytes);
  place(batch.tokens, layout.tokens, layout.bytes);
  place(batch.lookups, layout.lookups, layout.bytes);
  place(batch.offsets, layout.offsets, layout.bytes);
  return layout;
}

void DeviceBatch::stage(const HostBatch& batch) {
  layout_ = batch_layout(batch);
  if (layout_.bytes == 0) {
    return;
  }
  auto* to = static_cast<std::byte*>(pinned_.reserve(layout_.bytes));
  device_.reserve(layout_.bytes);
  copy(batch.dense, layout_.dense, to);
  copy(batch.labels, layout_.labels, to);
  copy(batch.tokens, layout_.tokens, to);
  copy(batch.lookups, layout_.lookups, to);
  copy(batch.offsets, layout_.offsets, to);
}

void DeviceBatch::upload(cudaStream_t stream) {
  if (layout_.bytes > 0) {
    check(cudaMemcpyAsync(device_.data(), pinned_.data(), layout_.bytes, cudaMemcpyHostToDevice,
                          stream),
          "cudaMemcpyAsync of the batch");
  }
}

}  // namespace stepcast::runtime::cuda
