#include "core/error.h"
#include "core/graph/optimizer_state.h"
#include "workloads/dlrm/dlrm.h"
#include "workloads/dlrm/step.h"

namespace stepcast::workloads {

LayeredStep::Scope LayeredStep::scope_of(std::int32_t slice_id) const {
  return slice_id < 0                        ? Scope::kDense
         : has_copies(slice(slice_id).route) ? Scope::kCopies
                                             : Scope::kTables;
}

std::size_t LayeredStep::bucket_for(Scope scope, std::int32_t communicator) {
  for (std::size_t i = buckets_.size(); i-- > 0;) {
    if (buckets_[i].scope == scope && buckets_[i].communicator == communicator) {
      if (!buckets_[i].full) {
        return i;
      }
      break;
    }
  }
  buckets_.push_back({.scope = scope, .communicator = communicator});
  return buckets_.size() - 1;
}

std::size_t LayeredStep::add_parameter(std::string name, std::int64_t rows, std::int64_t columns,
                                       double scale, std::int32_t slice_id, bool tower) {
  DenseParameter p{
      .name = std::move(name), .rows = rows, .columns = columns, .scale = scale, .slice = slice_id};
  const Scope scope = tower ? Scope::kTower : scope_of(slice_id);
  p.bucket = bucket_for(scope, scope == Scope::kCopies  ? copies_of(slice(slice_id).route)
                               : scope == Scope::kTower ? comm_.tower.inside
                                                        : comm_.data);
  Bucket& bucket = buckets_[p.bucket];
  bucket.elements += rows * columns;
  ++bucket.waiting;
  bucket.full = format_bytes(job_.formats.gradient, 1, bucket.elements) >= job_.parallel.bucket;
  parameters_.push_back(std::move(p));
  return parameters_.size() - 1;
}

/// Parameters in the order in which the backward pass completes their gradients: buckets fill in
/// this order.
void LayeredStep::declare_parameters() {
  for (std::size_t i = list_.layers.size(); i-- > 0;) {
    if (list_.layers[i].kind == LayerKind::kTables) {
      declare_replicas();
      declare_tower();
    }
    for (LayerParameter& p : parameters_of(list_, list_.layers[i])) {
      const std::size_t id = add_parameter(std::move(p.name), p.rows, p.columns, p.scale);
      parameters_[id].constant = p.constant;
      parameters_[id].added = p.added;
      layer_states_[i].parameters.push_back(id);
    }
  }
  declare_buckets();
}

/// Rows of tables that the dense optimizer updates.
void LayeredStep::declare_replicas() {
  for (const EmbeddingRoute r : kAllRoutes) {
    const Route& of = route(r);
    for (std::size_t i = 0; is_synchronised(r) && i < of.slices.size(); ++i) {
      const Tensor& held = b_.tensor_at(of.weights[i]);
      const std::size_t p = add_parameter(held.name, held.rows, held.columns, 0, of.slices[i]);
      parameters_[p].weight = of.weights[i];
      parameters_[p].added = true;
    }
  }
}

std::string LayeredStep::bucket_name(std::size_t i) const {
  return fmt::format("{}.{}", holds_weights(buckets_[i].scope) ? "bucket" : "replicas", i);
}

/// Begin of each parameter in its bucket: after those whose sizes divide by a larger power of
/// two, so at a multiple of the one in its own size. In order of completion the last layer's one
/// bias would put all others at addresses that devices read slowly.
std::vector<std::int64_t> LayeredStep::offsets_in_buckets() const {
  constexpr std::int64_t kPack = 64;  // elements: 128 bytes of 16 bits
  std::vector<std::int64_t> next(buckets_.size(), 0);
  std::vector<std::int64_t> offsets(parameters_.size());
  for (std::int64_t pack = kPack; pack > 0; pack /= 2) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const DenseParameter& p = parameters_[i];
      const std::int64_t elements = p.rows * p.columns;
      if (elements % pack == 0 && (pack == kPack || elements % (2 * pack) != 0)) {
        offsets[i] = next[p.bucket];
        next[p.bucket] += elements;
      }
    }
  }
  return offsets;
}

