#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "tests/runtime/thread_ranks.h"
#include "workloads/build_graph.h"

using namespace stepcast;

namespace {

constexpr std::int64_t kSequence = 8;
constexpr std::int64_t kGlobal = 8;

Job small_job(Activation activation, bool tied) {
  TransformerWorkload m;
  m.layers = 4;
  m.hidden = 32;
  m.heads = 4;
  m.kv_heads = activation == Activation::kGelu ? 4 : 2;
  m.head_dim = 8;
  m.ffn_hidden = 48;
  m.activation = activation;
  m.vocabulary = 64;
  m.tied_embeddings = tied;
  Job job;
  job.workload.name = "small";
  job.workload.model = m;
  job.batch = {kGlobal, 1, kSequence};
  job.formats.compute = Format::kFp32;
  job.system.host.devices = 2;
  job.parallel.bucket = Bytes(8192);  // several buckets per stage
  return job;
}

/// The whole global batch of a step: a token is followed by its successor three times in four.
std::vector<std::int32_t> global_tokens(std::int64_t step) {
  std::mt19937 random(static_cast<unsigned>(17 + step));
  std::vector<std::int32_t> tokens;
  for (std::int64_t sample = 0; sample < kGlobal; ++sample) {
    auto token = static_cast<std::int32_t>(random() % 64);
    for (std::int64_t i = 0; i <= kSequence; ++i) {
      tokens.push_back(token);
      token = random() % 4 == 0 ? static_cast<std::int32_t>(random() % 64) : (token * 5 + 3) % 64;
    }
  }
  return tokens;
}

std::vector<runtime::HostBatch> batches_of(const Job& job, const ExecutionGraph& graph,
                                           std::int64_t step) {
  const std::vector<std::int32_t> all = global_tokens(step);
  const std::int64_t each = kGlobal / job.parallel.data * (kSequence + 1);
  std::vector<runtime::HostBatch> batches(static_cast<std::size_t>(graph.ranks()));
  for (std::int32_t r = 0; r < graph.ranks(); ++r) {
    const std::int64_t first = graph.mesh.coordinate(r, Axis::kData) * each;
    batches[static_cast<std::size_t>(r)].tokens.assign(all.begin() + first,
                                                       all.begin() + first + each);
  }
  return batches;
}

std::vector<double> loss_curve(const Job& job, int steps) {
  const ExecutionGraph graph = workloads::build_graph(job);
  runtime::test::ThreadRanks ranks(job, graph);
  std::vector<double> losses;
  for (int s = 0; s < steps; ++s) {
    losses.push_back(ranks.step(s, batches_of(job, graph, s)));
  }
  return losses;
}

struct Plan {
  std::string name;
  Parallel parallel;
  std::int64_t micro = 1;
  bool flash = true;
};

Plan plan(std::string name, std::int64_t tensor, std::int64_t pipeline, std::int64_t data) {
  Plan p;
  p.name = std::move(name);
  p.parallel.tensor = tensor;
  p.parallel.pipeline = pipeline;
  p.parallel.data = data;
  p.parallel.bucket = Bytes(8192);
  return p;
}

std::vector<Plan> plans() {
  std::vector<Plan> all;
  const auto add = [&all](Plan p, auto&& change) {
    change(p);
    all.push_back(std::move(p));
  };
  const auto overlap = [](Plan& p) {
    p.parallel.overlap = {true, true, true, false, false, false};
  };
  add(plan("micro 4", 1, 1, 1), [](Plan& p) { p.micro = 4; });
  add(plan("unfused", 1, 1, 1), [](Plan& p) { p.flash = false; });
  add(plan("unfused, selective", 1, 1, 1), [](Plan& p) {
    p.flash = false;
    p.parallel.recompute.kind = RecomputeKind::kSelective;
  });
  add(plan("full recompute", 1, 1, 1),
      [](Plan& p) { p.parallel.recompute.kind = RecomputeKind::kFull; });
  add(plan("first layers", 1, 1, 1), [](Plan& p) {
    p.parallel.recompute = {RecomputeKind::kFirstLayers, 2};
  });
  add(plan("tensor", 2, 1, 1), [](Plan&) {});
  add(plan("sequence", 2, 1, 1), [](Plan& p) { p.parallel.sequence_parallel = true; });
  add(plan("sequence, full recompute", 2, 1, 1), [](Plan& p) {
    p.parallel.sequence_parallel = true;
    p.parallel.recompute.kind = RecomputeKind::kFull;
  });
  add(plan("data", 1, 1, 4), [](Plan&) {});
  add(plan("data, overlapped", 1, 1, 2), overlap);
  add(plan("zero", 1, 1, 4), [](Plan& p) { p.parallel.zero = 1; });
  for (const bool overlapped : {false, true}) {
    const std::string how = overlapped ? ", overlapped" : "";
    const auto with = [&](Plan& p, int zero) {
      p.parallel.zero = zero;
      p.parallel.overlap.data = overlapped;
    };
    add(plan("zero 2" + how, 1, 1, 4), [&](Plan& p) { with(p, 2); });
    add(plan("zero 3" + how, 1, 1, 4), [&](Plan& p) { with(p, 3); });
    add(plan("zero 3, whole batch" + how, 1, 1, 2), [&](Plan& p) {
      with(p, 3);
      p.micro = 4;
      p.parallel.recompute.kind = RecomputeKind::kFull;
    });
    add(plan("zero 3, kept" + how, 1, 2, 2), [&](Plan& p) {
      with(p, 3);
      p.parallel.zero_reshard = false;
    });
    add(plan("zero 3, all" + how, 2, 2, 2), [&](Plan& p) {
      with(p, 3);
      p.parallel.sequence_parallel = true;
      p.parallel.virtual_stages = 2;
    });
    for (const int zero : {1, 2, 3}) {
      add(plan("zero inside machines of 2" + how, 1, 1, 4), [&](Plan& p) {
        with(p, zero);
        p.parallel.zero_level = "node";
      });
    }
  }
  add(plan("pipeline", 1, 4, 1), [](Plan&) {});
  for (const bool overlapped : {false, true}) {
    const std::string how = overlapped ? ", overlapped" : "";
    const auto zb = [&](Plan& p) {
      p.parallel.schedule = ScheduleKind::kZbH1;
      if (overlapped) {
        overlap(p);
      }
    };
    add(plan("zb-h1" + how, 1, 4, 1), zb);
    add(plan("zb-h1, tensor" + how, 2, 2, 1), zb);
    add(plan("zb-h1, all" + how, 2, 2, 2), [&](Plan& p) {
      zb(p);
      p.parallel.sequence_parallel = true;
      p.parallel.zero = 1;
      p.parallel.recompute.kind = RecomputeKind::kSelective;
    });
    add(plan("zb-h1, kept zero 3" + how, 1, 2, 2), [&](Plan& p) {
      zb(p);
      p.parallel.zero = 3;
      p.parallel.zero_reshard = false;
    });
  }
  add(plan("gpipe", 1, 2, 1), [](Plan& p) { p.parallel.schedule = ScheduleKind::kGpipe; });
  add(plan("interleaved", 1, 2, 1), [](Plan& p) { p.parallel.virtual_stages = 2; });
  add(plan("all", 2, 2, 2), [](Plan& p) { p.parallel.sequence_parallel = true; });
  add(plan("all, overlapped", 2, 2, 2), [&](Plan& p) {
    overlap(p);
    p.parallel.sequence_parallel = true;
    p.parallel.virtual_stages = 2;
    p.parallel.zero = 1;
    p.parallel.recompute.kind = RecomputeKind::kSelective;
  });
  return all;
}

}  // namespace

