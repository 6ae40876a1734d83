// Embedding plans written for other systems, and read back.
#include <filesystem>
#include <iostream>

#include "plan_calls.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

constexpr const char* kTorchStub = R"py(
class ShardMetadata:
    def __init__(self, shard_offsets, shard_sizes, placement):
        assert len(shard_offsets) == len(shard_sizes) == 2
        self.shard_offsets, self.shard_sizes, self.placement = shard_offsets, shard_sizes, placement

class EnumerableShardingSpec:
    def __init__(self, shards):
        self.shards = shards
)py";
constexpr const char* kTorchRecStub = R"py(
from dataclasses import dataclass
from typing import Dict, List, Optional

@dataclass
class CacheParams:
    algorithm: Optional[object] = None
    load_factor: Optional[float] = None

@dataclass
class ParameterSharding:
    sharding_type: str
    compute_kernel: str
    ranks: Optional[List[int]] = None
    sharding_spec: Optional[object] = None
    cache_params: Optional[CacheParams] = None

class EmbeddingModuleShardingPlan(Dict[str, ParameterSharding]):
    pass

@dataclass
class ShardingPlan:
    plan: Dict[str, EmbeddingModuleShardingPlan]
)py";
constexpr const char* kCheck = R"py(
import sys
import torchrec_plan
plan = torchrec_plan.load_plan(rename={"sparse_arch.embedding_bag_collection": "ebc"}).plan
elements = 0
for name, table in plan["ebc"].items():
    if table.sharding_spec is None:
        assert table.sharding_type == "data_parallel", name
        elements += 500000 * 64
    else:
        elements += sum(s.shard_sizes[0] * s.shard_sizes[1] for s in table.sharding_spec.shards)
        assert [s.placement.split("/")[0] for s in table.sharding_spec.shards] == [
            "rank:%d" % r for r in table.ranks], name
print(len(plan["ebc"]), elements)
)py";

/// Whether a Python is here; the reason is printed where not.
bool python_here() {
  const bool here = execute("/usr/bin/env", "python3 --version").code == 0;
  if (!here) {
    std::cout << "skipped: no python3\n";
  }
  return here;
}

/// Programs of a Slurm cluster of two nodes, named before those of this machine.
std::string cluster(const Folder& folder) {
  for (const auto& [name, text] : std::vector<std::pair<std::string, std::string>>{
           {"scontrol", "printf 'node-a\\nnode-b\\n'"},
           {"srun", "for node in 0 1; do SLURM_NODEID=$node \"$@\"; done"},
           {"torchrun", "printf '%s|' \"$@\"; echo"}}) {
    std::filesystem::permissions(folder.file(name, "#!/bin/sh\n" + text + "\n"),
                                 std::filesystem::perms::owner_all);
  }
  return "PATH=" + folder.path().string() + ":/usr/bin:/bin";
}

}  // namespace

TEST_CASE("a plan's script for Megatron-LM runs as it is, alone and under Slurm",
          "[cli][plan][export]") {
  const Folder folder;
  const std::string script = folder / "train.sh";
  const auto written = [&](const char* devices) {
    succeeded({"plan", "llama3-8b", "-n", devices, "--gbs", "64", "--tp", "8", "--pp", "1",
               "--zero", "1", "-o", script});
    return text_of(script);
  };
  const std::string path = cluster(folder);
  const Words own = "--data-path 'two words'";
  const auto ran = [&](const Words& environment) {
    const Outcome outcome =
        execute("/usr/bin/env", Words{path} + environment + Words{"bash", "-e", script} + own);
    INFO(outcome.err);
    CHECK(outcome.code == 0);
    CHECK(outcome.err.empty());
    return outcome.out;
  };
  // Slurm reads its lines up to the first command.
  const std::string two = written("16");
  const std::size_t options = two.find("\n#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=8");
  REQUIRE(options != std::string::npos);
  CHECK(options < two.find("\nexport "));
  const std::string line = ran({"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=node-[a-b]"});
  const std::string one = line.substr(0, line.find('\n') + 1);
  CHECK(line == one + one);  // a launcher on each node, which meet at the first
  CHECK_THAT(one, Catch::StartsWith("--nnodes|2|--nproc-per-node|8|") &&
                      Contains("|--rdzv-endpoint|node-a:29500|pretrain_gpt.py|") &&
                      Contains("|--tensor-model-parallel-size|8|") &&
                      Catch::EndsWith("|--data-path|two words|\n"));
  (void)written("8");
  CHECK_THAT(ran({}), Catch::StartsWith("--nnodes|1|--nproc-per-node|8|") &&
                          Contains("|--rdzv-endpoint|localhost:29500|pretrain_gpt.py|"));
}

