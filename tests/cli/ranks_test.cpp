// Ranks that were started unlike each other, or not as their job says, do not train.
#include <catch2/catch.hpp>

#include "command_line.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;

namespace {

constexpr const char* kTinyJob = R"({
  "system": "dgx-h100", "devices": 2, "batch": {"global": 64}, "formats": {"compute": "fp32"},
  "optimizer": {"dense": "adam", "embedding": "rowwise_adagrad"},
  "workload": {"kind": "dlrm", "name": "tiny", "dense_features": 4, "bottom_mlp": [16, 8],
    "interaction": {"kind": "dot"}, "top_mlp": [16, 1], "tables": [
      {"name": "a", "rows": 301, "dim": 8, "pooling": 4, "mode": "sum", "access": {"zipf": 1.1}},
      {"name": "b", "rows": 200, "dim": 8, "pooling": 2, "mode": "mean", "access": {"zipf": 0.6}}]}})";

/// `mpirun -n A stepcast run a... : -n B stepcast run b...`; of nothing for `b`, only the first.
Outcome on_ranks(int first, std::vector<std::string> a, int second = 0,
                 const std::vector<std::string>& b = {}) {
  std::vector<std::string> all{"OMPI_ALLOW_RUN_AS_ROOT=1",
                               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                               "OMPI_MCA_mpi_yield_when_idle=1",
                               "mpirun",
                               "-q",
                               "--oversubscribe",
                               "--bind-to",
                               "none"};
  const auto add = [&](int ranks, const std::vector<std::string>& arguments) {
    all.insert(all.end(), {"-n", std::to_string(ranks), STEPCAST_EXECUTABLE, "run"});
    all.insert(all.end(), arguments.begin(), arguments.end());
  };
  add(first, a);
  if (second > 0) {
    all.emplace_back(":");
    add(second, b);
  }
  return execute("/usr/bin/env", all, "", 120);
}

std::vector<std::string> with(std::vector<std::string> a, const std::vector<std::string>& more) {
  a.insert(a.end(), more.begin(), more.end());
  return a;
}

}  // namespace

TEST_CASE("ranks of different jobs, options or data are told apart", "[cli][mpi]") {
  const TemporaryFolder folder;
  const std::string job = folder.file("tiny.json", kTinyJob);
  const std::vector<std::string> run{job, "--steps", "2", "--warmup", "0"};
  const auto differs = [&](const std::vector<std::string>& b, const std::string& what) {
    const Outcome outcome = on_ranks(1, run, 1, b);
    INFO(outcome.err);
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    CHECK_THAT(outcome.err,
               Contains("rank 1: was started otherwise than rank 0: ") && Contains(what));
  };
  differs(with(run, {"--seed", "99"}), "--seed is \"99\", not \"0\"");
  differs(with(run, {"--set", "optimizer.dense=sgd"}), "optimizer.dense is \"sgd\", not \"adam\"");
  differs({job, "--steps", "3", "--warmup", "0"}, "--steps is");
  differs(with(run, {"--set", "devices=4"}), "ranks asked for");
  const Outcome alike = on_ranks(1, run, 1, run);
  INFO(alike.err);
  CHECK(alike.code == 0);
}

TEST_CASE("a launcher that starts other numbers of ranks is told so", "[cli][mpi]") {
  const TemporaryFolder folder;
  const Outcome outcome = on_ranks(3, {folder.file("tiny.json", kTinyJob), "--steps", "2"});
  INFO(outcome.err);
  CHECK(outcome.code == 2);
  CHECK_THAT(outcome.err, Contains("--ranks: 2 asked for") && Contains("the launcher started 3"));
}

TEST_CASE("tasks of srun without PMI are told so", "[cli]") {
  const TemporaryFolder folder;
  const Outcome outcome =
      execute("/usr/bin/env", {"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=1", STEPCAST_EXECUTABLE,
                               "run", folder.file("tiny.json", kTinyJob)});
  CHECK(outcome.code == 3);
  CHECK_THAT(outcome.err, Contains("srun started 4 tasks") && Contains("--mpi=pmix"));
}

TEST_CASE("many ranks on few cores start, train and finish", "[cli][mpi][long]") {
  const TemporaryFolder folder;
  const Outcome outcome = call({"run", folder.file("tiny.json", kTinyJob), "--ranks", "64", "--set",
                                "system.fabric[0].size=64", "--set", "system.host.devices=64",
                                "--steps", "2", "--warmup", "1"},
                               "", 600);
  INFO(outcome.err);
  CHECK(outcome.code == 0);
  CHECK_THAT(outcome.out, Contains("tiny on 64 ranks"));
  CHECK_THAT(outcome.err, !Contains("warning"));  // about the plan's ledger
}
