#include "runtime/data/batch_source.h"

#include "core/error.h"
#include "runtime/data/criteo_source.h"
#include "runtime/data/dlrm_source.h"
#include "runtime/data/token_source.h"

namespace stepcast::runtime {

SampleRange samples_of(const Batch& batch, const Mesh& mesh, std::int32_t rank) {
  const std::int64_t replicas = mesh.data;
  if (batch.global % replicas != 0) {
    throw InputError("job: batch.global",
                     fmt::format("{} samples do not divide over {} data-parallel ranks",
                                 batch.global, replicas));
  }
  const std::int64_t count = batch.global / replicas;
  return {count * mesh.coordinate(rank, Axis::kData), count, batch.global};
}

std::unique_ptr<BatchSource> make_batch_source(const StepInputs& inputs, const Mesh& mesh,
                                               std::int32_t rank, std::uint64_t seed,
                                               const std::string& file, int threads) {
  const SampleRange range = samples_of(inputs.batch, mesh, rank);
  if (inputs.vocabulary > 0) {
    return std::make_unique<TokenSource>(inputs.vocabulary, inputs.batch.sequence, range, seed,
                                         file);
  }
  if (inputs.tables.empty()) {
    throw InputError("workload",
                     "cannot run: data is made of tokens, or of dense features and "
                     "lookups of embedding tables; this workload has neither");
  }
  if (file.empty()) {
    return std::make_unique<DlrmSource>(inputs, range, seed, threads);
  }
  return std::make_unique<CriteoSource>(inputs, range, file);
}

}  // namespace stepcast::runtime
