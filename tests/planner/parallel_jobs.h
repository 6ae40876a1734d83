#pragma once
#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/config/config.h"
#include "core/config/default_framework.h"
#include "core/error.h"
#include "core/graph/program.h"
#include "core/job/framework_rules.h"
#include "core/job/job_rules.h"
#include "core/job/layer_split.h"
#include "core/job/parameter_count.h"
#include "models/cost_model.h"
#include "planner/parallel/layer_cost_probe.h"
#include "planner/parallel/parallel_space.h"
#include "planner/parallel/plan_point.h"
#include "simulator/reports/memory_ledger.h"
#include "simulator/simulate.h"
#include "workloads/build_graph.h"

namespace stepcast::planner::testing {

inline const config::Library kLibrary{STEPCAST_SOURCE_DIR};

/// Plans of the job that `set` says, on no framework.
inline PlanRequest request_of(std::vector<std::string> set) {
  set.emplace_back("framework=none");
  return config::load_plan_request_on_framework(config::text_source("{}", "test"), set, kLibrary,
                                                "")
      .request;
}

/// Plans of a small transformer; `more` overrides its keys.
inline PlanRequest small_request(std::int64_t devices, std::vector<std::string> more = {}) {
  std::vector<std::string> overrides{"workload=llama2-7b",
                                     "system=dgx-a100-80gb",
                                     "workload.layers=4",
                                     "workload.hidden=1024",
                                     "workload.heads=8",
                                     "workload.kv_heads=8",
                                     "workload.head_dim=128",
                                     "workload.ffn_hidden=4096",
                                     "workload.vocabulary=16000",  // less than a layer
                                     "batch.global=8",
                                     "batch.sequence=1024",
                                     "devices=" + std::to_string(devices)};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return request_of(std::move(overrides));
}

/// A transformer between 0.1 and 30 billion parameters on a built-in system.
inline Job random_transformer(std::mt19937& rng) {
  const auto one_of = [&rng](std::initializer_list<std::int64_t> values) {
    return *(values.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                  0, static_cast<std::ptrdiff_t>(values.size()) - 1)(rng));
  };
  Job job;
  TransformerWorkload m;
  m.layers = one_of({4, 6, 7, 8, 12, 16, 24});
  m.head_dim = one_of({64, 128});
  m.heads = one_of({16, 32, 64});
  m.hidden = m.heads * m.head_dim;
  const bool llama = one_of({0, 1}) == 1;
  m.kv_heads = llama ? std::min<std::int64_t>(m.heads, 16) : m.heads;
  m.activation = llama ? Activation::kSwiGlu : Activation::kGelu;
  m.ffn_hidden = llama ? m.hidden * 7 / 2 : m.hidden * 4;
  m.vocabulary = one_of({32000, 51200, 128256});
  m.tied_embeddings = !llama;
  job.workload.name = "random";
  job.workload.model = m;
  static const std::array kSystems{config::load_system("dgx-a100-80gb", kLibrary),
                                   config::load_system("dgx-h100", kLibrary)};
  job.system = kSystems.at(static_cast<std::size_t>(one_of({0, 1})));
  job.system.framework.exchange_multiprocessors = 20;
  job.batch = {one_of({8, 32, 64, 96}), 1, one_of({1024, 2048, 4096})};
  job.flash_attention = one_of({0, 1, 2}) != 0;
  job.parallel.bucket = MB(static_cast<double>(one_of({25, 40, 100})));
  job.devices = one_of({1, 2, 4, 8, 16, 32, 64});
  return job;
}

/// The same with all that jobs may have besides: experts, other orders of ranks, parallel blocks,
/// gradients of 16 bits, a routing that is not even.
inline Job random_job(std::mt19937& rng) {
  const auto draw = [&rng](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(rng);
  };
  Job job = random_transformer(rng);
  auto& model = std::get<TransformerWorkload>(job.workload.model);
  if (draw(0, 2) == 0) {
    MixtureOfExperts experts;
    experts.experts = 8 << draw(0, 2);
    experts.per_token = draw(1, 4);
    experts.ffn_hidden = model.hidden / draw(1, 2);
    experts.shared = draw(0, 1);
    experts.first_dense_layers = draw(0, 2);
    model.moe = experts;
  }
  model.parallel_block = !model.moe && draw(0, 5) == 0;
  model.tied_embeddings = draw(0, 1) == 0;
  job.formats.gradient = draw(0, 2) == 0 ? job.formats.compute : job.formats.gradient;
  switch (draw(0, 3)) {
    case 0:
      job.parallel.order = {Axis::kTensor, Axis::kContext, Axis::kData, Axis::kPipeline};
      break;
    case 1:
      job.parallel.order = {Axis::kTensor, Axis::kData, Axis::kContext, Axis::kPipeline};
      break;
    default:
      break;
  }
  return job;
}

