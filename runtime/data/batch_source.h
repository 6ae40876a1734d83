#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "core/graph/program.h"
#include "core/graph/step_inputs.h"
#include "runtime/host_batch.h"

namespace stepcast::runtime {

/// Draws the training data of one rank. Sample i of the global batch of a step is a pure function
/// of (seed, step, i), so every plan and every number of ranks trains on the same batches.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual void draw(std::int64_t step, HostBatch& batch) = 0;
};

/// The samples [first, first + count) of a global batch of `global`.
struct SampleRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t global = 0;
};
SampleRange samples_of(const Batch& batch, const Mesh& mesh, std::int32_t rank);

/// The source of a step's samples: drawn from the access laws of the tables or a synthetic
/// language, or, with a file, Criteo TSV (click data) or text bytes (token data). `inputs` outlive
/// it; lookups are drawn on `threads`, which changes nothing but how long it takes. Errors:
/// InputError for a file that does not fit the inputs, and for inputs that are neither.
std::unique_ptr<BatchSource> make_batch_source(const StepInputs& inputs, const Mesh& mesh,
                                               std::int32_t rank, std::uint64_t seed,
                                               const std::string& file = {}, int threads = 1);

}  // namespace stepcast::runtime
