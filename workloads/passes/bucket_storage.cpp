#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "core/job/job_rules.h"
#include "core/job/tier_units.h"
#include "core/job_split.h"
#include "workloads/passes/parameter_buckets.h"

// Storage of parameters, gradients and optimizer states.
namespace stepcast::workloads {
namespace {

/// Sums of gradients at the front of the list of kinds that matrices of layers may have.
constexpr std::size_t kMatrixSums = 6;
/// Share of a bucket of whole matrices that its ranks fill at least, where there are so many:
/// Megatron-LM's layer-wise optimizer.
constexpr double kFilled = 0.9;

Tensor flat_tensor(std::string name, TensorRole role, Format format, std::int64_t elements) {
  Tensor t;
  t.name = std::move(name);
  t.role = role;
  t.format = format;
  t.rows = 1;
  t.columns = elements;
  return t;
}

Tensor view(std::string name, TensorRole role, Format format, TensorId of, std::int64_t offset,
            std::int64_t rows, std::int64_t columns) {
  Tensor t = flat_tensor(std::move(name), role, format, columns);
  t.rows = rows;
  t.view_of = static_cast<std::int32_t>(of);
  t.view_offset = offset;
  return t;
}

/// Summed over tensor ranks once all micro-batches are done, so whole until then.
bool summed_late(GradientSum sum) {
  return sum == GradientSum::kOverTensor || sum == GradientSum::kOverKeyValue;
}

bool frozen(GradientSum sum) {
  return sum == GradientSum::kFrozen || sum == GradientSum::kFrozenNarrow;
}

}  // namespace

/// Whether the state that ZeRO stage `stage` shards (1 optimizer, 2 gradients, 3 weights) is.
bool ParameterBuckets::sharded(Kind kind, int stage) const {
  if (frozen(kind.sum)) {  // without an update there is nothing to gather but shards of weights
    return replicas(kind.replicas).shards > 1 && gathers_each_pass();
  }
  const int exchanged = exchanged_zero(job_.parallel);
  const int zero = summed_late(kind.sum)                           ? std::min(exchanged, 1)
                   : exchanged == 3 && !job_.parallel.zero_reshard ? 1
                                                                   : exchanged;
  return replicas(kind.replicas).shards > 1 && zero >= stage;
}

std::int64_t ParameterBuckets::padded(const Group& group) const {
  const Kind kind = kind_of(group);
  const std::int64_t parts = sharded(kind, 1) ? replicas(kind.replicas).shards : 1;
  std::int64_t elements = 0;
  for (const DeclaredParameter* p : group) {
    elements += weight_of(*p).elements();
  }
  return (elements + parts - 1) / parts * parts;
}

void ParameterBuckets::declare() {
  std::vector<Group> groups;
  std::vector<std::size_t> ends;  // of each chunk's groups
  for (const DependencyInfo::Chunk& chunk : edit_.order().chunks) {
    group(chunk, groups);
    ends.push_back(groups.size());
  }
  plan_slots(groups);
  const std::vector<SlotKey> keys = slot_keys(groups);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto slot = slots_.find(keys[i]);
    open_bucket(groups[i], slot == slots_.end() ? Slot{} : slot->second);
  }
  for (std::size_t begin = 0; const std::size_t end : ends) {
    deal_over_tensor(std::span(buckets_).subspan(begin, end - begin));
    begin = end;
  }
}

