// Tokens that go to each machine once: bytes by level of the fabric, rows, memory, rejection.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <string>

#include "core/access/access.h"
#include "core/error.h"
#include "core/graph/op.h"
#include "core/graph/program.h"
#include "core/graph/step_traffic.h"
#include "core/job/job_rules.h"
#include "tests/workloads/transformer_jobs.h"
#include "workloads/build_graph.h"
#include "workloads/transformer/expert_routing.h"
#include "workloads/transformer/shape.h"

using namespace stepcast;
using namespace stepcast::test;

namespace {

constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kSequence = 32;

/// Two layers of 64 experts, 8 per token; machines of 8 ranks.
Job job_on(std::int64_t data, std::int64_t expert, ExpertDispatch dispatch,
           std::int64_t pipeline = 1, MeshOrder order = kPipelineOutside) {
  Job job = llama_job(2, kHidden, 4, 2, 96, kSequence, 128);
  MixtureOfExperts moe;
  moe.experts = 64;
  moe.per_token = 8;
  moe.ffn_hidden = 48;
  transformer_of(job).moe = moe;
  split(job, 1, pipeline, data, 2);
  job.parallel.expert = expert;
  job.parallel.expert_dispatch = dispatch;
  job.parallel.order = order;
  for (const auto& [name, size, gigabytes] :
       {std::tuple{"fast", 8, 100.0}, std::tuple{"slow", 1024, 10.0}}) {
    FabricLevel level;
    level.name = name;
    level.size = size;
    level.bandwidth = GB(gigabytes) / Seconds(1);
    job.system.fabric.push_back(level);
  }
  return job;
}

/// Bytes of exchanged tokens of a step at a level of the fabric, all ranks together.
double sent(const Job& job, std::size_t level) {
  const auto traffic = expected_traffic(workloads::build_graph(job), LinkLevels(job.system));
  return traffic.at(TrafficKind::kExperts, level);
}

std::vector<const Op*> exchanges(const Program& program) {
  std::vector<const Op*> found;
  for (const Op& op : program.ops) {
    if (op.kind == OpKind::kAllToAllV) {
      found.push_back(&op);
    }
  }
  return found;
}

std::string message(const Job& job) {
  const auto broken = broken_rule(job);
  return broken ? broken->key + ": " + broken->what : "accepted";
}

constexpr auto kOnce = ExpertDispatch::kPerMachine;

}  // namespace

TEST_CASE("what is sent is received, and each machine gets a token once", "[workloads][experts]") {
  const std::int64_t ranks = GENERATE(4, 8, 16, 32);
  const Job job = job_on(ranks, ranks, kOnce);
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  const auto of_step = exchanges(program);
  REQUIRE(of_step.size() == 2 * 4);  // there and back, both passes, two layers
  const auto machines = std::max<std::int64_t>(1, ranks / 8);
  const auto places = ranks / machines;
  const double row = kHidden;
  const auto& moe = *transformer_of(const_cast<Job&>(job)).moe;
  const double to_machine = kSequence * workloads::expert_reach(moe, 0, 64 / machines) * row;
  const double to_rank = kSequence * workloads::expert_reach(moe, 0, 64 / ranks) * row;
  for (const Op* op : of_step) {
    const Exchange& e = *program.exchange_of(*op);
    std::vector<double> received(static_cast<std::size_t>(ranks), 0.0);
    double all = 0;
    for (std::int64_t from = 0; from < ranks; ++from) {
      const auto to = e.sent_by(static_cast<std::size_t>(from));
      double across = 0;
      double inside = 0;
      for (std::int64_t r = 0; r < ranks; ++r) {
        received[static_cast<std::size_t>(r)] += to[static_cast<std::size_t>(r)];
        (r / places == from / places ? inside : across) +=
            r == from ? 0 : to[static_cast<std::size_t>(r)];
      }
      const double own = std::accumulate(to.begin(), to.end(), 0.0);
      all += own;
      CHECK(across == Approx(static_cast<double>(machines - 1) * to_machine));
      // To each other rank of the machine: of each machine's ranks of this place, one.
      CHECK(inside == Approx(static_cast<double>((places - 1) * machines) * to_rank));
      CHECK(static_cast<double>(op->shape[0]) == Approx(own).margin(0.5));
    }
    for (const double r : received) {
      CHECK(r == Approx(all / static_cast<double>(ranks)));
    }
  }
}

TEST_CASE("fewer bytes leave machines the fewer groups a token may reach",
          "[workloads][experts][property]") {
  Job job = job_on(32, 32, kOnce);  // four machines
  const double unlimited = sent(job, 1);
  Job copies = job_on(32, 32, ExpertDispatch::kCopies);
  CHECK(unlimited < sent(copies, 1));
  auto& moe = *transformer_of(job).moe;
  moe.groups = 4;
  double before = 0;
  for (moe.groups_per_token = 1; moe.groups_per_token <= 4; ++moe.groups_per_token) {
    const double now = sent(job, 1);
    CHECK(now > before);
    before = now;
  }
  CHECK(before == Approx(unlimited).epsilon(1e-12));
  // A token of one group reaches one machine: another one 3 of 4 times, there and back in both
  // passes of two layers, 32 ranks of 2 micro-batches of 32 tokens of 64 elements in fp32 or bf16.
  moe.groups_per_token = 1;
  const double element = bits_per_element(job.formats.compute) / 8;
  CHECK(sent(job, 1) == Approx(0.75 * 4 * 2 * 32 * 2 * kSequence * kHidden * element));
  // Limits move no copy away in expectation where each copy travels.
  transformer_of(copies).moe->groups = 4;
  const double apart = sent(copies, 1);
  transformer_of(copies).moe->groups_per_token = 2;
  CHECK(sent(copies, 1) == apart);
}