TEST_CASE("every plan of a transformer has the same loss curve", "[runtime][transformer]") {
  const Activation activation = GENERATE(Activation::kGelu, Activation::kSwiGlu);
  const bool tied = GENERATE(false, true);
  Job job = small_job(activation, tied);
  job.dense_optimizer = OptimizerKind::kSgd;  // Adam would blow rounding of small gradients up
  const std::vector<double> expected = loss_curve(job, 4);
  CHECK(expected.front() ==
        Approx(std::log(64.0)).epsilon(0.05));  // small logits: nearly uniform over 64 tokens
  for (const Plan& p : plans()) {
    job.parallel = p.parallel;
    job.batch.micro = p.micro;
    job.flash_attention = p.flash;
    const std::vector<double> losses = loss_curve(job, 4);
    for (std::size_t s = 0; s < losses.size(); ++s) {
      INFO(name_of(activation) << (tied ? ", tied" : "") << ", " << p.name << ", step " << s);
      CHECK(losses[s] == Approx(expected[s]).epsilon(2e-6));
    }
  }
}

TEST_CASE("every plan of other layer types has the same loss curve", "[runtime][transformer]") {
  const Activation activation = GENERATE(Activation::kGelu, Activation::kSwiGlu);
  const std::int64_t window = GENERATE(0, 3);
  Job job = small_job(activation, false);
  auto& m = std::get<TransformerWorkload>(job.workload.model);
  m.window = window;
  m.parallel_block = window == 0 || activation == Activation::kSwiGlu;
  job.dense_optimizer = OptimizerKind::kSgd;
  const std::vector<double> expected = loss_curve(job, 3);
  for (const Plan& p : plans()) {
    job.parallel = p.parallel;
    job.batch.micro = p.micro;
    job.flash_attention = p.flash;
    const std::vector<double> losses = loss_curve(job, 3);
    for (std::size_t s = 0; s < losses.size(); ++s) {
      INFO(name_of(activation) << ", window " << window << ", " << p.name << ", step " << s);
      CHECK(losses[s] == Approx(expected[s]).epsilon(2e-6));
    }
  }
}