/// Parameters that share a bucket.
void ParameterBuckets::group(const DependencyInfo::Chunk& chunk, std::vector<Group>& groups) const {
  const std::vector<DeclaredParameter>& all = edit_.order().parameters;
  std::vector<Kind> kinds{{Replicas::kExperts, GradientSum::kNone},
                          {Replicas::kData, GradientSum::kNone},
                          {Replicas::kExperts, GradientSum::kNarrow},
                          {Replicas::kData, GradientSum::kNarrow},
                          {Replicas::kData, GradientSum::kOverTensor},
                          {Replicas::kData, GradientSum::kOverKeyValue},
                          {Replicas::kData, GradientSum::kOverEnds},
                          {Replicas::kExperts, GradientSum::kFrozenNarrow},
                          {Replicas::kData, GradientSum::kFrozenNarrow},
                          {Replicas::kData, GradientSum::kFrozen}};
  for (std::size_t i = 0; job_.orthogonalises() && i < kMatrixSums; ++i) {
    kinds.push_back({kinds[i].replicas, kinds[i].sum, true});
  }
  for (const Kind& kind : kinds) {
    // Without replicas there is nothing to exchange early: one buffer.
    const bool by_unit =
        sharded(kind, 2) || (sharded(kind, 1) && job_.parallel.zero == 3 && !summed_late(kind.sum));
    const bool dealt = kind.matrices && sharded(kind, 1);
    const double limit = replicas(kind.replicas).replicas > 1 && !by_unit
                             ? bucket_size(job_, replicas(kind.replicas).replicas).base()
                             : std::numeric_limits<double>::infinity();
    Group together;
    double bytes = 0;
    double least = 0;  // of a bucket of whole matrices
    for (std::uint32_t i = chunk.first_parameter; i < chunk.end_parameter; ++i) {
      const DeclaredParameter& p = all[i];
      if (kind_of(p) != kind) {
        continue;
      }
      const Tensor& t = weight_of(p);
      const double size = format_bytes(job_.formats.gradient, t.rows, t.columns).base();
      const bool other_unit = by_unit && !together.empty() && together.back()->unit != p.unit;
      const bool full = dealt ? bytes >= std::max(limit, least) : bytes + size > limit;
      if (!together.empty() && (full || other_unit)) {
        groups.push_back(std::exchange(together, {}));
        bytes = least = 0;
      }
      together.push_back(&p);
      bytes += size;
      if (dealt) {
        least = std::max(least, kFilled * static_cast<double>(replicas(kind.replicas).shards) *
                                    size / static_cast<double>(p.matrices.front().count));
      }
    }
    if (!together.empty()) {
      groups.push_back(std::move(together));
    }
  }
}

std::vector<ParameterBuckets::SlotKey> ParameterBuckets::slot_keys(
    const std::vector<Group>& groups) const {
  std::vector<SlotKey> keys;
  std::map<std::pair<std::int64_t, Kind>, std::int64_t> buckets_of_unit;
  for (const Group& g : groups) {
    const std::int64_t unit = g.front()->unit;
    const bool layer = unit >= 0;
    const std::int64_t buffers = job_.parallel.overlap.data ? 2 : 1;
    const std::int64_t before = buckets_of_unit[{unit, kind_of(g)}]++;
    keys.emplace_back(layer, layer ? unit % buffers : before, kind_of(g));
  }
  return keys;
}

/// Buffers for the weights and gradients of the unit at work; with an overlap another set, so that
/// one is filled or drained meanwhile.
void ParameterBuckets::plan_slots(const std::vector<Group>& groups) {
  const std::vector<SlotKey> keys = slot_keys(groups);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (sharded(kind_of(groups[i]), 2)) {
      Slot& slot = slots_[keys[i]];
      slot.elements = std::max(slot.elements, padded(groups[i]));
      slot.stored = weight_of(*groups[i].front()).format;
    }
  }
  ProgramBuilder& b = writer_.builder();
  for (auto& [key, slot] : slots_) {
    const auto& [layer, which, kind] = key;
    const std::string at = fmt::format("{}.{}{}{}", layer ? "layer" : "ends", which,
                                       kind.replicas == Replicas::kExperts ? ".experts" : "",
                                       frozen(kind.sum)                   ? ".frozen"
                                       : kind.sum == GradientSum::kNarrow ? ".narrow"
                                                                          : "");
    const auto buffer = [&](const char* what, std::int64_t elements, Format format) {
      const TensorId id = b.buffer(fmt::format("unit.{}.{}", what, at), 1, elements, format);
      b.set_purpose(id, TensorPurpose::kGathered);
      return id;
    };
    if (sharded(kind, 3)) {
      slot.weights = buffer("weights", slot.elements, slot.stored);
      if (job_.offload.parameters) {
        slot.loaded =
            buffer("weights.loaded", slot.elements / replicas(kind.replicas).shards, slot.stored);
      }
    }
    if (frozen(kind.sum)) {
      continue;
    }
    slot.gradients = buffer("gradients", slot.elements, job_.formats.gradient);
    if (microbatches() > 1) {
      slot.fresh = buffer("gradients.shard", slot.elements / replicas(kind.replicas).shards,
                          job_.formats.gradient);
    }
    slot.gradients_free = writer_.name_transfer(Channel::kData);
  }
}

