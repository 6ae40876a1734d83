#include "runtime/cuda/step_watch.h"

#include <catch2/catch.hpp>
#include <future>
#include <thread>

using namespace stepcast;
using namespace stepcast::runtime::cuda;

TEST_CASE("a launch that does not return is noticed while nobody waits", "[cuda][standin]") {
  Program program;
  program.names = {"gemm"};
  program.ops.resize(1);
  ExecutionGraph graph;
  Options options;
  options.timeout = std::chrono::milliseconds(200);
  const Communicators communicators(graph, Ranks{}, options);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t alone = nullptr;
  REQUIRE(ncclCommInitRankConfig(&alone, 1, {}, 0, &config) == ncclSuccess);
  std::atomic<std::int64_t> looked{0};
  const runtime::cuda::Communicator communicator(alone, "data", options.timeout, &looked);
  const Event begin(false);
  const Event end(false);
  std::promise<std::string> told;
  std::atomic<bool> once{false};
  StepWatch watch(program, 1, options, [&](const std::exception& e) {
    if (!once.exchange(true)) {
      told.set_value(e.what());
    }
  });
  watch.add({&program.ops[0], &communicator, &begin, &end, 0});
  // A first step, in which kernels are loaded, and ops that return.
  watch.issuing(communicators);
  watch.issuing(program.ops[0]);
  watch.issued();
  watch.issuing(communicators);
  auto message = told.get_future();
  for (int i = 0; i < 30; ++i) {
    watch.issuing(program.ops[0]);
    CHECK(message.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout);
  }
  REQUIRE(message.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  const std::string text = message.get();
  CHECK_THAT(text, Catch::Contains("cannot be launched for") &&
                       Catch::Contains("(deadline 0.2 s)") &&
                       Catch::Contains("a rank is lost or hangs"));
  watch.issued();
}

TEST_CASE("a step of a rank alone that does not end is noticed, and one that does is not",
          "[cuda][standin]") {
  Program program;
  program.names = {"gemm"};
  program.ops.resize(1);
  ExecutionGraph graph;
  Options options;
  options.timeout = std::chrono::milliseconds(20);
  const Communicators communicators(graph, Ranks{}, options);
  std::promise<std::string> told;
  std::atomic<bool> once{false};
  StepWatch watch(program, 1, options, [&](const std::exception& e) {
    if (!once.exchange(true)) {
      told.set_value(e.what());
    }
  });
  auto message = told.get_future();
  const Event end(false);
  const auto works = [](const Op&) { return true; };
  for (int step = 0; step < 3; ++step) {  // the first may take as long as setting up
    watch.issuing(communicators);
    watch.issuing(program.ops[0]);
    watch.issued();
    watch.wait_for(end, false, communicators, works);
    watch.ended();
  }
  CHECK(message.wait_for(std::chrono::milliseconds(600)) == std::future_status::timeout);
  watch.issuing(communicators);
  watch.issuing(program.ops[0]);
  REQUIRE(message.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  CHECK_THAT(message.get(), Catch::Contains("the device has not finished a step for 0.") &&
                                Catch::Contains("launched up to 'gemm'") &&
                                Catch::Contains("a kernel or the device hangs"));
  watch.ended();
}
