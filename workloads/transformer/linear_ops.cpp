#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "workloads/transformer/stage.h"

// Pieces shared by layers, embedding and head.
namespace stepcast::workloads {

using op_flags::kAccumulate;
using op_flags::kTransposeA;
using op_flags::kTransposeB;

bool TransformerStage::deferrable(const Product& p) {
  const ProgramBuilder& b = writer_.builder();
  return deferring() && p.flags == (kTransposeA | kAccumulate) && b.tensor_at(p.a).per_microbatch &&
         b.tensor_at(p.b).per_microbatch;
}

TensorId TransformerStage::gradient(const std::string& name, std::int64_t rows,
                                    std::int64_t columns) {
  if (!deferring()) {
    return writer_.workspace(name, rows, columns, compute_);
  }
  const auto [it, fresh] = gradients_.try_emplace(scope_ + name, 0);
  if (fresh) {
    it->second = writer_.builder().activation(scope_ + name, rows, columns, compute_);
  }
  return it->second;
}

TransformerStage::Product TransformerStage::product(const Linear& l, TensorId x, TensorId y,
                                                    std::uint8_t flags) {
  return {l.name, l.rows, l.outputs, l.inputs, x, l.matrix.weight, y, flags, l.place};
}

TransformerStage::Product TransformerStage::gradient_of_input(const Linear& l, TensorId dy,
                                                              TensorId dx, std::uint8_t flags) {
  return {l.name + "_input_gradient",
          l.rows,
          l.inputs,
          l.outputs,
          dy,
          l.matrix.weight,
          dx,
          static_cast<std::uint8_t>(kTransposeB | flags),
          l.place};
}

TransformerStage::Product TransformerStage::gradient_of_weight(const Linear& l, TensorId x,
                                                               TensorId dy) {
  return {l.name + "_weight_gradient", l.inputs, l.outputs, l.rows, x, dy, l.matrix.gradient,
          kTransposeA | kAccumulate,   l.place};
}

void TransformerStage::both_gradients(const Linear& l, TensorId x, TensorId dy, TensorId dx,
                                      std::uint8_t flags) {
  gemm(gradient_of_input(l, dy, dx, flags));
  gemm(gradient_of_weight(l, x, dy));
}

TransformerStage::Gathered TransformerStage::columns_backward(const Linear& l, const Gathered& x,
                                                              TensorId dy, TensorId dx,
                                                              const std::string& sum,
                                                              const char* workspace) {
  gemm(gradient_of_input(l, dy, dx));
  const Gathered whole = reduced(sum.c_str(), dx, workspace);
  writer_.await(x.ready);
  gemm(gradient_of_weight(l, x.tensor, dy));
  return whole;
}

/// The product into a temporary, then a kernel that adds it to the sum over micro-batches.
void TransformerStage::gemm_and_add(const Product& p) {
  const bool head = p.m == shape_.vocabulary;
  std::int64_t widest = std::max(shape_.fc1_width, shape_.qkv_width);
  if (shape_.model.recurrent) {
    widest = std::max(widest, recurrent_widths().in);
  }
  Product fresh = p;
  fresh.c = writer_.workspace(head ? "head.gradient.fresh" : "gradient.fresh", 1,
                              shape_.model.hidden * (head ? shape_.vocabulary : widest), compute_);
  fresh.flags = static_cast<std::uint8_t>(p.flags & ~kAccumulate);
  gemm(fresh);
  auto sum = writer_.compute(OpKind::kAdd, "gradient.accumulate", {p.m, p.n});
  sum.in({fresh.c, p.c}).out({p.c});
  const Bytes kept = format_bytes(job_.formats.gradient, p.m, p.n);
  sum.work(sum.op().flops, format_bytes(compute_, p.m, p.n) + kept, kept);
}

void TransformerStage::gemm(const Product& p) {
  if (p.c == kNoGradient) {
    return;  // of a matrix that is not trained
  }
  if (deferrable(p)) {
    deferred_.push_back({p.name, p, writer_.place().op, writer_.builder().layer()});
    return;
  }
  const bool weights = (p.flags & kTransposeA) != 0;
  if (traits_.separate_accumulation && weights && (p.flags & kAccumulate) != 0) {
    gemm_and_add(p);
    return;
  }
  if (is_narrow(p.place) && !weights && !holds_narrow(p.a)) {
    quantise(p.name, p.a);
  }
  for (const TensorId values : {p.a, p.b}) {
    if (weights && holds_narrow(values)) {
      cast(p.name + ".transpose", values, bits_per_element(products_, 1024) / 8, 1);
    }
  }
  gemm_rows(p, p.m);
}

void TransformerStage::gemm_rows(const Product& p, std::int64_t rows) {
  auto op = writer_.compute(OpKind::kGemm, p.name, {rows, p.n, p.k, 1});
  op.in({p.a, p.b}).out({p.c}).flags(p.flags);
  if (const Repeated repeated = repeated_in(p.place); repeated != Repeated::kNothing) {
    op.attributes(GemmAttributes{.repeated = repeated});
  }
  narrow(op, p, static_cast<double>(rows * p.n));
}

/// For rows that were gathered: as they arrive, this rank's own first.
void TransformerStage::gemm(const Product& p, const Gathered& a) {
  if (a.pieces.empty()) {
    writer_.await(a.ready);
    gemm(p);
    return;
  }
  const bool quantises = is_narrow(p.place) && !holds_narrow(p.a);
  for (std::int64_t part = 0; part < shape_.tensor; ++part) {
    writer_.await(part == 0 ? -1 : a.pieces[static_cast<std::size_t>(part - 1)]);
    if (quantises) {
      quantise(p.name, p.a, shape_.tensor);
    }
    gemm_rows(p, p.m / shape_.tensor);
  }
}

void TransformerStage::expert_gemm(const Product& p, std::int64_t part, const InProduct& fused) {
  if (p.c == kNoGradient) {
    return;
  }
  const ExpertShape& e = *shape_.experts;
  const std::int64_t computed = e.part(e.computed, part);
  const std::int64_t rows = (computed + e.local - 1) / e.local;
  const bool weights = (p.flags & kTransposeA) != 0;
  if (is_narrow(p.place) && !weights && !job_.parallel.fused_experts) {
    quantise(p.name, p.a);
  }
  auto op = writer_.compute(OpKind::kGemm, p.name,
                            {weights ? p.m : rows, p.n, weights ? rows : p.k, e.local});
  std::vector<TensorId> in{p.a, p.b};
  in.insert(in.end(), fused.in.begin(), fused.in.end());
  std::vector<TensorId> out{p.c};
  out.insert(out.end(), fused.out.begin(), fused.out.end());
  op.in(in).out(out).flags(p.flags);
  op.routing(routing_ + static_cast<std::int32_t>(part));
  narrow(op, p, static_cast<double>((weights ? p.m * e.local : computed) * p.n));
  const double real = static_cast<double>(computed) / static_cast<double>(rows * e.local);
  const auto bytes = [&](std::int64_t of_row) {
    return Bytes(static_cast<double>(of_row * computed) * bits_per_element(compute_) / 8);
  };
  op.work(op.op().flops * real, op.op().bytes_read + bytes(fused.read),
          op.op().bytes_written + bytes(fused.written));
}

bool TransformerStage::is_narrow(ProductPlace place) const {
  const bool head = traits_.narrow_head && !shape_.inference;
  return products_ != compute_ && place != ProductPlace::kRouter && place != ProductPlace::kWide &&
         (place != ProductPlace::kHead || head);
}

Repeated TransformerStage::repeated_in(ProductPlace place) const {
  switch (place) {
    case ProductPlace::kQueryKeyValue:
      return shape_.kv_copies > 1 ? Repeated::kKeysAndValues : Repeated::kNothing;
    case ProductPlace::kWholeOnEach:
    case ProductPlace::kRouter:
      return shape_.sequence_parallel ? Repeated::kNothing : Repeated::kAll;
    case ProductPlace::kLayer:
    case ProductPlace::kHead:
    case ProductPlace::kWide:
      break;
  }
  return Repeated::kNothing;
}

void TransformerStage::narrow(OpWriter::OpEdit& op, const Product& p, double written) {
  if (!is_narrow(p.place)) {
    return;
  }
  op.format(products_);
  const double wide = written * bits_per_element(compute_) / 8;
  const bool adds = (op.op().flags & kAccumulate) != 0;
  const double added = adds ? wide - op.op().bytes_written.base() : 0;
  op.work(op.op().flops, Bytes(op.op().bytes_read.base() + added), Bytes(wide));
}

/// Reads the values, finds their largest for the next step's scale, and writes them twice: as they
/// are and transposed.
void TransformerStage::quantise(const std::string& name, TensorId values, std::int64_t parts) {
  const Tensor& t = writer_.builder().tensor_at(values);
  // The transposed copy is for weight gradients.
  const bool transposes = !job_.lora && !shape_.inference;
  cast(name + ".quantise", values, bits_per_element(t.format) / 8, transposes ? 2 : 1, parts);
}

void TransformerStage::cast(const std::string& name, TensorId values, double bytes_read,
                            double copies, std::int64_t parts) {
  const std::int64_t elements = writer_.builder().tensor_at(values).elements() / parts;
  const auto n = static_cast<double>(elements);
  auto op = writer_.compute(OpKind::kCast, name, {elements});
  op.in({values}).out({values}).format(products_);
  op.work(Flops(2 * n), Bytes(n * bytes_read),
          Bytes(copies * n * bits_per_element(products_, 1024) / 8));
}

TensorId TransformerStage::computed(TensorId kept) {
  const Tensor& t = writer_.builder().tensor_at(kept);
  if (t.format == compute_) {
    return kept;
  }
  const std::size_t layer = t.name.find('.', t.name.find('.') + 1) + 1;
  return writer_.workspace("computed." + t.name.substr(layer), t.rows, t.columns, compute_);
}

void TransformerStage::keep(const std::string& name, TensorId from, TensorId to,
                            std::int64_t rows) {
  if (from == to) {
    return;
  }
  const std::int64_t elements = rows * columns_of(from);
  auto op = writer_.compute(OpKind::kCast, name, {elements});
  op.in({from}).out({to}).format(activation_);
  const auto bytes = [&](TensorId t) {
    return format_bytes(writer_.builder().tensor_at(t).format, rows, columns_of(t));
  };
  op.work(Flops(2 * static_cast<double>(elements)), bytes(from), bytes(to));
}

void TransformerStage::set_narrow(TensorId values, bool narrow) {
  if (narrow) {
    narrowed_.insert(values);
  } else {
    narrowed_.erase(values);
  }
}

bool TransformerStage::is_narrow(const std::string& name, const ParameterUse& use) const {
  return use.of_product && is_narrow(use.in_layer()          ? ProductPlace::kLayer
                                     : name == head_weight() ? ProductPlace::kHead
                                                             : ProductPlace::kWide);
}

bool TransformerStage::frees_weights() const {
  return job_.parallel.zero == 3 && job_.parallel.zero_reshard && shape_.shards > 1;
}

bool TransformerStage::casts_each_pass() const {
  return traits_.casts_each_pass || frees_weights();
}

bool TransformerStage::gathers_narrow() const {
  const bool shares = job_.parallel.zero > 0 && job_.parallel.zero < 3 && shape_.shards > 1;
  return traits_.gathers_narrow && products_ != compute_ && job_.phase == JobPhase::kTrain &&
         !job_.lora && (frees_weights() || shares);
}

/// Servers cast the matrices of layers once, before all steps.
bool TransformerStage::keeps_narrow() const { return shape_.inference && products_ != compute_; }

void TransformerStage::quantise_weights() {
  if (keeps_narrow()) {
    return;
  }
  std::int64_t all = 0;
  std::map<std::int64_t, std::int64_t> of_layer, made;  // elements, and those a pass over it casts
  for (const auto& [name, use] : parameters_.uses()) {
    if (is_narrow(name, use)) {
      const Tensor& weight = writer_.builder().tensor_at(parameter(name).weight);
      all += weight.elements();
      of_layer[use.unit] += weight.elements();
      made[use.unit] += gathers_narrow() && weight.format == products_ ? 0 : weight.elements();
      const bool arrives = gathers_narrow() && weight.format == Format::kFp8;
      if (!casts_each_pass() && trains(name) && !arrives) {  // else made once, before all steps
        quantise("weights", parameter(name).weight);
      }
    }
  }
  if (all == 0 || job_.formats.frozen == products_) {  // else they are what is stored
    return;
  }
  const auto most_of = [](const std::map<std::int64_t, std::int64_t>& elements) {
    return std::max_element(elements.begin(), elements.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->second;
  };
  const std::int64_t most = most_of(made);
  if (gathers_narrow()) {
    writer_.builder().buffer("weights.transposed", 1, frees_weights() ? most_of(of_layer) : all,
                             products_);
    if (most > 0) {  // those that tensor ranks share are kept in the format of activations
      writer_.builder().buffer("weights.quantised", 1, most, products_);
    }
    return;
  }
  writer_.builder().buffer("weights.quantised", 2, casts_each_pass() ? most : all, products_);
}

void TransformerStage::quantise_layer(std::int64_t layer) {
  dequantise_layer(layer);
  if (casts_each_pass()) {
    quantise_unit(layer);
  }
}

void TransformerStage::quantise_unit(std::int64_t unit) {
  for (const auto& [name, use] : parameters_.uses()) {
    if (use.unit != unit || !is_narrow(name, use)) {
      continue;
    }
    const TensorId weight = parameter(name).weight;
    if (writer_.builder().tensor_at(weight).format != products_) {
      quantise("weights", weight);
    }
  }
}

/// Weights kept in a format that products do not read: each matrix into a temporary that does, in
/// every pass over it (QLoRA, arXiv 2305.14314, section 3).
void TransformerStage::dequantise_layer(std::int64_t layer) {
  const auto& frozen = job_.formats.frozen;
  if (!frozen || frozen == products_ || frozen == compute_) {
    return;
  }
  std::vector<TensorId> weights;
  std::int64_t largest = 0;  // of any layer
  double all = 0;
  for (const auto& [name, use] : parameters_.uses()) {
    const TensorId weight = parameter(name).weight;
    const Tensor& t = writer_.builder().tensor_at(weight);
    if (t.format != *frozen) {
      continue;
    }
    largest = std::max(largest, t.elements());
    if (use.unit == layer) {
      weights.push_back(weight);
      all += static_cast<double>(t.elements());
    }
  }
  const TensorId wide = writer_.workspace("weights.dequantised", 1, largest, compute_);
  auto op = writer_.compute(OpKind::kCast, "weights.dequantise", {std::llround(all)});
  op.in(weights).out({wide}).format(*frozen);
  op.work(Flops(2 * all), Bytes(all * bits_per_element(*frozen, 1 << 20) / 8),
          Bytes(all * bits_per_element(compute_) / 8));
}

void TransformerStage::norm_forward(const char* name, const std::string& parameter_name, TensorId x,
                                    TensorId y, TensorId statistics, bool narrow,
                                    const std::vector<TensorId>& more) {
  const TensorId gamma = parameter(parameter_name + ".gamma").weight;
  const std::int64_t rows = rows_of(statistics);
  std::vector<TensorId> in{x};
  in.insert(in.end(), more.begin(), more.end());
  in.push_back(gamma);
  if (gpt_) {
    in.push_back(parameter(parameter_name + ".beta").weight);
  }
  const Norm norm = gpt_ ? Norm::kLayerNorm : Norm::kRmsNorm;
  const std::int64_t columns = columns_of(gamma);
  auto op = writer_.compute(OpKind::kNormForward, name, {rows, columns});
  op.in(in).out({y, statistics}).attributes(NormAttributes{norm});
  set_narrow(y, narrow && fuses_quantise());
  if (holds_narrow(y)) {
    const double saved = (bits_per_element(compute_) - bits_per_element(products_, 1024)) / 8;
    op.work(op.op().flops, op.op().bytes_read,
            op.op().bytes_written - Bytes(static_cast<double>(rows * columns) * saved));
  }
}

/// Adds the residual branch's gradient in the same pass; uses the branch's gradient up.
void TransformerStage::norm_backward(const char* name, const std::string& parameter_name,
                                     const NormGradient& g) {
  // Several streams go around the block (residual_streams.cpp).
  const bool residual = g.residual != g.branch && shape_.model.residual_streams == 1;
  const TensorId gamma = parameter(parameter_name + ".gamma").weight;
  std::vector<TensorId> in{g.branch, g.input};
  in.insert(in.end(), g.more_inputs.begin(), g.more_inputs.end());
  in.insert(in.end(), {gamma, g.statistics});
  const bool trained = trains(parameter_name + ".gamma");
  std::vector<TensorId> out{g.out};
  out.insert(out.end(), g.more_outs.begin(), g.more_outs.end());
  if (trained) {
    out.push_back(parameter(parameter_name + ".gamma").gradient);
  }
  if (residual) {
    in.push_back(g.residual);
  }
  if (gpt_ && trained) {
    out.push_back(parameter(parameter_name + ".beta").gradient);
  }
  const Norm norm = gpt_ ? Norm::kLayerNorm : Norm::kRmsNorm;
  auto op =
      writer_.compute(OpKind::kNormBackward, name, {rows_of(g.statistics), columns_of(gamma)});
  op.in(in).out(out).attributes(NormAttributes{norm});
  if (residual) {
    op.work(op.op().flops, op.op().bytes_read * 1.5, op.op().bytes_written);
  }
}

/// Column sums only: the gradient itself stays as it is.
void TransformerStage::bias_gradient(const char* name, const std::string& parameter_name,
                                     TensorId gradient, std::int64_t rows, std::int64_t columns,
                                     const Masks& masks) {
  if (!trains(parameter_name)) {
    drop(name, gradient, masks, {});
    return;
  }
  std::vector<TensorId> in{gradient};
  in.insert(in.end(), masks.begin(), masks.end());
  auto op = writer_.compute(OpKind::kBiasActivationBackward, name, {rows, columns});
  op.in(in).out({gradient, parameter(parameter_name).gradient});
  op.attributes(ActivationAttributes{Activation::kNone});
  const Flops sums = op.op().flops * 0.5;
  const Bytes all = op.op().bytes_written;
  if (masks.empty()) {
    op.work(sums, all, {});
  } else {  // the gradient of the branch is masked first, then summed
    op.work(sums, all * 2 + Bytes(static_cast<double>(rows * columns)), all);
  }
}

/// Dropout by a kernel of its own: a byte of mask for each value. Nothing without masks.
void TransformerStage::drop(const char* name, TensorId values, const Masks& read,
                            const Masks& made) {
  if (read.empty() && made.empty()) {
    return;
  }
  std::vector<TensorId> in{values};
  in.insert(in.end(), read.begin(), read.end());
  std::vector<TensorId> out{values};
  out.insert(out.end(), made.begin(), made.end());
  const Bytes all = writer_.builder().tensor_at(values).bytes();
  const Bytes mask(static_cast<double>(shape_.rows * shape_.model.hidden));
  writer_.compute(OpKind::kAdd, name, {shape_.rows, shape_.model.hidden})
      .in(in)
      .out(out)
      .work({}, read.empty() ? all : all + mask, made.empty() ? all : all + mask);
}

void TransformerStage::add(const char* name, const StreamBlock& around, TensorId residual,
                           TensorId branch, const std::string& bias, TensorId out,
                           const Masks& masks) {
  if (!around.name.empty()) {
    leave(around, residual, branch, out);
    return;
  }
  std::vector<TensorId> in{residual, branch};
  if (gpt_) {
    in.push_back(parameter(bias).weight);
  }
  std::vector<TensorId> made{out};
  made.insert(made.end(), masks.begin(), masks.end());
  auto op = writer_.compute(OpKind::kAdd, name, {shape_.rows, shape_.model.hidden});
  op.in(in).out(made);
  if (!masks.empty()) {  // keeps a byte of mask per element
    const Bytes mask(static_cast<double>(shape_.rows * shape_.model.hidden));
    op.work(op.op().flops, op.op().bytes_read, op.op().bytes_written + mask);
  }
}

TransformerStage::Gathered TransformerStage::gathered(const char* name, TensorId part, Rows rows,
                                                      bool cut, Channel channel) {
  if (!shape_.sequence_parallel) {
    return {part, -1};
  }
  static const std::array<std::string, 6> kWorkspaces{// by Rows
                                                      "gathered",       "gathered.gradient",
                                                      "gathered.query", "gathered.latent",
                                                      "lora.gathered",  "gathered.gradient"};
  const bool is_gradient = rows != Rows::kInput;
  const bool of_layer = rows != Rows::kAdapter && rows != Rows::kEmbedding &&
                        (rows != Rows::kLatent || !shape_.projects_twice());  // of products
  if (deferring() && !is_gradient && !shape_.model.mla && !shape_.model.compressed &&
      !shape_.model.moe) {
    return {part, -1};  // gathered when its weight gradient is made
  }
  const std::int64_t tokens = rows_of(part) * shape_.tensor;
  const char* of_all =
      tokens == shape_.tokens ? "" : "head.";  // its rows are those of predictions too
  const TensorId whole = writer_.workspace(of_all + kWorkspaces.at(static_cast<std::size_t>(rows)),
                                           tokens, columns_of(part), compute_);
  if (is_gradient && of_layer && fuses_quantise()) {
    cast(std::string(name) + ".quantise", part, bits_per_element(compute_) / 8, 1);
    set_narrow(whole, true);
  } else {
    set_narrow(whole, holds_narrow(part));
  }
  OpWriter::Transfer t;
  t.kind = OpKind::kAllGather;
  t.name = name;
  t.elements = tokens * columns_of(part);
  t.in = {part};
  t.out = {whole};
  t.communicator = communicators_.tensor;
  t.format = holds_narrow(whole) ? products_ : compute_;
  if (!cut || !cuts_transfers()) {
    return {whole, writer_.transfer(channel, t), {}, part};
  }
  // A step around a ring moves what each of tensor - 1 equal parts of the gather moves.
  const std::int64_t steps = shape_.tensor - 1;
  t.elements = (t.elements + steps - 1) / steps;
  t.tag = steps;
  Gathered g{.tensor = whole, .own = part};
  for (std::int64_t step = 0; step < steps; ++step) {
    g.pieces.push_back(writer_.transfer(Channel::kTensorParts, t));
  }
  g.ready = g.pieces.back();
  return g;
}

TransformerStage::Gathered TransformerStage::gathered_for_product(const char* name, TensorId part,
                                                                  Rows rows) {
  return gathered(name, part, rows, true);
}

TransformerStage::Gathered TransformerStage::reduced(const char* name, TensorId partial,
                                                     const char* workspace) {
  if (shape_.tensor == 1) {
    return {partial, -1};
  }
  const std::int64_t columns = columns_of(partial);
  const std::int64_t tokens = rows_of(partial);
  const std::int64_t elements = tokens * columns;
  if (!shape_.sequence_parallel) {
    return {partial, reduce_in_place(name, partial, elements, Reduction::kSum)};
  }
  OpWriter::Transfer t;
  t.kind = OpKind::kReduceScatter;
  t.name = name;
  t.elements = elements;
  t.in = {partial};
  const char* of_all = tokens == shape_.tokens ? "" : "head.";
  t.out = {writer_.workspace(of_all + std::string(workspace), tokens / shape_.tensor, columns,
                             compute_)};
  t.communicator = communicators_.tensor;
  t.format = compute_;
  return {t.out.front(), writer_.transfer(Channel::kTensor, t)};
}

TransformerStage::Gathered TransformerStage::reduced(const char* name, const Product& p) {
  if (!cuts_transfers()) {
    gemm(p);
    return reduced(name, p.c);
  }
  if (is_narrow(p.place) && !holds_narrow(p.a)) {
    quantise(p.name, p.a);
  }
  // Rows of the other ranks first: they leave while the next are made, the own stay.
  const std::int64_t steps = shape_.tensor - 1;
  OpWriter::Transfer t;
  t.kind = OpKind::kReduceScatter;
  t.name = name;
  t.elements = (p.m * p.n + steps - 1) / steps;
  t.tag = steps;
  t.in = {p.c};
  t.out = {writer_.workspace("reduced", shape_.rows, p.n, compute_)};
  t.communicator = communicators_.tensor;
  t.format = compute_;
  OpWriter::Event last = -1;
  for (std::int64_t part = 0; part < shape_.tensor; ++part) {
    gemm_rows(p, p.m / shape_.tensor);
    last = part < steps ? writer_.transfer(Channel::kTensorParts, t) : last;
  }
  return {t.out.front(), last};
}

OpWriter::Event TransformerStage::reduce_in_place(const char* name, TensorId values,
                                                  std::int64_t elements, Reduction reduction) {
  OpWriter::Transfer t;
  t.name = name;
  t.elements = elements;
  t.in = t.out = {values};
  t.communicator = communicators_.tensor;
  t.format = writer_.builder().tensor_at(values).format;
  t.attributes.reduction = reduction;
  return writer_.transfer(Channel::kTensor, t);
}

TensorId TransformerStage::kept(bool keep, const std::string& name, std::int64_t rows,
                                std::int64_t columns, Format format) {
  std::string what = name.substr(name.find('.', name.find('.') + 1) + 1);  // without its layer
  return keep ? writer_.value(name, std::move(what), rows, columns, format)
              : writer_.workspace("recomputed." + what, rows, columns, format);
}

}  // namespace stepcast::workloads
