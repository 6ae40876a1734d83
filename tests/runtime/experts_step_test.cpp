#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "core/access/access.h"
#include "core/error.h"
#include "core/graph/step_traffic.h"
#include "runtime/expert_plan.h"
#include "studies/run/executable.h"
#include "tests/runtime/small_transformer.h"

using namespace stepcast;
using namespace stepcast::runtime::test;

namespace {

/// 8 experts of width 24, two a token.
MixtureOfExperts eight_experts() {
  MixtureOfExperts moe;
  moe.experts = 8;
  moe.per_token = 2;
  moe.ffn_hidden = 24;
  return moe;
}

MixtureOfExperts& experts_of(Job& job) {
  return *std::get<TransformerWorkload>(job.workload.model).moe;
}

Job experts_job(Activation activation = Activation::kSwiGlu) {
  Job job = small_job(activation, false);
  std::get<TransformerWorkload>(job.workload.model).moe = eight_experts();
  job.dense_optimizer = OptimizerKind::kSgd;
  return job;
}

struct Plan {
  std::string name;
  std::int64_t tensor = 1, pipeline = 1, data = 1, expert = 1;
  bool sequence_parallel = false;
  std::int64_t expert_tensor = 0;
  std::int64_t micro = 1;
  bool overlap = false;
  std::int64_t chunks = 1;
  int zero = 0;
  RecomputeKind recompute = RecomputeKind::kNone;
};

Job planned(Job job, const Plan& p) {
  job.parallel.tensor = p.tensor;
  job.parallel.pipeline = p.pipeline;
  job.parallel.data = p.data;
  job.parallel.expert = p.expert;
  job.parallel.expert_tensor = p.expert_tensor;
  job.parallel.sequence_parallel = p.sequence_parallel;
  job.parallel.overlap.expert = p.overlap;
  job.parallel.expert_chunks = p.chunks;
  job.parallel.zero = p.zero;
  job.parallel.recompute.kind = p.recompute;
  job.batch.micro = p.micro;
  return job;
}

const std::vector<Plan>& plans() {
  static const std::vector<Plan> all{
      {.name = "micro 4", .micro = 4},
      {.name = "data", .data = 4},
      {.name = "expert 2", .data = 2, .expert = 2},
      {.name = "expert 4", .data = 4, .expert = 4},
      {.name = "expert 2 of 4", .data = 4, .expert = 2, .micro = 2},
      {.name = "expert, full recompute", .data = 4, .expert = 2, .recompute = RecomputeKind::kFull},
      {.name = "expert, overlapped", .data = 2, .expert = 2, .overlap = true},
      {.name = "expert, three parts", .data = 2, .expert = 2, .overlap = true, .chunks = 3},
      {.name = "expert, pipeline", .pipeline = 2, .data = 2, .expert = 2},
      {.name = "tensor", .tensor = 2},
      {.name = "tensor, expert", .tensor = 2, .data = 2, .expert = 2},
      {.name = "sequence", .tensor = 2, .sequence_parallel = true},
      {.name = "sequence, expert", .tensor = 2, .data = 2, .expert = 2, .sequence_parallel = true},
      {.name = "sequence, whole experts",
       .tensor = 2,
       .data = 2,
       .expert = 4,
       .sequence_parallel = true,
       .expert_tensor = 1},
      {.name = "sequence, whole experts on a replica",
       .tensor = 2,
       .data = 2,
       .expert = 2,
       .sequence_parallel = true,
       .expert_tensor = 1},
      {.name = "one expert each",
       .tensor = 2,
       .data = 4,
       .expert = 8,
       .sequence_parallel = true,
       .expert_tensor = 1},
      {.name = "all",
       .tensor = 2,
       .pipeline = 2,
       .data = 2,
       .expert = 2,
       .sequence_parallel = true,
       .overlap = true,
       .chunks = 2,
       .recompute = RecomputeKind::kSelective},
      {.name = "zero 1", .data = 4, .expert = 2, .zero = 1},
      {.name = "zero 2", .data = 4, .expert = 2, .zero = 2},
      {.name = "zero 3", .data = 4, .expert = 2, .zero = 3},
      {.name = "zero 1, whole experts",
       .tensor = 2,
       .data = 4,
       .expert = 4,
       .sequence_parallel = true,
       .expert_tensor = 1,
       .zero = 1},
      {.name = "zero 3, tensor",
       .tensor = 2,
       .data = 4,
       .expert = 2,
       .sequence_parallel = true,
       .zero = 3},
  };
  return all;
}

}  // namespace

