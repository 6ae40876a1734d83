#pragma once
#include "tests/runtime/cuda/device_fixture.h"

namespace stepcast::runtime::test {

/// The program cut down to what loads the batch and one op of it.
ExecutionGraph only(const ExecutionGraph& graph, std::uint32_t op);

/// One op alone, on the GPU and on the CPU backend: random inputs, outputs that the op must
/// overwrite poisoned with NaN.
void check_op(const cuda::Module& module, const Job& job, const ExecutionGraph& graph,
              std::uint32_t index, const cuda::Options& options = {});

}  // namespace stepcast::runtime::test
