#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/job/job_rules.h"
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
  return bucket.gathered || (gathers_ahead() && bucket.spread);
}

/// One collective; it counts bytes where weights are in several formats.
AsyncHandle ParameterBuckets::gather(const std::vector<const Bucket*>& together,
                                     AsyncHandle after) {
  OpWriter::Transfer t;
  t.after = after;
  t.kind = OpKind::kAllGather;
  t.name = "weights.gather";
  t.communicator = replicas(together.front()->replicas).inside;
  Bytes bytes;
  bool alike = true;
  for (const Bucket* bucket : together) {
    if (bucket->on_host) {
      t.after = writer_.host_move(OpKind::kTierFetch, "weights.load",
                                  format_bytes(bucket->stored, 1, bucket->shard),
                                  {bucket->weight_shard}, {bucket->loaded});
    }
    // Scaled by block, values of another rank's shard are not blocks here: they travel wide.
    const Format sent = job_.parallel.zero == 3 || bucket->stored == Format::kFp8
                            ? bucket->stored
                            : holders_.compute;
    alike = alike && (bucket == together.front() || sent == t.format);
    t.format = sent;
    t.elements += bucket->elements;
    bytes += format_bytes(sent, 1, bucket->elements);
    t.in.push_back(bucket->weight_shard);
    t.out.push_back(bucket->weights);
  }
  if (!alike) {
    t.format = Format::kInt8;
    t.elements = std::llround(bytes.base());
  }
  return writer_.transfer(Channel::kData, t);
}

void ParameterBuckets::gather_ahead(std::int64_t unit) {
  for (Bucket& bucket : buckets_) {
    if (gathers_first_pass(bucket) && !bucket.gathered && bucket.first_use == unit) {
      bucket.ahead = gather({&bucket});
    }
  }
}

void ParameterBuckets::gather_unit(std::size_t index) {
  if (index >= pass_.size()) {
    return;
  }
  gather_events_.emplace_back();
  writer_.builder().set_layer(pass_[index]);
  // Trained and frozen weights of a unit go together (FSDP2's all_gather of a module).
  std::map<Replicas, std::vector<const Bucket*>> together;
  for (const Bucket& bucket : buckets_) {
    const std::int64_t first = bucket.gathered ? bucket.unit : bucket.first_use;
    if (!gathers_first_pass(bucket) || first != pass_[index]) {
      continue;
    }
    if (bucket.gathered && job_.lora) {
      together[bucket.replicas].push_back(&bucket);
    } else {
      gather_events_.back().push_back(bucket.gathered ? gather({&bucket}) : bucket.ahead);
    }
  }
  for (const auto& [replicas, all] : together) {
    gather_events_.back().push_back(gather(all));
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
  writer_.builder().set_layer(unit);
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
  const bool adds = bucket.scattered && microbatches() > 1;
  OpWriter::Transfer t;
  t.kind = bucket.spread ? OpKind::kReduceScatter : OpKind::kAllReduce;
  t.name = "gradients.exchange";
  t.elements = bucket.elements;
  t.in = {bucket.gradients};
  t.out = {adds ? bucket.fresh : bucket.gradient_shard};
  t.communicator = bucket.spread ? group.inside : group.all;
  t.format = job_.formats.gradient;
  t.event = bucket.gradients_free;
  writer_.set_phase(Phase::kGradientSync);
  if (bucket.spread) {
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
  if (bucket.spread && group.across >= 0) {
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
  t.after = bucket.synchronised;
  bucket.synchronised = writer_.transfer(Channel::kAcross, t);
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

/// The update where the host keeps the states: gradients leave, the host's memory is read and
/// written at the rate of its tier, weights come back. Source: Ren et al., arXiv 2101.06840
/// (ZeRO-Offload).
AsyncHandle ParameterBuckets::update_on_host(const Bucket& bucket, Bytes touched) {
  const Bytes gradients = format_bytes(job_.formats.gradient, 1, bucket.shard);
  AsyncHandle done = writer_.host_move(OpKind::kTierWriteBack, "gradients.store", gradients,
                                       {bucket.gradient_shard}, {}, bucket.synchronised);
  done = writer_.host_move(OpKind::kTierWriteBack, "optimizer.host", touched,
                           {bucket.gradient_shard}, bucket.states, done);
  return bucket.on_host ? done
                        : writer_.host_move(OpKind::kTierFetch, "weights.load",
                                            format_bytes(bucket.stored, 1, bucket.shard), {},
                                            {bucket.weight_shard}, done);
}

void ParameterBuckets::gather_updated(Bucket& bucket, AsyncHandle after) {
  if (bucket.spread && !bucket.gathered && bucket.ahead == kNoTransfer) {
    gather({&bucket}, after);
  }
}

void ParameterBuckets::optimize() {
  const double gradient = bits_per_element(job_.formats.gradient) / 8;
  const double weight = bits_per_element(holders_.compute) / 8;
  const double state = bits_per_element(job_.formats.moments) / 8;
  writer_.set_phase(Phase::kOptimizer);
  AsyncHandle updated = kNoTransfer;
  for (Bucket& bucket : buckets_) {
    if (!bucket.trained) {
      continue;
    }
    // Per element: the gradient, states and the weight; a narrow weight with a master copy is
    // written, and the copy read and written.
    const auto copy = master_copy(job_.formats, bucket.stored);
    const double n = static_cast<double>(bucket.shard);
    const double kept = state * static_cast<double>(bucket.states.size()) +
                        (copy ? bits_per_element(*copy) / 8 : weight);
    const Bytes read(n * (gradient + kept));
    const Bytes written(n * (kept + (copy ? weight : 0)));
    if (job_.offload.optimizer) {
      updated = update_on_host(bucket, read + written);
    } else if (bucket.matrices) {
      orthogonalize(bucket);
      gather_updated(bucket, kNoTransfer);
    } else {
      std::vector<TensorId> out{bucket.weight_shard};
      out.insert(out.end(), bucket.states.begin(), bucket.states.end());
      writer_.await(bucket.synchronised);
      auto update = writer_.compute(OpKind::kOptimizer, "optimizer", {bucket.shard});
      update.in({bucket.gradient_shard})
          .out(out)
          .format(Format::kFp32)
          .attributes(OptimizerAttributes{rule_of(bucket)});
      update.work(update.op().flops, read, written);
      gather_updated(bucket, kNoTransfer);
    }
  }
  for (Bucket& bucket : buckets_) {
    if (job_.offload.optimizer && bucket.trained) {  // once the host has updated all
      gather_updated(bucket, updated);
    }
  }
}

}  // namespace stepcast::workloads
