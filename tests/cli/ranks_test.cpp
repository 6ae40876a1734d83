// Ranks that were started unlike each other, or not as their job says, do not train.
#include <catch2/catch.hpp>

#include "command_line.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;

namespace {

/// `mpirun -n A stepcast run a... : -n B stepcast run b...`; of nothing for `b`, only the first.
Outcome on_ranks(int first, const Words& a, int second = 0, const Words& b = {}) {
  Words all =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1 "
      "mpirun -q --oversubscribe --bind-to none";
  all = all + Words{"-n", std::to_string(first), STEPCAST_EXECUTABLE, "run"} + a;
  if (second > 0) {
    all = all + Words{":", "-n", std::to_string(second), STEPCAST_EXECUTABLE, "run"} + b;
  }
  return execute("/usr/bin/env", all, "", 120);
}

}  // namespace

TEST_CASE("ranks of different jobs, options or data are told apart", "[cli][mpi]") {
  const Folder folder;
  const std::string job = folder.file("tiny.json", kTinyJob);
  const Words run{job, "--steps", "2", "--warmup", "0"};
  const auto differs = [&](const Words& b, const std::string& what) {
    rejected(on_ranks(1, run, 1, b), "rank 1: was started otherwise than rank 0: ", what);
  };
  differs(run + "--seed 99", "--seed is \"99\", not \"0\"");
  differs(run + "--set optimizer.dense=sgd", "optimizer.dense is \"sgd\", not \"adam\"");
  differs({job, "--steps", "3", "--warmup", "0"}, "--steps is");
  differs(run + "--set devices=4", "ranks asked for");
  const Outcome alike = on_ranks(1, run, 1, run);
  INFO(alike.err);
  CHECK(alike.code == 0);
}

TEST_CASE("a launcher that starts other numbers of ranks is told so", "[cli][mpi]") {
  const Folder folder;
  rejected(on_ranks(3, {folder.file("tiny.json", kTinyJob), "--steps", "2"}),
           "--ranks: 2 asked for", "the launcher started 3");
}

TEST_CASE("tasks of srun without PMI are told so", "[cli]") {
  const Folder folder;
  const Outcome outcome =
      execute("/usr/bin/env", {"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=1", STEPCAST_EXECUTABLE,
                               "run", folder.file("tiny.json", kTinyJob)});
  CHECK(outcome.code == 3);
  CHECK_THAT(outcome.err, Contains("srun started 4 tasks") && Contains("--mpi=pmix"));
}

TEST_CASE("many ranks on few cores start, train and finish", "[cli][mpi][long]") {
  const Folder folder;
  const Outcome outcome =
      call(Words{"run", folder.file("tiny.json", kTinyJob)} +
               "--ranks 64 --set system.fabric[0].size=64 --set system.host.devices=64 --steps 2 "
               "--warmup 1",
           "", 600);
  INFO(outcome.err);
  CHECK(outcome.code == 0);
  CHECK_THAT(outcome.out, Contains("tiny on 64 ranks"));
  CHECK_THAT(outcome.err, !Contains("warning"));  // about the plan's ledger
}
