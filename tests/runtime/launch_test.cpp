#include <pthread.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <future>

#include "core/error.h"
#include "runtime/launch.h"
#include "runtime/mpi/watchdog.h"
#include "tests/folder.h"

using namespace stepcast;
using namespace stepcast::runtime;

namespace {

/// A folder with an `mpirun` that runs the given shell text.
struct FakeMpirun : fixtures::Folder {
  explicit FakeMpirun(const std::string& script) {
    std::filesystem::permissions(file("mpirun", "#!/bin/sh\n" + script + "\n"),
                                 std::filesystem::perms::owner_all);
  }
  [[nodiscard]] LaunchResult run() const {
    LaunchRequest request;
    request.executable = "/bin/true";
    request.arguments = {"run", "a job.json"};
    request.ranks = 3;
    request.cores = 2;
    request.environment = {"PATH=/nowhere:" + path().string() + ":/usr/bin:/bin"};
    return run_under_mpirun(request);
  }
};

}  // namespace

TEST_CASE("exit codes of ranks survive mpirun, all else becomes 4", "[runtime][launch]") {
  const auto [code, expected] = GENERATE(table<int, int>(
      {{0, 0}, {2, 2}, {3, 3}, {4, 4}, {70, 70}, {1, 1}, {5, 4}, {137, 4}, {213, 4}}));
  CAPTURE(code);
  const FakeMpirun fake("exit " + std::to_string(code));
  const LaunchResult result = fake.run();
  CHECK(result.exit_code == expected);
  CHECK(result.message.empty() == (code <= 1));
}

TEST_CASE("a killed mpirun is a failed run and says which signal", "[runtime][launch]") {
  const FakeMpirun fake("kill -9 $$");
  const LaunchResult result = fake.run();
  CHECK(result.exit_code == 4);
  CHECK_THAT(result.message, Catch::Contains("signal 9"));
}

TEST_CASE("the ranks get what they need", "[runtime][launch]") {
  // More ranks than cores yield when idle; the arguments arrive as they were, spaces included.
  const FakeMpirun fake(
      "test \"$OMP_NUM_THREADS\" = 1 || exit 11\n"
      "test \"$OMPI_MCA_mpi_yield_when_idle\" = 1 || exit 12\n"
      "test \"$OMPI_ALLOW_RUN_AS_ROOT\" = 1 || exit 13\n"
      "test \"$2\" = 3 || exit 14\n"
      "for last; do :; done; test \"$last\" = 'a job.json' || exit 15\n"
      "exit 0");
  CHECK(fake.run().message == "");
}

TEST_CASE("without mpirun the environment is to blame", "[runtime][launch]") {
  LaunchRequest request;
  request.executable = "/bin/true";
  request.environment = {"PATH=/nowhere"};
  CHECK_THROWS_AS(run_under_mpirun(request), EnvironmentError);
}

TEST_CASE("a rank knows that it was launched", "[runtime][launch]") {
  CHECK(launched_rank({"OMPI_COMM_WORLD_RANK=0"}) == "0");
  CHECK(launched_rank({"A=b", "PMI_RANK=3"}) == "3");
  CHECK(launched_rank({"SLURM_PROCID=0"}).empty());  // a batch script has it too
  CHECK(launched_rank({"OMPI_COMM_WORLD_RANKS=1", "OMPI_COMM_WORLD_RANK="}).empty());
  CHECK(tasks_of_step({"SLURM_STEP_NUM_TASKS=4"}) == 4);
  CHECK(tasks_of_step({"SLURM_NTASKS=4"}) == 1);
}

TEST_CASE("a rank answers where ranks of real time poll on all cores", "[runtime]") {
  const auto policy = [] {
    int found = 0;
    sched_param parameters{};
    pthread_getschedparam(pthread_self(), &found, &parameters);
    return found;
  };
  auto permitted = std::async(std::launch::async, [&] {
    sched_param parameters{};
    parameters.sched_priority = 5;
    pthread_setschedparam(pthread_self(), SCHED_RR, &parameters);
    return policy();
  });
  std::promise<int> seen;
  bool first = true;
  Watchdog watchdog(Watchdog::Limit(1), [](const std::string&, double) { return true; });
  watchdog.on_patrol([&] {
    if (std::exchange(first, false)) {
      seen.set_value(policy());
    }
    return std::string();
  });
  CHECK(seen.get_future().get() == permitted.get());
}

TEST_CASE("a watchdog that was stopped asks its owner no more", "[runtime][launch]") {
  std::promise<void> inside;
  bool first = true;
  auto owned = std::make_unique<Watchdog>(Watchdog::Limit(1),
                                          [](const std::string&, double) { return true; });
  std::atomic<bool> asked{false};
  owned->on_patrol([&] {
    if (std::exchange(first, false)) {
      inside.set_value();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      asked = owned != nullptr && !owned->here().empty();
    }
    return std::string();
  });
  inside.get_future().get();
  owned->stop();
  owned.reset();
  CHECK(asked);
}