TEST_CASE("every plan of a model with experts has the same loss curve", "[runtime][experts]") {
  const Activation activation = GENERATE(Activation::kGelu, Activation::kSwiGlu);
  const std::string kind = GENERATE("plain", "shared and dense first", "skewed");
  Job job = experts_job(activation);
  if (kind == "shared and dense first") {
    experts_of(job).shared = 1;
    experts_of(job).first_dense_layers = 1;
  } else if (kind == "skewed") {
    experts_of(job).routing = std::make_shared<const Access>(Access::zipf(8, 1.0, 3));
  }
  const std::vector<double> expected = transformer_loss_curve(job, 4);
  CHECK(expected.front() == Approx(std::log(64.0)).epsilon(0.05));
  for (const Plan& p : plans()) {
    const std::vector<double> losses = transformer_loss_curve(planned(job, p), 4);
    for (std::size_t s = 0; s < losses.size(); ++s) {
      INFO(name_of(activation) << ", " << kind << ", " << p.name << ", step " << s);
      CHECK(losses[s] == Approx(expected[s]).epsilon(2e-6));
    }
  }
}

TEST_CASE("ranks that route as many tokens drop the same copies", "[runtime][experts]") {
  // Rows of 8 tokens, 16 copies, 8 experts: an expert takes ceil(0.75 * 2) = 2 copies or, with
  // skewed routing, one in two copies finds no room.
  Job job = experts_job();
  experts_of(job).capacity_factor = 0.75;
  experts_of(job).routing = std::make_shared<const Access>(Access::zipf(8, 1.2, 3));
  const std::vector<double> expected = transformer_loss_curve(job, 4);
  Job whole = job;
  experts_of(whole).capacity_factor = 0;
  CHECK(transformer_loss_curve(whole, 4).back() != Approx(expected.back()).epsilon(2e-6));
  for (const Plan& p : plans()) {
    if (p.micro != 1 || p.sequence_parallel) {
      continue;
    }
    const std::vector<double> losses = transformer_loss_curve(planned(job, p), 4);
    for (std::size_t s = 0; s < losses.size(); ++s) {
      INFO(p.name << ", step " << s);
      CHECK(losses[s] == Approx(expected[s]).epsilon(2e-6));
    }
  }
}

TEST_CASE("gradients of a step with experts are those of its loss", "[runtime][experts]") {
  const Activation activation = GENERATE(Activation::kGelu, Activation::kSwiGlu);
  const double capacity = GENERATE(0.0, 0.75);
  Job job = experts_job(activation);
  auto& m = std::get<TransformerWorkload>(job.workload.model);
  m.layers = 2;
  m.moe->shared = 1;
  m.moe->first_dense_layers = 1;
  m.moe->capacity_factor = capacity;
  INFO(name_of(activation) << ", capacity " << capacity);
  // Two ends (and positions), final norm; a dense layer has 6 weights, one with experts 3 more
  // (router, shared in and out); in the GPT style shifts and biases, of which experts have none.
  CHECK(check_gradients(job) ==
        (activation == Activation::kGelu ? 5 + 12 + (12 - 2 + 3) : 3 + 6 + 9));
}

