#include "interop/torchrec/plan.h"

#include <fmt/format.h>

// Python that builds TorchRec's ShardingPlan from an exported plan.
namespace stepcast::interop {

std::string torchrec_loader(const std::string& plan_file) {
  return fmt::format(R"py(#!/usr/bin/env python3
"""Builds a TorchRec ShardingPlan from {file}, which stepcast wrote.

    from {module} import load_plan
    model = DistributedModelParallel(module, plan=load_plan(), sharders=sharders)

Module paths are those of torchrec.models.dlrm; rename them for another model:

    load_plan(rename={{"sparse_arch.embedding_bag_collection": "model.ebc"}})
"""
import json
import os

from torch.distributed._shard.sharding_spec import EnumerableShardingSpec, ShardMetadata
from torchrec.distributed.types import (
    CacheParams,
    EmbeddingModuleShardingPlan,
    ParameterSharding,
    ShardingPlan,
)

PLAN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "{file}")


def cache_params(table):
    cache = table.get("cache_params")
    if cache is None:
        return None
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import CacheAlgorithm

    return CacheParams(
        algorithm=CacheAlgorithm[cache["algorithm"]], load_factor=cache["load_factor"]
    )


def parameter_sharding(table):
    shards = table["sharding_spec"]
    spec = None
    if shards is not None:
        spec = EnumerableShardingSpec(
            [
                ShardMetadata(
                    shard_offsets=shard["shard_offsets"],
                    shard_sizes=shard["shard_sizes"],
                    placement=shard["placement"],
                )
                for shard in shards
            ]
        )
    return ParameterSharding(
        sharding_type=table["sharding_type"],
        compute_kernel=table["compute_kernel"],
        ranks=table["ranks"],
        sharding_spec=spec,
        cache_params=cache_params(table),
    )


def load_plan(path=PLAN, rename=None):
    with open(path) as file:
        modules = json.load(file)
    plan = {{}}
    for module, tables in modules.items():
        sharding = EmbeddingModuleShardingPlan()
        for name, table in tables.items():
            sharding[name] = parameter_sharding(table)
        plan[(rename or {{}}).get(module, module)] = sharding
    return ShardingPlan(plan=plan)


if __name__ == "__main__":
    print(load_plan())
)py",
                     fmt::arg("file", plan_file),
                     fmt::arg("module", plan_file.substr(0, plan_file.find('.'))));
}

}  // namespace stepcast::interop
