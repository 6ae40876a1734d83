#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "core/job.h"
#include "core/program.h"
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
SampleRange samples_of(const Job& job, const Mesh& mesh, std::int32_t rank);

/// The source a job asks for: drawn from the workload's access laws or a synthetic language, or,
/// with a file, Criteo TSV (DLRM) or text bytes (transformer). Errors: InputError for a file that
/// does not fit the workload.
std::unique_ptr<BatchSource> make_batch_source(const Job& job, const Mesh& mesh, std::int32_t rank,
                                               std::uint64_t seed, const std::string& file = {});

}  // namespace stepcast::runtime
