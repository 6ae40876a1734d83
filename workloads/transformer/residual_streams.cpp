#include "workloads/transformer/stage.h"

// Several residual streams (hyper-connections, Zhu et al., arXiv 2409.19606; with mappings between
// streams made doubly stochastic, Xie et al., arXiv 2512.24880). A matrix makes m (m + 2) numbers
// of a token's m streams x: A, with which the block's input is a sum of streams, B, with which its
// output y is added to each, and C, which mixes them:
//
//   enter: u = A x     block: y = f(norm(u))     leave: x' = C x + B y
//
// Memory decides, so passes are counted by the streams that they read and write, as the fused
// kernels of section 4.3 there do: enter 2 m + 1 (the numbers first, then the sum), leave 2 m + 1,
// backwards 2 m + 2 and 3 m + 1. A layer keeps its streams and the outputs of its blocks; what is
// between them is made again. The products that make the numbers count no FLOPs of the
// model.
namespace stepcast::workloads {

/// A pass over rows that reads and writes so many vectors of the hidden width of each.
void TransformerStage::pass_over_streams(const char* name, const std::vector<TensorId>& in,
                                         const std::vector<TensorId>& out, std::int64_t read,
                                         std::int64_t written) {
  const double each = bits_per_element(compute_) / 8;
  pass_over(name, shape_.rows, shape_.model.hidden, in, out, static_cast<double>(read) * each,
            static_cast<double>(written) * each);
}

void TransformerStage::add_stream_parameters(const std::string& name, std::int64_t mappings,
                                             std::int64_t scales,
                                             std::vector<ParameterSpec>& specs) const {
  if (shape_.model.residual_streams == 1) {
    return;
  }
  add_whole_matrix(name + ".weight", shape_.residual(), mappings, specs);
  specs.back().of_product = false;
  specs.back().matrices = 1;
  add_norm(name + ".scales", mappings + scales, specs);
}

TransformerStage::StreamBlock TransformerStage::stream_block(const std::string& at,
                                                             const char* site) {
  StreamBlock b;
  if (shape_.model.residual_streams > 1) {
    b.name = at + "streams." + site;
    b.left_gradient = std::string("gradient.streams.") + site;
    b.left = kept(true, at + site + ".output", shape_.rows, shape_.model.hidden, compute_);
    b.entered = writer_.workspace(std::string("streams.") + site, shape_.rows, shape_.model.hidden,
                                  compute_);
  }
  return b;
}

/// The block's input.
TensorId TransformerStage::enter(const StreamBlock& b, TensorId streams) {
  if (b.name.empty()) {
    return streams;
  }
  pass_over_streams(
      "layer.streams.enter",
      {streams, parameter(b.name + ".weight").weight, parameter(b.name + ".scales").weight},
      {b.entered}, 2 * shape_.model.residual_streams, 1);
  return b.entered;
}

void TransformerStage::leave(const StreamBlock& b, TensorId streams, TensorId branch,
                             TensorId output) {
  pass_over_streams("layer.streams.leave", {streams, branch}, {output, b.left},
                    shape_.model.residual_streams + 1, shape_.model.residual_streams);
}

/// The streams between a layer's blocks and what enters them, made again for its backward pass.
void TransformerStage::streams_again(const LayerTensors& t) {
  if (shape_.model.residual_streams == 1 || recomputes(t.layer)) {
    return;
  }
  if (!t.first.name.empty()) {
    enter(t.first, t.input);
  }
  if (!t.first.name.empty() && !t.second.name.empty()) {
    leave(t.first, t.input, t.first.left, t.middle);
  }
  const Recompute& r = job_.parallel.recompute;
  const bool recomputed = r.kind == RecomputeKind::kSelective && r.modules.feed_forward &&
                          t.kind.feed_forward == FeedForwardKind::kDense;
  if (!t.second.name.empty() && !recomputed) {
    enter(t.second, t.middle);
  }
}

/// True if the layer's ops are repeated in its backward pass (passes/recompute.cpp).
bool TransformerStage::recomputes(std::int64_t layer) const {
  const Recompute& r = job_.parallel.recompute;
  std::int64_t before = 0;
  for (std::int64_t chunk = 0; chunk < shape_.chunks; ++chunk) {
    const LayerRange& range = shape_.range(stage_, chunk);
    if (layer >= range.first && layer < range.first + range.count) {
      before += layer - range.first;
      break;
    }
    before += range.count;
  }
  return r.kind == RecomputeKind::kFull ||
         (r.kind == RecomputeKind::kFirstLayers && before < r.layers) ||
         (r.kind == RecomputeKind::kSelective && traits_.selective_per_op);
}

void TransformerStage::around_block(
    const StreamBlock& b, TensorId streams, TensorId output_gradient, TensorId input_gradient,
    const std::function<void(TensorId output, TensorId input)>& block) {
  if (b.name.empty()) {
    block(output_gradient, input_gradient);
    return;
  }
  const std::int64_t m = shape_.model.residual_streams;
  const std::int64_t h = shape_.model.hidden;
  const TensorId d_left = gradient(b.left_gradient, shape_.rows, h);
  const TensorId d_entered =
      writer_.workspace("gradient.streams.entered", shape_.rows, h, compute_);
  const auto& weight = parameter(b.name + ".weight");
  const auto& scales = parameter(b.name + ".scales");
  pass_over_streams("layer.streams.leave_gradient", {output_gradient, streams, b.left}, {d_left},
                    2 * m + 1, 1);
  block(d_left, d_entered);
  pass_over_streams("layer.streams.enter_gradient",
                    {output_gradient, streams, d_entered, weight.weight, scales.weight},
                    {input_gradient, weight.gradient, scales.gradient}, 2 * m + 1, m);
}

/// A copy of the embedding in each stream.
void TransformerStage::spread(TensorId embedded, TensorId streams) {
  pass_over_streams("embedding.streams", {embedded}, {streams}, 1, shape_.model.residual_streams);
}

TensorId TransformerStage::spread_backward(TensorId streams) {
  if (shape_.model.residual_streams == 1) {
    return streams;
  }
  const TensorId sum =
      writer_.workspace("embedding.streams", shape_.rows, shape_.model.hidden, compute_);
  pass_over_streams("embedding.streams_gradient", {streams}, {sum}, shape_.model.residual_streams,
                    1);
  return sum;
}

}  // namespace stepcast::workloads
