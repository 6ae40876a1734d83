#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <string>

#include "core/access/access.h"
#include "tests/workloads/transformer_graphs.h"
#include "workloads/transformer/expert_routing.h"
#include "workloads/transformer/shape.h"

using namespace stepcast;
using namespace stepcast::test;

namespace {

constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kSequence = 32;

/// 8 experts of width 48, two per token, one dense layer first.
Job moe_job(std::int64_t layers = 4, std::int64_t shared = 0) {
  Job job = llama_job(layers, kHidden, 4, 2, 96, kSequence, 128);
  MixtureOfExperts moe;
  moe.experts = 8;
  moe.per_token = 2;
  moe.shared = shared;
  moe.ffn_hidden = 48;
  moe.first_dense_layers = 1;
  transformer_of(job).moe = moe;
  return job;
}

struct Plan {
  std::int64_t tensor, data, expert, expert_tensor;
  bool sequence_parallel;
};

Job planned(Job job, const Plan& p, std::int64_t pipeline = 1) {
  split(job, p.tensor, pipeline, p.data, 4);
  job.parallel.expert = p.expert;
  job.parallel.expert_tensor = p.expert_tensor;
  job.parallel.sequence_parallel = p.sequence_parallel;
  return job;
}

const std::vector<Plan> kPlans{{1, 1, 1, 0, false}, {1, 4, 4, 0, false}, {1, 4, 2, 0, false},
                               {2, 2, 1, 0, false}, {2, 4, 2, 0, false}, {2, 4, 2, 0, true},
                               {2, 2, 4, 0, true},  {2, 4, 2, 1, true},  {2, 4, 8, 1, true},
                               {2, 2, 1, 1, true}};

std::map<std::string, std::vector<Op>> ops_by_name(const Program& program, std::size_t call) {
  std::map<std::string, std::vector<Op>> ops;
  for (const Op& op : program.ops_of(program.segments[program.calls[call].segment])) {
    ops[program.name(op)].push_back(op);
  }
  return ops;
}

}  // namespace

