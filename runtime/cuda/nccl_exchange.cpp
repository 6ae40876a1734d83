#include "runtime/cuda/nccl_exchange.h"

#include "core/error.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/message_plan.h"

namespace stepcast::runtime::cuda {

ncclDataType_t nccl_type(Format format) {
  switch (format) {
    case Format::kFp32:
    case Format::kTf32:
      return ncclFloat32;
    case Format::kBf16:
      return ncclBfloat16;
    case Format::kFp16:
      return ncclFloat16;
    case Format::kInt32:
      return ncclInt32;
    case Format::kInt64:
      return ncclInt64;
    default:
      throw InputError(
          "formats", fmt::format("found {}: NCCL moves fp32, bf16 and fp16 here", name_of(format)));
  }
}

void all_to_all_v(const Communicator& communicator, const void* send,
                  std::span<const std::int64_t> send_counts, void* receive,
                  std::span<const std::int64_t> receive_counts, ncclDataType_t type,
                  std::size_t element_bytes, cudaStream_t stream) {
  const auto messages = message_plan(communicator.rank(), send_counts, receive_counts);
  check(ncclGroupStart(), "ncclGroupStart");
  for (const Message& m : messages) {
    if (m.sends) {
      check(ncclSend(static_cast<const char*>(send) + m.offset * element_bytes, m.count, type,
                     m.peer, communicator.handle(), stream),
            "ncclSend");
    } else {
      check(ncclRecv(static_cast<char*>(receive) + m.offset * element_bytes, m.count, type, m.peer,
                     communicator.handle(), stream),
            "ncclRecv");
    }
  }
  communicator.complete(ncclGroupEnd(), "ncclGroupEnd");
}

}  // namespace stepcast::runtime::cuda
