#include "studies/run/executable.h"

#include <algorithm>

#include "core/error.h"
#include "core/job/framework_traits.h"
#include "core/job/layers.h"
#include "workloads/embedding_plan/plan_layout.h"
#include "workloads/transformer/shape.h"

namespace stepcast::studies {
namespace {

[[noreturn]] void refuse(const char* key, std::string_view what, std::string_view remedy) {
  throw InputError(key, fmt::format("running {} is not implemented in this version; predict the "
                                    "job, or {}",
                                    what, remedy));
}

/// What the kernels of a device hold in registers or shared memory (docs/developers/cuda.md,
/// Kernels).
constexpr std::int64_t kWidestRow = 1024;
constexpr std::int64_t kWidestUnpackedRow = 256;
constexpr std::int64_t kWidestNorm = 16384;
constexpr std::int64_t kMostExperts = 1024;

void require_tables(const Job& job, const LayeredWorkload& w, bool cuda) {
  for (const EmbeddingTable& t : w.tables) {
    if (t.feature_count() > 1) {
      refuse("workload.tables",
             fmt::format("the {} features of table '{}'", t.feature_count(), t.name),
             "give each feature a table");
    }
    if (t.weighted) {
      refuse("workload.tables", fmt::format("lookups with weights of table '{}'", t.name),
             "leave weighted out");
    }
    if (cuda && job.row_format(t) != job.row_format(w.tables.front())) {
      refuse("workload.tables",
             fmt::format("table '{}' in {} together with table '{}' in {} on CUDA", t.name,
                         name_of(job.row_format(t)), w.tables.front().name,
                         name_of(job.row_format(w.tables.front()))),
             "give all tables one format");
    }
  }
}

/// Data of recommendation models is one row of dense features, bags of ids and a click a sample.
void require_clicks(const Job& job, const LayeredWorkload& w) {
  if (job.sptt) {
    throw InputError("job: embedding.transform",
                     "cannot run: towers are predicted, not executed, in this version; use none");
  }
  if (w.layers == nullptr) {
    return;
  }
  const LayerList list = layers_of(w, job.parallel.tensor);
  const auto losses = std::count_if(list.layers.begin(), list.layers.end(),
                                    [](const Layer& l) { return is_loss(l.kind); });
  const bool clicks = losses == 1 && list.layers.back().kind == LayerKind::kBinaryCrossEntropy &&
                      list.inputs.size() == 1 && list.input_width() == w.dense_features;
  const std::string place = fmt::format("workload '{}'", job.workload.name);
  if (!clicks || w.tables.empty() || !list.groups.empty()) {
    throw InputError(
        place,
        "cannot run: data is made for models with embedding tables, one input of dense "
        "features and one binary_cross_entropy, on data-parallel ranks; predict and "
        "show take every model");
  }
  for (const Layer& l : list.layers) {
    if (l.kind == LayerKind::kRope || l.kind == LayerKind::kConvolution ||
        (l.kind == LayerKind::kNorm && !l.affine) ||
        (l.kind == LayerKind::kAttention && !job.flash_attention)) {
      throw InputError(place, fmt::format("cannot run: layer '{}' (rope, convolution, norm without "
                                          "scale or unfused attention) has no kernel for such "
                                          "models; predict and show take it",
                                          l.name));
    }
  }
}

void require_dlrm_on_device(const Job& job) {
  const EmbeddingPlacement layout = workloads::embedding_layout(job);
  for (const EmbeddingSlice& s : layout.slices) {
    if (s.tier == "ssd") {  // the device itself reads a slower tier: it has to be memory
      refuse("embedding.plan", "rows in tier ssd on CUDA",
             "put them in tier ddr, or run it on the "
             "CPU");
    }
    const std::string& table =
        job.workload.layered()->tables[static_cast<std::size_t>(s.table)].name;
    if (s.dim > kWidestRow) {
      refuse("embedding.plan",
             fmt::format("the {} columns of table '{}' in one shard on CUDA", s.dim, table),
             fmt::format("give it shards of at most {} columns", kWidestRow));
    }
    for (const EmbeddingSlice& other : layout.slices) {
      if (s.dim > kWidestUnpackedRow && other.route == s.route && other.dim % 4 != 0) {
        refuse("workload.tables",
               fmt::format("{} columns of table '{}' together with a table of {} on CUDA", s.dim,
                           table, other.dim),
               fmt::format("choose a dim that divides by 4, or shards of at most {} columns",
                           kWidestUnpackedRow));
      }
    }
  }
}

void require_transformer_on_device(const TransformerWorkload& m) {
  if (m.hidden > kWidestNorm) {
    refuse("workload.hidden", fmt::format("norms over {} elements on CUDA", m.hidden),
           fmt::format("choose at most {}", kWidestNorm));
  }
  if (m.moe && m.moe->experts > kMostExperts) {
    refuse("workload.moe.experts", fmt::format("a router of {} experts on CUDA", m.moe->experts),
           fmt::format("choose at most {}", kMostExperts));
  }
}

void require_products(const Job& job, bool cuda) {
  const bool fp8 = job.formats.compute == Format::kFp8;
  const TransformerWorkload* m = job.workload.transformer();
  if (bits_per_element(job.formats.compute, 1024) >= 16 || (m == nullptr && !cuda)) {
    return;
  }
  if (!fp8) {
    refuse("formats.compute", "products in block formats", "use bf16");
  }
  if (!cuda) {
    refuse("formats.compute", "fp8 products on the CPU", "use bf16, or --backend cuda");
  }
  if (m == nullptr) {
    refuse("formats.compute", "fp8 products of a DLRM", "use bf16");
  }
  if (m->moe) {
    refuse("formats.compute", "fp8 products of experts", "use bf16");
  }
}

void require_transformer(const Job& job, const TransformerWorkload& m) {
  if (job.parallel.context > 1) {
    refuse("parallel.context", "context parallelism", "set it to 1");
  }
  if (job.parallel.overlap.tensor_products && job.parallel.tensor > 1 &&
      job.parallel.sequence_parallel) {
    refuse("parallel.overlap.tensor_products", "transfers split to overlap with products",
           "set it to false");
  }
  if (job.phase != JobPhase::kTrain) {
    refuse("phase", "inference", "set it to train");
  }
  if (m.moe && job.parallel.zero > 0) {
    const workloads::ExpertShape experts = *workloads::transformer_shape(job).experts;
    const std::int64_t tensor = job.parallel.tensor;
    if (experts.tensor < tensor &&
        (experts.ranks % tensor != 0 || job.parallel.mesh().stride(Axis::kTensor) != 1)) {
      refuse("parallel.zero", "shards of experts that differ between tensor ranks",
             "set it to 0, or parallel.expert to a multiple of parallel.tensor");
    }
  }
  if (m.moe && m.moe->limits_groups()) {
    refuse("workload.moe.groups_per_token", "a router that keeps tokens inside groups of experts",
           "leave groups out");
  }
  if (m.moe && job.parallel.expert > 1 &&
      job.parallel.expert_dispatch == ExpertDispatch::kPerMachine) {
    refuse("parallel.expert_dispatch", "exchanges that send a token to each machine once",
           "set it to all_to_all");
  }
  if (m.moe && job.formats.expert_dispatch) {
    refuse("formats.expert_dispatch", "tokens that travel in a format of their own",
           "leave it out");
  }
  if (framework_traits(job.system).fp8_attention) {
    refuse("formats.attention", "attention in a separate format", "leave it out");
  }
  if (m.dropout) {
    refuse("workload.dropout", "dropout", "set it to false");
  }
  if (job.loss.kind != LossKind::kInPlace || job.loss.chunks > 1) {
    refuse("loss", "a loss on copies or in chunks of the logits", "set it to in_place");
  }
  if (job.lora) {
    refuse("lora", "adapters on frozen weights", "leave it out");
  }
  if (job.sequence_lengths) {
    refuse("sequence_lengths", "sequences of several documents", "leave it out");
  }
  if (job.parallel.recompute.kind == RecomputeKind::kSelective &&
      job.parallel.recompute.modules != RecomputeModules{}) {
    refuse("parallel.recompute.modules", "recomputed modules other than core_attn",
           "set parallel.recompute to selective");
  }
  if (job.formats.moments != Format::kFp32 || job.formats.master != Format::kFp32) {
    refuse(job.formats.moments != Format::kFp32 ? "formats.moments" : "formats.master",
           "an optimizer with states below 32 bits", "set it to fp32");
  }
  if (m.mla) {
    refuse("workload.mla", "multi-head latent attention", "run a workload without it");
  }
}

}  // namespace

void require_executable(const Job& job, bool cuda) {
  require_products(job, cuda);
  if (const LayeredWorkload* w = job.workload.layered()) {
    require_clicks(job, *w);
    require_tables(job, *w, cuda);
    if (cuda) {
      require_dlrm_on_device(job);
    }
  }
  if (const TransformerWorkload* m = job.workload.transformer()) {
    require_transformer(job, *m);
    if (cuda) {
      require_transformer_on_device(*m);
    }
  }
}

}  // namespace stepcast::studies