TEST_CASE("tensor ranks that share key and value heads have the same loss curve",
          "[runtime][transformer]") {
  const Activation activation = GENERATE(Activation::kGelu, Activation::kSwiGlu);
  const std::int64_t kv_heads = GENERATE(1, 2);
  Job job = small_job(activation, false);
  std::get<TransformerWorkload>(job.workload.model).kv_heads = kv_heads;
  job.dense_optimizer = OptimizerKind::kSgd;
  const std::vector<double> expected = loss_curve(job, 4);
  const auto check = [&](const Plan& p) {
    job.parallel = p.parallel;
    const std::vector<double> losses = loss_curve(job, 4);
    for (std::size_t s = 0; s < losses.size(); ++s) {
      INFO(name_of(activation) << ", " << kv_heads << " key heads, " << p.name << ", step " << s);
      CHECK(losses[s] == Approx(expected[s]).epsilon(2e-6));
    }
  };
  check(plan("tensor 4", 4, 1, 1));
  Plan all = plan("all", 4, 2, 2);
  all.parallel.sequence_parallel = true;
  all.parallel.virtual_stages = 2;
  all.parallel.zero = 1;
  all.parallel.overlap = {true, true, true, false, false, false};
  check(all);
  all.parallel.virtual_stages = 1;
  all.parallel.zero = 3;
  check(all);
}

TEST_CASE("the loss of a transformer falls", "[runtime][transformer]") {
  const Activation activation = GENERATE(Activation::kGelu, Activation::kSwiGlu,
                                         Activation::kSquaredRelu, Activation::kGeGlu);
  Job job = small_job(activation, false);
  job.dense_optimizer = OptimizerKind::kAdam;
  const std::vector<double> losses = loss_curve(job, 120);
  // 3/4 of the steps are the successor: entropy of the source is about 0.56 + 0.25 ln 64 = 1.6
  // nats.
  CHECK(losses.back() < 0.75 * losses.front());
}

TEST_CASE("gradients of a whole transformer step are those of its loss", "[runtime][transformer]") {
  const Activation activation = GENERATE(Activation::kGelu, Activation::kSwiGlu,
                                         Activation::kSquaredRelu, Activation::kGeGlu);
  const bool flash = GENERATE(true, false);
  Job job = small_job(activation, true);
  job.dense_optimizer = OptimizerKind::kSgd;
  job.flash_attention = flash;
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  runtime::test::ThreadRanks ranks(job, graph);
  runtime::cpu::Executor& rank = ranks.executor(0);
  const auto batches = batches_of(job, graph, 0);
  std::vector<std::pair<TensorId, std::vector<float>>> weights;  // whole buckets, as they were
  for (TensorId id = 0; id < program.tensors.size(); ++id) {
    if (program.tensors[id].role == TensorRole::kParameter && !program.tensors[id].is_view()) {
      const runtime::cpu::Matrix m = rank.tensor(id);
      weights.emplace_back(id, std::vector<float>(m.data, m.data + m.elements()));
    }
  }
  const auto restore = [&] {
    for (const auto& [id, values] : weights) {
      std::copy(values.begin(), values.end(), rank.tensor(id).data);
    }
  };
  int checked = 0;
  for (TensorId id = 0; id < program.tensors.size(); ++id) {
    const Tensor& t = program.tensors[id];
    if (t.role != TensorRole::kParameter || !t.is_view() || t.name.ends_with("shard")) {
      continue;
    }
    restore();
    ranks.step(0, batches);
    const runtime::cpu::Matrix g = rank.tensor(id + 1);  // declared side by side
    REQUIRE(program.tensors[id + 1].name == t.name + ".gradient");
    const std::vector<float> gradient(g.data, g.data + g.elements());
    double square = 0;
    for (const float v : gradient) {
      square += double{v} * v;
    }
    const double length = std::sqrt(square);
    // Along its own direction the loss grows by the gradient's length; fourth-order difference.
    const auto loss_at = [&](double along) {
      restore();
      float* w = rank.tensor(id).data;
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        w[i] += static_cast<float>(along * gradient[i] / length);
      }
      return ranks.step(0, batches);
    };
    INFO(name_of(activation) << ", " << t.name << ", length " << length);
    // Steps small beside the curvature, yet far above the rounding of a loss of 4 in fp32.
    const double e = std::min(0.04, 4e-3 / length);
    const double slope =
        (8 * (loss_at(e) - loss_at(-e)) - (loss_at(2 * e) - loss_at(-2 * e))) / (12 * e);
    CHECK(slope == Approx(length).epsilon(0.01).margin(2e-5));
    ++checked;
  }
  // 2 ends (+ positions) + final norm, and per layer 6 weights with 6 biases or shifts more in the
  // GPT style.
  CHECK(checked == (activation == Activation::kGelu ? 4 + 4 * 12 : 2 + 4 * 6));
}
