#include <cmath>

#include "core/error.h"
#include "workloads/dlrm.h"
#include "workloads/dlrm_step.h"

namespace stepcast::workloads {
namespace {

/// Glorot & Bengio, AISTATS 2010.
double uniform_scale(std::int64_t in, std::int64_t out) {
  return std::sqrt(6.0 / static_cast<double>(in + out));
}

std::uint8_t as_variant(Activation a) { return static_cast<std::uint8_t>(a); }
std::uint8_t as_variant(OptimizerKind k) { return static_cast<std::uint8_t>(k); }

}  // namespace

DlrmStep::Scope DlrmStep::scope_of(std::int32_t slice_id) const {
  return slice_id < 0                        ? Scope::kDense
         : has_copies(slice(slice_id).route) ? Scope::kCopies
                                             : Scope::kTables;
}

std::size_t DlrmStep::bucket_for(Scope scope) {
  for (std::size_t i = buckets_.size(); i-- > 0;) {
    if (buckets_[i].scope == scope) {
      if (!buckets_[i].full) {
        return i;
      }
      break;
    }
  }
  buckets_.push_back({.scope = scope});
  return buckets_.size() - 1;
}

std::size_t DlrmStep::add_parameter(std::string name, std::int64_t rows, std::int64_t columns,
                                    double scale, std::int32_t slice_id) {
  DenseParameter p{
      .name = std::move(name), .rows = rows, .columns = columns, .scale = scale, .slice = slice_id};
  p.bucket = bucket_for(scope_of(slice_id));
  Bucket& bucket = buckets_[p.bucket];
  bucket.elements += rows * columns;
  ++bucket.waiting;
  bucket.full = format_bytes(job_.formats.gradient, 1, bucket.elements) >= job_.parallel.bucket;
  parameters_.push_back(std::move(p));
  return parameters_.size() - 1;
}

void DlrmStep::add_mlp(std::vector<Layer>& layers, const std::string& name, std::int64_t in,
                       const std::vector<std::int64_t>& widths, bool ends_linear) {
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const bool last = ends_linear && i + 1 == widths.size();
    layers.push_back({.in = in,
                      .out = widths[i],
                      .activation = last ? Activation::kNone : Activation::kRelu,
                      .name = fmt::format("{}.{}", name, i)});
    in = widths[i];
  }
  for (std::size_t i = layers.size(); i-- > 0;) {
    Layer& l = layers[i];
    l.bias = add_parameter(l.name + ".bias", 1, l.out, 1 / std::sqrt(static_cast<double>(l.out)));
    l.weight = add_parameter(l.name + ".weight", l.in, l.out, uniform_scale(l.in, l.out));
  }
}

/// Parameters in the order in which the backward pass completes their gradients: buckets fill in
/// this order.
void DlrmStep::declare_parameters() {
  add_mlp(top_, "top", interaction_width(workload_), workload_.top_mlp, true);
  if (workload_.interaction.kind == InteractionKind::kDcnV2) {
    const std::int64_t low = workload_.interaction.rank;
    cross_.resize(static_cast<std::size_t>(workload_.interaction.layers));
    for (std::size_t i = cross_.size(); i-- > 0;) {
      Cross& c = cross_[i];
      c.name = fmt::format("cross.{}", i);
      c.bias = add_parameter(c.name + ".bias", 1, stack_width_, 0);
      c.up = add_parameter(c.name + ".up", low, stack_width_, uniform_scale(low, stack_width_));
      c.down = add_parameter(c.name + ".down", stack_width_, low, uniform_scale(stack_width_, low));
    }
  }
  for (const EmbeddingRoute r : kAllRoutes) {
    const Route& of = route(r);
    for (std::size_t i = 0; is_synchronised(r) && i < of.slices.size(); ++i) {
      const Tensor& held = b_.tensor_at(of.weights[i]);
      const std::size_t p = add_parameter(held.name, held.rows, held.columns, 0, of.slices[i]);
      parameters_[p].weight = of.weights[i];
    }
  }
  add_mlp(bottom_, "bottom", workload_.dense_features, workload_.bottom_mlp, false);
  declare_buckets();
}

