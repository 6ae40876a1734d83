#include "workloads/transformer/stage_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"

// Where parameters, gradients and optimizer states are stored.
namespace stepcast::workloads {
namespace {

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

int state_count(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return 0;
    case OptimizerKind::kAdam:
      return 2;
    case OptimizerKind::kRowwiseAdagrad:
    case OptimizerKind::kAdagrad:
      return 1;
  }
  return 0;
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
bool StageParameters::sharded(Kind kind, int stage) const {
  if (frozen(kind.second)) {  // without an update there is nothing to gather but shards of weights
    return replicas(kind.first).shards > 1 && job_.parallel.zero == 3 && job_.parallel.zero_reshard;
  }
  const int zero = summed_late(kind.second) ? std::min(job_.parallel.zero, 1)
                   : job_.parallel.zero == 3 && !job_.parallel.zero_reshard ? 1
                                                                            : job_.parallel.zero;
  return replicas(kind.first).shards > 1 && zero >= stage;
}

std::int64_t StageParameters::padded(const Group& specs) const {
  std::int64_t elements = 0;
  for (const ParameterSpec* spec : specs) {
    elements += spec->rows * spec->columns;
  }
  const Kind kind = kind_of(specs);
  const std::int64_t parts = sharded(kind, 1) ? replicas(kind.first).shards : 1;
  return (elements + parts - 1) / parts * parts;
}

void StageParameters::declare(const std::vector<std::vector<ParameterSpec>>& chunks) {
  std::vector<Group> groups;
  for (const auto& specs : chunks) {
    group(specs, groups);
  }
  plan_slots(groups);
  const std::vector<SlotKey> keys = slot_keys(groups);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto slot = slots_.find(keys[i]);
    open_bucket(groups[i], slot == slots_.end() ? Slot{} : slot->second);
  }
}

/// Ranks of an expert group lie along data: tensor ranks that hold different experts come first.
std::int64_t StageParameters::data_ranks(Replicas r) const {
  if (r == Replicas::kData) {
    return 1;
  }
  const ExpertShape& e = *shape_.experts;
  return std::max<std::int64_t>(1, e.ranks * e.tensor / shape_.tensor);
}

/// Parameters that share a bucket.
void StageParameters::group(const std::vector<ParameterSpec>& specs,
                            std::vector<Group>& groups) const {
  for (const Kind& kind :
       {Kind{Replicas::kExperts, GradientSum::kNone}, Kind{Replicas::kData, GradientSum::kNone},
        Kind{Replicas::kData, GradientSum::kOverTensor},
        Kind{Replicas::kData, GradientSum::kOverKeyValue},
        Kind{Replicas::kData, GradientSum::kOverEnds},
        Kind{Replicas::kExperts, GradientSum::kFrozenNarrow},
        Kind{Replicas::kData, GradientSum::kFrozenNarrow},
        Kind{Replicas::kData, GradientSum::kFrozen}}) {
    // Without replicas there is nothing to exchange early: one buffer.
    const bool by_unit = sharded(kind, 2) ||
                         (sharded(kind, 1) && job_.parallel.zero == 3 && !summed_late(kind.second));
    const double limit = replicas(kind.first).replicas > 1 && !by_unit
                             ? job_.parallel.bucket.base()
                             : std::numeric_limits<double>::infinity();
    Group together;
    double bytes = 0;
    for (const ParameterSpec& spec : specs) {
      if (Kind{spec.replicas, spec.sum} != kind) {
        continue;
      }
      const double size = format_bytes(job_.formats.gradient, spec.rows, spec.columns).base();
      const bool other_unit = by_unit && !together.empty() && together.back()->unit != spec.unit;
      if (!together.empty() && (bytes + size > limit || other_unit)) {
        groups.push_back(std::exchange(together, {}));
        bytes = 0;
      }
      together.push_back(&spec);
      bytes += size;
    }
    if (!together.empty()) {
      groups.push_back(std::move(together));
    }
  }
}

std::vector<StageParameters::SlotKey> StageParameters::slot_keys(
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
void StageParameters::plan_slots(const std::vector<Group>& groups) {
  const std::vector<SlotKey> keys = slot_keys(groups);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (sharded(kind_of(groups[i]), 2)) {
      Slot& slot = slots_[keys[i]];
      slot.elements = std::max(slot.elements, padded(groups[i]));
    }
  }
  ProgramBuilder& b = writer_.builder();
  for (auto& [key, slot] : slots_) {
    const auto& [layer, which, kind] = key;
    const std::string at = fmt::format("{}.{}{}{}", layer ? "layer" : "ends", which,
                                       kind.first == Replicas::kExperts ? ".experts" : "",
                                       frozen(kind.second) ? ".frozen" : "");
    const auto buffer = [&](const char* what, std::int64_t elements, Format format) {
      const TensorId id = b.buffer(fmt::format("unit.{}.{}", what, at), 1, elements, format);
      b.set_purpose(id, TensorPurpose::kGathered);
      return id;
    };
    if (sharded(kind, 3)) {
      slot.weights = buffer("weights", slot.elements, weight_format(kind.second));
    }
    if (frozen(kind.second)) {
      continue;
    }
    slot.gradients = buffer("gradients", slot.elements, job_.formats.gradient);
    if (shape_.microbatches > 1) {
      slot.fresh = buffer("gradients.shard", slot.elements / replicas(kind.first).shards,
                          job_.formats.gradient);
    }
    slot.gradients_free = writer_.name_transfer(Lane::kData);
  }
}

Format StageParameters::weight_format(GradientSum sum) const {
  return sum == GradientSum::kFrozenNarrow ? job_.formats.frozen.value_or(job_.formats.compute)
                                           : job_.formats.compute;
}

void StageParameters::open_bucket(const Group& specs, const Slot& slot) {
  ProgramBuilder& b = writer_.builder();
  const Format gradient_format = job_.formats.gradient;
  const std::size_t number = buckets_.size();
  Bucket bucket;
  const Kind kind = kind_of(specs);
  const Format stored = weight_format(kind.second);
  bucket.trained = !frozen(kind.second);
  std::tie(bucket.replicas, bucket.sum) = kind;
  bucket.unit = specs.front()->unit;
  bucket.first_use = specs.back()->unit;  // specs are in the order of the backward pass
  bucket.parameters = static_cast<std::int32_t>(specs.size());
  bucket.elements = padded(specs);
  bucket.shard = sharded(kind, 1) ? bucket.elements / replicas(kind.first).shards : bucket.elements;
  bucket.scattered = bucket.trained && sharded(kind, 2);
  bucket.gathered = !summed_late(bucket.sum) && job_.parallel.zero == 3 && sharded(kind, 1);
  const auto name = [number](const char* what) {
    return fmt::format("bucket.{}.{}", number, what);
  };
  if (sharded(kind, 3)) {
    bucket.weights = b.tensor(
        view(name("weights"), TensorRole::kBuffer, stored, slot.weights, 0, 1, bucket.elements));
  } else {
    bucket.weights =
        b.tensor(flat_tensor(name("weights"), TensorRole::kParameter, stored, bucket.elements));
  }
  if (bucket.scattered) {
    bucket.gradients = b.tensor(view(name("gradients"), TensorRole::kBuffer, gradient_format,
                                     slot.gradients, 0, 1, bucket.elements));
    bucket.gradients_free = slot.gradients_free;
    if (shape_.microbatches > 1) {
      bucket.fresh = b.tensor(view(name("gradients.fresh"), TensorRole::kBuffer, gradient_format,
                                   slot.fresh, 0, 1, bucket.shard));
    }
  } else if (bucket.trained) {
    // Inference has none: the views below then have nothing behind them.
    bucket.gradients =
        b.tensor(flat_tensor(name("gradients"), TensorRole::kGradient, gradient_format,
                             shape_.inference ? 0 : bucket.elements));
  }
  // Views go to the memory itself, not to other views.
  const TensorId weights = sharded(kind, 3) ? slot.weights : bucket.weights;
  const TensorId gradients = bucket.scattered ? slot.gradients : bucket.gradients;
  std::vector<Tensor::Source> sources;
  std::int64_t offset = 0;
  for (const ParameterSpec* spec : specs) {
    Tensor weight = view(spec->name, TensorRole::kParameter, stored, weights, offset, spec->rows,
                         spec->columns);
    weight.pieces = spec->pieces;
    const TensorId weight_id = b.tensor(std::move(weight));
    const TensorId gradient_id =
        !bucket.trained
            ? kNoGradient
            : b.tensor(view(spec->name + ".gradient", TensorRole::kGradient, gradient_format,
                            gradients, offset, spec->rows, spec->columns));
    const bool fresh =
        parameters_.emplace(spec->name, ProgramBuilder::Parameter{weight_id, gradient_id}).second;
    STEPCAST_CHECK(fresh, "parameter '{}' was declared twice", spec->name);
    bucket_of_.emplace(spec->name, number);
    uses_.emplace(spec->name, ParameterUse{spec->unit, spec->of_product});
    sources.push_back({weight_id, offset});
    offset += spec->rows * spec->columns;
  }
  if (sharded(kind, 3)) {
    Tensor shard = flat_tensor(name("weights.shard"), TensorRole::kParameter, stored, bucket.shard);
    shard.sources = std::move(sources);
    shard.data_parts = replicas(kind.first).shards;
    shard.data_ranks = data_ranks(kind.first);
    bucket.weight_shard = b.tensor(std::move(shard));
  }
  add_shards(bucket, number);
  if (!shape_.inference && bucket.trained) {
    add_states(bucket, number);
  }
  buckets_.push_back(std::move(bucket));
}

/// The parts of whole buffers that this rank's optimizer works on, and shards stored by themselves.
void StageParameters::add_shards(Bucket& bucket, std::size_t number) {
  ProgramBuilder& b = writer_.builder();
  const Kind kind{bucket.replicas, bucket.sum};
  const auto part = [&](const char* what, TensorRole role, Format format, TensorId of) {
    if (!sharded(kind, 1)) {
      return of;
    }
    Tensor t =
        view(fmt::format("bucket.{}.{}.shard", number, what), role, format, of, 0, 1, bucket.shard);
    t.view_data_step = bucket.shard;
    t.data_parts = replicas(kind.first).shards;
    t.data_ranks = data_ranks(kind.first);
    return b.tensor(std::move(t));
  };
  if (!sharded(kind, 3)) {
    bucket.weight_shard =
        part("weights", TensorRole::kParameter, weight_format(bucket.sum), bucket.weights);
  }
  if (!bucket.trained) {
    return;
  }
  bucket.gradient_shard =
      bucket.scattered
          ? b.tensor(flat_tensor(fmt::format("bucket.{}.gradients.shard", number),
                                 TensorRole::kGradient, job_.formats.gradient, bucket.shard))
          : part("gradients", TensorRole::kGradient, job_.formats.gradient, bucket.gradients);
}

void StageParameters::add_states(Bucket& bucket, std::size_t number) {
  ProgramBuilder& b = writer_.builder();
  for (int i = 0; i < state_count(job_.dense_optimizer); ++i) {
    bucket.states.push_back(
        b.tensor(flat_tensor(fmt::format("bucket.{}.state.{}", number, i),
                             TensorRole::kOptimizerState, job_.formats.moments, bucket.shard)));
  }
  if (!full_precision(job_.formats.compute)) {  // the weights the optimizer really updates
    const TensorId master =
        b.tensor(flat_tensor(fmt::format("bucket.{}.master", number), TensorRole::kOptimizerState,
                             job_.formats.master, bucket.shard));
    b.set_master(bucket.weights, master);
    b.set_master(bucket.weight_shard, master);
  }
}

}  // namespace stepcast::workloads
