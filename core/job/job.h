#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/formats.h"
#include "core/graph/mesh.h"
#include "core/graph/op_enums.h"
#include "core/job/flow.h"
#include "core/job/layer_split.h"
#include "core/job/plan.h"
#include "core/job/schedule.h"
#include "core/job/workload.h"
#include "core/system.h"

namespace stepcast {

enum class RecomputeKind : std::uint8_t { kNone, kSelective, kFull, kFirstLayers };
/// Modules that "selective" recomputation makes again in the backward pass of a layer. The names
/// are those of Megatron-LM's --recompute-modules.
struct RecomputeModules {
  bool attention_core = true;      ///< core_attn: scores and what is kept of them
  bool norms = false;              ///< layernorm: the outputs of both norms
  bool feed_forward = false;       ///< mlp: a dense feed-forward block from its norm on
  bool expert_activation = false;  ///< moe_act: what the experts' activation made
  bool latent_up = false;          ///< mla_up_proj: what latent attention makes of its compressed
                                   ///< queries, keys and values: products, rotary positions
  friend bool operator==(const RecomputeModules&, const RecomputeModules&) = default;
};
struct RecomputeModuleName {
  const char* name;
  bool RecomputeModules::*module;
};
inline constexpr RecomputeModuleName kRecomputeModules[] = {
    {"core_attn", &RecomputeModules::attention_core},
    {"layernorm", &RecomputeModules::norms},
    {"mlp", &RecomputeModules::feed_forward},
    {"moe_act", &RecomputeModules::expert_activation},
    {"mla_up_proj", &RecomputeModules::latent_up}};
inline std::vector<std::string> names_of(const RecomputeModules& modules) {
  std::vector<std::string> names;
  for (const auto& [name, module] : kRecomputeModules) {
    if (modules.*module) {
      names.emplace_back(name);
    }
  }
  return names;
}
struct Recompute {
  RecomputeKind kind = RecomputeKind::kNone;
  std::int64_t layers = 0;     ///< kFirstLayers: full recompute of the first k layers of each stage
  RecomputeModules modules{};  ///< kSelective
};

/// How the logits of a head become the loss and their gradient.
enum class LossKind : std::uint8_t {
  kInPlace,   ///< in fp32, overwritten by their gradient
  kCopied,    ///< products write and read them in their own format; the loss works on a copy in
              ///< fp32 (Megatron-LM)
  kCompiled,  ///< as kFused, with the exponentials in a tensor of their own (Megatron-LM's
              ///< --cross-entropy-loss-fusion native, PyTorch's compiler)
  kEager,     ///< PyTorch's cross_entropy: log-probabilities and two gradients are tensors of their
              ///< own, in fp32
  kFused,     ///< one kernel overwrites them, in the products' format, with their gradient (Liger,
              ///< Transformer Engine)
};
struct Loss {
  LossKind kind = LossKind::kInPlace;
  /// Micro-batches of a pipeline whose weight gradient of the head is made at the end of the step:
  /// what it reads is kept (Megatron-LM's --defer-embedding-wgrad-compute). Its time stays where
  /// the backward pass has it.
  std::int32_t deferred = 0;
  /// Parts of a micro-batch's tokens: the head's product, the loss and both gradients of one are
  /// done before the next begins, in the forward pass.
  std::int64_t chunks = 1;
};

/// How Muon orthogonalises a matrix whose parts tensor ranks hold. Source: Megatron-LM's
/// --muon-tp-mode.
enum class MuonShards : std::uint8_t {
  kDuplicated,   ///< all gather it and do all
  kDistributed,  ///< each iterates on its part; the squares are summed over the ranks
  kBlockwise,    ///< each part is a matrix of its own: another rule, no exchange
  kLayerSharded  ///< each whole matrix on one of them, there and back by one all-to-all each
};
std::string_view name_of(MuonShards shards);
struct Muon {
  std::int64_t iterations = 5;  ///< of Newton-Schulz
  MuonShards shards = MuonShards::kDuplicated;
};

/// Low-rank adapters on frozen matrices: y = x W + alpha / rank * (x A) B (Hu et
/// al., arXiv 2106.09685). Weights of the model have no gradient and no optimizer state.
struct Lora {
  std::int64_t rank = 0;
  double alpha = 0;
  double dropout = 0;                                            ///< of x on its way to A
  bool qkv = true, projection = true, fc1 = false, fc2 = false;  ///< matrices that have adapters
};

/// Lengths of the documents that sequences are made of.
struct SequenceLengths {
  double mean = 0;
  double mean_square = 0;  ///< of the lengths
  /// Documents follow one another until a sequence is full; else each sequence holds one, and the
  /// rest of its tokens are padding.
  bool packed = true;
  bool attend_within = true;  ///< packed: a token attends to its own document only
  /// Length of the document that an average token lies in.
  [[nodiscard]] double length_of_a_token() const { return mean_square / mean; }
};

struct Overlap {
  bool data = false, tensor = false, pipeline = false;  // transformer
  bool input_all_to_all = false, output_all_to_all = false, dense_all_reduce = false;  // DLRM
  /// ZeRO 1 and 2: the gather of updated parameters overlaps with the next step's first forward
  /// pass.
  bool parameters = false;
  /// Exchanges of experts' tokens overlap with the shared experts, and with the routed ones where
  /// Parallel::expert_chunks cuts them.
  bool expert = false;
  /// With `tensor` and sequence parallelism: gathers before a product and sums after one are cut
  /// up, a part of the product at work while the rows of another travel.
  bool tensor_products = false;
  /// With `expert`: exchanges of one micro-batch's tokens overlap with the compute of another, as
  /// long as that lasts.
  bool expert_batch = false;
};

/// How far the sparse half of a DLRM runs ahead of the dense half. During the step of batch i, also
/// done for batch i + 1: nothing | host input and index exchange | and the embedding lookups | and
/// the exchange of what was looked up. Lookups follow the update by batch i, so no mode trains on
/// stale rows.
enum class DlrmPipeline : std::uint8_t { kNone, kSparseDist, kPrefetch, kFused };

/// How ranks that each hold a part of a sequence attend to all of it: gather keys and values |
/// pass them around a ring | pass queries around it | exchange sequence parts for head parts |
/// what moves least and can be hidden.
enum class ContextAlgorithm : std::uint8_t { kAuto, kAllGather, kPassKv, kPassQ, kAllToAll };

/// How tokens go to the ranks of their experts, and what was made of them back: a copy for each
/// expert | one to each machine that has some of them, forwarded there to each rank that has, once,
/// and summed up the same way on the way back (DeepSeek-V3, arXiv 2412.19437, section 3.2.2;
/// DeepEP).
enum class ExpertDispatch : std::uint8_t { kCopies, kPerMachine };

/// Library that exchanges experts' tokens: all-to-all of the collective library | DeepEP | HybridEP
/// (one kernel that permutes, exchanges and needs no counts on the host).
enum class ExpertDispatcher : std::uint8_t { kPlain, kDeepEp, kHybridEp };

/// CUDA graphs that replay a step: none | one for each layer and pass | one for the whole step. The
/// host issues a graph in place of the ops it holds.
enum class Graphs : std::uint8_t { kNone, kLayer, kFull };

/// Kept in the host's memory between uses: saved activations of a layer | optimizer states, with
/// their update | weights (ZeRO 3).
struct Offload {
  bool activations = false, optimizer = false, parameters = false;
  friend bool operator==(const Offload&, const Offload&) = default;
};

/// Kind of a step: forward, backward and update | forward over new tokens, keeping their keys and
/// values | forward of one new token per sequence.
enum class JobPhase : std::uint8_t { kTrain, kPrefill, kDecode };

struct Parallel {
  std::int64_t tensor = 1, context = 1, pipeline = 1, expert = 1, data = 1;
  /// How ranks are numbered; experts are distributed over neighbours in it.
  MeshOrder order = kUsualOrder;
  [[nodiscard]] Mesh mesh() const {
    const auto narrow = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
    return {narrow(tensor), narrow(context), narrow(pipeline), narrow(data), order};
  }
  /// Ranks that share one expert by columns: `tensor` or 1; 0: `tensor` where `expert` divides
  /// data * context, else 1 (tensor ranks then hold different experts).
  std::int64_t expert_tensor = 0;
  /// Parts in which tokens go to the experts and back; one is in transfer while another is
  /// computed.
  std::int64_t expert_chunks = 1;
  ExpertDispatch expert_dispatch = ExpertDispatch::kCopies;
  ExpertDispatcher dispatcher = ExpertDispatcher::kPlain;
  bool fused_permutation = false;  ///< tokens are permuted and padded by one kernel each way
  bool fused_experts = false;      ///< casts and activations of experts lie inside their products
  /// Machines that ranks with different experts lie in; 0: as their numbers say
  /// (core/graph/mesh.h).
  std::int64_t expert_machines = 0;
  /// `expert` ranks, and `expert_tensor` resolved.
  [[nodiscard]] ExpertSplit expert_split() const {
    const bool by_columns = expert_tensor == 0 && data * context % expert == 0;
    return {
        static_cast<std::int32_t>(expert),
        static_cast<std::int32_t>(by_columns ? tensor : std::max<std::int64_t>(1, expert_tensor))};
  }
  std::int64_t virtual_stages = 1;
  /// Micro-batches that a chunk of an interleaved stage runs before the next chunk's turn; 0: as
  /// many as there are stages.
  std::int64_t chunk_microbatches = 0;
  [[nodiscard]] std::int64_t turn_of_chunk() const {
    return chunk_microbatches > 0 ? chunk_microbatches : pipeline;
  }
  [[nodiscard]] VirtualStages stages() const {
    return {pipeline, virtual_stages, traits_of(schedule).placement};
  }
  PipelineSplit pipeline_split;
  ScheduleKind schedule = ScheduleKind::kOneFOneB;
  bool sequence_parallel = false;
  /// ZeRO stage (Rajbhandari et al., arXiv 1910.02054): 1 shards optimizer states, 2 gradients
  /// too, 3 weights too (FSDP).
  int zero = 0;
  bool zero_reshard = true;  ///< stage 3: weights are freed after each use, forward and backward
  /// Level of the fabric, or "node", inside which shards lie; they are replicated across (HSDP).
  /// Empty: over all replicas.
  std::string zero_level;
  Recompute recompute;
  Bytes bucket = MB(25);
  std::int64_t bucket_elements = 0;  ///< gradients exchanged together; 0: `bucket` says it
  Overlap overlap;
  DlrmPipeline dlrm_pipeline = DlrmPipeline::kNone;
  ContextAlgorithm context_algorithm = ContextAlgorithm::kAuto;
};

/// Number formats by role (primitive P2).
struct RoleFormats {
  Format compute = Format::kBf16;
  Format gradient = Format::kFp32;
  Format embedding = Format::kFp32;
  Format all_to_all_forward = Format::kFp32;
  Format all_to_all_backward = Format::kFp32;
  /// Format of tokens, and of the gradients of experts' outputs, in the expert exchange; none: as
  /// they are stored.
  std::optional<Format> expert_dispatch{};
  Format moments = Format::kFp32;  ///< of the optimizer state of a weight
  /// Format of the copy of a narrow weight that the optimizer updates; none: it updates the weight.
  std::optional<Format> master = Format::kFp32;
  /// Format of the keys and values kept while decoding; none: as they are computed.
  std::optional<Format> cache{};
  /// Format of weights that are not trained; none: as all others.
  std::optional<Format> frozen{};
  /// Format in which inputs of feed-forward activations wait for the backward pass; none: as
  /// computed.
  std::optional<Format> activation{};
};

struct Calibration {
  enum class Kind : std::uint8_t { kAuto, kNone, kScale };
  Kind kind = Kind::kAuto;
  double scale = 1;  ///< multiplies time, one scalar for a software framework
};

/// A fully resolved job: what is trained, how it is split, on what. Made and checked by
/// core/config.
struct Job {
  Workload workload;
  System system;
  std::int64_t devices = 1;
  Batch batch;
  Parallel parallel;
  RoleFormats formats;
  std::string embedding_choice =
      "auto";  ///< auto, search, table_wise, ...; of a given plan its file, or "inline"
  bool embedding_chosen = false;  ///< the job says so itself
  std::optional<EmbeddingPlan> embedding_plan;
  /// Pooled rows travel in towers: exchanged inside a node first, then between ranks of equal place
  /// in their nodes (SPTT, arXiv 2403.00877), `tower_compression` times smaller there.
  bool sptt = false;
  double tower_compression = 1;
  /// Rows of unpooled tables that a rank looks up several times in a batch are asked for and sent
  /// once (ikjt), and put in their places by the rank that asked.
  bool embedding_dedup = false;
  std::vector<TableConstraint> plan_constraints;  ///< on plans that are searched
  /// Steps between two synchronisations of replicated rows of tables. Each copy adds up the
  /// gradients of its own lookups; then their sum over copies takes one optimizer step, the same on
  /// every copy.
  std::int64_t sync_interval = 1;
  OptimizerKind dense_optimizer = OptimizerKind::kAdam;
  OptimizerKind embedding_optimizer = OptimizerKind::kRowwiseAdagrad;
  Muon muon;  ///< where `dense_optimizer` is: of matrices of layers; all else has Adam
  [[nodiscard]] bool orthogonalises() const { return dense_optimizer == OptimizerKind::kMuon; }
  bool flash_attention = true;
  Graphs graphs = Graphs::kNone;
  Offload offload;
  bool fused_epilogues = false;  ///< biases and activations inside products (core/graph/epilogue.h)
  Loss loss;
  std::optional<Lora> lora;
  std::optional<SequenceLengths> sequence_lengths;
  JobPhase phase = JobPhase::kTrain;
  std::int64_t cached = 0;  ///< tokens per sequence whose keys and values exist (not kTrain)
  Calibration calibration;
  std::vector<Flow> flows;
  /// Storage format of a table's rows.
  [[nodiscard]] Format row_format(const EmbeddingTable& table) const {
    return table.format.value_or(formats.embedding);
  }
  [[nodiscard]] std::int64_t microbatches() const {
    return batch.global / (parallel.data * batch.micro);
  }
};

}  // namespace stepcast