void LayeredStep::declare_buckets() {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    const std::string name = bucket_name(i);
    if (trains_) {
      bucket.gradients = b_.tensor({.name = name + ".gradient",
                                    .role = TensorRole::kGradient,
                                    .format = job_.formats.gradient,
                                    .rows = 1,
                                    .columns = bucket.elements,
                                    .per_microbatch = false,
                                    .pieces = {}});
    }
    if (holds_weights(bucket.scope)) {
      bucket.weights = b_.tensor({.name = name + ".weight",
                                  .role = TensorRole::kParameter,
                                  .format = compute_,
                                  .rows = 1,
                                  .columns = bucket.elements,
                                  .per_microbatch = false,
                                  .pieces = {}});
    }
  }
  const std::vector<std::int64_t> offsets = offsets_in_buckets();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    DenseParameter& p = parameters_[i];
    const Bucket& bucket = buckets_[p.bucket];
    Tensor view{.name = p.name + ".gradient",
                .role = TensorRole::kGradient,
                .format = job_.formats.gradient,
                .rows = p.rows,
                .columns = p.columns,
                .per_microbatch = false,
                .pieces = {},
                .view_of = static_cast<std::int32_t>(bucket.gradients),
                .view_offset = offsets[i]};
    p.gradient = trains_ ? b_.tensor(view) : kNoTensor;
    if (p.slice < 0) {
      view.name = p.name;
      view.role = TensorRole::kParameter;
      view.format = compute_;
      view.view_of = static_cast<std::int32_t>(bucket.weights);
      view.pieces = {{.key = parameter_key(p.name),
                      .columns = p.columns,
                      .scale = p.scale,
                      .constant = p.constant}};
      p.weight = b_.tensor(std::move(view));
    }
  }
}

/// Gradients that ops add to: biases, norms and replicated tables. Products overwrite theirs.
void LayeredStep::zero_gradients() {
  const auto zero = [this](const char* name, auto&& chosen, std::uint8_t flags) {
    std::vector<TensorId> targets;
    std::int64_t elements = 0;
    for (const DenseParameter& p : parameters_) {
      if (p.added && chosen(p)) {
        targets.push_back(p.gradient);
        elements += p.rows * p.columns;
      }
    }
    if (!targets.empty()) {
      w_.compute(OpKind::kFill, name, {elements})
          .format(job_.formats.gradient)
          .flags(flags)
          .out(targets);
    }
  };
  if (interval_ == 1) {
    zero(
        "zero_gradients", [](const DenseParameter&) { return true; }, 0);
    return;
  }
  zero(
      "zero_gradients", [](const DenseParameter& p) { return p.slice < 0; }, 0);
  zero(
      "replicas.zero_gradients", [](const DenseParameter& p) { return p.slice >= 0; },
      op_flags::kEveryInterval);
}

void LayeredStep::gradients_done(const std::vector<std::size_t>& parameters) {
  std::vector<std::size_t> complete;
  for (const std::size_t p : parameters) {
    const std::size_t i = parameters_[p].bucket;
    STEPCAST_CHECK(buckets_[i].waiting > 0, "gradient of '{}' twice", parameters_[p].name);
    if (--buckets_[i].waiting == 0 && buckets_[i].elements > 0) {
      complete.push_back(i);
    }
  }
  if (complete.empty() || replicas_ == 1) {
    return;
  }
  const OpId ready = w_.written();
  for (const std::size_t i : complete) {
    const bool dense = holds_weights(buckets_[i].scope);
    w_.op(Channel::kReduce, OpKind::kAllReduce, bucket_name(i) + ".all_reduce",
          {buckets_[i].elements})
        .format(job_.formats.gradient)
        .flags(dense ? std::uint8_t{0} : at_interval())
        .phase(Phase::kGradientSync)
        .traffic(dense ? TrafficKind::kDenseSync : TrafficKind::kReplicaSync)
        .communicator(buckets_[i].communicator)
        .in({buckets_[i].gradients})
        .out({buckets_[i].gradients});
    w_.follows(ready);
    reduced_ = w_.written();
  }
}

