#include "runtime/executable.h"

#include "core/error.h"

namespace stepcast::runtime {

void require_executable(const Job& job) {
  const TransformerWorkload* m = job.workload.transformer();
  if (m == nullptr) {
    return;
  }
  const auto refuse = [](const char* key, const char* what) {
    throw InputError(key, fmt::format("running {} is not implemented in this version; predict the "
                                      "job, or run one without it",
                                      what));
  };
  if (m->moe) {
    refuse("workload.moe", "mixture-of-experts layers");
  }
  if (m->mla) {
    refuse("workload.mla", "multi-head latent attention");
  }
}

}  // namespace stepcast::runtime
