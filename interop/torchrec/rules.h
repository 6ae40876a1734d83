#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace stepcast::interop {

/// A sharding type of TorchRec: which collections take it, and with which compute kernels.
struct TorchRecSharding {
  std::string_view type;
  bool pooled;    ///< tables of an EmbeddingBagCollection
  bool unpooled;  ///< tables of an EmbeddingCollection
  std::vector<std::string_view> kernels;
};

/// Plans here that TorchRec's sharders accept on CUDA devices. Sources, of
/// meta-pytorch/torchrec, torchrec/distributed:
///   pooled: embedding_types.py, BaseEmbeddingSharder.sharding_types; embeddingbag.py,
///     create_embedding_bag_sharding;
///   unpooled: embedding.py, EmbeddingCollectionSharder.sharding_types and
///     create_embedding_sharding, which raises "Sharding not supported" for all others;
///   kernels: embedding_types.py, BaseEmbeddingSharder.compute_kernels.
const std::vector<TorchRecSharding>& torchrec_shardings();
/// By name; null where there is none.
const TorchRecSharding* torchrec_sharding(std::string_view type);

/// Divides the columns of every table and of every column part. Sources: TorchRec
/// batched_embedding_kernel.py, BatchedFusedEmbeddingBag ("local_cols % 4 == 0"); FBGEMM
/// split_table_batched_embeddings_ops_training.py, construct_split_state ("embedding_dim must be a
/// multiple of 4"); for kernel dense the host code of its forward op ("total_D % 4").
constexpr std::int64_t kTorchRecColumnMultiple = 4;

// Tables of one EmbeddingCollection have one embedding_dim (torchrec/modules/embedding_modules.py,
// EmbeddingCollection.__init__: "All tables in a EmbeddingCollection are required to have same
// embedding dimension"), and its column-wise tables parts of one width (torchrec/distributed/
// embedding.py, ShardedEmbeddingCollection.__init__: "CW partition must be same for all CW sharded
// parameters").

/// The tier that kernels fused_uvm (no cache) and fused_uvm_caching keep rows in. Source: FBGEMM
/// EmbeddingLocation MANAGED and MANAGED_CACHING, memory of the host that devices reach.
constexpr std::string_view kTorchRecHostTier = "ddr";

/// Value of CacheParams if load_factor is left out: cache_load_factor of FBGEMM's
/// SplitTableBatchedEmbeddingBagsCodegen.
constexpr double kTorchRecLoadFactor = 0.2;

}  // namespace stepcast::interop