void LayeredStep::optimizer(const std::string& name, OptimizerKind kind, TensorId weights,
                            TensorId gradients, std::int64_t state_rows, std::int64_t state_columns,
                            std::int64_t row_width, std::uint8_t flags) {
  std::vector<TensorId> states;
  for (int i = 0; i < optimizer_states(kind); ++i) {
    states.push_back(b_.tensor({.name = fmt::format("{}.state{}", name, i),
                                .role = TensorRole::kOptimizerState,
                                .format = Format::kFp32,
                                .rows = state_rows,
                                .columns = state_columns,
                                .per_microbatch = false,
                                .pieces = {}}));
  }
  std::vector<TensorId> in{weights, gradients};
  in.insert(in.end(), states.begin(), states.end());
  std::vector<TensorId> out{weights};
  out.insert(out.end(), states.begin(), states.end());
  const std::int64_t elements = b_.tensor_at(weights).elements();
  w_.compute(OpKind::kOptimizer, name + ".optimizer", {elements, row_width})
      .format(job_.formats.gradient)
      .attributes(OptimizerAttributes{kind})
      .flags(flags)
      .in(in)
      .out(out);
  w_.follows(reduced_);
  reduced_ = kNoOp;  // the compute stream has waited
}

/// For an element: the gradient read; its fp32 number and its fp32 states read and written; of
/// dense parameters also the copy in the format of products.
void LayeredStep::fused_optimizer(OptimizerKind dense) {
  constexpr double kWide = 4;
  const int states = optimizer_states(dense);
  const double gradient = bits_per_element(job_.formats.gradient, 1024) / 8;
  const double copy = bits_per_element(compute_, 1024) / 8;
  std::vector<TensorId> in;
  std::vector<TensorId> out;
  std::int64_t elements = 0;
  double copies = 0;
  const auto add = [&](const std::string& name, TensorId weights, TensorId gradients,
                       bool product) {
    const Tensor held = b_.tensor_at(weights);
    in.insert(in.end(), {weights, gradients});
    out.push_back(weights);
    elements += held.elements();
    copies += product ? copy * static_cast<double>(held.elements()) : 0;
    const int kept = states + (product && compute_ != Format::kFp32 ? 1 : 0);
    for (int i = 0; i < kept; ++i) {
      const TensorId state = b_.tensor({.name = fmt::format("{}.state{}", name, i),
                                        .role = TensorRole::kOptimizerState,
                                        .format = Format::kFp32,
                                        .rows = held.rows,
                                        .columns = held.columns,
                                        .per_microbatch = false,
                                        .pieces = {}});
      in.push_back(state);
      out.push_back(state);
    }
  };
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (holds_weights(buckets_[i].scope)) {
      add(fmt::format("bucket.{}", i), buckets_[i].weights, buckets_[i].gradients, true);
    }
  }
  for (const DenseParameter& p : parameters_) {
    if (p.slice >= 0 && p.rows > 0 && fuses_tables(dense)) {
      add(p.name, p.weight, p.gradient, false);
    }
  }
  const auto n = static_cast<double>(elements);
  w_.compute(OpKind::kOptimizer, "optimizer", {elements, 0})
      .format(job_.formats.gradient)
      .attributes(OptimizerAttributes{dense})
      .in(in)
      .out(out)
      .work(Flops(n * (2 + 2 * states)), Bytes(n * (gradient + kWide * (1 + states))),
            Bytes(n * kWide * (1 + states) + copies));
  w_.follows(reduced_);
  reduced_ = kNoOp;
}

void LayeredStep::optimizers() {
  // Row-wise Adagrad is a rule for tables; dense parameters take the element-wise one.
  const OptimizerKind dense = job_.dense_optimizer == OptimizerKind::kRowwiseAdagrad
                                  ? OptimizerKind::kAdagrad
                                  : job_.dense_optimizer;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    STEPCAST_CHECK(buckets_[i].waiting == 0, "bucket {} lacks {} gradients", i,
                   buckets_[i].waiting);
  }
  if (traits_.fused_optimizer) {
    fused_optimizer(dense);
  }
  for (std::size_t i = 0; i < buckets_.size() && !traits_.fused_optimizer; ++i) {
    if (holds_weights(buckets_[i].scope)) {
      optimizer(fmt::format("bucket.{}", i), dense, buckets_[i].weights, buckets_[i].gradients, 1,
                buckets_[i].elements, 0, 0);
    }
  }
  for (const DenseParameter& p : parameters_) {
    if (p.slice >= 0 && p.rows > 0 && !(traits_.fused_optimizer && fuses_tables(dense))) {
      const std::int64_t columns = state_shape(job_.embedding_optimizer, p.rows, p.columns)[1];
      optimizer(p.name, job_.embedding_optimizer, p.weight, p.gradient, p.rows, columns, p.columns,
                at_interval());
    }
  }
}

}  // namespace stepcast::workloads
