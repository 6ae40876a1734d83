#include "workloads/stage_parameters.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "core/error.h"

namespace stepcast::workloads {
namespace {

constexpr const char* kDataStream = "data";

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

bool full_precision(Format f) { return f == Format::kFp32 || f == Format::kTf32; }

}  // namespace

void StageParameters::declare(const std::vector<ParameterSpec>& specs) {
  // Without replicas there is nothing to exchange early: one buffer.
  const double limit =
      shape_.data > 1 ? job_.parallel.bucket.base() : std::numeric_limits<double>::infinity();
  // Parameters of one bucket are summed alike.
  using Kind = std::pair<Replicas, GradientSum>;
  for (const auto& [replicas, sum] :
       {Kind{Replicas::kExperts, GradientSum::kNone}, Kind{Replicas::kData, GradientSum::kNone},
        Kind{Replicas::kData, GradientSum::kOverTensor},
        Kind{Replicas::kData, GradientSum::kOverEnds}}) {
    std::vector<const ParameterSpec*> together;
    double bytes = 0;
    for (const ParameterSpec& spec : specs) {
      if (spec.sum != sum || spec.replicas != replicas) {
        continue;
      }
      const double size = format_bytes(job_.formats.gradient, spec.rows, spec.columns).base();
      if (!together.empty() && bytes + size > limit) {
        open_bucket(together);
        together.clear();
        bytes = 0;
      }
      together.push_back(&spec);
      bytes += size;
    }
    if (!together.empty()) {
      open_bucket(together);
    }
  }
}

void StageParameters::open_bucket(const std::vector<const ParameterSpec*>& specs) {
  ProgramBuilder& b = writer_.builder();
  const Format weight_format = job_.formats.compute;
  const Format gradient_format = job_.formats.gradient;
  const std::size_t number = buckets_.size();
  Bucket bucket;
  bucket.sum = specs.front()->sum;
  bucket.replicas = specs.front()->replicas;
  bucket.parameters = static_cast<std::int32_t>(specs.size());
  for (const ParameterSpec* spec : specs) {
    bucket.elements += spec->rows * spec->columns;
  }
  const std::int64_t parts = job_.parallel.zero > 0 ? replicas_of(bucket.replicas) : 1;
  bucket.elements = (bucket.elements + parts - 1) / parts * parts;
  bucket.shard = bucket.elements / parts;
  const auto name = [number](const char* what) {
    return fmt::format("bucket.{}.{}", number, what);
  };
  bucket.weights = b.tensor(
      flat_tensor(name("weights"), TensorRole::kParameter, weight_format, bucket.elements));
  bucket.gradients = b.tensor(
      flat_tensor(name("gradients"), TensorRole::kGradient, gradient_format, bucket.elements));
  std::int64_t offset = 0;
  for (const ParameterSpec* spec : specs) {
    Tensor weight = view(spec->name, TensorRole::kParameter, weight_format, bucket.weights, offset,
                         spec->rows, spec->columns);
    weight.pieces = spec->pieces;
    const TensorId weight_id = b.tensor(std::move(weight));
    const TensorId gradient_id =
        b.tensor(view(spec->name + ".gradient", TensorRole::kGradient, gradient_format,
                      bucket.gradients, offset, spec->rows, spec->columns));
    const bool fresh =
        parameters_.emplace(spec->name, ProgramBuilder::Parameter{weight_id, gradient_id}).second;
    STEPCAST_CHECK(fresh, "parameter '{}' was declared twice", spec->name);
    bucket_of_.emplace(spec->name, number);
    offset += spec->rows * spec->columns;
  }
  add_states(bucket, number);
  buckets_.push_back(std::move(bucket));
}

void StageParameters::add_states(Bucket& bucket, std::size_t number) {
  ProgramBuilder& b = writer_.builder();
  bucket.weight_shard = bucket.weights;
  bucket.gradient_shard = bucket.gradients;
  if (bucket.shard != bucket.elements) {
    Tensor weights = view(fmt::format("bucket.{}.weights.shard", number), TensorRole::kParameter,
                          job_.formats.compute, bucket.weights, 0, 1, bucket.shard);
    Tensor gradients = view(fmt::format("bucket.{}.gradients.shard", number), TensorRole::kGradient,
                            job_.formats.gradient, bucket.gradients, 0, 1, bucket.shard);
    weights.view_data_step = gradients.view_data_step = bucket.shard;
    bucket.weight_shard = b.tensor(std::move(weights));
    bucket.gradient_shard = b.tensor(std::move(gradients));
  }
  for (int i = 0; i < state_count(job_.dense_optimizer); ++i) {
    bucket.states.push_back(
        b.tensor(flat_tensor(fmt::format("bucket.{}.state.{}", number, i),
                             TensorRole::kOptimizerState, Format::kFp32, bucket.shard)));
  }
  if (!full_precision(job_.formats.compute)) {  // the weights the optimizer really updates
    b.tensor(flat_tensor(fmt::format("bucket.{}.master", number), TensorRole::kOptimizerState,
                         Format::kFp32, bucket.shard));
  }
}

void StageParameters::begin_overlapped_exchange() {
  overlapping_ = true;
  for (Bucket& bucket : buckets_) {
    bucket.open = bucket.parameters;
  }
}

void StageParameters::finished(const std::string& name) {
  if (!overlapping_) {
    return;
  }
  Bucket& bucket = buckets_[bucket_of_.at(name)];
  if (--bucket.open == 0 && bucket.sum == GradientSum::kNone) {
    exchange(bucket);
  }
}

void StageParameters::zero_gradients() {
  for (const Bucket& bucket : buckets_) {
    writer_.compute(OpKind::kFill, "gradients.zero", {bucket.elements})
        .out({bucket.gradients})
        .format(job_.formats.gradient);
  }
}

void StageParameters::exchange(Bucket& bucket) {
  if (replicas_of(bucket.replicas) == 1) {
    return;
  }
  const bool sharded = job_.parallel.zero > 0;
  OpWriter::Transfer t;
  t.kind = sharded ? OpKind::kReduceScatter : OpKind::kAllReduce;
  t.name = "gradients.exchange";
  t.elements = bucket.elements;
  t.in = {bucket.gradients};
  t.out = {bucket.gradient_shard};
  t.communicator = communicator_of(bucket.replicas);
  t.format = job_.formats.gradient;
  writer_.set_phase(Phase::kGradientSync);
  bucket.synchronised = writer_.transfer(kDataStream, job_.parallel.overlap.data, t);
  writer_.set_phase(Phase::kBackward);
}

void StageParameters::optimize() {
  const bool mixed = !full_precision(job_.formats.compute);
  const double gradient = bits_per_element(job_.formats.gradient) / 8;
  const double weight = bits_per_element(job_.formats.compute) / 8;
  writer_.set_phase(Phase::kOptimizer);
  for (const Bucket& bucket : buckets_) {
    std::vector<TensorId> out{bucket.weight_shard};
    out.insert(out.end(), bucket.states.begin(), bucket.states.end());
    writer_.await(bucket.synchronised);
    auto update = writer_.compute(OpKind::kOptimizer, "optimizer", {bucket.shard});
    update.in({bucket.gradient_shard})
        .out(out)
        .format(Format::kFp32)
        .variant(static_cast<std::uint8_t>(job_.dense_optimizer));
    // Per element: the gradient, fp32 states and (with narrow weights) the fp32 master copy; the
    // narrow weights are written too.
    const double n = static_cast<double>(bucket.shard);
    const double kept = 4.0 * static_cast<double>(bucket.states.size() + 1);
    update.work(update.op().flops, Bytes(n * (gradient + kept)),
                Bytes(n * (kept + (mixed ? weight : 0))));
    if (bucket.shard != bucket.elements) {
      OpWriter::Transfer t;
      t.kind = OpKind::kAllGather;
      t.name = "weights.gather";
      t.elements = bucket.elements;
      t.in = {bucket.weight_shard};
      t.out = {bucket.weights};
      t.communicator = communicator_of(bucket.replicas);
      t.format = job_.formats.compute;
      writer_.transfer(kDataStream, job_.parallel.overlap.data, t);
    }
  }
}

}  // namespace stepcast::workloads
