#include "workloads/transformer/stage.h"

// The second half of a layer with experts. Tokens are routed where their rows are; copies go to the
// ranks of their experts and come back:
//
//   norm -> router -> route -> dispatch -> [all-to-all] -> [gather over tensor ranks] -> [sort]
//        -> fc1 -> activation -> fc2
//        -> [sort] -> [reduce-scatter] -> [all-to-all] -> combine (+ shared experts) + residual
//
// Experts of latent vectors (MixtureOfExperts::latent) get and give rows that are projected to and
// from their width, whole on every tensor rank; router and shared experts read the rows themselves.
// With sequence parallelism the sum over tensor ranks happens among the copies; without it the
// combined rows are partial sums, to which the shared experts add before the usual reduction.
// With overlap.expert the exchanges have a stream of their own: the shared experts' first half runs
// overlapped with the dispatch to the routed experts and their second half with the combine
// (Megatron-LM's --moe-shared-expert-overlap), and with expert_chunks the copies travel in parts,
// so that experts work on one while the next is in transfer (Tutel, arXiv 2206.03382, section 3.2).
// Where a token goes to each machine once (ExpertDispatch::kPerMachine) rows leave as they are and
// are copied for their experts where they arrive; what those made of a row is summed up there:
//
//   norm -> router -> route -> [exchange] -> dispatch -> experts -> combine -> [exchange] ->
//   combine
namespace stepcast::workloads {

using op_flags::kAccumulate;
using op_flags::kTransposeA;
using op_flags::kTransposeB;

TransformerStage::ExpertTensors TransformerStage::expert_tensors(std::int64_t layer,
                                                                 const std::string& at, bool keep) {
  const ExpertShape& e = *shape_.experts;
  const std::int64_t h = e.width;
  const std::int64_t experts = shape_.model.moe->experts;
  ExpertTensors t;
  if (has_latent_experts()) {
    t.latent = kept(keep && !job_.lora, at + "moe.latent", shape_.rows, h, compute_);
    t.combined = kept(keep && !job_.lora, at + "moe.combined", shape_.rows, h, compute_);
  }
  t.routing = add_routing(layer);
  t.logits = kept(keep, at + "moe.logits", shape_.rows, experts, Format::kFp32);
  t.probabilities = kept(keep, at + "moe.probabilities", shape_.rows, experts, Format::kFp32);
  t.input = kept(keep && !job_.lora, at + "moe.input", e.computed_room, h, compute_);
  t.fc1 = kept(keep, at + "moe.fc1", e.computed_room, e.fc1_width, activation_);
  t.activated = kept(keep && !job_.lora, at + "moe.activated", e.computed_room, e.ffn, compute_);
  if (weighs_apart()) {
    t.unweighted = kept(keep, at + "moe.unweighted", e.computed_room, e.ffn, compute_);
  }
  t.output = kept(keep && !traits_.probabilities_inside, at + "moe.output",
                  e.once ? e.computed_room : e.sent_room, h, compute_);
  if (e.shared_ffn > 0) {
    const std::int64_t width = e.shared_ffn * (shape_.model.gated() ? 2 : 1);
    t.shared_fc1 = kept(keep, at + "moe.shared.fc1", shape_.tokens, width, activation_);
    t.shared_activated =
        kept(keep, at + "moe.shared.activated", shape_.tokens, e.shared_ffn, compute_);
  }
  return t;
}

/// Routing of the tokens of a layer: its first part, the others follow.
std::int32_t TransformerStage::add_routing(std::int64_t layer) {
  const ExpertShape& e = *shape_.experts;
  ExpertRouting routing;
  routing.layer = layer;
  routing.parts = e.chunks;
  routing.rows = shape_.rows;
  routing.capacity = e.capacity;
  routing.split = e.split();
  routing.gathers = e.gathers;
  routing.draw = e.draw;
  const std::int32_t first = writer_.builder().routing(routing);
  while (++routing.part < e.chunks) {
    writer_.builder().routing(routing);
  }
  return first;
}

TransformerStage::FeedForward TransformerStage::shared_experts(const std::string& at,
                                                               const ExpertTensors& t) const {
  return {"layer.moe.shared",
          at + "moe.shared",
          t.shared_fc1,
          t.shared_activated,
          shape_.experts->shared_ffn,
          false,
          experts_apart() ? std::uint8_t{0} : kAccumulate};
}

/// True if routed rows have a tensor of their own, whole on their rank.
bool TransformerStage::experts_apart() const {
  return shape_.sequence_parallel || (hides_exchanges() && shape_.tensor == 1);
}

/// True if shared experts work while rows are on their way.
bool TransformerStage::hides_exchanges() const {
  return job_.parallel.overlap.expert && !experts_are_near();
}

/// True if rows go through anything on their way to the experts.
bool TransformerStage::experts_are_near() const {
  return shape_.experts->ranks == 1 && !shape_.experts->gathers;
}

/// The experts' activation or its gradient, on a part of the copies. Where each row is multiplied
/// by its probability here, or by kNone alone, it reads that, and its gradient makes that of the
/// probability.
void TransformerStage::activate_experts(OpKind kind, const char* name, Activation activation,
                                        std::vector<TensorId> in, std::vector<TensorId> out,
                                        const ExpertTensors& x, std::int64_t part) {
  const ExpertShape& e = *shape_.experts;
  const bool backward = kind == OpKind::kActivationBackward;
  const bool weighs =
      traits_.probabilities_inside && (activation == Activation::kNone || !weighs_apart());
  const std::int64_t rows = e.part(e.computed, part);
  if (weighs) {
    in.push_back(x.probabilities);
  }
  if (weighs && backward) {
    out.push_back(probability_gradient());
  }
  auto op = writer_.compute(kind, name, {rows, e.ffn});
  op.in(in)
      .out(out)
      .attributes(ActivationAttributes{activation})
      .routing(routing_ + static_cast<std::int32_t>(part));
  if (weighs) {
    const Bytes all(4 * static_cast<double>(rows));
    op.work(op.op().flops, op.op().bytes_read + all,
            op.op().bytes_written + (backward ? all : Bytes(0)));
  }
}

TensorId TransformerStage::probability_gradient() {
  return writer_.workspace("moe.gradient.logits", shape_.rows, shape_.model.moe->experts,
                           Format::kFp32);
}

/// From gradients of rows, at hand or received, to those of their copies, `rows` of them; unless
/// experts' activations have done so, to those of the copies' probabilities too.
void TransformerStage::combine_gradient(std::int64_t rows, TensorId from, TensorId to,
                                        const ExpertTensors& x, std::int64_t part) {
  const bool inside = traits_.probabilities_inside;
  auto op = writer_.compute(inside ? OpKind::kDispatchForward : OpKind::kCombineBackward,
                            "layer.moe.combine_gradient", {rows, shape_.experts->width});
  if (inside) {
    op.in({from, x.probabilities}).out({to});
  } else {
    op.in({from, x.output, x.probabilities}).out({to, probability_gradient()});
  }
  op.routing(routing_ + static_cast<std::int32_t>(part));
}

/// Through both products of the experts here, on a part of the copies.
void TransformerStage::expert_products_forward(const std::string& at, const LayerTensors& t,
                                               TensorId made, std::int64_t part) {
  const ExpertShape& e = *shape_.experts;
  const ExpertTensors& x = t.experts;
  const std::int64_t h = e.width;
  Product fc1{
      "layer.moe.fc1", 0, e.fc1_width, h, x.input, parameter(at + "moe.fc1.weight").weight, x.fc1};
  const auto activate = [&] {
    activate_experts(OpKind::kActivationForward, "layer.moe.activation", shape_.model.activation,
                     {x.fc1}, {weighs_apart() ? x.unweighted : x.activated}, x, part);
    if (weighs_apart()) {
      activate_experts(OpKind::kActivationForward, "layer.moe.weigh", Activation::kNone,
                       {x.unweighted}, {x.activated}, x, part);
    }
  };
  if (activates_in_products()) {
    expert_gemm(fc1, part, {.out = {x.activated}, .written = e.ffn});
  } else {
    fc1.c = computed(x.fc1);
    expert_gemm(fc1, part);
    keep("layer.moe.fc1.keep", fc1.c, x.fc1, e.part(e.computed, part));
    writer_.part(LayerPart::kExpertActivation, t.layer, activate, part);
  }
  expert_gemm(
      {"layer.moe.fc2", 0, h, e.ffn, x.activated, parameter(at + "moe.fc2.weight").weight, made},
      part);
}

void TransformerStage::routed_forward(const std::string& at, const LayerTensors& t, TensorId output,
                                      const OverlappedWork& beside) {
  const TransformerWorkload& m = shape_.model;
  const ExpertShape& e = *shape_.experts;
  const ExpertTensors& x = t.experts;
  const std::int64_t h = e.width;
  const std::int64_t n = shape_.rows;
  routing_ = x.routing;
  gemm(product(router(at), t.norm2, x.logits));
  writer_.compute(OpKind::kRouteForward, "layer.moe.route", {n, m.moe->experts, m.moe->per_token})
      .in({x.logits})
      .out({x.probabilities})
      .format(Format::kFp32)
      .routing(routing_);
  const TensorId rows_in = has_latent_experts() ? x.latent : t.norm2;
  if (has_latent_experts()) {
    gemm(product(whole_linear("layer.moe.latent_down", at + "moe.latent_down"), t.norm2, x.latent));
  }
  const TensorId copies = e.once ? rows_in
                          : experts_are_near()
                              ? x.input
                              : writer_.workspace("moe.copies", e.sent_room, h, compute_);
  if (!e.once) {
    writer_.compute(OpKind::kDispatchForward, "layer.moe.dispatch", {e.sent, h})
        .in({rows_in, x.probabilities})
        .out({copies})
        .routing(routing_);
  }
  const TensorId made = experts_are_near() || e.once
                            ? x.output
                            : writer_.workspace("moe.rows", e.computed_room, h, compute_);
  const TensorId returned = e.once ? rows_returned() : x.output;
  if (traits_.synchronous_routing && e.ranks > 1) {
    writer_.synchronise_host();
  }
  const auto arrived = send_copies("layer.moe.dispatch", copies, x.input);
  beside.there();
  std::vector<OpWriter::Event> back;
  for (std::int64_t part = 0; part < e.chunks; ++part) {
    const std::int64_t rows = e.part(e.computed, part);
    writer_.await(arrived.empty() ? -1 : arrived[static_cast<std::size_t>(part)]);
    if (e.once && !permutes_in_exchange()) {
      writer_.compute(OpKind::kDispatchForward, "layer.moe.dispatch", {rows, h})
          .in({received(x.input), x.probabilities})
          .out({x.input})
          .routing(routing_ + static_cast<std::int32_t>(part));
    } else if (!e.once) {
      to_experts("layer.moe.dispatch", copies, x.input, part);
    }
    expert_products_forward(at, t, made, part);
    if (e.once && !permutes_in_exchange()) {
      writer_
          .compute(OpKind::kCombineForward, "layer.moe.combine_here",
                   {e.part(e.once->received, part), h, rows})
          .in({made, x.probabilities})
          .out({received(x.input)})
          .routing(routing_ + static_cast<std::int32_t>(part));
    }
    back.push_back(from_experts("layer.moe.combine", made, returned, part));
  }
  beside.back();
  writer_.await(back.back());  // parts arrive in order
  writer_
      .compute(OpKind::kCombineForward, "layer.moe.combine",
               {n, h, e.once ? e.once->returned : e.sent})
      .in({returned, x.probabilities})
      .out({has_latent_experts() ? x.combined : output})
      .routing(routing_);
  if (has_latent_experts()) {
    gemm(product(whole_linear("layer.moe.latent_up", at + "moe.latent_up"), x.combined, output));
  }
}

void TransformerStage::experts_forward(const std::string& at, const LayerTensors& t,
                                       TensorId output) {
  const ExpertShape& e = *shape_.experts;
  const std::int64_t h = shape_.model.hidden;
  const TensorId partial = writer_.workspace("partial", shape_.tokens, h, compute_);
  const bool apart = experts_apart();
  const TensorId routed =
      apart ? writer_.workspace("moe.routed", shape_.rows, h, compute_) : partial;
  const auto add_rows = [&](const char* name, TensorId a, TensorId b, TensorId out) {
    writer_.compute(OpKind::kAdd, name, {shape_.rows, h}).in({a, b}).out({out});
  };
  const bool shares = e.shared_ffn > 0;
  const auto shared_in = [&] {
    mlp_in(shared_experts(at, t.experts),
           gathered("layer.moe.shared.gather", t.norm2, Rows::kInput));
  };
  const auto shared_out = [&] { mlp_out(shared_experts(at, t.experts), partial); };
  if (shares && hides_exchanges()) {
    routed_forward(at, t, routed, {shared_in, shared_out});
  } else {
    routed_forward(at, t, routed, {});
    if (shares) {
      shared_in();
      shared_out();
    }
  }
  const bool streams = !t.second.name.empty();
  if (!apart || e.shared_ffn > 0) {
    const Gathered sum = reduced("layer.moe.reduce", partial);
    writer_.await(sum.ready);
    if (streams && apart) {
      add_rows("layer.moe.add_shared", routed, sum.tensor, routed);
    } else if (streams) {
      leave(t.second, t.middle, sum.tensor, output);
    } else {
      add_rows("layer.moe.add", t.middle, sum.tensor, output);
    }
  }
  if (apart && streams) {
    leave(t.second, t.middle, routed, output);
  } else if (apart) {
    add_rows("layer.moe.add_routed", e.shared_ffn > 0 ? output : t.middle, routed, output);
  }
}

/// Through both products of the experts here, on a part of the copies, in place of their gradients.
void TransformerStage::expert_products_backward(const std::string& at, const LayerTensors& t,
                                                TensorId rows, std::int64_t part) {
  const ExpertShape& e = *shape_.experts;
  const ExpertTensors& x = t.experts;
  const std::int64_t h = e.width;
  const auto& fc1 = parameter(at + "moe.fc1.weight");
  const auto& fc2 = parameter(at + "moe.fc2.weight");
  const TensorId d_activated =
      writer_.workspace("moe.gradient.activated", e.computed_room, e.ffn, compute_);
  const TensorId d_fc1 =
      writer_.workspace("moe.gradient.fc1", e.computed_room, e.fc1_width, compute_);
  Product fc2_input{
      "layer.moe.fc2_input_gradient", 0, e.ffn, h, rows, fc2.weight, d_activated, kTransposeB};
  if (activates_in_products()) {
    fc2_input.c = d_fc1;
    InProduct activation{.in = {x.fc1}, .read = e.fc1_width, .written = e.fc1_width - e.ffn};
    if (traits_.probabilities_inside) {
      activation.out = {probability_gradient()};
    }
    expert_gemm(fc2_input, part, activation);
  } else {
    expert_gemm(fc2_input, part);
  }
  writer_.needs(LayerPart::kExpertActivation, t.layer, part);
  expert_gemm({"layer.moe.fc2_weight_gradient", e.ffn, h, 0, x.activated, rows, fc2.gradient,
               kTransposeA | kAccumulate},
              part);
  if (!activates_in_products()) {
    const TensorId made = computed(x.fc1);
    keep("layer.moe.fc1.read", x.fc1, made, e.part(e.computed, part));
    if (weighs_apart()) {
      activate_experts(OpKind::kActivationBackward, "layer.moe.weigh_gradient", Activation::kNone,
                       {d_activated, x.unweighted}, {d_activated}, x, part);
    }
    activate_experts(OpKind::kActivationBackward, "layer.moe.activation_gradient",
                     shape_.model.activation, {d_activated, made}, {d_fc1}, x, part);
  }
  expert_gemm(
      {"layer.moe.fc1_input_gradient", 0, h, e.fc1_width, d_fc1, fc1.weight, rows, kTransposeB},
      part);
  expert_gemm({"layer.moe.fc1_weight_gradient", h, e.fc1_width, 0, x.input, d_fc1, fc1.gradient,
               kTransposeA | kAccumulate},
              part);
}

/// From the gradient of the experts' weights to that of the router and its input.
void TransformerStage::router_backward(const std::string& at, const LayerTensors& t,
                                       TensorId weights, TensorId input_gradient) {
  const ExpertTensors& x = t.experts;
  writer_
      .compute(OpKind::kRouteBackward, "layer.moe.route_gradient",
               {shape_.rows, shape_.model.moe->experts, shape_.model.moe->per_token})
      .in({x.logits, x.probabilities, weights})
      .out({weights})
      .format(Format::kFp32)
      .routing(routing_);
  both_gradients(router(at), t.norm2, weights, input_gradient, kAccumulate);
}

/// Gradient of what experts of latent vectors made of a row; without them as it is.
TensorId TransformerStage::latent_up_backward(const std::string& at, const ExpertTensors& x,
                                              TensorId output_gradient) {
  if (!has_latent_experts()) {
    return output_gradient;
  }
  const TensorId d_latent =
      writer_.workspace("moe.gradient.latent", shape_.rows, shape_.experts->width, compute_);
  both_gradients(whole_linear("layer.moe.latent_up", at + "moe.latent_up"), x.combined,
                 output_gradient, d_latent);
  return d_latent;
}

/// From the gradient of what the experts of this rank's tokens made to that of the norm's output,
/// as far as it comes through the routed experts and the router.
void TransformerStage::routed_backward(const std::string& at, const LayerTensors& t,
                                       TensorId output_gradient, TensorId input_gradient,
                                       const OverlappedWork& beside) {
  const ExpertShape& e = *shape_.experts;
  const ExpertTensors& x = t.experts;
  const std::int64_t h = e.width;
  const std::int64_t n = shape_.rows;
  routing_ = x.routing;
  const TensorId d_output = latent_up_backward(at, x, output_gradient);
  const TensorId copies =
      e.once ? rows_returned() : writer_.workspace("moe.copies", e.sent_room, h, compute_);
  const TensorId rows =
      experts_are_near() ? copies : writer_.workspace("moe.rows", e.computed_room, h, compute_);
  if (!e.once) {
    combine_gradient(e.sent, d_output, copies, x, 0);
  }
  const auto arrived = send_copies("layer.moe.combine_gradient", e.once ? d_output : copies, rows);
  beside.there();
  std::vector<OpWriter::Event> back;
  for (std::int64_t part = 0; part < e.chunks; ++part) {
    const std::int64_t own = e.part(e.computed, part);
    writer_.await(arrived.empty() ? -1 : arrived[static_cast<std::size_t>(part)]);
    if (e.once && !(permutes_in_exchange() && traits_.probabilities_inside)) {
      combine_gradient(own, received(rows), rows, x, part);
    } else if (!e.once) {
      to_experts("layer.moe.combine_gradient", copies, rows, part);
    }
    expert_products_backward(at, t, rows, part);
    if (e.once && !permutes_in_exchange()) {
      writer_
          .compute(OpKind::kDispatchBackward, "layer.moe.dispatch_gradient_here",
                   {e.part(e.once->received, part), h, own})
          .in({rows, x.probabilities})
          .out({received(rows)})
          .routing(routing_ + static_cast<std::int32_t>(part));
    }
    back.push_back(from_experts("layer.moe.dispatch_gradient", rows, copies, part));
  }
  beside.back();
  writer_.await(back.back());  // parts arrive in order
  writer_
      .compute(OpKind::kDispatchBackward, "layer.moe.dispatch_gradient",
               {n, h, e.once ? e.once->returned : e.sent})
      .in({copies, x.probabilities})
      .out({has_latent_experts() ? d_output : input_gradient})
      .routing(routing_);
  if (has_latent_experts()) {
    both_gradients(whole_linear("layer.moe.latent_down", at + "moe.latent_down"), t.norm2, d_output,
                   input_gradient);
  }
  router_backward(at, t, probability_gradient(), input_gradient);
}

/// From the gradient of the layer's output to that of its middle.
void TransformerStage::experts_backward(const std::string& at, const LayerTensors& t,
                                        TensorId output_gradient, TensorId d_middle) {
  const ExpertShape& e = *shape_.experts;
  const std::int64_t h = shape_.model.hidden;
  const TensorId partial = writer_.workspace("partial", shape_.tokens, h, compute_);
  const bool apart = experts_apart();
  const TensorId routed =
      apart ? writer_.workspace("moe.routed", shape_.rows, h, compute_) : partial;
  writer_.needs(LayerPart::kSecondNorm, t.layer);
  Gathered d_norm{routed, -1};
  Gathered shared;
  Gathered y;
  const auto shared_out = [&] {
    const Gathered dy =
        gathered("layer.moe.shared.gather_gradient", output_gradient, Rows::kGradient);
    y = gathered("layer.moe.shared.gather", t.norm2, Rows::kInput);
    mlp_out_backward(shared_experts(at, t.experts), dy);
  };
  const auto shared_in = [&] {
    shared = mlp_in_backward(shared_experts(at, t.experts), y, partial);
  };
  if (e.shared_ffn > 0) {
    if (hides_exchanges()) {
      routed_backward(at, t, output_gradient, routed, {shared_out, shared_in});
    } else {
      routed_backward(at, t, output_gradient, routed, {});
      shared_out();
      shared_in();
    }
    d_norm = shared;
    writer_.await(d_norm.ready);
    if (apart) {
      writer_.compute(OpKind::kAdd, "layer.moe.add_gradient", {shape_.rows, h})
          .in({d_norm.tensor, routed})
          .out({routed});
      d_norm.tensor = routed;
    }
  } else {
    routed_backward(at, t, output_gradient, routed, {});
    if (!apart) {
      d_norm = reduced("layer.moe.reduce_gradient", partial);
      writer_.await(d_norm.ready);
    }
  }
  norm_backward(
      "layer.norm2_gradient", at + "norm2",
      {d_norm.tensor, entered(t.second, t.middle), t.norm2_statistics, output_gradient, d_middle});
}

}  // namespace stepcast::workloads