TEST_CASE("a plan exported to TorchRec is read by its loader", "[cli][plan][export]") {
  const Folder folder;
  const std::string file = folder / "torchrec_plan.json";
  succeeded(command("plan", {"--export", "torchrec=" + file}));
  if (!python_here()) {
    return;
  }
  for (const char* package : {"torch/distributed/_shard", "torchrec/distributed"}) {
    std::filesystem::create_directories(folder.path() / package);
  }
  folder.file("torch/distributed/_shard/sharding_spec.py", kTorchStub);
  folder.file("torchrec/distributed/types.py", kTorchRecStub);
  const std::string check = folder.file("check.py", kCheck);
  const Outcome ran =
      execute("/usr/bin/env", {"PYTHONPATH=" + folder.path().string(), "python3", check});
  INFO(ran.err);
  CHECK(ran.code == 0);
  CHECK(ran.out == "32 " + std::to_string(std::int64_t{32} * 500000 * 64) + "\n");  // rm2
}

TEST_CASE("a plan exported to HugeCTR comes back, and its script compiles", "[cli][plan][export]") {
  const Folder folder;
  const std::string file = folder / "hugectr_plan.json";
  const std::string own = folder / "own.json";
  succeeded(command("plan", {"--export", "hugectr=" + file, "--out", own}));
  const json before = json::parse(text_of(own)).at("tables");
  const json back = answer(command("plan", {"--from", file, "--max-migrate", "0"}));
  CHECK(back.at("plans").at(0).at("tables") == before);
  if (python_here()) {
    const Outcome ran = execute("/usr/bin/env", {"python3", folder / "hugectr_plan.py"});
    INFO(ran.err);
    CHECK(ran.code == 0);
    CHECK_THAT(ran.out, Contains("('mp'") || Contains("('dp'"));
  }
}

TEST_CASE("exports that cannot be made write nothing", "[cli][plan][export]") {
  const Folder folder;
  const std::string used = plan_in_use(folder);
  rejected(command("plan", {"--export", "alpa=" + (folder / "x.json")}), "torchrec=FILE");
  rejected(command("plan", "--export torchrec"), "torchrec=FILE");
  rejected(command("plan", {"--export", "torchrec=" + (folder / "x.py")}), "FILE.json");
  // Striped rows by hand: TorchRec has none.
  json plan = json::parse(text_of(used));
  json& shard = plan["tables"][0]["shards"];
  shard = json::array({{{"rows", {0, 500000}},
                        {"columns", {0, 64}},
                        {"sharding", "row_wise"},
                        {"groups", {{0, 1, 2, 3, 4, 5, 6, 7}}},
                        {"split", "stripe"}}});
  const std::string striped = folder.file("striped.json", plan.dump());
  const std::string out = folder / "out.json";
  rejected(command("plan", {"--from", striped, "--max-migrate", "0", "--out", out, "--export",
                            "torchrec=" + (folder / "x.json")}),
           "striped rows");
  CHECK_FALSE(std::filesystem::exists(out));
  CHECK_FALSE(std::filesystem::exists(folder / "x.json"));
}
