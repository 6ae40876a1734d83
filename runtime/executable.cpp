#include "runtime/executable.h"

#include "core/error.h"
#include "workloads/embedding_plan_layout.h"

namespace stepcast::runtime {

void require_executable(const Job& job, bool cuda) {
  const auto refuse = [](const char* key, const char* what) {
    throw InputError(key, fmt::format("running {} is not implemented in this version; predict the "
                                      "job, or run one without it",
                                      what));
  };
  if (job.workload.dlrm() != nullptr && cuda) {
    if (job.embedding_dedup) {
      refuse("embedding.dedup", "deduplicated ids on CUDA");
    }
    for (const workloads::EmbeddingSlice& s : workloads::embedding_layout(job).slices) {
      if (s.row_range() || workloads::has_copies(s.route)) {
        refuse("embedding.plan", "row ranges of tables on CUDA");
      }
      if (s.in_slow_tier()) {
        refuse("embedding.plan", "rows in slower memory tiers on CUDA");
      }
    }
  }
  const TransformerWorkload* m = job.workload.transformer();
  if (m == nullptr) {
    return;
  }
  if (bits_per_element(job.formats.compute, 1024) < 16) {
    refuse("formats.compute", "products below 16 bits");
  }
  if (m->window > 0 && cuda) {
    refuse("workload.window", "sliding-window attention on CUDA");
  }
  if (job.parallel.context > 1) {
    refuse("parallel.context", "context parallelism");
  }
  if (job.phase != JobPhase::kTrain) {
    refuse("phase", "inference");
  }
  if (m->moe) {
    refuse("workload.moe", "mixture-of-experts layers");
  }
  if (m->mla) {
    refuse("workload.mla", "multi-head latent attention");
  }
}

}  // namespace stepcast::runtime