/// One of them small enough to simulate whole, with `times` as many micro-batches and any overlaps.
inline Job random_small_job(std::mt19937& rng, std::int64_t times) {
  const auto flip = [&rng] { return std::uniform_int_distribution<int>(0, 1)(rng) == 1; };
  Job job = random_job(rng);
  auto& model = std::get<TransformerWorkload>(job.workload.model);
  model.layers = std::min<std::int64_t>(model.layers, 8);
  job.batch.global *= times;
  job.devices = std::min<std::int64_t>(job.devices, 16);
  job.parallel.overlap.data = flip();
  job.parallel.overlap.tensor = flip();
  job.parallel.overlap.pipeline = flip();
  job.parallel.overlap.expert = flip();
  job.parallel.overlap.expert_batch = job.parallel.overlap.expert && job.batch.sequence > 1024;
  return job;
}

/// A legal split of the job, or nothing after a few tries; with a pipeline that works as `only`
/// says, if that is given.
inline std::optional<PlanPoint> random_point(const Job& job, std::mt19937& rng,
                                             std::optional<ScheduleKind> only = {}) {
  const auto draw = [&rng](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
  };
  for (int attempt = 0; attempt < 400; ++attempt) {
    PlanPoint p;
    p.tensor = static_cast<std::int32_t>(std::int64_t{1} << draw(0, 4));
    p.pipeline = static_cast<std::int32_t>(draw(0, 1) == 0 ? 1 : draw(2, 8));
    p.context = static_cast<std::int32_t>(draw(0, 2) == 0 ? 1 << draw(1, 3) : 1);
    if (job.devices % (p.tensor * p.pipeline * p.context) != 0) {
      continue;
    }
    p.data = static_cast<std::int32_t>(job.devices / (p.tensor * p.pipeline * p.context));
    if (job.workload.transformer()->moe) {
      p.expert = static_cast<std::int32_t>(std::int64_t{1} << draw(0, 4));
    }
    p.micro = static_cast<std::int32_t>(std::int64_t{1} << draw(0, 3));
    p.virtual_stages = static_cast<std::int32_t>(p.pipeline == 1 ? 1 : draw(1, 3));
    p.schedule =
        p.virtual_stages == 1 && draw(0, 3) == 0 ? ScheduleKind::kGpipe : ScheduleKind::kOneFOneB;
    p.sequence_parallel = p.tensor > 1 && draw(0, 1) == 1;
    if (p.virtual_stages == 1 && p.pipeline > 1 && draw(0, 2) == 0) {
      p.schedule = ScheduleKind::kZbH1;
    }
    p.zero = static_cast<std::int32_t>(p.replicas() > 1 ? draw(0, 3) : 0);
    p.shard_level = p.zero > 0 && draw(0, 2) == 0 ? 1 : 0;
    if (only && (p.pipeline == 1 || p.virtual_stages > 1)) {
      continue;
    }
    p.schedule = only.value_or(p.schedule);
    if (only) {
      p.virtual_stages = static_cast<std::int32_t>(traits_of(*only).least_chunks);
    }
    p.recompute = static_cast<RecomputeKind>(draw(0, 3));
    p.recompute_layers =
        p.recompute == RecomputeKind::kFirstLayers ? static_cast<std::int32_t>(draw(1, 3)) : 0;
    if (job.batch.global % (std::int64_t{p.data} * p.micro) != 0 ||
        (p.virtual_stages > 1 && traits_of(p.schedule).placement == ChunkPlacement::kRound &&
         job.batch.global / (std::int64_t{p.data} * p.micro) % p.pipeline != 0)) {
      continue;
    }
    try {
      (void)workloads::build_graph(applied(job, p));
      return p;
    } catch (const InputError&) {
    }
  }
  return std::nullopt;
}

/// The point with ends that count as layers, most of them as all of a chunk's; nothing where no
/// weight is legal.
inline std::optional<PlanPoint> with_ends(const Job& job, PlanPoint p, std::mt19937& rng) {
  const std::int64_t chunks = std::int64_t{p.pipeline} * p.virtual_stages;
  const std::int64_t most = job.workload.transformer()->layers / chunks + 1;
  for (int attempt = 0; attempt < 20 && p.pipeline > 1; ++attempt) {
    std::uniform_int_distribution<std::int32_t> weight(0, static_cast<std::int32_t>(most));
    p.embedding_layers = std::max(weight(rng), weight(rng));
    p.head_layers = std::max(weight(rng), weight(rng));
    try {
      (void)workloads::build_graph(applied(job, p));
      return p;
    } catch (const InputError&) {
    }
  }
  return std::nullopt;
}