std::string DlrmStep::bucket_name(std::size_t i) const {
  return fmt::format("{}.{}", buckets_[i].scope == Scope::kDense ? "bucket" : "replicas", i);
}

void DlrmStep::declare_buckets() {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    const std::string name = bucket_name(i);
    bucket.gradients = b_.tensor({.name = name + ".gradient",
                                  .role = TensorRole::kGradient,
                                  .format = job_.formats.gradient,
                                  .rows = 1,
                                  .columns = bucket.elements,
                                  .per_microbatch = false,
                                  .pieces = {}});
    if (bucket.scope == Scope::kDense) {
      bucket.weights = b_.tensor({.name = name + ".weight",
                                  .role = TensorRole::kParameter,
                                  .format = compute_,
                                  .rows = 1,
                                  .columns = bucket.elements,
                                  .per_microbatch = false,
                                  .pieces = {}});
    }
  }
  std::vector<std::int64_t> offset(buckets_.size(), 0);
  for (DenseParameter& p : parameters_) {
    const Bucket& bucket = buckets_[p.bucket];
    Tensor view{.name = p.name + ".gradient",
                .role = TensorRole::kGradient,
                .format = job_.formats.gradient,
                .rows = p.rows,
                .columns = p.columns,
                .per_microbatch = false,
                .pieces = {},
                .view_of = static_cast<std::int32_t>(bucket.gradients),
                .view_offset = offset[p.bucket]};
    p.gradient = b_.tensor(view);
    if (p.slice < 0) {
      view.name = p.name;
      view.role = TensorRole::kParameter;
      view.format = compute_;
      view.view_of = static_cast<std::int32_t>(bucket.weights);
      view.pieces = {{.key = parameter_key(p.name), .columns = p.columns, .scale = p.scale}};
      p.weight = b_.tensor(std::move(view));
    }
    offset[p.bucket] += p.rows * p.columns;
  }
}

TensorId DlrmStep::mlp_forward(std::vector<Layer>& layers, std::size_t first, std::size_t last,
                               TensorId x) {
  for (std::size_t i = first; i < last; ++i) {
    Layer& l = layers[i];
    l.x = x;
    l.y = b_.activation(l.name, batch_, l.out, compute_);
    auto gemm = b_.op(OpKind::kGemm, l.name + ".gemm", {batch_, l.out, l.in, 1})
                    .in({x, weight(l.weight)})
                    .out({l.y});
    if (i == 0 && x == dense_) {
      wait(gemm, loaded_);
    }
    b_.op(OpKind::kBiasActivationForward,
          l.name + (l.activation == Activation::kRelu ? ".relu" : ".bias"), {batch_, l.out})
        .variant(as_variant(l.activation))
        .in({l.y, weight(l.bias)})
        .out({l.y});
    x = l.y;
  }
  return x;
}

TensorId DlrmStep::mlp_backward(const std::vector<Layer>& layers, TensorId d_y,
                                bool input_gradient) {
  for (std::size_t i = layers.size(); i-- > 0;) {
    const Layer& l = layers[i];
    auto bias = b_.op(OpKind::kBiasActivationBackward, l.name + ".bias_backward", {batch_, l.out})
                    .variant(as_variant(l.activation))
                    .in({d_y, l.y})
                    .out({d_y, gradient(l.bias)});
    gradients_done(bias, {l.bias});
    auto weight_gradient =
        b_.op(OpKind::kGemm, l.name + ".weight_gradient", {l.in, l.out, batch_, 1})
            .flags(op_flags::kTransposeA)
            .in({l.x, d_y})
            .out({gradient(l.weight)});
    gradients_done(weight_gradient, {l.weight});
    if (i > 0 || input_gradient) {
      const TensorId d_x = b_.activation(l.name + ".d_input", batch_, l.in, compute_);
      b_.op(OpKind::kGemm, l.name + ".input_gradient", {batch_, l.in, l.out, 1})
          .flags(op_flags::kTransposeB)
          .in({d_y, weight(l.weight)})
          .out({d_x});
      d_y = d_x;
    }
  }
  return d_y;
}

