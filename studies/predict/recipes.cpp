#include "studies/predict/recipes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "core/clearly_less.h"
#include "core/error.h"
#include "core/formats.h"
#include "core/graph/optimizer_state.h"
#include "core/job/job_rules.h"
#include "core/job/parameter_count.h"
#include "planner/parallel/parallel_space.h"
#include "simulator/reports/framework_memory.h"

namespace stepcast::studies {
namespace {

using planner::PlanPoint;

/// Share of a device that states may take before a recipe begins with more stages.
constexpr double kStatesShare = 0.6;

std::int64_t expert_parameters(const TransformerWorkload& model) {
  if (!model.moe) {
    return 0;
  }
  // All experts less those a token passes, of which one sees so many.
  const double idle = static_cast<double>(transformer_parameters(model, 1) -
                                          transformer_active_parameters(model, 1));
  const double share =
      1 - static_cast<double>(model.moe->per_token) / static_cast<double>(model.moe->experts);
  return share > 0 ? static_cast<std::int64_t>(idle / share) : 0;
}

/// Layers that compute as much as the LM head; at least one.
std::int32_t head_in_layers(const TransformerWorkload& model, std::int64_t sequence) {
  const double head = static_cast<double>(model.vocabulary) * static_cast<double>(model.hidden);
  const double all = static_cast<double>(transformer_active_parameters(model, sequence));
  const double layer =
      (all - head * (model.tied_embeddings ? 1 : 2)) / static_cast<double>(model.layers);
  return std::max(1, static_cast<std::int32_t>(std::lround(head / layer)));
}

/// Ranks that a fast domain joins, at most as many as a machine of today has.
std::int32_t fast_ranks(const System& system, std::int64_t devices) {
  const std::int64_t inside = system.fabric.empty() ? 1 : system.devices_in_level(0);
  return static_cast<std::int32_t>(std::min({inside, devices, std::int64_t{8}}));
}

/// Bytes of a parameter's states. A first guess: recipes are costed in full.
struct StateBytes {
  double weight, gradient, optimizer;
  [[nodiscard]] double all() const { return weight + gradient + optimizer; }
};
StateBytes state_bytes_of(const Job& job) {
  const double weight = bits_per_element(job.formats.frozen.value_or(job.formats.compute)) / 8;
  if (job.lora) {
    return {weight, 0, 0};
  }
  const double moments =
      optimizer_states(job.dense_optimizer) * bits_per_element(job.formats.moments) / 8;
  const auto master = master_copy(job.formats, job.formats.compute);
  return {weight, bits_per_element(job.formats.gradient) / 8,
          moments + (master ? bits_per_element(*master) / 8 : 0)};
}

Job ready(const Job& job) {
  Job base = planner::without_fits(job);
  base.parallel.pipeline_split = {};
  return base;
}

}  // namespace

RecipeSearch::RecipeSearch(const Job& job, const models::CostModel& model)
    : job_(ready(job)),
      closed_form_(job_, model),
      capacity_(usable(job.system.device)),
      reserve_(reserve_of(job)),
      devices_(static_cast<std::int32_t>(job.devices)),
      inside_(fast_ranks(job.system, job.devices)),
      head_(head_in_layers(*job.workload.transformer(), job.batch.sequence)) {
  const TransformerWorkload& w = *job.workload.transformer();
  expert_parameters_ = expert_parameters(w);
  parameters_ = transformer_parameters(w, job.batch.sequence) - expert_parameters_;
}

Bytes RecipeSearch::least_states(const Job& job) {
  const TransformerWorkload& w = *job.workload.transformer();
  return Bytes(static_cast<double>(transformer_parameters(w, job.batch.sequence)) *
               state_bytes_of(job).all());
}

bool RecipeSearch::legal(const Point& point) const {
  const std::int64_t used = point.devices();
  if (used != devices_ || job_.batch.global % (std::int64_t{point.data} * point.micro) != 0) {
    return false;
  }
  return !broken_rule(planner::applied(job_, point));
}

double RecipeSearch::state_bytes(const Point& p) const {
  const StateBytes of = state_bytes_of(job_);
  const auto each = [&](double shards) {
    return of.weight / (p.zero >= 3 ? shards : 1) + of.gradient / (p.zero >= 2 ? shards : 1) +
           of.optimizer / (p.zero >= 1 ? shards : 1);
  };
  const double stages = p.pipeline;
  const double experts = std::max(1, p.expert);
  const auto replicas = static_cast<double>(p.replicas());
  return static_cast<double>(parameters_) / (stages * p.tensor) * each(replicas) +
         static_cast<double>(expert_parameters_) / (stages * experts) *
             each(std::max(1.0, replicas * p.tensor / experts));
}

std::optional<Recipe> RecipeSearch::costed(const Point& point) {
  const auto known = costed_.find(point);
  if (known != costed_.end()) {
    return known->second;
  }
  if (tried() >= kMostRecipes || !legal(point)) {
    return std::nullopt;
  }
  std::optional<Recipe>& of = costed_[point];
  try {
    const planner::StepForecast f = closed_form_.forecast(point);
    of = Recipe{point, Seconds(f.seconds), Bytes(f.bytes) + reserve_};
  } catch (const InputError&) {  // legal, but not what the builder makes
  }
  return of;
}

/// The fastest way to fit a plan that is faster than `rival`: with as few layers recomputed as fit.
/// Recomputation only takes time.
std::optional<Recipe> RecipeSearch::fitted(Point point, const std::optional<Recipe>& rival) {
  point.recompute = RecomputeKind::kNone;
  point.recompute_layers = 0;
  const auto fits = [this](const std::optional<Recipe>& r) { return r && r->bytes <= capacity_; };
  if (state_bytes(point) > capacity_.base()) {
    return std::nullopt;
  }
  const auto none = costed(point);
  if (!none || fits(none) || (rival && !clearly_less(none->seconds, rival->seconds))) {
    return fits(none) ? none : std::nullopt;
  }
  Point some = point;
  if (!job_.flash_attention || job_.workload.transformer()->mla) {
    some.recompute = RecomputeKind::kSelective;
    if (const auto selective = costed(some); fits(selective)) {
      return selective;
    }
  }
  some.recompute = RecomputeKind::kFull;
  const auto full = costed(some);
  if (!fits(full)) {
    return std::nullopt;
  }
  const std::int64_t layers = job_.workload.transformer()->layers;
  const auto most = static_cast<std::int32_t>((layers + point.pipeline - 1) / point.pipeline);
  some.recompute = RecomputeKind::kFirstLayers;
  const double share = (none->bytes - capacity_) / (none->bytes - full->bytes);
  if (rival &&
      !clearly_less(none->seconds + share * (full->seconds - none->seconds), rival->seconds)) {
    return full;  // not worth what it takes to find out
  }
  auto k = static_cast<std::int32_t>(std::ceil(share * most));
  for (int i = 0; i < 2 && k < most; ++i, k += std::max(1, most / 10)) {
    some.recompute_layers = k;
    const auto partly = costed(some);
    if (fits(partly)) {
      return clearly_less(partly->seconds, full->seconds) ? partly : full;
    }
  }
  return full;
}

/// Fewest stages under which states leave room for activations, all of them where none do.
std::int32_t RecipeSearch::stages_for_states(std::int32_t tensor, std::int32_t expert) const {
  std::int32_t most = 1;
  for (const std::int32_t stages : planner::divisors_of(devices_ / tensor)) {
    if (stages > job_.workload.transformer()->layers) {
      break;
    }
    Point p;
    p.tensor = tensor;
    p.sequence_parallel = tensor > 1;
    p.pipeline = stages;
    p.data = devices_ / tensor / stages;
    p.expert = expert;
    p.zero = p.data > 1 ? 1 : 0;
    if (!legal(p)) {
      continue;
    }
    most = stages;
    if (state_bytes(p) < kStatesShare * capacity_.base()) {
      break;
    }
  }
  return most;
}

/// From fewer ranks that share a layer, which exchange less, to more.
std::vector<PlanPoint> RecipeSearch::first_points() const {
  const TransformerWorkload& w = *job_.workload.transformer();
  std::vector<std::int32_t> experts{1};
  if (w.moe) {
    const std::int64_t most = std::gcd(w.moe->experts, std::int64_t{devices_});
    experts = {static_cast<std::int32_t>(std::gcd(most, std::int64_t{inside_}))};
    if (most > inside_) {
      experts.push_back(static_cast<std::int32_t>(most));
    }
  }
  std::vector<Point> points;
  for (const std::int32_t stages : {4, 2, 1}) {  // experts that are sharded, exchanged by few
    if (!w.moe || devices_ % (2 * stages) != 0) {
      continue;
    }
    Point p;
    p.pipeline = stages;
    p.data = devices_ / stages;
    p.expert = std::gcd(experts.front(), p.data);
    p.zero = 3;
    p.micro = 2;
    if (stages > 1) {  // the head takes memory where states are sharded
      p.head_layers = 2;
      points.push_back(p);
      p.head_layers = 0;
    }
    points.push_back(p);
  }
  for (std::int32_t tensor = 1; tensor <= inside_; tensor *= 2) {
    for (const std::int32_t expert : experts) {
      if (devices_ % tensor != 0) {
        continue;
      }
      Point p;
      p.tensor = tensor;
      p.sequence_parallel = tensor > 1;
      p.expert = expert;
      p.pipeline = stages_for_states(tensor, expert);
      p.data = devices_ / tensor / p.pipeline;
      p.zero = p.replicas() > 1 ? 1 : 0;
      points.push_back(p);
      if (tensor == 1 && w.moe) {  // the host's time for experts is by micro-batch
        p.micro = 2;
        points.push_back(p);
        p.micro = 1;
      }
      if (tensor == 1 && p.data % 2 == 0) {  // logits of large vocabularies
        p.context = 2;
        p.data /= 2;
        points.push_back(p);
        p.context = 1;
      }
      if (tensor == 1 || tensor == inside_) {
        p.pipeline = 1;
        p.data = devices_ / tensor;
        p.zero = p.replicas() > 1 ? 3 : 0;
        points.push_back(p);
      }
    }
  }
  return points;
}

/// One change away.
std::vector<PlanPoint> RecipeSearch::neighbours(const Point& of) const {
  const TransformerWorkload& w = *job_.workload.transformer();
  std::vector<Point> all;
  const auto add = [&](const auto& change) {
    Point p = of;
    if (!change(p) || p.tensor > inside_) {
      return;
    }
    p.sequence_parallel = p.tensor > 1;
    p.zero = p.replicas() == 1 ? 0 : p.zero;
    while (p.expert > 1 && p.replicas() * p.tensor % p.expert != 0) {
      p.expert /= 2;
    }
    if (p.pipeline != of.pipeline) {
      p.virtual_stages = 1;
      p.embedding_layers = p.head_layers = 0;
    }
    if (p != of && p.devices() == devices_) {
      all.push_back(p);
    }
  };
  const auto halve = [](std::int32_t& n) {
    const bool even = n % 2 == 0;
    n /= even ? 2 : 1;
    return even;
  };
  add([](Point& p) { return p.micro *= 2; });
  // Chunks of one length, then stages that differ by a layer.
  const auto add_ends = [&](bool even) {
    const std::set<std::pair<std::int32_t, std::int32_t>> ends{
        {0, 0}, {0, 1}, {1, 1}, {0, 2}, {0, head_}, {0, (head_ + 1) / 2}, {1, head_}};
    for (const auto& [embedding, head] : ends) {
      const std::int32_t layers = static_cast<std::int32_t>(w.layers) + embedding + head;
      const std::int32_t chunks = layers / of.pipeline;
      for (const std::int32_t v : {chunks, chunks / 2, 1}) {
        add([&, e = embedding, h = head](Point& p) {
          p.virtual_stages = even ? std::max(1, v) : 1;
          p.embedding_layers = e;
          p.head_layers = h;
          return even == (layers % (p.pipeline * p.virtual_stages) == 0);
        });
      }
    }
  };
  if (of.pipeline > 1) {
    add_ends(true);
  }
  add([&](Point& p) { return p.pipeline *= 2, halve(p.data); });
  add([&](Point& p) { return p.data *= 2, halve(p.pipeline); });
  add([&](Point& p) { return p.tensor *= 2, halve(p.pipeline); });
  add([&](Point& p) { return p.pipeline *= 2, halve(p.tensor); });
  add([&](Point& p) { return p.tensor *= 2, halve(p.data); });
  add([&](Point& p) { return p.data *= 2, halve(p.tensor); });
  for (const std::int32_t zero : {0, 1, 2, 3}) {
    add([&](Point& p) {
      p.zero = zero;
      return !(zero == 2 && p.pipeline > 1);
    });
  }
  if (w.moe) {
    add([&](Point& p) { return halve(p.expert); });
    add([](Point& p) { return p.expert *= 2; });
  }
  add([&](Point& p) { return halve(p.micro); });
  add([&](Point& p) { return p.context *= 2, halve(p.data); });
  add([&](Point& p) { return p.context *= 2, halve(p.pipeline); });
  add([&](Point& p) { return p.data *= 2, halve(p.context); });
  if (of.pipeline > 1) {
    add_ends(false);
  }
  return all;
}

void RecipeSearch::search() {
  const auto faster = [](const Recipe& a, const Recipe& b) {
    return clearly_less(a.seconds, b.seconds);
  };
  std::vector<Recipe> first;
  std::optional<Recipe> fastest;
  for (const Point& p : first_points()) {
    if (const auto recipe = fitted(p, fastest)) {
      first.push_back(*recipe);
      fastest = !fastest || faster(*recipe, *fastest) ? recipe : fastest;
    }
  }
  std::stable_sort(first.begin(), first.end(), faster);
  for (std::optional<Recipe> from : first) {
    for (bool better = true; better;) {
      better = false;
      for (Point p : neighbours(from->point)) {
        const auto recipe = fitted(p, from);
        if (recipe && faster(*recipe, *from)) {
          from = recipe;
          better = true;
          break;
        }
      }
    }
  }
}

std::vector<Recipe> RecipeSearch::best(bool tight) {
  std::vector<Recipe> all;
  const auto gather = [&] {
    search();
    for (const auto& [point, recipe] : costed_) {
      if (recipe && recipe->bytes <= capacity_) {
        all.push_back(*recipe);
      }
    }
  };
  gather();
  const bool smallest = all.empty() && tight;
  if (smallest) {
    capacity_ = job_.system.device.memory;
    gather();
  }
  std::stable_sort(all.begin(), all.end(), [smallest](const Recipe& a, const Recipe& b) {
    return smallest ? a.bytes < b.bytes : clearly_less(a.seconds, b.seconds);
  });
  return all;
}

Job unsplit(Job job) {
  Parallel& p = job.parallel;
  p.tensor = p.context = p.pipeline = p.expert = p.data = p.virtual_stages = 1;
  p.chunk_microbatches = 0;
  p.pipeline_split = {};
  p.schedule = ScheduleKind::kOneFOneB;
  p.sequence_parallel = false;
  p.zero = 0;
  p.zero_level.clear();
  p.zero_reshard = true;
  p.recompute = {};
  if (job.workload.transformer()->mla && job.flash_attention) {
    p.recompute.modules = {.attention_core = false, .latent_up = true};
  }
  job.batch.micro = 1;
  return job;
}

std::vector<std::string> recipe_settings(const planner::PlanPoint& point, const Job& from) {
  const Parallel& p = from.parallel;
  std::vector<std::string> settings;
  const auto add = [&](const char* key, std::int64_t value, std::int64_t before) {
    if (value != before) {
      settings.push_back(fmt::format("{}={}", key, value));
    }
  };
  add("parallel.tensor", point.tensor, p.tensor);
  add("parallel.context", point.context, p.context);
  add("parallel.expert", point.expert, p.expert);
  add("parallel.pipeline", point.pipeline, p.pipeline);
  add("parallel.virtual_stages", point.virtual_stages, p.virtual_stages);
  const PipelineSplit split{point.embedding_layers, point.head_layers, {}};
  if (split != p.pipeline_split) {
    settings.push_back(fmt::format("parallel.pipeline_split={{\"embedding\":{},\"head\":{}}}",
                                   split.embedding, split.head));
  }
  if (point.schedule != p.schedule) {
    settings.push_back(fmt::format("parallel.schedule={}", name_of(point.schedule)));
  }
  if (point.sequence_parallel != p.sequence_parallel) {
    settings.push_back(fmt::format("parallel.sequence_parallel={}", point.sequence_parallel));
  }
  if (point.zero != p.zero || !p.zero_level.empty()) {
    settings.push_back(fmt::format("parallel.zero={}", point.zero));
  }
  const Recompute& r = p.recompute;
  if (point.recompute != r.kind || point.recompute_layers != r.layers) {
    const bool latent = from.workload.transformer()->mla && from.flash_attention;
    settings.push_back("parallel.recompute=" +
                       (point.recompute == RecomputeKind::kNone   ? std::string("none")
                        : point.recompute == RecomputeKind::kFull ? std::string("full")
                        : point.recompute == RecomputeKind::kFirstLayers
                            ? fmt::format("{{\"layers\":{}}}", point.recompute_layers)
                        : latent ? std::string("{\"modules\":[\"mla_up_proj\"]}")
                                 : std::string("selective")));
  }
  add("batch.micro", point.micro, from.batch.micro);
  return settings;
}

}  // namespace stepcast::studies
