#pragma once
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>
#include <string_view>

namespace stepcast::runtime::cuda {

// The one way to call a CUDA library: every return code passes here. A failure is a RunError that
// names the call, the code and the library's text for it.
//
//   check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");

void check(cudaError_t code, std::string_view call);
void check(cublasStatus_t code, std::string_view call);
/// A call on a communicator that works in the background may answer ncclInProgress: that is no
/// error.
void check(ncclResult_t code, std::string_view call);

/// The same in places that must not throw (destructors, clean-up after an error): the code is
/// looked at and let go, because the error that matters has been told already.
inline void let_go(cudaError_t /*code*/) {}
inline void let_go(cublasStatus_t /*code*/) {}
inline void let_go(ncclResult_t /*code*/) {}

/// "cudaErrorNoDevice (100): no CUDA-capable device is detected"
std::string text_of(cudaError_t code);
std::string text_of(ncclResult_t code);

}  // namespace stepcast::runtime::cuda
