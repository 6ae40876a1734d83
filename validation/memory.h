#pragma once
#include <filesystem>

#include "core/config/config.h"
#include "validation/suite.h"

namespace stepcast::validation {

/// Peak memory of Megatron-LM jobs as PyTorch's allocator counted it on the last rank, against the
/// ledger's lines that the allocator holds: all but the device's context, communicators and what
/// fragments. `folder` has golden.csv (columns case, args_file, type, platform, gpus,
/// memory_usable, mem_max_allocated_GiB, pp, large) and, under cases/, the arguments of each job.
/// The median of runs of the same arguments on the same devices counts. Figures are bytes, not
/// seconds. Naive predictor: weights, gradients and optimizer states alone. Gate: median |error|
/// <= 0.03, p90 <= 0.10. Errors: InputError for a missing file or column.
Suite validate_memory(const std::filesystem::path& folder, const config::Library& library);

}  // namespace stepcast::validation