TEST_CASE("parameters of models with experts are the published ones", "[workloads][experts]") {
  Job mixtral = llama_job(32, 4096, 32, 8, 14336, 4096, 32000);
  MixtureOfExperts moe;
  moe.experts = 8;
  moe.per_token = 2;
  moe.ffn_hidden = 14336;
  transformer_of(mixtral).moe = moe;
  const TransformerWorkload& m = transformer_of(mixtral);
  CHECK(workloads::transformer_parameters(m, 4096) == 46'702'792'704);
  // Two of eight experts: 46.7 B less 32 layers * 6 experts * 3 * 4096 * 14336 = 12.88 B.
  CHECK(workloads::transformer_active_parameters(m, 4096) ==
        46'702'792'704 - 32LL * 6 * 3 * 4096 * 14336);
}

TEST_CASE("the graph holds each parameter of the experts", "[workloads][experts]") {
  const Plan plan = GENERATE(from_range(kPlans));
  const std::int64_t pipeline = GENERATE(1, 2);
  const Job job = planned(moe_job(4, 1), plan, pipeline);
  const ExecutionGraph graph = workloads::build_graph(job);
  const auto shape = workloads::transformer_shape(job);
  double held = 0;
  for (const RankClass& c : graph.classes) {
    const double ranks = d(static_cast<std::int64_t>(c.ranks.size()));
    for (const Tensor& t : graph.programs[static_cast<std::size_t>(c.program)].tensors) {
      if (t.role != TensorRole::kParameter || t.pieces.empty()) {
        continue;
      }
      const bool expert = t.name.find(".moe.fc") != std::string::npos;
      const bool whole =
          t.name.find("router") != std::string::npos || t.name.find("norm") != std::string::npos;
      // Ranks of a stage that hold the same numbers.
      const double copies = expert  ? d(shape.experts->replicas)
                            : whole ? d(plan.tensor * plan.data)
                                    : d(plan.data);
      held += d(t.elements()) * ranks / copies;
    }
  }
  CHECK(held == d(workloads::transformer_parameters(transformer_of(const_cast<Job&>(job)), 32)));
}

TEST_CASE("FLOPs count the experts a token passes, whatever the plan", "[workloads][experts]") {
  const Plan plan = GENERATE(from_range(kPlans));
  Job job = planned(moe_job(4, 1), plan);
  const double h = kHidden;
  // Per token, forward: attention products 2 h (h + 2 h / 2) + 2 h^2, scores 4 s h; one dense layer
  // 6 h 96; three with a router 2 h 8, two experts and a shared one 6 h 48 each; head 2 h V.
  const double layer = 2 * h * 2 * h + 2 * h * h + 4 * kSequence * h;
  const double token = 4 * layer + 6 * h * 96 + 3 * (2 * h * 8 + 3 * 6 * h * 48) + 2 * h * 128;
  const double form = 3 * token * d(job.batch.global) * kSequence;
  CHECK(workloads::step_flops(job).model.base() == Approx(form).epsilon(1e-12));
  transformer_of(job).moe->routing = std::make_shared<const Access>(Access::zipf(8, 0.9, 1));
  CHECK(workloads::step_flops(job).model.base() == Approx(form).epsilon(1e-12));
  transformer_of(job).moe->capacity_factor = 0.5;  // half of the copies at most are computed
  const auto clipped = workloads::step_flops(job);
  CHECK(clipped.model.base() == Approx(form).epsilon(1e-12));
  CHECK(clipped.hardware < workloads::step_flops(planned(moe_job(4, 1), plan)).hardware);
}

TEST_CASE("experts exchange tokens per_token hidden elements four times a layer",
          "[workloads][experts]") {
  const Plan plan = GENERATE(from_range(kPlans));
  Job job = planned(moe_job(2), plan);
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  const std::int64_t rows = kSequence / (plan.sequence_parallel ? plan.tensor : 1);
  int exchanges = 0;
  for (std::size_t call = 1; call < 3; ++call) {  // one forward, one backward
    for (const Op& op : program.ops_of(program.segments[program.calls[call].segment])) {
      if (op.kind == OpKind::kAllToAll) {
        ++exchanges;
        CHECK(op.shape[0] == rows * 2 * kHidden);
        CHECK(graph.members(op.communicator, 0).size() == static_cast<std::size_t>(plan.expert));
      }
      CHECK(op.kind != OpKind::kAllToAllV);
    }
  }
  CHECK(exchanges == (plan.expert > 1 ? 4 : 0));
}

TEST_CASE("an uneven routing sends what drawn tokens would, the most loaded rank computes",
          "[workloads][experts]") {
  Job job = planned(moe_job(2), {1, 4, 4, 0, false});
  auto& moe = *transformer_of(job).moe;
  moe.routing = std::make_shared<const Access>(Access::zipf(8, 1.0, 5));
  const auto load = workloads::expert_load(moe, workloads::expert_shares(moe), kSequence, 4);
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  const auto ops = ops_by_name(program, 1);
  const Op& exchange = ops.at("layer.moe.dispatch.exchange").front();
  REQUIRE(exchange.kind == OpKind::kAllToAllV);
  const auto& sent = program.exchange_of(exchange)->send_elements;
  for (std::size_t r = 0; r < 4; ++r) {
    CHECK(sent[r] == Approx(load.to[r] * kHidden));
  }
  const Op& fc1 = ops.at("layer.moe.fc1").front();
  CHECK(fc1.shape[3] == 2);                                             // experts of a rank
  CHECK(fc1.flops.base() == std::round(load.most) * 2 * kHidden * 96);  // gate and up
}

TEST_CASE("gradients of experts are summed over the ranks that hold them", "[workloads][experts]") {
  const Plan plan = GENERATE(from_range(kPlans));
  const Job job = planned(moe_job(2), plan, 2);
  const ExecutionGraph graph = workloads::build_graph(job);
  const std::int64_t columns = workloads::transformer_shape(job).experts->tensor;
  const std::int64_t replicas = plan.tensor * plan.data / (plan.expert * columns);
  for (const Program& program : graph.programs) {
    for (const Op& op : program.ops) {
      if (op.kind != OpKind::kAllReduce || program.name(op) != "gradients.exchange") {
        continue;
      }
      const auto members = graph.members(op.communicator, 0).size();
      const Tensor& bucket = program.tensors[program.inputs(op)[0]];
      bool experts = false;
      for (const Tensor& t : program.tensors) {
        experts |= t.is_view() && static_cast<TensorId>(t.view_of) == program.inputs(op)[0] &&
                   t.name.find(".moe.fc") != std::string::npos;
      }
      CAPTURE(bucket.name);
      CHECK(members == static_cast<std::size_t>(experts ? replicas : plan.data));
    }
  }
  // Ranks that exchange tokens hold different experts; those that sum gradients the same.
  if (replicas > 1 && plan.expert > 1) {
    std::int32_t exchange = -1;
    std::int32_t sum = -1;
    for (std::size_t c = 0; c < graph.communicators.size(); ++c) {
      exchange = graph.communicators[c].name == "expert" ? static_cast<std::int32_t>(c) : exchange;
      sum = graph.communicators[c].name == "expert_data" ? static_cast<std::int32_t>(c) : sum;
    }
    REQUIRE(exchange >= 0);
    REQUIRE(sum >= 0);
    for (const std::int32_t a : graph.members(exchange, 1)) {
      for (const std::int32_t b : graph.members(sum, 1)) {
        CHECK((a != b || a == 1));
      }
    }
  }
}

TEST_CASE("activation bytes of a layer of experts are those of the closed form",
          "[workloads][experts]") {
  // llm.md section 1.2: the MLP part is s b (4 h + 8 E + k C (4 h + w f)) + shared w f_sh s b, w =
  // 6; attention s b h (4 + 4 + 4 g), the log-sum-exp and the norms as in a dense layer.
  const std::int64_t expert = GENERATE(1, 4);
  const std::int64_t shared = GENERATE(0, 1);
  const double exponent = GENERATE(0.0, 1.0);
  Job job = planned(moe_job(4, shared), {1, 4, expert, 0, false});
  auto& moe = *transformer_of(job).moe;
  if (exponent > 0) {
    moe.routing = std::make_shared<const Access>(Access::zipf(8, exponent, 5));
  }
  job.batch.global = 4;  // one micro-batch
  const double layer = bytes_of_a_layer(job);
  const double sb = kSequence;
  const double h = kHidden;
  const auto load = workloads::expert_load(moe, workloads::expert_shares(moe), kSequence, expert);
  // C k s b copies reach the rank, k s b come back. The draw of 32 tokens, a power of two, is
  // within one copy of what is expected from each member: there is room for that.
  const double most = *std::max_element(load.to.begin(), load.to.end());
  const double inputs = d(expert) * std::ceil(most - 1e-9);
  const double form = sb * (4 * h + 8 * 8) + inputs * (2 * h + 6 * 48) + load.sent * 2 * h +
                      d(shared) * 6 * 48 * sb + sb * h * (8 + 4 * 0.5) + 4 * 4 * sb + 16 * sb;
  CHECK(layer == Approx(form).epsilon(1e-12));
}

TEST_CASE("experts' outputs are not kept where activations are multiplied by probabilities",
          "[workloads][experts]") {
  const std::int64_t expert = GENERATE(1, 4);
  Job job = planned(moe_job(4, 1), {1, 4, expert, 0, false});
  job.batch.global = 4;  // one micro-batch
  const auto pass = [&](const char* name) {
    const ExecutionGraph graph = workloads::build_graph(job);
    return sum_over(graph.programs.front(), [name](const Op& op, const std::string& own) {
      return own == name ? op.bytes_read.base() : 0.0;
    });
  };
  const double kept = bytes_of_a_layer(job);
  const double read = pass("layer.moe.combine_gradient");
  const double activation = pass("layer.moe.activation_gradient");
  job.system.framework.probabilities_inside = true;
  // Two copies of each token come back, in bf16; three layers read them for the gradients of their
  // probabilities, and now an fp32 probability of each with the activation.
  const double copies = 2 * kSequence;
  CHECK(kept - bytes_of_a_layer(job) == 2 * copies * kHidden);
  CHECK(read - pass("layer.moe.combine_gradient") == 3 * copies * (2 * kHidden + 4));
  CHECK(pass("layer.moe.activation_gradient") - activation == 3 * 4 * copies);
}

TEST_CASE("GELU of experts is kept before it is multiplied by probabilities",
          "[workloads][experts]") {
  Job job = planned(moe_job(4, 1), {1, 4, 4, 0, false});
  transformer_of(job).activation = Activation::kGelu;
  job.batch.global = 4;  // one micro-batch
  const double outputs = bytes_of_a_layer(job);
  job.system.framework.probabilities_inside = true;
  // Two copies of each token, in bf16: of width 48 in place of the experts' outputs.
  const double copies = 2 * kSequence;
  CHECK(bytes_of_a_layer(job) - outputs == 2 * copies * (48 - kHidden));
  const ExecutionGraph graph = workloads::build_graph(job);
  const auto read = [&](const char* name) {
    return sum_over(graph.programs.front(), [name](const Op& op, const std::string& own) {
      return own == name ? op.bytes_read.base() : 0.0;
    });
  };
  // Three layers; the gradient reads that of the product too.
  CHECK(read("layer.moe.weigh") == 3 * copies * (2 * 48 + 4));
  CHECK(read("layer.moe.weigh_gradient") == 3 * copies * (2 * 2 * 48 + 4));
  job.parallel.fused_experts = true;  // which multiply in their products
  CHECK(bytes_of_a_layer(job) - outputs == -2 * copies * kHidden);
}

TEST_CASE("recomputation op by op keeps exchanged copies of tokens, and no grouped product",
          "[workloads][experts]") {
  const std::int64_t expert = GENERATE(1, 4);
  const bool inside = GENERATE(false, true);
  Job job = planned(moe_job(4, 1), {1, 4, expert, 0, false});
  job.batch.global = 4;  // one micro-batch
  job.system.framework.selective_per_op = true;
  job.system.framework.probabilities_inside = inside;
  const double flops = workloads::step_flops(job).hardware.base();
  job.parallel.recompute.kind = RecomputeKind::kSelective;
  const double n = kSequence;
  const double h = kHidden;
  // Input, query, value (half of the heads), attention and its log-sum-exp; of the shared expert
  // the gate and the second product. Copies of two experts a token at the experts and back.
  const double form = 2 * n * (h + h + h / 2 + h + 48 + h) + 4 * 4 * n;
  CHECK(bytes_of_a_layer(job) == form + (expert > 1 ? 2 * 2 * 2 * n * h : 0));
  // Keys, projection, the shared expert's fc1 and what routed tokens pass: router, three products
  // of two experts, of which the last only where their outputs are read. The dense layer: keys,
  // projection, fc1.
  const double attention = 2 * n * h * (h / 2 + h);
  const double routed = 2 * n * h * 8 + 2 * 2 * n * h * 48 * 3;
  CHECK(workloads::step_flops(job).hardware.base() - flops ==
        Approx(4 * (4 * attention + 2 * n * h * 96 + 3 * (2 * n * h * 48 + routed))).epsilon(1e-9));
}

TEST_CASE("experts that cannot be spread say why", "[workloads][experts]") {
  CHECK_THAT(message_of(planned(moe_job(), {1, 4, 3, 0, false})),
             Catch::StartsWith("parallel.expert: "));
  CHECK_THAT(message_of(planned(moe_job(), {2, 2, 4, 0, false})),
             Catch::StartsWith("parallel.sequence_parallel: "));
  Job dense = llama_job(4, kHidden, 4, 2, 96, kSequence, 128);
  CHECK_THAT(message_of(planned(dense, {1, 4, 2, 0, false})),
             Catch::StartsWith("parallel.expert: ") && Catch::Contains("has no experts"));
}

TEST_CASE("context ranks route tokens of their own", "[workloads][experts]") {
  Job job = moe_job(2);
  split(job, 1, 1, 2, 4);
  job.parallel.context = 2;
  job.devices = 4;
  job.parallel.expert = 4;
  const ExecutionGraph graph = workloads::build_graph(job);
  const auto ops = ops_by_name(graph.programs.front(), 1);
  const Op& exchange = ops.at("layer.moe.dispatch.exchange").front();
  CHECK(exchange.shape[0] == kSequence / 2 * 2 * kHidden);
  CHECK(graph.members(exchange.communicator, 0) == std::vector<std::int32_t>{0, 1, 2, 3});
  Job whole = planned(moe_job(2), {1, 2, 2, 0, false});
  CHECK(workloads::step_flops(job).model.base() ==
        Approx(workloads::step_flops(whole).model.base()).epsilon(1e-12));
}
