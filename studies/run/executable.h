#pragma once
#include "core/job/job.h"

namespace stepcast::studies {

/// Can the kernels of the CPU or the CUDA backend execute the job's graph? What is predicted but
/// has no kernels yet is refused before ranks start. Errors: InputError naming the job's key and
/// what to do.
void require_executable(const Job& job, bool cuda);

}  // namespace stepcast::studies