std::string ParameterBuckets::name_in(const char* what) const {
  return fmt::format("bucket.{}.{}", buckets_.size(), what);
}

void ParameterBuckets::open_bucket(const Group& group, const Slot& slot) {
  Bucket bucket;
  const Kind kind = kind_of(group);
  bucket.replicas = kind.replicas;
  bucket.sum = kind.sum;
  bucket.matrices = kind.matrices;
  bucket.parameters = group;
  bucket.stored = weight_of(*group.front()).format;
  bucket.trained = !frozen(kind.sum);
  bucket.unit = group.front()->unit;
  bucket.first_use = group.back()->unit;  // they are in the order of the backward pass
  bucket.elements = padded(group);
  const std::int64_t parts = sharded(kind, 1) ? replicas(kind.replicas).shards : 1;
  bucket.spread = parts > 1;
  bucket.shard = bucket.elements / parts;
  if (kind.matrices) {
    std::tie(bucket.shard, bucket.dealt) = deal(group, parts);
  }
  bucket.scattered = bucket.trained && sharded(kind, 2);
  bucket.gathered = !summed_late(bucket.sum) && job_.parallel.zero == 3 && sharded(kind, 1);
  declare_whole(bucket, slot);
  std::vector<Tensor::Source> sources = declare_views(bucket, slot);
  if (sharded(kind, 3)) {
    Tensor shard =
        flat_tensor(name_in("weights.shard"), TensorRole::kParameter, bucket.stored, bucket.shard);
    shard.sources = std::move(sources);
    shard.data_parts = replicas(kind.replicas).shards;
    shard.data_ranks = replicas(kind.replicas).data_ranks;
    bucket.on_host = job_.offload.parameters;
    bucket.loaded = slot.loaded;
    shard.tier = bucket.on_host ? writer_.builder().tier(kHostTier) : std::uint8_t{0};
    bucket.weight_shard = writer_.builder().tensor(std::move(shard));
  }
  add_shards(bucket);
  if (trains_ && bucket.trained) {
    add_states(bucket);
  }
  buckets_.push_back(std::move(bucket));
}

/// All weights, and all gradients.
void ParameterBuckets::declare_whole(Bucket& bucket, const Slot& slot) {
  ProgramBuilder& b = writer_.builder();
  const Format format = job_.formats.gradient;
  if (sharded({bucket.replicas, bucket.sum}, 3)) {
    bucket.weights = b.tensor(view(name_in("weights"), TensorRole::kBuffer, bucket.stored,
                                   slot.weights, 0, 1, bucket.elements));
  } else {
    bucket.weights = b.tensor(
        flat_tensor(name_in("weights"), TensorRole::kParameter, bucket.stored, bucket.elements));
  }
  if (bucket.scattered) {
    bucket.gradients = b.tensor(view(name_in("gradients"), TensorRole::kBuffer, format,
                                     slot.gradients, 0, 1, bucket.elements));
    bucket.gradients_free = slot.gradients_free;
    if (microbatches() > 1) {
      bucket.fresh = b.tensor(view(name_in("gradients.fresh"), TensorRole::kBuffer, format,
                                   slot.fresh, 0, 1, bucket.shard));
    }
  } else if (bucket.trained) {
    // Inference has none: the views then have nothing behind them.
    bucket.gradients = b.tensor(flat_tensor(name_in("gradients"), TensorRole::kGradient, format,
                                            trains_ ? bucket.elements : 0));
  }
}

