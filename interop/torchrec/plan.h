#pragma once
#include <string>

#include "core/config/config.h"

/// Embedding plans as TorchRec reads them. docs/reference/table-files.md shows the files.
namespace stepcast::interop {

/// TorchRec's plan as JSON: module path -> table -> sharding_type, compute_kernel, ranks and
/// sharding_spec (shard_sizes, shard_offsets, placement), and cache_params (algorithm, load_factor)
/// of tables in host memory: the fields of its ParameterSharding. interop/torchrec/rules.h has
/// what TorchRec accepts.
/// Pooled tables go under "sparse_arch.embedding_bag_collection", sequence tables under
/// "sparse_arch.embedding_collection", or where their dims differ one collection for each, such as
/// "sparse_arch.embedding_collection_64".
///
/// Errors: InputError naming the table for what TorchRec has no form for: several row ranges, tiers
/// but the host's memory, striped rows, rows in order of popularity, several copies that are not
/// one on every rank, a table-row-wise group that is not a machine's, rows in groups of a table
/// that is not pooled, columns that are no multiple of 4.
std::string plan_to_torchrec(const Job& job, const EmbeddingPlan& plan);
/// Checks that TorchRec can hold the job's tables under any plan. Errors: InputError naming one.
void expect_torchrec_tables(const Job& job);
/// Python that builds TorchRec's ShardingPlan from such a file in the same folder.
std::string torchrec_loader(const std::string& plan_file);

}  // namespace stepcast::interop