TensorId DlrmStep::interaction_forward(TensorId stack) {
  switch (workload_.interaction.kind) {
    case InteractionKind::kCat:
      return stack;
    case InteractionKind::kDcnV2:
      return cross_forward(stack);
    case InteractionKind::kDot:
      break;
  }
  const TensorId out = b_.activation("interaction", batch_, interaction_width(workload_), compute_);
  const auto features = static_cast<std::int64_t>(workload_.tables.size()) + 1;
  b_.op(OpKind::kDotInteractionForward, "interaction",
        {batch_, features, workload_.bottom_mlp.back()})
      .in({stack})
      .out({out});
  return out;
}

TensorId DlrmStep::interaction_backward(TensorId stack, TensorId d_out) {
  switch (workload_.interaction.kind) {
    case InteractionKind::kCat:
      return d_out;
    case InteractionKind::kDcnV2:
      return cross_backward(stack, d_out);
    case InteractionKind::kDot:
      break;
  }
  const TensorId d_stack = b_.activation("features.gradient", batch_, stack_width_, compute_);
  const auto features = static_cast<std::int64_t>(workload_.tables.size()) + 1;
  b_.op(OpKind::kDotInteractionBackward, "interaction_backward",
        {batch_, features, workload_.bottom_mlp.back()})
      .in({stack, d_out})
      .out({d_stack});
  return d_stack;
}

/// x_{l+1} = x_0 * (x_l V U + bias) + x_l (DCNv2, arXiv 2008.13535, eq. 2).
TensorId DlrmStep::cross_forward(TensorId stack) {
  const std::int64_t low = workload_.interaction.rank;
  TensorId x = stack;
  for (Cross& c : cross_) {
    c.x = x;
    c.projected = b_.activation(c.name + ".projected", batch_, low, compute_);
    c.u = b_.activation(c.name + ".u", batch_, stack_width_, compute_);
    const TensorId y = b_.activation(c.name, batch_, stack_width_, compute_);
    b_.op(OpKind::kGemm, c.name + ".down", {batch_, low, stack_width_, 1})
        .in({x, weight(c.down)})
        .out({c.projected});
    b_.op(OpKind::kGemm, c.name + ".up", {batch_, stack_width_, low, 1})
        .in({c.projected, weight(c.up)})
        .out({c.u});
    b_.op(OpKind::kCrossForward, c.name + ".cross", {batch_, stack_width_})
        .in({stack, c.u, weight(c.bias), x})
        .out({y});
    x = y;
  }
  return x;
}

/// The gradient of x_l starts as that of x_{l+1} and gains du U^T V^T in place; that of x_0 gathers
/// the products over all layers.
TensorId DlrmStep::cross_backward(TensorId stack, TensorId d_out) {
  const std::int64_t low = workload_.interaction.rank;
  const TensorId d_first = b_.activation("cross.d_first", batch_, stack_width_, compute_);
  for (std::size_t i = cross_.size(); i-- > 0;) {
    const Cross& c = cross_[i];
    const TensorId d_projected = b_.activation(c.name + ".d_projected", batch_, low, compute_);
    auto cross = b_.op(OpKind::kCrossBackward, c.name + ".cross_backward", {batch_, stack_width_})
                     .flags(i + 1 == cross_.size() ? std::uint8_t{0} : op_flags::kAccumulate)
                     .in({stack, c.u, weight(c.bias), d_out})
                     .out({c.u, d_first, gradient(c.bias)});
    gradients_done(cross, {c.bias});
    auto up = b_.op(OpKind::kGemm, c.name + ".up_gradient", {low, stack_width_, batch_, 1})
                  .flags(op_flags::kTransposeA)
                  .in({c.projected, c.u})
                  .out({gradient(c.up)});
    gradients_done(up, {c.up});
    b_.op(OpKind::kGemm, c.name + ".up_backward", {batch_, low, stack_width_, 1})
        .flags(op_flags::kTransposeB)
        .in({c.u, weight(c.up)})
        .out({d_projected});
    auto down = b_.op(OpKind::kGemm, c.name + ".down_gradient", {stack_width_, low, batch_, 1})
                    .flags(op_flags::kTransposeA)
                    .in({c.x, d_projected})
                    .out({gradient(c.down)});
    gradients_done(down, {c.down});
    b_.op(OpKind::kGemm, c.name + ".down_backward", {batch_, stack_width_, low, 1})
        .flags(op_flags::kTransposeB | op_flags::kAccumulate)
        .in({d_projected, weight(c.down)})
        .out({d_out});
  }
  b_.op(OpKind::kAdd, "cross.gradient", {batch_, stack_width_}).in({d_first, d_out}).out({d_out});
  return d_out;
}