/// The parameters, as views of the memory itself, not of other views: where they are in it.
std::vector<Tensor::Source> ParameterBuckets::declare_views(Bucket& bucket, const Slot& slot) {
  ProgramBuilder& b = writer_.builder();
  const TensorId weights =
      sharded({bucket.replicas, bucket.sum}, 3) ? slot.weights : bucket.weights;
  const TensorId gradients = bucket.scattered ? slot.gradients : bucket.gradients;
  std::vector<Tensor::Source> sources;
  std::int64_t offset = 0;
  for (const DeclaredParameter* p : bucket.parameters) {
    const auto place = [&](TensorId was, TensorId of) {
      Tensor t = std::move(edit_.program().tensors[was]);
      t.view_of = static_cast<std::int32_t>(of);
      t.view_offset = offset;
      const TensorId now = b.tensor(std::move(t));
      edit_.replace_tensor(was, now);
      return now;
    };
    const std::int64_t elements = weight_of(*p).elements();
    sources.push_back({place(p->weight, weights), offset});
    if (bucket.trained) {
      bucket.gradient_of.push_back(place(p->gradient, gradients));
    }
    offset += elements;
  }
  return sources;
}

/// The parts of whole buffers that this rank's optimizer works on, and shards stored by themselves.
void ParameterBuckets::add_shards(Bucket& bucket) {
  ProgramBuilder& b = writer_.builder();
  const Kind kind{bucket.replicas, bucket.sum, bucket.matrices};
  const auto part = [&](const char* what, TensorRole role, Format format, TensorId of) {
    if (!sharded(kind, 1)) {
      return of;
    }
    Tensor t = view(name_in(what), role, format, of, 0, 1, bucket.shard);
    t.view_data_step = bucket.matrices ? 0 : bucket.shard;  // whole ones differ in size
    t.data_parts = replicas(kind.replicas).shards;
    t.data_ranks = replicas(kind.replicas).data_ranks;
    return b.tensor(std::move(t));
  };
  if (!sharded(kind, 3)) {
    bucket.weight_shard =
        part("weights.shard", TensorRole::kParameter, bucket.stored, bucket.weights);
  }
  if (!bucket.trained) {
    return;
  }
  const Format format = job_.formats.gradient;
  bucket.gradient_shard =
      bucket.scattered ? b.tensor(flat_tensor(name_in("gradients.shard"), TensorRole::kGradient,
                                              format, bucket.shard))
                       : part("gradients.shard", TensorRole::kGradient, format, bucket.gradients);
}

void ParameterBuckets::add_states(Bucket& bucket) {
  ProgramBuilder& b = writer_.builder();
  const auto state = [&](const std::string& name, Format format) {
    Tensor t = flat_tensor(name, TensorRole::kOptimizerState, format, bucket.shard);
    t.tier = job_.offload.optimizer ? b.tier(kHostTier) : std::uint8_t{0};
    return b.tensor(std::move(t));
  };
  for (int i = 0; i < optimizer_states(rule_of(bucket)); ++i) {
    bucket.states.push_back(state(name_in("state.") + std::to_string(i), job_.formats.moments));
  }
  if (const auto format = master_copy(job_.formats, bucket.stored)) {
    const TensorId master = state(name_in("master"), *format);
    b.set_master(bucket.weights, master);
    b.set_master(bucket.weight_shard, master);
  }
}

}  // namespace stepcast::workloads
