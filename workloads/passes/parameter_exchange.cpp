#include <algorithm>
#include <utility>

#include "workloads/passes/parameter_buckets.h"

// How gradients are summed over the replicas, sharded weights gathered, and weights updated.
namespace stepcast::workloads {

bool ParameterBuckets::gathers_each_pass() const {
  return job_.parallel.zero == 3 && job_.parallel.zero_reshard;
}

bool ParameterBuckets::gathers_ahead() const {
  const Parallel& p = job_.parallel;
  return p.overlap.parameters && (p.zero == 1 || p.zero == 2);
}

bool ParameterBuckets::gathers_first_pass() const {
  return job_.parallel.zero == 3 || gathers_ahead();
}

bool ParameterBuckets::gathers_first_pass(const Bucket& bucket) const {
  return bucket.gathered || (gathers_ahead() && bucket.shard != bucket.elements);
}

void ParameterBuckets::gather(Bucket& bucket) {
  OpWriter::Transfer t;
  t.kind = OpKind::kAllGather;
  t.name = "weights.gather";
  t.elements = bucket.elements;
  t.in = {bucket.weight_shard};
  t.out = {bucket.weights};
  t.communicator = replicas(bucket.replicas).inside;
  // Scaled by block, values of another rank's shard are not blocks here: they travel wide.
  t.format = job_.parallel.zero == 3 || bucket.stored == Format::kFp8 ? bucket.stored
                                                                      : holders_.compute;
  const auto done = writer_.transfer(Channel::kData, t);
  if (!gather_events_.empty()) {
    gather_events_.back().push_back(done);
  }
}

void ParameterBuckets::gather_unit(std::size_t index) {
  if (index >= pass_.size()) {
    return;
  }
  gather_events_.emplace_back();
  for (Bucket& bucket : buckets_) {
    const std::int64_t first = bucket.gathered ? bucket.unit : bucket.first_use;
    if (gathers_first_pass(bucket) && first == pass_[index]) {
      gather(bucket);
      bucket.gathered_ahead = !bucket.gathered;
    }
  }
}

void ParameterBuckets::begin_pass(std::vector<std::int64_t> units, bool gather) {
  pass_ = gather ? std::move(units) : std::vector<std::int64_t>{};
  gather_events_.clear();
  next_ = 0;
  if (job_.parallel.overlap.data) {
    gather_unit(0);
  }
}

void ParameterBuckets::use(std::int64_t unit) {
  if (next_ >= pass_.size() || pass_[next_] != unit) {
    return;  // still there
  }
  gather_unit(job_.parallel.overlap.data ? next_ + 1 : next_);
  for (const AsyncHandle e : gather_events_[next_]) {
    writer_.await(e);
  }
  copy_gathered(unit);
  ++next_;
}

/// From the buffer of the gather to the matrices that products read.
void ParameterBuckets::copy_gathered(std::int64_t unit) {
  if (!traits_.copies_gathered || holders_.data.shards == 1) {
    return;
  }
  for (const Bucket& bucket : buckets_) {
    if (bucket.gathered && bucket.unit == unit) {
      const Bytes all = format_bytes(holders_.compute, 1, bucket.elements);
      writer_.compute(OpKind::kCast, "weights.copy", {bucket.elements})
          .in({bucket.weights})
          .out({bucket.weights})
          .work(Flops(0), all, all);
    }
  }
}

/// Passes that a framework makes over whole gradients before they leave as shards.
void ParameterBuckets::pass_over_gradients(const Bucket& bucket) {
  if (traits_.gradient_passes <= 0 || job_.parallel.zero < 3) {
    return;
  }
  const double passes = traits_.gradient_passes;
  writer_.compute(OpKind::kCast, "gradients.copy", {bucket.elements})
      .in({bucket.gradients})
      .out({bucket.gradients})
      .work(Flops(0), format_bytes(holders_.compute, 1, bucket.elements) * passes,
            format_bytes(job_.formats.gradient, 1, bucket.elements) * passes);
}

bool ParameterBuckets::opens_gradients(std::int64_t unit) const {
  return std::any_of(buckets_.begin(), buckets_.end(),
                     [unit](const Bucket& b) { return b.scattered && b.unit == unit; });
}

void ParameterBuckets::open_gradients(std::int64_t unit) {
  for (const Bucket& bucket : buckets_) {
    if (bucket.scattered && bucket.unit == unit) {
      writer_.await(bucket.gradients_free);
      writer_.compute(OpKind::kFill, "gradients.zero", {bucket.elements})
          .out({bucket.gradients})
          .format(job_.formats.gradient);
    }
  }
}

void ParameterBuckets::finished(std::size_t index, bool last) {
  Bucket& bucket = buckets_[index];
  const bool overlapping = last && job_.parallel.overlap.data;
  const bool complete = bucket.sum == GradientSum::kNone || bucket.sum == GradientSum::kNarrow;
  if (bucket.scattered || (overlapping && complete)) {
    exchange(bucket, overlapping);
  }
}

void ParameterBuckets::zero_gradients() {
  for (const Bucket& bucket : buckets_) {
    if (!bucket.trained || (bucket.scattered && microbatches() == 1)) {
      continue;  // written whole by the only reduce-scatter
    }
    writer_
        .compute(OpKind::kFill, "gradients.zero",
                 {bucket.scattered ? bucket.shard : bucket.elements})
        .out({bucket.scattered ? bucket.gradient_shard : bucket.gradients})
        .format(job_.formats.gradient);
  }
}

void ParameterBuckets::exchange(Bucket& bucket, bool last) {
  const ReplicaGroup& group = replicas(bucket.replicas);
  if (group.replicas == 1) {
    return;
  }
  const bool shards = bucket.shard != bucket.elements;
  const bool adds = bucket.scattered && microbatches() > 1;
  OpWriter::Transfer t;
  t.kind = shards ? OpKind::kReduceScatter : OpKind::kAllReduce;
  t.name = "gradients.exchange";
  t.elements = bucket.elements;
  t.in = {bucket.gradients};
  t.out = {adds ? bucket.fresh : bucket.gradient_shard};
  t.communicator = shards ? group.inside : group.all;
  t.format = job_.formats.gradient;
  t.event = bucket.gradients_free;
  writer_.set_phase(Phase::kGradientSync);
  if (shards) {
    pass_over_gradients(bucket);
  }
  bucket.synchronised = writer_.transfer(Channel::kData, t);
  if (adds) {
    OpWriter::Transfer sum;
    sum.kind = OpKind::kAdd;
    sum.name = "gradients.accumulate";
    sum.elements = bucket.shard;
    sum.in = {bucket.gradient_shard, bucket.fresh};
    sum.out = {bucket.gradient_shard};
    sum.format = job_.formats.gradient;
    sum.after_compute = false;
    bucket.synchronised = writer_.transfer(Channel::kData, sum);
  }
  bucket.exchanged = true;
  if (shards && group.across >= 0) {
    bucket.exchanged = last || !bucket.scattered;
    if (bucket.exchanged) {
      sum_replicas(bucket);
    }
  }
  writer_.set_phase(Phase::kBackward);
}

/// HSDP: the same shard on every replica.
void ParameterBuckets::sum_replicas(Bucket& bucket) {
  OpWriter::Transfer t;
  t.name = "gradients.replicas";
  t.elements = bucket.shard;
  t.in = t.out = {bucket.gradient_shard};
  t.communicator = replicas(bucket.replicas).across;
  t.format = job_.formats.gradient;
  bucket.synchronised = writer_.transfer(Channel::kData, t);
}

/// Over tensor ranks, or both ends of the pipeline.
void ParameterBuckets::sum_others(const Bucket& bucket) {
  OpWriter::Transfer t;
  if (bucket.sum == GradientSum::kOverTensor) {
    t.name = "gradients.tensor_sum";
    t.elements = bucket.elements;
    t.in = t.out = {bucket.gradients};
    t.communicator = holders_.tensor;
    t.format = job_.formats.gradient;
    writer_.await(writer_.transfer(Channel::kTensor, t));
  } else if (bucket.sum == GradientSum::kOverEnds) {
    writer_.await(bucket.synchronised);
    t.name = "gradients.ends_sum";
    t.elements = bucket.scattered ? bucket.shard : bucket.elements;
    t.in = t.out = {bucket.scattered ? bucket.gradient_shard : bucket.gradients};
    t.communicator = holders_.ends;
    t.format = job_.formats.gradient;
    writer_.transfer(Channel::kCompute, t);
  }
}

void ParameterBuckets::synchronise() {
  for (Bucket& bucket : buckets_) {
    writer_.set_phase(Phase::kGradientSync);
    sum_others(bucket);
    complete_exchange(bucket);
  }
}

void ParameterBuckets::complete_exchange(Bucket& bucket) {
  if (!bucket.trained || bucket.exchanged || replicas(bucket.replicas).replicas == 1) {
    return;
  }
  if (bucket.scattered) {
    sum_replicas(bucket);
  } else {
    exchange(bucket, false);
  }
}

void ParameterBuckets::optimize() {
  const bool mixed = !full_precision(holders_.compute);
  const double gradient = bits_per_element(job_.formats.gradient) / 8;
  const double weight = bits_per_element(holders_.compute) / 8;
  const double state = bits_per_element(job_.formats.moments) / 8;
  const double master = mixed ? bits_per_element(*job_.formats.master) / 8 : weight;
  gather_events_.clear();
  writer_.set_phase(Phase::kOptimizer);
  for (Bucket& bucket : buckets_) {
    if (!bucket.trained) {
      continue;
    }
    std::vector<TensorId> out{bucket.weight_shard};
    out.insert(out.end(), bucket.states.begin(), bucket.states.end());
    writer_.await(bucket.synchronised);
    auto update = writer_.compute(OpKind::kOptimizer, "optimizer", {bucket.shard});
    update.in({bucket.gradient_shard})
        .out(out)
        .format(Format::kFp32)
        .attributes(OptimizerAttributes{job_.dense_optimizer});
    // Per element: the gradient, states and (with narrow weights) the master copy; the narrow
    // weights are written too.
    const double n = static_cast<double>(bucket.shard);
    const double kept = state * static_cast<double>(bucket.states.size()) + master;
    update.work(update.op().flops, Bytes(n * (gradient + kept)),
                Bytes(n * (kept + (mixed ? weight : 0))));
    if (bucket.shard != bucket.elements && !bucket.gathered && !bucket.gathered_ahead) {
      gather(bucket);
    }
  }
}

}  // namespace stepcast::workloads