TEST_CASE("experts compute the same rows whatever way they came", "[workloads][experts]") {
  const auto flops = [](const Job& job) {
    double sum = 0;
    const ExecutionGraph graph = workloads::build_graph(job);
    for (const Op& op : graph.programs.front().ops) {
      sum += op.kind == OpKind::kGemm ? op.flops.base() : 0;
    }
    return sum;
  };
  CHECK(flops(job_on(32, 16, kOnce)) == flops(job_on(32, 16, ExpertDispatch::kCopies)));
}

TEST_CASE("rows wait on their way in room for what is expected", "[workloads][experts]") {
  const Job job = job_on(32, 32, kOnce);
  const ExecutionGraph graph = workloads::build_graph(job);
  const auto& moe = *transformer_of(const_cast<Job&>(job)).moe;
  // 32 ranks send a rank 32 tokens each as often as one of its 2 experts is among the token's 8:
  // 1 - C(62, 8) / C(64, 8) = 1 - 56 * 55 / (64 * 63). Back come sums from 3 machines and 8 ranks.
  const double reach = 1 - 56.0 * 55 / (64 * 63);
  const double machine = workloads::expert_reach(moe, 0, 16);
  for (const Tensor& t : graph.programs.front().tensors) {
    if (t.name == "moe.received") {
      CHECK(t.rows == std::llround(32 * kSequence * reach));
    }
    if (t.name == "moe.returned") {
      CHECK(t.rows == std::llround(kSequence * (3 * machine + 8 * reach)));
    }
    CHECK(t.name != "moe.copies");  // rows leave from where they are
  }
}

TEST_CASE("tokens may travel narrower than they come back", "[workloads][experts]") {
  for (const ExpertDispatch dispatch : {kOnce, ExpertDispatch::kCopies}) {
    Job job = job_on(32, 32, dispatch);
    job.formats.compute = Format::kBf16;
    const double wide = sent(job, 1);
    job.formats.expert_dispatch = Format::kFp8;
    // Two of four exchanges of a layer at half the bytes.
    CHECK(sent(job, 1) == Approx(0.75 * wide));
  }
}

TEST_CASE("machines follow the order of ranks", "[workloads][experts]") {
  // 16 ranks of a stage of four: neighbours in two machines, or four of them in each of four.
  Job job = job_on(16, 16, kOnce, 2);
  CHECK(expert_machines(job) == 2);
  job.parallel.order = kUsualOrder;
  CHECK(expert_machines(job) == 4);
  CHECK(workloads::transformer_shape(job).experts->once->places == 4);
  // A rank in each machine: nothing is forwarded.
  Job apart = job_on(4, 4, kOnce, 8, kUsualOrder);
  transformer_of(apart).layers = 8;
  CHECK(workloads::transformer_shape(apart).experts->once->places == 1);
  CHECK(sent(apart, 0) == 0);
}

TEST_CASE("dispatch by machines is refused where it means nothing or is unknown",
          "[workloads][experts]") {
  CHECK(message(job_on(32, 32, kOnce)) == "accepted");
  CHECK(message(job_on(32, 1, kOnce)) == "accepted");  // nothing is exchanged
  Job job = job_on(32, 32, kOnce);
  transformer_of(job).moe->routing = std::make_shared<const Access>(Access::zipf(64, 1.0, 5));
  CHECK_THAT(message(job), Catch::StartsWith("parallel.expert_dispatch: ") &&
                               Catch::Contains("workload.moe.routing"));
  job = job_on(32, 32, kOnce);
  transformer_of(job).moe->capacity_factor = 0.5;
  CHECK_THAT(message(job), Catch::Contains("capacity_factor below 1"));
  job = job_on(16, 16, kOnce);
  job.parallel.tensor = 2;
  job.devices = 32;
  CHECK_THAT(message(job), Catch::Contains("parallel.expert_tensor = 1"));
  job.parallel.expert_tensor = 1;
  job.parallel.sequence_parallel = true;
  CHECK(message(job) == "accepted");
  // Groups of 4 neighbours lie in one machine of 6 or in two.
  job = job_on(12, 4, kOnce);
  job.system.fabric[0].size = 6;
  CHECK_THAT(message(job), Catch::Contains("in each machine of 6"));
  job = llama_job(2, kHidden, 4, 2, 96, kSequence, 128);
  split(job, 1, 1, 4, 1);
  job.parallel.expert_dispatch = kOnce;
  CHECK_THAT(message(job), Catch::Contains("has no experts"));
  job.parallel.expert_dispatch = ExpertDispatch::kCopies;
  job.formats.expert_dispatch = Format::kFp8;
  CHECK_THAT(message(job), Catch::StartsWith("formats.expert_dispatch: "));
}

TEST_CASE("groups of experts hold what a token needs", "[workloads][experts]") {
  Job job = job_on(8, 8, ExpertDispatch::kCopies);
  auto& moe = *transformer_of(job).moe;
  moe.groups = 7;
  CHECK_THAT(message(job), Catch::StartsWith("workload.moe.groups: 7 does not divide"));
  moe.groups = 16;  // of 4 experts; 8 of them are two groups
  CHECK_THAT(message(job), Catch::StartsWith("workload.moe.groups_per_token: ") &&
                               Catch::Contains("use 2 to 16"));
  moe.groups_per_token = 2;
  CHECK(message(job) == "accepted");
  moe.routing = std::make_shared<const Access>(Access::zipf(64, 1.0, 5));
  CHECK_THAT(message(job), Catch::Contains("popularity of single experts"));
  moe.groups_per_token = 16;
  CHECK(message(job) == "accepted");
}
