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
  ncclResult_t code = ncclSuccess;
  for (auto m = messages.begin();
       m != messages.end() && (code == ncclSuccess || code == ncclInProgress); ++m) {
    const std::size_t offset = m->offset * element_bytes;
    code = m->sends ? ncclSend(static_cast<const char*>(send) + offset, m->count, type, m->peer,
                               communicator.handle(), stream)
                    : ncclRecv(static_cast<char*>(receive) + offset, m->count, type, m->peer,
                               communicator.handle(), stream);
  }
  // The group ends whatever came: NCCL aborts nothing while one is open.
  const ncclResult_t ended = ncclGroupEnd();
  check(code, "ncclSend or ncclRecv");
  communicator.complete(ended, "ncclGroupEnd");
}

}  // namespace stepcast::runtime::cuda
