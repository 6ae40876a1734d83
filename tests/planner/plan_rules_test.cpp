// The loader, the graph builder and the search agree on which plans are legal: small models drawn
// at random, every combination of values.
#include <catch2/catch.hpp>

#include <set>

#include "core/job/job_rules.h"
#include "core/job/layer_split.h"
#include "tests/planner/draw.h"
#include "tests/planner/parallel_jobs.h"
#include "workloads/transformer/shape.h"

namespace stepcast::planner {
namespace {

using testing::Draw;

TransformerWorkload small_model(Draw& draw) {
  TransformerWorkload m;
  m.layers = draw({2, 3, 4, 5});
  m.heads = draw({4, 6, 8});
  m.kv_heads = draw({2, m.heads});
  m.head_dim = 8;
  m.hidden = 48;
  m.ffn_hidden = draw({96, 100, 102});
  m.vocabulary = draw({96, 100, 1000});  // the last is worth 2 or 3 layers
  m.activation = draw.one_in(3) ? Activation::kGelu : Activation::kSwiGlu;
  if (m.activation == Activation::kGelu) {
    m.kv_heads = m.heads;
  }
  if (draw.one_in(2)) {
    m.moe = MixtureOfExperts{};
    m.moe->experts = draw({4, 6});
    m.moe->per_token = 2;
    m.moe->ffn_hidden = draw({32, 33});
    m.moe->shared = draw({0, 1});
    m.moe->first_dense_layers = draw({0, 1});
  } else {
    m.parallel_block = draw.one_in(5);
  }
  m.window = draw.one_in(8) ? 4 : 0;
  if (m.llama_style() && !m.parallel_block && draw.one_in(6)) {
    m.mla = LatentAttention{16, 16, 8, 8, 8};
    m.kv_heads = m.heads;
    m.head_dim = m.mla->query_dim();
  }
  return m;
}

/// Two machines of two devices, or of three.
Job small_job(Draw& draw) {
  const bool uneven = draw.one_in(4);
  Job job =
      config::load_job(config::text_source("{}", "test"),
                       {"workload=llama2-7b", "system=dgx-a100-80gb", "devices=1", "batch.global=1",
                        std::string("system.host.devices=") + (uneven ? "3" : "2"),
                        std::string("system.fabric[0].size=") + (uneven ? "3" : "2")},
                       testing::kLibrary);
  job = without_fits(std::move(job));
  job.workload.name = "small";
  job.workload.model = small_model(draw);
  const TransformerWorkload& m = *job.workload.transformer();
  job.devices = uneven ? 6 : 4;
  job.batch = {draw({4, 6, 12}), 1, draw({6, 8, 12, 16, 30})};
  job.flash_attention = !draw.one_in(8);
  Parallel& p = job.parallel;
  if (m.moe) {
    p.expert_tensor = draw({0, 0, 1, 2});
    p.overlap.expert = draw.one_in(3);
    p.expert_chunks = p.overlap.expert ? draw({1, 2}) : 1;
    p.expert_dispatch = draw.one_in(3) ? ExpertDispatch::kPerMachine : ExpertDispatch::kCopies;
  }
  p.overlap.pipeline = draw.one_in(2);
  p.zero_reshard = !draw.one_in(3);
  if (draw.one_in(3)) {
    p.context_algorithm = draw.one_in(2) ? ContextAlgorithm::kAllToAll : ContextAlgorithm::kPassQ;
  }
  if (draw.one_in(4)) {
    p.order = {Axis::kTensor, Axis::kData, Axis::kContext, Axis::kPipeline};
  }
  if (draw.one_in(4)) {
    job.system.framework.selective_per_op = true;
  }
  if (draw.one_in(6)) {
    job.phase = draw.one_in(2) ? JobPhase::kPrefill : JobPhase::kDecode;
    job.cached = job.phase == JobPhase::kDecode ? 8 : 0;
    job.batch.sequence = job.phase == JobPhase::kDecode ? 1 : job.batch.sequence;
  }
  return job;
}

FixedPlan small_fix(Draw& draw) {
  FixedPlan f;
  if (draw.one_in(8)) f.tensor = draw({1, 2, 4});
  if (draw.one_in(8)) f.pipeline = draw({1, 2});
  if (draw.one_in(8)) f.micro = draw({1, 2, 5});
  if (draw.one_in(8)) f.virtual_stages = draw({1, 2});
  if (draw.one_in(8)) f.schedule = draw.one_in(2) ? ScheduleKind::kZbH1 : ScheduleKind::kGpipe;
  if (draw.one_in(8)) f.recompute = Recompute{RecomputeKind::kFirstLayers, draw({1, 2, 3})};
  if (draw.one_in(8)) f.zero = static_cast<int>(draw({0, 1, 2, 3}));
  if (draw.one_in(8)) f.sequence_parallel = draw.one_in(2);
  if (draw.one_in(2)) {
    f.framework = draw.one_in(2)   ? TrainingFramework::kMegatron
                  : draw.one_in(2) ? TrainingFramework::kTorchtitan
                                   : TrainingFramework::kDeepspeed;
  }
  return f;
}

template <class T, class V>
bool allowed(const std::optional<T>& fixed, V value) {
  return !fixed || *fixed == static_cast<T>(value);
}

/// Tells whether a plan is as fixed, and not another name of one that is there already.
bool asked_for(const Job& job, const FixedPlan& f, const PlanPoint& p) {
  if (!allowed(f.tensor, p.tensor) || !allowed(f.pipeline, p.pipeline) ||
      !allowed(f.micro, p.micro) || !allowed(f.virtual_stages, p.virtual_stages) ||
      !allowed(f.zero, p.zero) || (f.zero && p.shard_level != 0)) {
    return false;
  }
  // Nothing to split, shard or order: one name, the fixed one if that is given.
  if ((p.tensor == 1 && p.sequence_parallel) ||
      (p.tensor > 1 && !allowed(f.sequence_parallel, p.sequence_parallel)) ||
      (p.replicas() == 1 && p.zero != f.zero.value_or(0)) || (p.exchanged() != p.zero && !f.zero) ||
      (p.shard_level > 0 &&
       job.system.devices_in_level(static_cast<std::size_t>(p.shard_level) - 1) >= job.devices) ||
      (p.pipeline == 1 && p.schedule != f.schedule.value_or(ScheduleKind::kOneFOneB)) ||
      (p.pipeline > 1 && !allowed(f.schedule, p.schedule))) {
    return false;
  }
  if (!testing::searched_ends(job, p, f.framework)) {
    return false;
  }
  if (f.recompute) {
    return p.recompute == f.recompute->kind && p.recompute_layers == f.recompute->layers;
  }
  const TransformerWorkload& m = *job.workload.transformer();
  return p.recompute != RecomputeKind::kFirstLayers ||
         p.recompute_layers < most_layers(m.layers, p.pipeline, p.virtual_stages,
                                          {p.embedding_layers, p.head_layers, {}});
}

/// Those of the ends, where there are two.
template <class Visit>
void each_weight(const Visit& visit, PlanPoint p) {
  if (p.pipeline == 1) {
    visit(p);
    return;
  }
  for (p.embedding_layers = 0; p.embedding_layers <= 1; ++p.embedding_layers) {
    for (p.head_layers = 0; p.head_layers <= 5; ++p.head_layers) {
      visit(p);
    }
  }
}

template <class Visit>
void each_combination(const Job& job, const Visit& visit) {
  const auto layers = static_cast<std::int32_t>(job.workload.transformer()->layers);
  const auto devices = static_cast<std::int32_t>(job.devices);
  PlanPoint p;
  for (p.tensor = 1; p.tensor <= devices; ++p.tensor)
    for (p.context = 1; p.context <= devices; ++p.context)
      for (p.pipeline = 1; p.pipeline <= devices; ++p.pipeline) {
        if (devices % (p.tensor * p.context * p.pipeline) != 0) {
          continue;
        }
        p.data = devices / (p.tensor * p.context * p.pipeline);
        for (const std::int32_t expert : divisors_of(devices))
          for (p.micro = 1; p.micro <= job.batch.global; ++p.micro)
            for (p.virtual_stages = 1; p.virtual_stages <= 3; ++p.virtual_stages)
              for (const ScheduleKind schedule : searched_schedules(job))
                for (const bool sequence_parallel : {false, true})
                  for (const auto& [zero, level] :
                       {std::pair{0, 0}, {1, 0}, {2, 0}, {3, 0}, {3, 1}})
                    for (std::int32_t kind = -3; kind < layers; ++kind) {
                      p.expert = expert;
                      p.schedule = schedule;
                      p.sequence_parallel = sequence_parallel;
                      p.zero = zero;
                      p.shard_level = level;
                      p.recompute = kind == -3   ? RecomputeKind::kNone
                                    : kind == -2 ? RecomputeKind::kSelective
                                    : kind == -1 ? RecomputeKind::kFull
                                                 : RecomputeKind::kFirstLayers;
                      p.recompute_layers = std::max(0, kind + 1);
                      each_weight(visit, p);
                    }
      }
}

/// The first of `all` that are not among `others`.
std::vector<std::string> without(const std::set<PlanPoint>& all,
                                 const std::set<PlanPoint>& others) {
  std::vector<std::string> texts;
  for (const PlanPoint& p : all) {
    if (!others.contains(p) && texts.size() < 5) {
      texts.push_back(describe(p));
    }
  }
  return texts;
}

template <class Act>
std::string rejection(const Act& act) {
  try {
    act();
    return "";
  } catch (const InputError& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("the search enumerates the plans that the loader accepts, and no others",
          "[planner][parallel][property]") {
  std::size_t legal = 0;
  for (unsigned seed = 0; seed < 96; ++seed) {
    Draw draw(seed);
    const Job job = small_job(draw);
    const FixedPlan fixed = small_fix(draw);
    const ParallelSpace space(job, fixed);
    std::set<PlanPoint> found = testing::searched(space, *job.workload.transformer());
    legal += found.size();
    std::set<PlanPoint> expected;
    std::size_t turn = 0;
    each_combination(job, [&](const PlanPoint& p) {
      if (!asked_for(job, fixed, p)) {
        return;
      }
      const Job split = applied(job, p);
      const bool accepted = !broken_rule(split);
      if (accepted && (!fixed.framework || !broken_rule(split, *fixed.framework))) {
        expected.insert(p);
      }
      if (++turn % 997 == 0) {  // some of each, by file and as a graph
        CAPTURE(seed, describe(p), accepted);
        const std::string loader = rejection([&split] {
          (void)config::load_job(config::text_source(config::job_to_json(split), "drawn"), {},
                                 testing::kLibrary);
        });
        const std::string builder = rejection([&split] { (void)workloads::build_graph(split); });
        CAPTURE(loader, builder);
        CHECK(loader.empty() == accepted);
        CHECK(builder.empty() == accepted);
      }
    });
    CAPTURE(seed);
    CHECK(without(found, expected) ==
          std::vector<std::string>{});  // plans found that no job may ask for
    CHECK(without(expected, found) == std::vector<std::string>{});  // plans not found
  }
  CHECK(legal > 10'000);
}

}  // namespace stepcast::planner