TEST_CASE("each copy is what its expert makes of its token", "[runtime][experts]") {
  // The definition in double: softmax(x R) weighs expert e's (silu(x G_e) * (x U_e)) D_e.
  Job job = planned(experts_job(),
                    {.name = "", .tensor = 1, .pipeline = 1, .data = 1, .expert = 1, .micro = 8});
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  ThreadRanks ranks(graph);
  runtime::cpu::Executor& rank = ranks.executor(0);
  const auto values = [&](const std::string& name) {
    const auto at = std::find_if(program.tensors.begin(), program.tensors.end(),
                                 [&](const Tensor& t) { return t.name == name; });
    REQUIRE(at != program.tensors.end());
    const auto m = rank.tensor(static_cast<TensorId>(at - program.tensors.begin()));
    return std::vector<double>(m.data, m.data + m.elements());
  };
  const std::size_t h = 32;
  const std::size_t f = 24;
  const auto router = values("layer.1.moe.router.weight");
  const auto fc1 = values("layer.1.moe.fc1.weight");  // [expert][hidden][gate | up]
  const auto fc2 = values("layer.1.moe.fc2.weight");  // [expert][width][hidden]
  ranks.step(0, batches_of(job, graph, 0));
  const auto x = values("layer.1.norm2");
  const auto probabilities = values("layer.1.moe.probabilities");
  const auto made = values("layer.1.moe.output");
  runtime::ExpertPlan plan(graph, program.routings.at(1), 0);
  plan.draw(0, 0);
  plan.place_copies();
  REQUIRE(plan.copies() == kGlobal * kSequence * 2);
  double worst = 0;
  for (std::size_t c = 0; c < plan.row_of.size(); ++c) {
    const double* token = x.data() + static_cast<std::size_t>(plan.row_of[c]) * h;
    const auto e = static_cast<std::size_t>(plan.expert_of[c]);
    std::vector<double> inner(2 * f, 0.0);
    for (std::size_t i = 0; i < h; ++i) {
      for (std::size_t j = 0; j < 2 * f; ++j) {
        inner[j] += token[i] * fc1[(e * h + i) * 2 * f + j];
      }
    }
    for (std::size_t o = 0; o < h; ++o) {
      double out = 0;
      for (std::size_t j = 0; j < f; ++j) {
        const double silu = inner[j] / (1 + std::exp(-inner[j]));
        out += silu * inner[f + j] * fc2[(e * f + j) * h + o];
      }
      worst = std::max(worst, std::abs(out - made[c * h + o]));
    }
    std::vector<double> logits(8, 0.0);
    double sum = 0;
    for (std::size_t k = 0; k < 8; ++k) {
      for (std::size_t i = 0; i < h; ++i) {
        logits[k] += token[i] * router[i * 8 + k];
      }
      sum += std::exp(logits[k]);
    }
    const auto at = static_cast<std::size_t>(plan.row_of[c]) * 8 + e;
    worst = std::max(worst, std::abs(std::exp(logits[e]) / sum - probabilities[at]));
  }
  CHECK(worst < 2e-6);
}

TEST_CASE("copies are conserved between tokens, ranks and experts", "[runtime][experts]") {
  const double capacity = GENERATE(0.0, 0.75);
  const double zipf = GENERATE(0.0, 1.2);
  Job job = experts_job();
  experts_of(job).capacity_factor = capacity;
  if (zipf > 0) {
    experts_of(job).routing = std::make_shared<const Access>(Access::zipf(8, zipf, 3));
  }
  for (const Plan& p : plans()) {
    const Job split = planned(job, p);
    const ExecutionGraph graph = workloads::build_graph(split);
    std::map<std::int32_t, std::vector<runtime::ExpertPlan>> of_rank;
    for (std::int32_t rank = 0; rank < graph.ranks(); ++rank) {
      for (const ExpertRouting& routing : graph.program_of(rank).routings) {
        if (routing.part == 0) {
          of_rank[rank].emplace_back(graph, routing, rank);
          of_rank[rank].back().draw(5, 0);
          of_rank[rank].back().place_copies();
        }
      }
    }
    INFO(p.name << ", capacity " << capacity << ", zipf " << zipf);
    for (auto& [rank, layers] : of_rank) {
      const auto& routings = graph.program_of(rank).routings;
      const std::int64_t parts = routings.front().parts;
      const std::int64_t rows = routings.front().rows;
      for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        const runtime::ExpertPlan& plan = layers[layer];
        // Each copy belongs to one choice of one token; a token's experts differ.
        std::vector<int> seen(static_cast<std::size_t>(plan.copies()), 0);
        std::vector<std::int64_t> taken(8, 0);
        std::int64_t dropped = 0;
        for (std::int64_t i = 0; i < rows; ++i) {
          const auto at = static_cast<std::size_t>(2 * i);
          REQUIRE(plan.chosen[at] < plan.chosen[at + 1]);
          for (const std::size_t choice : {at, at + 1}) {
            const std::int64_t copy = plan.copy_of[choice];
            ++taken[static_cast<std::size_t>(plan.chosen[choice])];
            if (copy < 0) {
              ++dropped;
              continue;
            }
            ++seen[static_cast<std::size_t>(copy)];
            REQUIRE(plan.row_of[static_cast<std::size_t>(copy)] == i);
            REQUIRE(plan.expert_of[static_cast<std::size_t>(copy)] == plan.chosen[choice]);
          }
        }
        CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
        CHECK(plan.copies() + dropped == 2 * rows);
        std::int64_t over = 0;
        for (const std::int64_t n : taken) {
          over += std::max<std::int64_t>(0, n - routings.front().capacity);
        }
        CHECK(dropped == over);
        // Rows that a member sends here are what is expected from it, part by part.
        const auto group = expert_group(graph.mesh, routings.front().split, rank);
        const std::int64_t place = expert_place(graph.mesh, routings.front().split, rank);
        std::int64_t received = 0;
        for (std::int64_t part = 0; part < parts; ++part) {
          for (std::size_t member = 0; member < group.size(); ++member) {
            const auto sent = of_rank.at(group[member])[layer].sent_to(part, place);
            const auto here = plan.received_from(part, static_cast<std::int64_t>(member));
            CHECK(sent.count == here.count);
            received += here.count;
          }
        }
        CHECK(received == plan.received.back());
        CHECK(plan.unsorted.back() == plan.sorted.back());
      }
    }
  }
}

