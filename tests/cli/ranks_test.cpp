// Ranks that were started unlike each other, or not as their job says, do not train; runs that are
// killed go on from a checkpoint.
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "command_line.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;
using nlohmann::json;
namespace fs = std::filesystem;

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

std::vector<double> losses_of(const Outcome& outcome) {
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  std::vector<double> losses;
  const json result = json::parse(outcome.out);
  for (const json& step : result["steps"]) {
    losses.push_back(step["loss"].get<double>());
  }
  return losses;
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

TEST_CASE("a run that was killed goes on from its checkpoint with the same losses", "[cli][mpi]") {
  const TemporaryFolder folder;
  const std::string job = folder.file("tiny.json", kTinyJob);
  const auto run = [&](int steps, const std::vector<std::string>& more) {
    return with({"run", job, "--warmup", "0", "--format", "json", "--steps", std::to_string(steps)},
                more);
  };
  const std::vector<double> whole = losses_of(call(run(12, {})));
  const std::string saved = folder / "saved";
  // Killed with all its ranks as soon as the folder of a step is there.
  const Outcome killed =
      call(run(100000, {"--checkpoint", saved, "--every", "5"}), "", 60, [&](pid_t launcher) {
        for (int i = 0; i < 500 && !fs::exists(saved + "/step-00000005"); ++i) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        kill(launcher, SIGTERM);
      });
  REQUIRE(killed.code != 0);
  REQUIRE(fs::exists(saved + "/step-00000005/checkpoint.json"));
  const auto after = [&](const std::vector<std::string>& more) {
    return losses_of(call(run(7, with({"--resume", saved + "/step-00000005"}, more))));
  };
  CHECK(after({}) == std::vector<double>(whole.begin() + 5, whole.end()));
  const std::vector<double> alone = after({"--ranks", "1"});
  for (std::size_t i = 0; i < alone.size(); ++i) {
    CHECK(alone[i] == Approx(whole[5 + i]).epsilon(1e-6));
  }
  rejected(run(7, {"--resume", folder / "nothing"}), "holds no checkpoint");
  const Outcome other = call(run(7, {"--resume", saved, "--set", "batch.global=128"}));
  CHECK(other.code == 2);
  CHECK_THAT(other.err, Contains("batch.global was 64, and is 128 here"));
}

TEST_CASE("what checkpoints cost stands beside what flows predict", "[cli][mpi]") {
  const TemporaryFolder folder;
  const json answer =
      document(call({"run", folder.file("tiny.json", kTinyJob), "--steps", "6", "--warmup", "0",
                     "--format", "json", "--checkpoint", folder / "saved", "--every", "2"}));
  const json& cost = answer.at("checkpoints");
  CHECK(cost.at("count") == 3);
  CHECK(cost.at("bytes") == cost.at("predicted_bytes"));
  CHECK(cost.at("stall_s") > 0);
  CHECK(cost.at("predicted_stall_s") > 0);
  rejected({"run", folder / "tiny.json", "--every", "2"}, "--checkpoint");
}
