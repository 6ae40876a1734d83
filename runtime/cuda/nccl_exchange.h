#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <span>

#include "core/formats.h"
#include "runtime/cuda/communicator.h"

namespace stepcast::runtime::cuda {

/// How NCCL calls a stored format.
ncclDataType_t nccl_type(Format format);

/// Parts of unequal size between all members, by grouped sends and receives (NCCL has no
/// all-to-all-v of its own up to 2.28). Parts stand side by side in the order of members.
void all_to_all_v(const Communicator& communicator, const void* send,
                  std::span<const std::int64_t> send_counts, void* receive,
                  std::span<const std::int64_t> receive_counts, ncclDataType_t type,
                  std::size_t element_bytes, cudaStream_t stream);

}  // namespace stepcast::runtime::cuda
