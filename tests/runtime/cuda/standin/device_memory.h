#pragma once
#include <cstddef>
#include <utility>

// Memory of the stand-in: what cudaMalloc and cudaMallocHost hand out.
namespace stepcast::standin {

/// Device memory of `bytes`, every byte part of a NaN. Outside an OnDevice no access is allowed
/// where the processor has protection keys. Under a memory checker it is of exactly that size
/// instead, so that the first byte too far shows.
void* take_device_memory(std::size_t bytes);
/// Page-locked memory of the host, which both sides may touch.
void* take_pinned_memory(std::size_t bytes);
/// False: it is of neither kind.
bool give_back(void* memory);

/// Bytes of device memory in use.
std::size_t device_bytes_in_use();
/// Whether so many bytes lie inside one piece of device, or of page-locked, memory.
bool on_device(const void* first, std::size_t bytes);
bool pinned(const void* first, std::size_t bytes);
/// The piece of either kind that an address lies in: its first byte and its size; 0 bytes: none.
std::pair<const void*, std::size_t> piece_around(const void* address);

}  // namespace stepcast::standin
