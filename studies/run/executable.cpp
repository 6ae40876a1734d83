#include "studies/run/executable.h"

#include <algorithm>

#include "core/error.h"
#include "core/job/layers.h"
#include "workloads/embedding_plan/plan_layout.h"
#include "workloads/transformer/shape.h"

namespace stepcast::studies {
namespace {

using Found = std::optional<std::string>;

// Limits of what kernels hold in registers or shared memory (docs/developers/cuda.md, Kernels).
constexpr std::int64_t kWidestRow = 1024;
constexpr std::int64_t kWidestUnpackedRow = 256;
constexpr std::int64_t kWidestNorm = 16384;
constexpr std::int64_t kMostExperts = 1024;

Found when(bool so) { return so ? Found("") : std::nullopt; }

Found block_formats(const Job& job) {
  return when(bits_per_element(job.formats.compute, 1024) < 16 &&
              job.formats.compute != Format::kFp8);
}

bool in_16_bits(const Job& job) {
  return job.formats.compute == Format::kBf16 || job.formats.compute == Format::kFp16;
}

/// The first layer of a list that `test` is true of, by name.
template <class Test>
Found layer_where(const Job& job, Test test) {
  const LayeredWorkload* w = job.workload.layered();
  if (w == nullptr || w->layers == nullptr) {
    return std::nullopt;
  }
  const LayerList list = layers_of(*w, job.parallel.tensor);
  const auto layer = std::find_if(list.layers.begin(), list.layers.end(), test);
  return layer != list.layers.end() ? Found(fmt::format("layer '{}'", layer->name)) : std::nullopt;
}

bool scores_items(const Layer& l) { return l.kind == LayerKind::kInBatchSoftmax; }

/// Data of recommendation models is one row of dense features, bags of ids and a number a sample.
Found other_data(const Job& job) {
  const LayeredWorkload* w = job.workload.layered();
  if (w == nullptr || w->layers == nullptr) {
    return std::nullopt;
  }
  const LayerList list = layers_of(*w, job.parallel.tensor);
  const auto losses = std::count_if(list.layers.begin(), list.layers.end(),
                                    [](const Layer& l) { return is_loss(l.kind); });
  const Layer& last = list.layers.back();
  const bool clicks =
      losses == 1 &&
      (last.kind == LayerKind::kBinaryCrossEntropy || (scores_items(last) && last.labels <= 1)) &&
      list.inputs.size() == 1 && list.input_width() == w->dense_features;
  return when(!clicks || w->tables.empty() || !list.groups.empty());
}

Found item_scores(const Job& job) { return layer_where(job, scores_items); }

Found layers_without_kernel(const Job& job) {
  return layer_where(job, [&](const Layer& l) {
    return l.kind == LayerKind::kRope || l.kind == LayerKind::kConvolution ||
           (l.kind == LayerKind::kNorm && !l.affine) ||
           (l.kind == LayerKind::kAttention && !job.flash_attention);
  });
}

/// Those that cuDNN does not take.
Found wide_attention_layers(const Job& job) {
  return layer_where(job, [&](const Layer& l) {
    return l.kind == LayerKind::kAttention && !l.heads.lengths &&
           (!in_16_bits(job) || l.heads.dim % 8 != 0 || l.heads.window > 0);
  });
}

Found silu_attention_layers(const Job& job) {
  return layer_where(job, [](const Layer& l) {
    return l.kind == LayerKind::kGatedAttention || l.heads.silu || l.heads.targets > 0;
  });
}

/// The first table that `text` has a text of.
template <class Text>
Found table_where(const Job& job, Text text) {
  if (const LayeredWorkload* w = job.workload.layered()) {
    for (const EmbeddingTable& t : w->tables) {
      if (std::string said = text(*w, t); !said.empty()) {
        return said;
      }
    }
  }
  return std::nullopt;
}

Found shared_tables(const Job& job) {
  return table_where(job, [](const LayeredWorkload&, const EmbeddingTable& t) {
    return t.feature_count() > 1
               ? fmt::format("the {} features of table '{}'", t.feature_count(), t.name)
               : "";
  });
}

Found keyed_tables(const Job& job) {
  return table_where(job, [](const LayeredWorkload&, const EmbeddingTable& t) {
    return t.keyed() ? fmt::format("table '{}'", t.name) : "";
  });
}

Found weighted_tables(const Job& job) {
  return table_where(job, [](const LayeredWorkload&, const EmbeddingTable& t) {
    return t.weighted ? fmt::format("lookups with weights of table '{}'", t.name) : "";
  });
}

Found mixed_row_formats(const Job& job) {
  return table_where(job, [&](const LayeredWorkload& w, const EmbeddingTable& t) {
    const EmbeddingTable& first = w.tables.front();
    return job.row_format(t) != job.row_format(first)
               ? fmt::format("table '{}' in {} together with table '{}' in {}", t.name,
                             name_of(job.row_format(t)), first.name, name_of(job.row_format(first)))
               : "";
  });
}

/// The first slice of the plan that `text` has a text of.
template <class Text>
Found slice_where(const Job& job, Text text) {
  const LayeredWorkload* w = job.workload.layered();
  if (w == nullptr) {
    return std::nullopt;
  }
  const EmbeddingPlacement layout = workloads::embedding_layout(job);
  for (const EmbeddingSlice& s : layout.slices) {
    const std::string& table = w->tables[static_cast<std::size_t>(s.table)].name;
    if (std::string said = text(layout, s, table); !said.empty()) {
      return said;
    }
  }
  return std::nullopt;
}

/// The device itself reads a slower tier: it has to be memory.
Found rows_in_files(const Job& job) {
  return slice_where(
      job, [](const EmbeddingPlacement&, const EmbeddingSlice& s, const std::string& table) {
        return s.tier == "ssd" ? fmt::format("table '{}'", table) : "";
      });
}

Found wide_shards(const Job& job) {
  return slice_where(
      job, [](const EmbeddingPlacement&, const EmbeddingSlice& s, const std::string& table) {
        return s.dim > kWidestRow
                   ? fmt::format("the {} columns of table '{}' in one shard", s.dim, table)
                   : "";
      });
}

Found wide_unpacked_shards(const Job& job) {
  return slice_where(
      job,
      [](const EmbeddingPlacement& layout, const EmbeddingSlice& s,
         const std::string& table) -> std::string {
        for (const EmbeddingSlice& other : layout.slices) {
          if (s.dim > kWidestUnpackedRow && other.route == s.route && other.dim % 4 != 0) {
            return fmt::format("{} columns of table '{}' together with a table of {}", s.dim, table,
                               other.dim);
          }
        }
        return "";
      });
}

Found split_experts(const Job& job) {
  const TransformerWorkload* m = job.workload.transformer();
  if (m == nullptr || !m->moe || job.parallel.zero == 0) {
    return std::nullopt;
  }
  const workloads::ExpertShape experts = *workloads::transformer_shape(job).experts;
  const std::int64_t tensor = job.parallel.tensor;
  return when(experts.tensor < tensor &&
              (experts.ranks % tensor != 0 || job.parallel.mesh().stride(Axis::kTensor) != 1));
}

const TransformerWorkload* transformer(const Job& job) { return job.workload.transformer(); }

/// The mixture of experts of the job's transformer; null without one.
const MixtureOfExperts* experts(const Job& job) {
  return transformer(job) != nullptr && transformer(job)->moe ? &*transformer(job)->moe : nullptr;
}

bool computes_fp8(const Job& job) { return job.formats.compute == Format::kFp8; }

bool flash_transformer(const Job& job) {
  return transformer(job) != nullptr && job.flash_attention;
}

// clang-format off
constexpr PredictedOnly kPredictedOnly[]{
    // key, what, on the CPU, on CUDA, remedy, whether a job has it
    {"formats.compute", "products in block formats", false, false, "use bf16",
     [](const Job& j) { return transformer(j) != nullptr ? block_formats(j) : std::nullopt; }},
    {"formats.compute", "products of a DLRM in block formats", true, false, "use bf16",
     [](const Job& j) { return transformer(j) == nullptr ? block_formats(j) : std::nullopt; }},
    {"formats.compute", "fp8 products", false, true, "use bf16, or --backend cuda",
     [](const Job& j) { return when(computes_fp8(j) && transformer(j) != nullptr); }},
    {"formats.compute", "fp8 products of a DLRM", true, false, "use bf16",
     [](const Job& j) { return when(computes_fp8(j) && transformer(j) == nullptr); }},
    {"formats.compute", "fp8 products of experts", false, false, "use bf16",
     [](const Job& j) { return when(computes_fp8(j) && experts(j) != nullptr); }},
    {"embedding.transform", "towers", false, false, "use none",
     [](const Job& j) { return when(j.workload.layered() != nullptr && j.sptt); }},
    {"workload", "models that do not read embedding tables and one input of dense features, end in one "
     "binary_cross_entropy or in_batch_softmax (one item a sample with log_q) and split no sample over ranks", false, false, "choose such a model", other_data},
    {"workload", "rope, convolutions, norms without scale and unfused attention among listed layers", false, false,
     "leave them out", layers_without_kernel},
    {"workload", "attention over whole samples among listed layers but in bf16 or fp16, with heads a multiple of 8 wide "
     "and no window", true, false, "choose these, or give it lengths", wide_attention_layers},
    {"workload", "attention with silu, targets or a gate among listed layers", false, false, "leave them out",
     silu_attention_layers},
    {"workload", "a softmax over the items of all samples", true, false, "run it on the CPU", item_scores},
    {"workload.tables", "tables that several features share", false, false, "give each feature a table", shared_tables},
    {"workload.tables", "ids that take rows of others", false, false, "set access.remap.kind to mod or frequency",
     keyed_tables},
    {"workload.tables", "lookups with weights", false, false, "leave weighted out", weighted_tables},
    {"workload.tables", "tables of different formats", true, false, "give all tables one format", mixed_row_formats},
    {"embedding.plan", "rows in tier ssd", true, false, "put them in tier ddr, or run it on the CPU", rows_in_files},
    {"embedding.plan", "shards of more than 1024 columns", true, false, "give it shards of at most 1024 columns",
     wide_shards},
    {"workload.tables", "shards of more than 256 columns on a route with a table whose dim 4 does not divide", true, false,
     "choose a dim that divides by 4, or shards of at most 256 columns", wide_unpacked_shards},
    {"parallel.context", "context parallelism", false, false, "set it to 1",
     [](const Job& j) { return when(transformer(j) != nullptr && j.parallel.context > 1); }},
    {"parallel.overlap.tensor_products", "transfers split to overlap with products", false, false, "set it to false",
     [](const Job& j) {
       return when(transformer(j) != nullptr && j.parallel.overlap.tensor_products && j.parallel.tensor > 1 &&
                   j.parallel.sequence_parallel);
     }},
    {"phase", "inference", false, false, "set it to train",
     [](const Job& j) { return when(j.phase != JobPhase::kTrain); }},
    {"parallel.zero", "shards of experts that differ between tensor ranks", false, false,
     "set it to 0, or parallel.expert to a multiple of parallel.tensor", split_experts},
    {"workload.moe.groups_per_token", "a router that keeps tokens inside groups of experts", false, false,
     "leave groups out", [](const Job& j) { return when(experts(j) != nullptr && experts(j)->limits_groups()); }},
    {"workload.moe.latent", "experts of latent vectors", false, false, "leave it out",
     [](const Job& j) { return when(experts(j) != nullptr && experts(j)->latent > 0); }},
    {"parallel.expert_dispatch", "exchanges that send a token to each machine once", false, false, "set it to all_to_all",
     [](const Job& j) {
       return when(experts(j) != nullptr && j.parallel.expert > 1 &&
                   j.parallel.expert_dispatch == ExpertDispatch::kPerMachine);
     }},
    {"parallel.overlap.expert", "exchanges beside another micro-batch", false, false, "set it to true",
     [](const Job& j) {
       return when(experts(j) != nullptr && j.parallel.expert > 1 && j.parallel.overlap.expert_batch);
     }},
    {"parallel.fused_experts", "activations inside products of experts", false, false, "set it to false",
     [](const Job& j) { return when(experts(j) != nullptr && j.parallel.fused_experts); }},
    {"graphs", "CUDA graphs", false, false, "set it to none",
     [](const Job& j) { return when(transformer(j) != nullptr && j.graphs != Graphs::kNone); }},
    {"formats.expert_dispatch", "tokens that travel in a format of their own", false, false, "leave it out",
     [](const Job& j) { return when(experts(j) != nullptr && j.formats.expert_dispatch); }},
    {"system.framework_traits.probabilities_inside", "experts that apply the routing probabilities", false, false,
     "set it to false",
     [](const Job& j) { return when(experts(j) != nullptr && j.system.framework.probabilities_inside); }},
    {"formats.attention", "attention in a separate format", false, false, "leave it out",
     [](const Job& j) { return when(transformer(j) != nullptr && j.system.framework.fp8_attention); }},
    {"formats.scores", "a softmax saved in a format of its own", false, false, "leave it out",
     [](const Job& j) { return when(transformer(j) != nullptr && j.system.framework.wide_scores); }},
    {"formats.head", "a head in the format of narrow products", false, false, "leave it out",
     [](const Job& j) { return when(transformer(j) != nullptr && j.system.framework.narrow_head); }},
    {"formats.activation", "saved inputs of activations in a format of their own", false, false, "leave it out",
     [](const Job& j) { return when(transformer(j) != nullptr && j.formats.activation); }},
    {"workload.pattern", "layers of one block or with a state", false, false, "choose a model of equal layers",
     [](const Job& j) { return when(transformer(j) != nullptr && !transformer(j)->pattern.empty()); }},
    {"workload.mtp", "multi-token prediction", false, false, "set it to 0",
     [](const Job& j) { return when(transformer(j) != nullptr && transformer(j)->predictions > 0); }},
    {"workload.output_gate", "a gate of attention's output", false, false, "set it to false",
     [](const Job& j) { return when(transformer(j) != nullptr && transformer(j)->output_gate); }},
    {"workload.dropout", "dropout", false, false, "set it to false",
     [](const Job& j) { return when(transformer(j) != nullptr && transformer(j)->dropout); }},
    {"loss", "a loss on copies, in chunks of the logits or with gradients that wait", false, false,
     "set it to in_place",
     [](const Job& j) {
       return when(transformer(j) != nullptr &&
                   (j.loss.kind != LossKind::kInPlace || j.loss.chunks > 1 || j.loss.deferred > 0));
     }},
    {"lora", "adapters on frozen weights", false, false, "leave it out",
     [](const Job& j) { return when(transformer(j) != nullptr && j.lora); }},
    {"offload", "offloading to the memory of the host", false, false, "leave it out",
     [](const Job& j) { return when(j.offload != Offload{}); }},
    {"sequence_lengths", "sequences of several documents", false, false, "leave it out",
     [](const Job& j) { return when(transformer(j) != nullptr && j.sequence_lengths); }},
    {"parallel.recompute.modules", "recomputed modules other than core_attn", false, false,
     "set parallel.recompute to selective",
     [](const Job& j) {
       return when(transformer(j) != nullptr && j.parallel.recompute.kind == RecomputeKind::kSelective &&
                   j.parallel.recompute.modules != RecomputeModules{});
     }},
    {"formats.moments", "an optimizer with moments below 32 bits", false, false, "set it to fp32",
     [](const Job& j) { return when(transformer(j) != nullptr && j.formats.moments != Format::kFp32); }},
    {"formats.master", "an optimizer with weights below 32 bits", false, false, "set it to fp32",
     [](const Job& j) {
       return when(transformer(j) != nullptr && !full_precision(j.formats.compute) &&
                   j.formats.master != Format::kFp32);
     }},
    {"optimizer.shards", "muon over ranks that share matrices", false, false,
     "set it to blockwise, and parallel.zero to 0",
     [](const Job& j) {
       return when(j.orthogonalises() && ((j.parallel.zero > 0 && j.parallel.data * j.parallel.context > 1) ||
                                          (j.parallel.tensor > 1 && j.muon.shards != MuonShards::kBlockwise)));
     }},
    {"optimizer.dense", "muon", true, false, "use adam", [](const Job& j) { return when(j.orthogonalises()); }},
    {"workload.chunked", "attention in chunks", false, false, "set it to false",
     [](const Job& j) { return when(transformer(j) != nullptr && transformer(j)->chunked); }},
    {"workload.residual_streams", "several residual streams", false, false, "set it to 1",
     [](const Job& j) {
       return when(transformer(j) != nullptr && transformer(j)->residual_streams > 1);
     }},
    {"workload.mla", "multi-head latent attention", false, false, "run a workload without it",
     [](const Job& j) { return when(transformer(j) != nullptr && transformer(j)->mla); }},
    {"attention", "flash attention in fp32 or tf32", true, false, "set it to unfused",
     [](const Job& j) { return when(flash_transformer(j) && !in_16_bits(j) && !computes_fp8(j)); }},
    {"attention", "flash attention in a sliding window", true, false, "set it to unfused",
     [](const Job& j) { return when(flash_transformer(j) && transformer(j)->window > 0); }},
    {"attention", "flash attention with heads whose width 8 does not divide", true, false, "set it to unfused",
     [](const Job& j) { return when(flash_transformer(j) && transformer(j)->head_dim % 8 != 0); }},
    {"workload.hidden", "norms over more than 16384 elements", true, false, "choose at most 16384",
     [](const Job& j) { return when(transformer(j) != nullptr && transformer(j)->hidden > kWidestNorm); }},
    {"workload.moe.experts", "a router of more than 1024 experts", true, false, "choose at most 1024",
     [](const Job& j) { return when(experts(j) != nullptr && experts(j)->experts > kMostExperts); }}};
// clang-format on

constexpr const char* kPage = R"(# What runs and what is predicted only

`stepcast list runs` prints this page. `predict`, `sweep`, `plan` and `show` take every job. `run` rejects the jobs below
before ranks start (exit 2), and says what to set instead. Flash attention on CUDA also needs cuDNN (exit 3 without;
[run on GPUs](../how-to/run-on-gpus.md)).
)";

}  // namespace

std::span<const PredictedOnly> predicted_only() { return kPredictedOnly; }

std::string what_runs_page() {
  std::string page = kPage;
  const auto section = [&page](std::string_view title, bool cpu, bool cuda) {
    page += fmt::format("\n## {}\n\n", title);
    for (const PredictedOnly& p : kPredictedOnly) {
      if (p.cpu == cpu && p.cuda == cuda) {
        page += fmt::format("- `{}`: {}; {}\n", p.key, p.what, p.remedy);
      }
    }
  };
  section("Predicted only", false, false);
  section("On the CPU, not on CUDA", true, false);
  section("On CUDA, not on the CPU", false, true);
  return page;
}

void require_executable(const Job& job, bool cuda) {
  for (const PredictedOnly& p : kPredictedOnly) {
    if (cuda ? p.cuda : p.cpu) {
      continue;
    }
    if (const Found found = p.found(job)) {
      const char* where = p.cpu ? " on CUDA" : p.cuda ? " on the CPU" : "";
      throw InputError(
          p.key,
          fmt::format("running {}{} is not implemented in this version{}; predict the job, or "
                      "{}",
                      p.what, where, found->empty() ? "" : " (" + *found + ")", p.remedy));
    }
  }
}

}  // namespace stepcast::studies
