#pragma once
#include "interop/formats.h"
#include "interop/megatron/options.h"

namespace stepcast::interop {

/// The job that a text of arguments describes, with a system only where a script says it.
Document job_of_megatron(Document d, const std::vector<std::string>& overrides);
/// The workload that the arguments describe; without a vocabulary where they do not tell its size.
Json megatron_workload(Arguments& a);
/// `parallel` of the job.
Json megatron_parallel(Arguments& a, std::int64_t layers);
Json megatron_batch(Arguments& a);
/// Which kernels a step is made of, in what numbers, and what updates the weights.
void read_megatron_step(Arguments& a, Json& job, Json& workload);

}  // namespace stepcast::interop