TEST_CASE("bytes of experts are those predicted", "[runtime][experts]") {
  const LinkLevels levels({});
  const bool skewed = GENERATE(false, true);
  for (const Plan& p : plans()) {
    if (p.expert == 1 || (skewed && p.chunks > 1)) {
      continue;
    }
    Job job = planned(experts_job(), p);
    if (skewed) {
      experts_of(job).routing = std::make_shared<const Access>(Access::zipf(8, 1.0, 3));
    }
    const ExecutionGraph graph = workloads::build_graph(job);
    ThreadRanks ranks(graph, &levels);
    for (int step = 0; step < 2; ++step) {
      ranks.step(step, batches_of(job, graph, step));
    }
    constexpr auto kExperts = TrafficKind::kExperts;
    double counted = 0;
    double messages = 0;  // of a step, to other ranks
    for (std::int32_t r = 0; r < graph.ranks(); ++r) {
      const auto sent = ranks.executor(static_cast<std::size_t>(r)).sent();
      for (std::size_t level = 0; level < levels.count(); ++level) {
        counted += sent[static_cast<std::size_t>(kExperts) * levels.count() + level] / 2;
      }
      const Program& program = graph.program_of(r);
      for (const Call& call : program.calls) {
        for (const Op& op : program.ops_of(program.segments[call.segment])) {
          messages += op.routing >= 0 && op.communicator >= 0
                          ? static_cast<double>(graph.members(op.communicator, r).size()) - 1
                          : 0;
        }
      }
    }
    INFO(p.name << (skewed ? ", skewed" : ", even"));
    const double expected = expected_traffic(graph, levels, 4).total(kExperts);
    CHECK(expected > 0);
    if (!skewed) {
      CHECK(counted == Approx(expected).epsilon(1e-9));
    } else {
      // Rows are powers of two: each message is within one copy of 32 numbers of the expectation;
      // where tensor ranks gather, all parts are as large as the largest.
      const double group = p.sequence_parallel && p.expert_tensor != 1 ? 2.0 * p.expert : 1.0;
      CHECK(std::abs(counted - expected) <= group * messages * 32 * 4);
      CHECK(counted == Approx(expected).epsilon(0.25));
    }
  }
}

TEST_CASE("what of experts cannot run says so", "[runtime][experts]") {
  Job job = experts_job();
  job.flash_attention = false;  // CUDA has it in 16 bits
  CHECK_NOTHROW(studies::require_executable(job, false));
  CHECK_NOTHROW(studies::require_executable(job, true));
  Job narrow = job;
  narrow.formats.compute = Format::kFp8;
  CHECK_THROWS_WITH(studies::require_executable(narrow, true),
                    Catch::Contains("formats.compute") && Catch::Contains("experts"));
  Job once = job;
  once.parallel.expert = 2;
  once.parallel.expert_dispatch = ExpertDispatch::kPerMachine;
  CHECK_THROWS_WITH(
      studies::require_executable(once, false),
      Catch::StartsWith("parallel.expert_dispatch: ") && Catch::Contains("to each machine once"));
  Job grouped = job;
  auto& moe = *std::get<TransformerWorkload>(grouped.workload.model).moe;
  moe.groups = 2;
  CHECK_THROWS_WITH(studies::require_executable(grouped, true),
                    Catch::StartsWith("workload.moe.groups_per_token: "));
  Job thin = job;
  thin.formats.expert_dispatch = Format::kFp8;
  CHECK_THROWS_WITH(studies::require_executable(thin, true),
                    Catch::StartsWith("formats.expert_dispatch: "));
  Plan whole{.name = "", .tensor = 2, .pipeline = 1, .data = 2, .expert = 1};
  whole.sequence_parallel = true;
  whole.expert_tensor = 1;
  whole.zero = 1;
  CHECK_THROWS_WITH(studies::require_executable(planned(job, whole), false),
                    Catch::Contains("parallel.zero"));
}