/// Does a search try the point's weights of the ends? As docs/explanation/parallel-planner.md says
/// it.
inline bool searched_ends(const Job& job, const PlanPoint& p,
                          std::optional<TrainingFramework> framework = {}) {
  const TransformerWorkload& model = *job.workload.transformer();
  TransformerWorkload more = model;
  ++more.layers;
  const std::int64_t layer =
      transformer_active_parameters(more, 1) - transformer_active_parameters(model, 1);
  const std::int64_t head = model.vocabulary * model.hidden;
  const std::int64_t chunks = std::int64_t{p.pipeline} * p.virtual_stages;
  const std::int64_t most = head < layer ? 0 : (head + layer - 1) / layer;
  const auto searched = [&](std::int64_t embedding, std::int64_t head_layers) {
    return embedding + head_layers == 0 ||
           (p.pipeline > 1 && embedding <= 1 && head_layers <= std::max<std::int64_t>(most, 1) &&
            (most > 0 || (model.layers + embedding + head_layers) % chunks == 0));
  };
  const auto counts = [&](std::int64_t embedding, std::int64_t head_layers) {
    std::vector<std::int64_t> all;
    for (const LayerRange& range :
         split_layers(model.layers, chunks, {embedding, head_layers, {}})) {
      all.push_back(range.count);
    }
    return all;
  };
  if (!searched(p.embedding_layers, p.head_layers)) {
    return false;
  }
  const std::vector<std::int64_t> own = counts(p.embedding_layers, p.head_layers);
  PlanPoint other = p;
  for (other.head_layers = 0; other.head_layers <= p.head_layers; ++other.head_layers) {
    for (other.embedding_layers = 0; other.embedding_layers <= 1; ++other.embedding_layers) {
      const bool smaller =
          other.head_layers < p.head_layers || other.embedding_layers < p.embedding_layers;
      if (!smaller || !searched(other.embedding_layers, other.head_layers) ||
          counts(other.embedding_layers, other.head_layers) != own) {
        continue;
      }
      const Job said = applied(job, other);
      if (!broken_rule(said) && (!framework || !broken_rule(said, *framework))) {
        return false;  // another name of that one
      }
    }
  }
  return true;
}

/// Every point of a space, each once.
inline std::set<PlanPoint> searched(const ParallelSpace& space, const TransformerWorkload& model) {
  std::set<PlanPoint> points;
  for (const PlanPoint& split : space.splits()) {
    for (const ZeroChoice& zero : space.zeros(split)) {
      PlanPoint p = split;
      p.zero = zero.stage;
      p.shard_level = zero.level;
      const bool apart = space.splits_backward(p);
      for (const std::int32_t micro : space.micros(split)) {
        PlanPoint batched = split;
        batched.micro = p.micro = micro;
        for (const ScheduleChoice& s : space.schedules(batched)) {
          if (splits_weights(s.kind) && !apart) {
            continue;
          }
          p.virtual_stages = s.deal.virtual_stages;
          p.embedding_layers = s.deal.embedding_layers;
          p.head_layers = s.deal.head_layers;
          p.schedule = s.kind;
          const PipelineLayout layout =
              layout_of(model, p.pipeline, p.virtual_stages,
                        {p.embedding_layers, p.head_layers, {}}, traits_of(s.kind).placement);
          for (const RecomputeChoice& r : space.recomputes(layout, s.kind)) {
            p.recompute = r.kind;
            p.recompute_layers = r.layers;
            STEPCAST_CHECK(points.insert(p).second, "{} twice", describe(p));
          }
        }
      }
    }
  }
  return points;
}

/// Step of the full graph in the event simulator.
inline double simulated(const Job& job, const PlanPoint& point, const models::CostModel& model) {
  const ExecutionGraph graph = workloads::build_graph(settled(job, point, model));
  return to_seconds(simulator::simulate(graph, simulator::price(graph, model)).makespan).base();
}

/// Bytes of the fullest rank of the full graph.
inline double full_memory(const Job& job, const PlanPoint& point) {
  const models::CostModel model(job.system, job.calibration);
  const ExecutionGraph graph = workloads::build_graph(settled(job, point, model));
  double most = 0;
  for (std::size_t c = 0; c < graph.classes.size(); ++c) {
    const simulator::MemoryLedger l = simulator::memory_ledger(graph, c, job.system.device);
    most = std::max(most, (l.total() - l.context).base());
  }
  return most;
}

}  // namespace stepcast::planner::testing
