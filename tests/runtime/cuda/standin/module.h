#pragma once
#include "runtime/cuda/backend.h"

extern "C" const stepcast::runtime::cuda::Module* stepcast_cuda_module(
    const stepcast::runtime::cuda::Stamp& stamp);

namespace stepcast::standin {

/// The CUDA backend as it is linked into this program, over the stand-in.
inline const runtime::cuda::Module& module() { return *stepcast_cuda_module({}); }

}  // namespace stepcast::standin
