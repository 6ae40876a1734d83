#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/graph/expert_draw.h"
#include "core/graph/mesh.h"
#include "core/job/job.h"
#include "core/job/layer_split.h"
#include "core/job/parameter_count.h"
#include "core/job_split.h"

namespace stepcast::workloads {

using ::stepcast::LayerRange;

/// Exchange of tokens that go to each machine once: to the rank there that has its sender's place,
/// which forwards it to the ranks with some of its experts, itself included (ExpertDispatch).
struct ExpertMachines {
  std::int64_t machines = 1;  ///< that ranks with different experts lie in
  std::int64_t places = 1;    ///< such ranks in one of them
  /// Rows of one rank's tokens that a machine, and that a rank, gets: expected.
  double to_machine = 0, to_rank = 0;
  std::int64_t received = 0;  ///< rows that come to a rank, its own included
  /// Sums of several experts that come back: from each other machine, and of the own one from each
  /// rank.
  std::int64_t returned = 0;
};

/// Work of one rank in a layer of experts: the most loaded one, which the others wait for.
struct ExpertShape {
  std::int64_t ranks = 1;     ///< that hold different experts and exchange tokens
  std::int64_t tensor = 1;    ///< that share each expert by columns
  std::int64_t replicas = 1;  ///< ranks of a stage with the same part of the same experts
  std::int64_t local = 1;     ///< experts held here
  std::int64_t width = 1;     ///< of a row that experts read and make
  std::int64_t ffn = 1, fc1_width = 1;
  std::int64_t shared_ffn = 0;  ///< of all shared experts; split over tensor ranks
  std::int64_t sent = 0;        ///< copies of its tokens that a rank sends, itself included
  std::int64_t received = 0;    ///< copies that come to the rank
  std::int64_t computed = 0;    ///< rows of its products: those of all `tensor` ranks that gather
  /// The most, as their draw may fall: room for them. Without capacity all are sent.
  std::int64_t sent_room = 0, received_room = 0, computed_room = 0;
  std::int64_t chunks = 1;    ///< in which copies travel and are computed
  std::int64_t capacity = 0;  ///< copies of one rank's tokens that an expert takes
  std::shared_ptr<const ExpertDraw> draw;
  /// Rows of a chunk, of so many.
  [[nodiscard]] std::int64_t part(std::int64_t rows, std::int64_t chunk) const {
    return rows * (chunk + 1) / chunks - rows * chunk / chunks;
  }
  [[nodiscard]] ExpertSplit split() const {
    return {static_cast<std::int32_t>(ranks), static_cast<std::int32_t>(tensor)};
  }
  bool gathers = false;    ///< tensor ranks route tokens of their own and compute them together
  std::vector<double> to;  ///< copies to each rank; empty where all get as many
  std::optional<ExpertMachines> once;  ///< instead: each token once to each machine
  /// Relative to `computed`: rows of an average rank, and of one without dropped copies.
  double average = 1, nominal = 1;
};

/// Part of a split transformer that one rank holds and works on. Widths are per rank.
struct TransformerShape {
  TransformerWorkload model;
  std::int64_t tensor = 1, pipeline = 1, data = 1, chunks = 1;
  /// Ranks that hold the same parameters; ZeRO shards over `shards` of them, and replicas / shards
  /// ranks hold equal shards.
  std::int64_t replicas = 1, shards = 1;
  std::int64_t context = 1;
  ContextAlgorithm algorithm = ContextAlgorithm::kPassKv;  ///< chosen, with context > 1
  bool inference = false;                                  ///< forward only, keys and values stay
  bool sequence_parallel = false;                          ///< and tensor > 1
  std::int64_t samples = 1;    ///< of a micro-batch; decoding, this rank's part of them
  std::int64_t sequence = 1;   ///< (new) tokens of a sample on this rank
  std::int64_t fresh = 1;      ///< new tokens of a sample, on all ranks
  std::int64_t positions = 1;  ///< tokens of a sample, cached ones too, on all ranks
  /// What tokens of a micro-batch attend in: so many parts of so many tokens, the sequences or, as
  /// an average token sees them, the documents packed into them; `attended` of what their product
  /// says (core/job/job.h, SequenceLengths).
  std::int64_t attention_batch = 1, attention_length = 1;
  double attended = 1;
  std::int64_t cached = 0;          ///< tokens of a sequence whose keys and values this rank holds
  std::int64_t held_sequences = 1;  ///< sequences of a micro-batch that it holds some of
  std::int64_t tokens = 1;          ///< of a micro-batch: rows between a gather and a reduction
  std::int64_t rows = 1;  ///< rows elsewhere: tokens, or tokens / tensor under sequence parallelism
  /// Columns of the residual path (TransformerWorkload::residual_streams).
  [[nodiscard]] std::int64_t residual() const { return model.residual_width(); }
  std::int64_t predictions = 0;  ///< tokens further that are predicted in training
  /// Tokens whose logits the head makes, and rows of its norm.
  [[nodiscard]] std::int64_t head_tokens() const { return tokens * (1 + predictions); }
  [[nodiscard]] std::int64_t head_rows() const { return rows * (1 + predictions); }
  std::int64_t heads = 1, kv_heads = 1;
  std::int64_t kv_copies = 1;  ///< tensor ranks that hold the same key and value heads
  std::int64_t core_dim = 1;   ///< head width of the attention core
  std::int64_t query_width = 1, qkv_width = 1;
  /// Columns of a token that the core reads as queries, reads as keys and values, and writes; and
  /// those that a cache keeps of it. Decoding, a core of latent attention works on the latent
  /// vectors, one key and value for all heads (DeepSeek-V2, arXiv 2405.04434, section 2.1.2).
  std::int64_t core_queries = 1, kv_width = 1, core_outputs = 1, cache_width = 1;
  bool absorbs = false;  ///< the core's queries and outputs are latent vectors
  bool sparse = false;   ///< queries see the keys that score highest, of latent vectors
  /// True if outputs of the core are projected once more before they are of `query_width`.
  [[nodiscard]] bool projects_twice() const { return sparse || model.compressed.has_value(); }
  std::int64_t ffn = 1;        ///< width of the second matrix's input
  std::int64_t fc1_width = 1;  ///< ffn, or 2 ffn with a gate
  std::int64_t vocabulary = 1;
  std::int64_t microbatches = 1;
  std::optional<ExpertShape> experts;
  VirtualStages stages;
  /// Embedding and head are on different ranks, so tied weights have two copies.
  [[nodiscard]] bool ends_apart() const { return stages.stage_of(stages.count() - 1) != 0; }
  std::vector<LayerRange> ranges;  ///< by virtual stage

  /// Share of a layer's scores that its causal mask leaves; `window` of the layer, 0: none.
  [[nodiscard]] double causal_share(std::int64_t window) const;
  /// Pairs of a query and a key that it sees, of its window and of several tokens, in a layer of a
  /// model with compressed keys.
  [[nodiscard]] double compressed_pairs(std::int64_t layer) const;
  [[nodiscard]] const LayerRange& range(std::int64_t stage, std::int64_t chunk) const {
    return ranges[static_cast<std::size_t>(stages.at(stage, chunk))];
  }
};

/// Splits a job's transformer, layers as split_layers. Errors: InputError naming the job's key,
/// when a rule of core/job/job_rules.h is broken.
TransformerShape transformer_shape(const Job& job);

using ::stepcast::context_algorithm;
using ::stepcast::shard_ranks;
using ::stepcast::transformer_active_parameters;
using ::stepcast::transformer_parameters;

}  // namespace stepcast::workloads
