#include "runtime/executable.h"

#include "core/error.h"
#include "workloads/embedding_plan_layout.h"
#include "workloads/transformer_shape.h"

namespace stepcast::runtime {

void require_executable(const Job& job, bool cuda) {
  const auto refuse = [](const char* key, const char* what) {
    throw InputError(key, fmt::format("running {} is not implemented in this version; predict the "
                                      "job, or run one without it",
                                      what));
  };
  if (job.sync_interval > 1 && cuda) {
    refuse("embedding.sync_interval", "replicas that wait several steps on CUDA");
  }
  if (job.workload.dlrm() != nullptr && cuda) {
    for (const workloads::EmbeddingSlice& s : workloads::embedding_layout(job).slices) {
      if (s.tier == "ssd") {  // the device itself reads a slower tier: it has to be memory
        refuse("embedding.plan", "rows in tier ssd on CUDA");
      }
      if (s.pools_lists_once()) {
        refuse("embedding.dedup", "repeated lists of pooled tables, once each, on CUDA");
      }
    }
  }
  const TransformerWorkload* m = job.workload.transformer();
  const bool fp8 = job.formats.compute == Format::kFp8;
  if (bits_per_element(job.formats.compute, 1024) < 16 && (m != nullptr || cuda) &&
      !(fp8 && cuda && m != nullptr)) {
    refuse("formats.compute", fp8 && !cuda ? "fp8 products on the CPU"
                              : fp8        ? "fp8 products of a DLRM"
                                           : "products in block formats");
  }
  if (m == nullptr) {
    return;
  }
  if (job.parallel.context > 1) {
    refuse("parallel.context", "context parallelism");
  }
  if (job.parallel.overlap.tensor_products && job.parallel.tensor > 1 &&
      job.parallel.sequence_parallel) {
    refuse("parallel.overlap.tensor_products", "transfers cut up beside products");
  }
  if (job.phase != JobPhase::kTrain) {
    refuse("phase", "inference");
  }
  if (m->moe && fp8) {
    refuse("formats.compute", "fp8 products of experts");
  }
  if (m->moe && job.parallel.zero > 0) {
    const workloads::ExpertShape experts = *workloads::transformer_shape(job).experts;
    const std::int64_t tensor = job.parallel.tensor;
    if (experts.tensor < tensor &&
        (experts.ranks % tensor != 0 || job.parallel.mesh().stride(Axis::kTensor) != 1)) {
      refuse("parallel.zero", "shards of experts that differ between tensor ranks");
    }
  }
  if (m->moe && m->moe->limits_groups()) {
    refuse("workload.moe.groups_per_token", "a router that keeps tokens inside groups of experts");
  }
  if (m->moe && job.parallel.expert > 1 &&
      job.parallel.expert_dispatch == ExpertDispatch::kPerMachine) {
    refuse("parallel.expert_dispatch", "exchanges that send a token to each machine once");
  }
  if (m->moe && job.formats.expert_dispatch) {
    refuse("formats.expert_dispatch", "tokens that travel in a format of their own");
  }
  if (m->mla) {
    refuse("workload.mla", "multi-head latent attention");
  }
}

}  // namespace stepcast::runtime
