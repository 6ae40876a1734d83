#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "core/graph/temporaries.h"
#include "runtime/tensor_layout.h"
#include "tests/runtime/small_transformer.h"

using namespace stepcast;
using namespace stepcast::runtime::test;

namespace {

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
  for (const ScheduleTraits& schedule : kSchedules) {
    const bool overlapped = schedule.hops.pairs;
    const std::string name(schedule.name);
    const auto in_order = [&](Plan& p) {
      p.parallel.schedule = schedule.kind;
      p.parallel.virtual_stages = schedule.least_chunks;
      if (overlapped) {
        overlap(p);
      }
    };
    const std::int64_t stages = schedule.least_chunks == 1 ? 4 : 2;  // of four layers
    add(plan(name, 1, stages, 1), in_order);
    if (schedule.placement != ChunkPlacement::kV) {
      continue;
    }
    add(plan(name + ", all", 2, 2, 2), [&](Plan& p) {
      in_order(p);
      p.parallel.sequence_parallel = true;
      p.parallel.zero = 1;
      p.parallel.recompute.kind = RecomputeKind::kSelective;
    });
  }
  add(plan("interleaved", 1, 2, 1), [](Plan& p) { p.parallel.virtual_stages = 2; });
  // Four layers as [0, 2, 2, 0], as [0, 1, 1, 1, 1, 0] and as [3, 1].
  const auto empty_ends = [](Plan& p) { p.parallel.pipeline_split = {1, 1, {}}; };
  add(plan("empty ends", 1, 4, 1), empty_ends);
  add(plan("empty ends, interleaved", 1, 2, 1), [&](Plan& p) {
    empty_ends(p);
    p.parallel.virtual_stages = 3;
  });
  add(plan("empty ends, zb-h1", 1, 4, 1), [&](Plan& p) {
    empty_ends(p);
    p.parallel.schedule = ScheduleKind::kZbH1;
  });
  add(plan("empty ends, gpipe, full recompute", 2, 4, 1), [&](Plan& p) {
    empty_ends(p);
    p.parallel.schedule = ScheduleKind::kGpipe;
    p.parallel.recompute.kind = RecomputeKind::kFull;
  });
  add(plan("empty ends, zero 3", 1, 4, 2), [&](Plan& p) {
    empty_ends(p);
    p.parallel.zero = 3;
  });
  add(plan("empty ends, all, overlapped", 2, 2, 2), [&](Plan& p) {
    overlap(p);
    empty_ends(p);
    p.parallel.virtual_stages = 3;
    p.parallel.sequence_parallel = true;
    p.parallel.zero = 1;
  });
  add(plan("layers listed", 1, 2, 2), [](Plan& p) { p.parallel.pipeline_split.layers = {3, 1}; });
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
  const std::vector<double> expected = transformer_loss_curve(job, 4);
  CHECK(expected.front() ==
        Approx(std::log(64.0)).epsilon(0.05));  // small logits: nearly uniform over 64 tokens
  for (const Plan& p : plans()) {
    job.parallel = p.parallel;
    job.batch.micro = p.micro;
    job.flash_attention = p.flash;
    const std::vector<double> losses = transformer_loss_curve(job, 4);
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
  const std::vector<double> expected = transformer_loss_curve(job, 3);
  for (const Plan& p : plans()) {
    job.parallel = p.parallel;
    job.batch.micro = p.micro;
    job.flash_attention = p.flash;
    const std::vector<double> losses = transformer_loss_curve(job, 3);
    for (std::size_t s = 0; s < losses.size(); ++s) {
      INFO(name_of(activation) << ", window " << window << ", " << p.name << ", step " << s);
      CHECK(losses[s] == Approx(expected[s]).epsilon(2e-6));
    }
  }
}

TEST_CASE("Muon trains on any split, bit for bit again", "[runtime][transformer][muon]") {
  Job job = small_job(GENERATE(Activation::kGelu, Activation::kSwiGlu), false);
  job.dense_optimizer = OptimizerKind::kMuon;
  const std::vector<double> expected = transformer_loss_curve(job, 4);
  CHECK(expected == transformer_loss_curve(job, 4));
  CHECK(expected.back() < expected.front());
  Job adam = job;
  adam.dense_optimizer = OptimizerKind::kAdam;
  CHECK(expected.back() != transformer_loss_curve(adam, 4).back());
  for (const Plan& p : {plan("data", 1, 1, 2), plan("pipeline", 1, 2, 1)}) {
    job.parallel = p.parallel;
    const std::vector<double> losses = transformer_loss_curve(job, 4);
    for (std::size_t s = 0; s < losses.size(); ++s) {
      INFO(p.name << ", step " << s);
      CHECK(losses[s] == Approx(expected[s]).epsilon(1e-4));
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
  const std::vector<double> expected = transformer_loss_curve(job, 4);
  const auto check = [&](const Plan& p) {
    job.parallel = p.parallel;
    const std::vector<double> losses = transformer_loss_curve(job, 4);
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

TEST_CASE("gradients of a whole transformer step are those of its loss", "[runtime][transformer]") {
  const Activation activation = GENERATE(Activation::kGelu, Activation::kSwiGlu,
                                         Activation::kSquaredRelu, Activation::kGeGlu);
  const bool flash = GENERATE(true, false);
  Job job = small_job(activation, true);
  job.dense_optimizer = OptimizerKind::kSgd;
  job.flash_attention = flash;
  INFO(name_of(activation));
  // 2 ends (+ positions) + final norm, and per layer 6 weights with 6 biases or shifts more in the
  // GPT style.
  CHECK(check_gradients(job) == (activation == Activation::kGelu ? 4 + 4 * 12 : 2 + 4 * 6));
}

TEST_CASE("temporaries share memory unless they live at once", "[runtime][storage]") {
  const bool recomputes = GENERATE(false, true);
  Job job = small_job(Activation::kSwiGlu, false);
  job.parallel.tensor = 2;
  job.parallel.recompute.kind = recomputes ? RecomputeKind::kFull : RecomputeKind::kNone;
  job.devices = 2;
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.programs.front();
  const runtime::StorageRules rules{[](Format) { return sizeof(float); }};
  const runtime::TensorLayout layout = runtime::tensor_layout(program, 0, rules);
  const Temporaries temporaries(program);
  std::size_t pairs = 0;
  double together = 0;
  std::set<TensorId> seen;
  std::size_t region = 0;
  for (const Segment& segment : program.segments) {
    const auto lives = temporaries.lives_in(segment);
    const auto begins = [&](const Temporaries::Life& l) { return layout.instances[l.tensor][0]; };
    const auto size = [&](const Temporaries::Life& l) {
      return static_cast<std::size_t>(program.tensors[l.tensor].elements()) * sizeof(float);
    };
    for (const auto& a : lives) {
      region = begins(a).region;
      together += seen.insert(a.tensor).second ? static_cast<double>(size(a)) : 0;
      for (const auto& b : lives) {
        if (a.tensor < b.tensor && a.first <= b.last && b.first <= a.last) {
          ++pairs;
          CHECK(begins(a).region == begins(b).region);
          CHECK((begins(a).offset + size(a) <= begins(b).offset ||
                 begins(b).offset + size(b) <= begins(a).offset));
        }
      }
    }
  }
  CHECK(pairs > 10);
  CHECK(static_cast<double>(layout.regions.at(region)) < together);
}