/// Gradients that ops add to: biases and replicated tables. Products overwrite theirs.
void DlrmStep::zero_gradients() {
  std::vector<TensorId> targets;
  std::int64_t elements = 0;
  for (const DenseParameter& p : parameters_) {
    if (p.slice >= 0 || p.rows == 1) {
      targets.push_back(p.gradient);
      elements += p.rows * p.columns;
    }
  }
  b_.op(OpKind::kFill, "zero_gradients", {elements}).format(job_.formats.gradient).out(targets);
}

void DlrmStep::gradients_done(ProgramBuilder::OpEdit op,
                              const std::vector<std::size_t>& parameters) {
  std::vector<std::size_t> complete;
  for (const std::size_t p : parameters) {
    const std::size_t i = parameters_[p].bucket;
    STEPCAST_CHECK(buckets_[i].waiting > 0, "gradient of '{}' twice", parameters_[p].name);
    if (--buckets_[i].waiting == 0 && buckets_[i].elements > 0) {
      complete.push_back(i);
    }
  }
  if (complete.empty() || devices() == 1) {
    return;
  }
  const std::int32_t ready = handover(kComputeStream, reduce_stream_);
  if (ready >= 0) {
    op.records(ready);
  }
  for (const std::size_t i : complete) {
    reduced_ = handover(reduce_stream_, kComputeStream);
    auto reduce = b_.op(OpKind::kAllReduce, bucket_name(i) + ".all_reduce", {buckets_[i].elements})
                      .format(job_.formats.gradient)
                      .phase(Phase::kGradientSync)
                      .communicator(buckets_[i].scope == Scope::kCopies ? comm_.copies : comm_.data)
                      .in({buckets_[i].gradients})
                      .out({buckets_[i].gradients})
                      .on(reduce_stream_);
    wait(reduce, ready);
    reduce.records(reduced_);
  }
}

void DlrmStep::optimizer(const std::string& name, OptimizerKind kind, TensorId weights,
                         TensorId gradients, std::int64_t state_rows, std::int64_t state_columns,
                         std::int64_t row_width) {
  std::vector<TensorId> states;
  const int count = kind == OptimizerKind::kSgd ? 0 : kind == OptimizerKind::kAdam ? 2 : 1;
  for (int i = 0; i < count; ++i) {
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
  auto op = b_.op(OpKind::kOptimizer, name + ".optimizer", {elements, row_width})
                .format(job_.formats.gradient)
                .variant(as_variant(kind))
                .in(in)
                .out(out);
  wait(op, reduced_);
  reduced_ = -1;  // the compute stream has waited
}

void DlrmStep::optimizers() {
  // Row-wise Adagrad is a rule for tables; dense parameters take the element-wise one.
  const OptimizerKind dense = job_.dense_optimizer == OptimizerKind::kRowwiseAdagrad
                                  ? OptimizerKind::kAdagrad
                                  : job_.dense_optimizer;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    STEPCAST_CHECK(buckets_[i].waiting == 0, "bucket {} lacks {} gradients", i,
                   buckets_[i].waiting);
    if (buckets_[i].scope == Scope::kDense) {
      optimizer(fmt::format("bucket.{}", i), dense, buckets_[i].weights, buckets_[i].gradients, 1,
                buckets_[i].elements, 0);
    }
  }
  for (const DenseParameter& p : parameters_) {
    if (p.slice >= 0 && p.rows > 0) {
      const bool by_row = job_.embedding_optimizer == OptimizerKind::kRowwiseAdagrad;
      optimizer(p.name, job_.embedding_optimizer, p.weight, p.gradient, p.rows,
                by_row ? 1 : p.columns, p.columns);
    }
  }
}

}  // namespace stepcast::workloads
