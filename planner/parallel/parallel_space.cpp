#include "planner/parallel/parallel_space.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/job/job_rules.h"
#include "core/job/layer_split.h"
#include "core/job/parameter_count.h"

namespace stepcast::planner {
namespace {

constexpr std::int32_t kLargestZero = 3;

template <class T, class V>
bool allowed(const std::optional<T>& fixed, V value) {
  return !fixed || *fixed == static_cast<T>(value);
}

/// The values a dimension takes: what was fixed, or all.
template <class T>
std::vector<std::int32_t> values(const std::optional<T>& fixed, std::vector<std::int32_t> all) {
  if (fixed) {
    return {static_cast<std::int32_t>(*fixed)};
  }
  return all;
}

/// Layers with as many parameters that a token passes as the head and its predictions have, rounded
/// up; 0 for less than one.
std::int32_t head_in_layers(const TransformerWorkload& model) {
  TransformerWorkload more = model;
  ++more.layers;
  const std::int64_t layer =
      transformer_active_parameters(more, 1) - transformer_active_parameters(model, 1);
  TransformerWorkload without = model;
  without.predictions = 0;
  const std::int64_t head = (1 + model.predictions) * model.vocabulary * model.hidden +
                            transformer_active_parameters(model, 1) -
                            transformer_active_parameters(without, 1);
  return head < layer ? 0 : static_cast<std::int32_t>((head + layer - 1) / layer);
}

}  // namespace

std::vector<ScheduleKind> searched_schedules(const Job& job) {
  const TransformerWorkload& model = *job.workload.transformer();
  const bool ends_share = model.tied_embeddings || model.predictions > 0;
  std::vector<ScheduleKind> kinds{plain_schedule(false)};
  for (const ScheduleTraits& s : kSchedules) {
    const bool v = s.placement == ChunkPlacement::kV;
    if (s.kind != kinds.front() && !(v && ends_share) &&
        !(s.hops.pairs && !job.parallel.overlap.expert_batch)) {
      kinds.push_back(s.kind);
    }
  }
  return kinds;
}

Job without_fits(Job job) {
  job.system.fitted.clear();
  job.system.device.fitted.clear();
  return job;
}

std::vector<std::int32_t> divisors_of(std::int64_t n) {
  std::vector<std::int32_t> low;
  std::vector<std::int32_t> high;
  for (std::int64_t d = 1; d * d <= n; ++d) {
    if (n % d == 0) {
      low.push_back(static_cast<std::int32_t>(d));
      if (d * d != n) {
        high.push_back(static_cast<std::int32_t>(n / d));
      }
    }
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

ParallelSpace::ParallelSpace(const Job& job, const FixedPlan& fixed)
    : job_(without_fits(job)), devices_(job.devices), fixed_(fixed) {
  listed_ = std::exchange(job_.parallel.pipeline_split.layers, {});
  const Parallel& p = job.parallel;
  if (!p.zero_level.empty() && !job.system.devices_in(p.zero_level)) {
    throw InputError("parallel.zero.level",
                     fmt::format("found \"{}\", expected \"node\" or a level of the fabric of {}",
                                 p.zero_level, job.system.name));
  }
  searched_ = searched_schedules(job);
  if (fixed.schedule &&
      std::find(searched_.begin(), searched_.end(), *fixed.schedule) == searched_.end()) {
    throw InputError("parallel.schedule",
                     fmt::format("found {}, which is not searched: a V where embedding and head "
                                 "share weights or tokens are predicted ahead, pairs of passes "
                                 "without overlap.expert = batch; leave it out, or predict and "
                                 "sweep jobs that have it",
                                 name_of(*fixed.schedule)));
  }
  if (job.offload != Offload{}) {
    throw InputError("offload",
                     "is not searched; leave it out, or predict and sweep jobs that have it");
  }
  if (p.chunk_microbatches > 0) {
    throw InputError("parallel.chunk_microbatches",
                     fmt::format("found {}, which is not searched; leave it out, or predict and "
                                 "sweep jobs that have it",
                                 p.chunk_microbatches));
  }
  fixed_level_ = point_of(job).shard_level;
  most_head_ = head_in_layers(*job.workload.transformer());
  for (const std::int32_t stages : divisors_of(devices_)) {
    deals_.emplace(stages, make_deals(stages));
  }
  for (const RecomputeKind kind : {RecomputeKind::kNone, RecomputeKind::kSelective,
                                   RecomputeKind::kFull, RecomputeKind::kFirstLayers}) {
    PlanPoint alone;
    alone.tensor = static_cast<std::int32_t>(std::max<std::int64_t>(1, p.expert_tensor));
    alone.recompute = kind;
    alone.recompute_layers = kind == RecomputeKind::kFirstLayers ? 1 : 0;
    for (const bool splits : {false, true}) {
      alone.schedule = plain_schedule(splits);
      recomputed_[static_cast<std::size_t>(kind)][splits ? 1 : 0] = possible(alone);
    }
  }
}

std::vector<DealChoice> ParallelSpace::searched_ends() const {
  std::vector<DealChoice> ends;
  for (std::int32_t head = 0; head <= std::max(most_head_, 1); ++head) {
    for (const std::int32_t embedding : {0, 1}) {
      ends.push_back({1, embedding, head});
    }
  }
  return ends;
}

std::vector<DealChoice> ParallelSpace::make_deals(std::int32_t stages) const {
  const std::int64_t layers = job_.workload.transformer()->layers;
  if (!listed_.empty()) {
    const auto chunks = static_cast<std::int32_t>(listed_.size());
    const bool fits = stages == 1 ? chunks == 1 : chunks % stages == 0;
    return fits ? std::vector<DealChoice>{{chunks / stages, 0, 0}} : std::vector<DealChoice>{};
  }
  if (stages == 1) {
    return {DealChoice{}};
  }
  std::vector<DealChoice> weights;
  if (fixed_.pipeline_split) {
    weights.push_back({1, static_cast<std::int32_t>(fixed_.pipeline_split->embedding),
                       static_cast<std::int32_t>(fixed_.pipeline_split->head)});
  } else {
    weights = searched_ends();
  }
  std::vector<DealChoice> deals;
  for (std::int32_t v = 1;
       stages * v <= layers + weights.back().embedding_layers + weights.back().head_layers; ++v) {
    const std::int64_t chunks = std::int64_t{stages} * v;
    std::map<std::vector<std::int64_t>, std::size_t> seen;
    for (DealChoice deal : weights) {
      deal.virtual_stages = v;
      const std::int64_t all = layers + deal.embedding_layers + deal.head_layers;
      const bool plain = all == layers;
      const bool helps = fixed_.pipeline_split || plain || most_head_ > 0 || all % chunks == 0;
      if (!helps || all < chunks) {
        continue;
      }
      std::vector<std::int64_t> counts;
      for (const LayerRange& range :
           split_layers(layers, chunks, {deal.embedding_layers, deal.head_layers, {}})) {
        counts.push_back(range.count);
      }
      const bool middle =
          std::all_of(counts.begin() + 1, counts.end() - 1, [](std::int64_t n) { return n > 0; });
      // An embedding alone in its chunk trains nothing where only adapters are trained, and what it
      // costs is measured together with a head alone.
      const std::int64_t least = plain || job_.lora ? 1 : 0;
      if (middle && std::min(counts.front(), counts.back()) >= least) {
        deal.alike = seen.try_emplace(std::move(counts), deals.size()).first->second;
        deals.push_back(deal);
      }
    }
  }
  return deals;
}

const std::vector<DealChoice>& ParallelSpace::deals(std::int32_t stages) const {
  static const std::vector<DealChoice> kNone;
  const auto it = deals_.find(stages);
  return it == deals_.end() ? kNone : it->second;
}

/// With one chunk a stage, a layer assignment that these stages can have, if any.
Job ParallelSpace::split_job(const PlanPoint& split) const {
  Job job = applied(job_, split);
  PipelineSplit& into = job.parallel.pipeline_split;
  if (split.pipeline == 1) {
    return job;
  }
  if (!listed_.empty()) {
    into.layers.resize(static_cast<std::size_t>(split.pipeline));
    for (std::size_t i = 0; i < listed_.size(); ++i) {
      into.layers[i % into.layers.size()] += listed_[i];
    }
    return job;
  }
  if (fixed_.pipeline_split) {
    into = *fixed_.pipeline_split;
    return job;
  }
  for (const DealChoice& ends : searched_ends()) {
    into = {ends.embedding_layers, ends.head_layers, {}};
    if (legal_somehow(job)) {
      return job;
    }
  }
  into = {};
  return job;
}

bool ParallelSpace::legal(const PlanPoint& point) const { return legal(split_job(point)); }

bool ParallelSpace::legal(const Job& job) const {
  return !broken_rule(job) && (!fixed_.framework || !broken_rule(job, *fixed_.framework));
}

bool ParallelSpace::legal_somehow(const Job& job) const {
  if (legal(job)) {
    return true;
  }
  if (!fixed_.framework) {
    return false;
  }
  Job sharded = job;
  sharded.parallel.zero = kLargestZero;
  return legal(sharded);
}

bool ParallelSpace::possible(PlanPoint point) const {
  point.micro = point.tensor * point.context;
  Job job = applied(job_, point);
  job.batch.global = job.parallel.data * job.batch.micro;
  job.parallel.expert_machines = 1;  // where ranks lie depends on the other degrees
  if (point.tensor > 1) {
    job.parallel.sequence_parallel = true;
    if (legal_somehow(job)) {
      return true;
    }
    job.parallel.sequence_parallel = false;  // a framework may have tensor ranks with either alone
  }
  return legal_somehow(job);
}

std::int32_t ParallelSpace::safest_micro(const PlanPoint& split) const {
  return static_cast<std::int32_t>(fixed_.micro.value_or(job_.batch.global / split.data));
}

/// A degree that is rejected alone is rejected in every plan.
std::vector<std::int32_t> ParallelSpace::degrees(std::int32_t PlanPoint::*field,
                                                 const std::optional<std::int64_t>& fixed,
                                                 std::int64_t most) const {
  const TransformerWorkload& model = *job_.workload.transformer();
  std::vector<std::int32_t> degrees;
  for (const std::int32_t n : values(fixed, divisors_of(devices_))) {
    PlanPoint alone;
    alone.tensor =
        static_cast<std::int32_t>(std::max<std::int64_t>(1, job_.parallel.expert_tensor));
    alone.*field = n;
    alone.data = field == &PlanPoint::expert ? n : 1;  // experts are distributed over replicas
    // What experts ask of tensor ranks depends on the experts' degree.
    const bool ask = n > 1 && !(model.moe && field == &PlanPoint::tensor);
    if (n <= most && devices_ % n == 0 && (!ask || possible(alone))) {
      degrees.push_back(n);
    }
  }
  return degrees;
}

std::vector<PlanPoint> ParallelSpace::splits() const {
  std::vector<PlanPoint> splits;
  const TransformerWorkload& model = *job_.workload.transformer();
  const auto tensors = degrees(&PlanPoint::tensor, fixed_.tensor, model.heads);
  const auto contexts = degrees(&PlanPoint::context, fixed_.context, devices_);
  const auto experts = degrees(&PlanPoint::expert, fixed_.expert, devices_);
  for (const std::int32_t t : tensors) {
    for (const bool sequence_parallel : {false, true}) {
      if (!allowed(fixed_.sequence_parallel, sequence_parallel) &&
          !(t == 1 && !sequence_parallel)) {
        continue;
      }
      if (sequence_parallel && t == 1) {
        continue;
      }
      for (const std::int32_t c : contexts) {
        if (devices_ % (std::int64_t{t} * c) != 0) {
          continue;
        }
        for (const std::int32_t p : values(fixed_.pipeline, divisors_of(devices_ / t / c))) {
          const std::int64_t used = std::int64_t{t} * c * p;
          if (deals(p).empty() || devices_ % used != 0) {
            continue;
          }
          PlanPoint split;
          split.tensor = t;
          split.sequence_parallel = sequence_parallel;
          split.context = c;
          split.pipeline = p;
          split.data = static_cast<std::int32_t>(devices_ / used);
          const bool known = fixed_.reordered && (p == 1 || split.data == 1);
          if (known || !allowed(fixed_.data, split.data) || job_.batch.global % split.data != 0) {
            continue;
          }
          for (const std::int32_t e : experts) {
            split.expert = e;
            PlanPoint batched = split;
            batched.micro = safest_micro(split);
            if (legal_somehow(split_job(batched))) {
              splits.push_back(split);
            }
          }
        }
      }
    }
  }
  return splits;
}

std::vector<std::int32_t> ParallelSpace::micros(const PlanPoint& split) const {
  const std::int64_t samples = job_.batch.global / split.data;
  std::vector<std::int32_t> micros;
  PlanPoint point = split;
  for (const std::int32_t micro : values(fixed_.micro, divisors_of(samples))) {
    point.micro = micro;
    if (legal_somehow(split_job(point))) {
      micros.push_back(micro);
    }
  }
  return micros;
}

std::vector<ZeroChoice> ParallelSpace::zeros(const PlanPoint& split) const {
  std::vector<ZeroChoice> zeros;
  PlanPoint point = split;
  point.micro = safest_micro(split);
  point.shard_level = fixed_level_;
  const std::int32_t most = split.replicas() == 1 && fixed_level_ == 0 ? 0 : kLargestZero;
  for (const std::int32_t stage : values(fixed_.zero, {0, 1, 2, 3})) {
    point.zero = stage;
    const bool alike = point.exchanged() != stage;  // the same plan as with fewer shards
    if (((stage <= most && !alike) || fixed_.zero) && legal(point)) {
      zeros.push_back({stage, fixed_level_});
    }
  }
  point.zero = kLargestZero;
  for (std::size_t level = 0; !fixed_.zero && level < job_.system.fabric.size(); ++level) {
    point.shard_level = static_cast<std::int32_t>(level) + 1;
    const std::int64_t inside = job_.system.devices_in_level(level);
    if (inside < devices_ && legal(point)) {  // else the same as all replicas
      zeros.push_back({point.zero, point.shard_level});
    }
  }
  return zeros;
}

bool ParallelSpace::holds(const PlanPoint& p) const {
  const FixedPlan& f = fixed_;
  const PipelineSplit ends{p.embedding_layers, p.head_layers, {}};
  const bool known = f.reordered && (p.pipeline == 1 || p.data == 1);
  return !known && listed_.empty() && p.devices() == devices_ && allowed(f.tensor, p.tensor) &&
         allowed(f.context, p.context) && allowed(f.expert, p.expert) &&
         allowed(f.pipeline, p.pipeline) && allowed(f.data, p.data) &&
         allowed(f.virtual_stages, p.virtual_stages) && allowed(f.micro, p.micro) &&
         allowed(f.zero, p.zero) && p.shard_level == fixed_level_ &&
         (p.tensor == 1 || allowed(f.sequence_parallel, p.sequence_parallel)) &&
         (p.pipeline == 1 || (allowed(f.schedule, p.schedule) &&
                              f.pipeline_split.value_or(ends) == ends)) &&
         (!f.recompute || (f.recompute->kind == p.recompute &&
                           f.recompute->layers == p.recompute_layers)) &&
         legal(applied(job_, p));
}

std::optional<BrokenRule> ParallelSpace::broken_alone() const {
  for (const auto& [key, field, fixed] :
       {std::tuple("tensor", &PlanPoint::tensor, &fixed_.tensor),
        {"context", &PlanPoint::context, &fixed_.context},
        {"expert", &PlanPoint::expert, &fixed_.expert}}) {
    PlanPoint alone;
    alone.*field = static_cast<std::int32_t>(fixed->value_or(1));
    alone.data = field == &PlanPoint::expert ? alone.expert : 1;
    Job job = applied(job_, alone);
    job.batch.global = job.parallel.data * job.batch.micro;
    if (*fixed && devices_ % **fixed != 0) {
      return BrokenRule{fmt::format("parallel.{}", key),
                        fmt::format("{} does not divide {} devices", **fixed, devices_)};
    }
    if (auto broken = *fixed ? broken_rule(job) : std::nullopt) {
      return broken;
    }
  }
  return std::nullopt;
}

bool ParallelSpace::splits_backward(const PlanPoint& split) const {
  PlanPoint point = split;
  point.micro = safest_micro(split);
  point.schedule = plain_schedule(true);
  return legal(point);
}

std::vector<ScheduleChoice> ParallelSpace::schedules(const PlanPoint& point) const {
  if (point.pipeline == 1) {
    if (!allowed(fixed_.virtual_stages, 1)) {
      return {};
    }
    return {{{}, fixed_.schedule.value_or(ScheduleKind::kOneFOneB)}};
  }
  std::vector<ScheduleChoice> schedules;
  const std::vector<DealChoice>& all = deals(point.pipeline);
  std::vector<std::array<bool, kSchedules.size()>> taken(all.size());  // of those alike, by kind
  Job job = applied(job_, point);
  for (const DealChoice& deal : all) {
    if (!allowed(fixed_.virtual_stages, deal.virtual_stages)) {
      continue;
    }
    job.parallel.virtual_stages = deal.virtual_stages;
    job.parallel.pipeline_split = {deal.embedding_layers, deal.head_layers, listed_};
    for (const ScheduleKind kind : searched_) {
      bool& is_taken = taken[deal.alike][static_cast<std::size_t>(kind)];
      job.parallel.schedule = kind;
      if (!is_taken && allowed(fixed_.schedule, kind) && legal_somehow(job)) {
        is_taken = true;
        schedules.push_back({deal, kind});
      }
    }
  }
  return schedules;
}

std::vector<RecomputeChoice> ParallelSpace::recomputes(const PipelineLayout& layout,
                                                       ScheduleKind schedule) const {
  const auto possible = [&](RecomputeKind kind) {
    if (fixed_.framework) {  // may depend on the layer assignment, too
      Job job = job_;
      job.parallel.pipeline = layout.stages;
      job.parallel.virtual_stages = layout.chunks;
      job.parallel.pipeline_split = layout.split;
      job.parallel.schedule = schedule;
      job.parallel.recompute.kind = kind;
      job.parallel.overlap.pipeline = true;
      if (broken_rule(job, *fixed_.framework)) {
        return false;
      }
    }
    return recomputed_[static_cast<std::size_t>(kind)][splits_weights(schedule) ? 1 : 0];
  };
  const std::int32_t most = layout.most_layers();
  std::vector<RecomputeChoice> choices;
  if (fixed_.recompute) {
    if (possible(fixed_.recompute->kind) && fixed_.recompute->layers <= most) {
      choices.push_back(
          {fixed_.recompute->kind, static_cast<std::int32_t>(fixed_.recompute->layers)});
    }
    return choices;
  }
  for (const RecomputeKind kind :
       {RecomputeKind::kNone, RecomputeKind::kSelective, RecomputeKind::kFull}) {
    if (possible(kind)) {
      choices.push_back({kind, 0});
    }
  }
  // Temporaries of predictions that are kept while layers are not have no closed form.
  if (!possible(RecomputeKind::kFirstLayers) || job_.workload.transformer()->predictions > 0) {
    return choices;
  }
  for (std::int32_t k = 1; k < most; ++k) {
    choices.push_back({RecomputeKind::kFirstLayers, k});
  }
  return choices;
}

}  // namespace stepcast::planner
