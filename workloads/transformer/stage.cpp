#include "workloads/transformer/stage.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "workloads/schedule/schedule.h"

// The step of one stage: which segments there are and in which order they are called.
namespace stepcast::workloads {

TransformerStage::TransformerStage(const Job& job, const TransformerShape& shape,
                                   const TransformerCommunicators& communicators,
                                   std::int32_t stage, Format products)
    : job_(job),
      shape_(shape),
      communicators_(communicators),
      stage_(stage),
      writer_(job.formats.compute),
      parameters_(writer_, job),
      compute_(job.formats.compute),
      products_(products),
      attention_(traits_.fp8_attention ? Format::kFp8 : compute_),
      activation_(shape.inference ? compute_ : job.formats.activation.value_or(compute_)),
      cached_(job.formats.cache.value_or(attention_)),
      gpt_(!shape.model.llama_style()),
      splits_(splits_weights(job.parallel.schedule)) {}

OpWriter::Written TransformerStage::write() && {
  writer_.builder().set_microbatches(static_cast<std::int32_t>(shape_.microbatches));
  declare_parameters();
  plan_tensors();
  call_in_order();
  return std::move(writer_).finish();
}

void TransformerStage::plan_tensors() {
  ProgramBuilder& b = writer_.builder();
  const std::int64_t h = shape_.residual();
  const auto carried = [&](const char* name) {
    const TensorId id = writer_.workspace(name, shape_.rows, h, compute_);
    b.set_purpose(id, TensorPurpose::kCarried);
    return id;
  };
  for (std::int64_t chunk = 0; chunk < shape_.chunks; ++chunk) {
    const LayerRange& range = shape_.range(stage_, chunk);
    const auto residual = [&](const std::string& name) {
      return b.activation(name, shape_.rows, h, compute_);
    };
    ChunkTensors c;
    TensorId next = c.input =
        follows_own(chunk) ? chunks_.back().output : residual(fmt::format("chunk.{}.input", chunk));
    for (std::int64_t i = 0; i < range.count; ++i) {
      LayerTensors layer = layer_tensors(range.first + i);
      layer.input = next;
      if (layer.kind.mixer == MixerKind::kNone) {
        layer.middle = layer.input;
      }
      next = shape_.inference && i + 1 < range.count
                 ? carried(i % 2 == 0 ? "residual.0" : "residual.1")
                 : residual(fmt::format("layer.{}.output", range.first + i));
      c.layers.push_back(layer);
    }
    c.output = next;
    const auto message = [&](const char* which) {
      return residual(fmt::format("chunk.{}.{}_gradient", chunk, which));
    };
    if (range.count == 0) {  // what the head makes is sent, what comes is the embedding's
      c.output_gradient = c.input_gradient = message(has_head(chunk) ? "input" : "output");
    } else {
      const TensorId gradient = carried("gradient");
      c.output_gradient = has_head(chunk) && !splits_ ? gradient : message("output");
      c.input_gradient = has_embedding(chunk) ? gradient
                         : follows_own(chunk) ? chunks_.back().output_gradient
                                              : message("input");
    }
    if (has_embedding(chunk) && dropout()) {
      ends_.embedding_mask =
          b.activation("embedding.mask", shape_.rows, shape_.model.hidden, Format::kInt8);
    }
    if (has_head(chunk)) {
      plan_predictions(c.output);
      plan_head();
    }
    chunks_.push_back(std::move(c));
  }
}

/// Messages between two stages are identified by the receiving chunk and the direction; within
/// those, micro-batches go in order.
void TransformerStage::send(const char* name, TensorId tensor, std::int64_t to, bool forward,
                            OpWriter::Event after) {
  OpWriter::Transfer t;
  t.kind = OpKind::kSend;
  t.name = name;
  t.elements = shape_.rows * shape_.residual() / (scatter_gather() ? shape_.tensor : 1);
  t.tag = 2 * shape_.stages.chunk_of(to) + (forward ? 0 : 1);
  t.in = {tensor};
  t.communicator = forward ? communicators_.forward : communicators_.backward;
  t.peer = static_cast<std::int32_t>(shape_.stages.stage_of(to));
  t.format = compute_;
  t.after = after;
  writer_.transfer(forward ? Channel::kForward : Channel::kBackward, t);
}

void TransformerStage::receive(const char* name, TensorId tensor, std::int64_t to, bool forward,
                               std::optional<TensorId> kept) {
  const std::int64_t from = forward ? to - 1 : to + 1;
  OpWriter::Transfer t;
  t.kind = OpKind::kRecv;
  t.name = name;
  t.elements = shape_.rows * shape_.residual() / (scatter_gather() ? shape_.tensor : 1);
  t.tag = 2 * shape_.stages.chunk_of(to) + (forward ? 0 : 1);
  t.out = {tensor};
  if (kept) {
    t.in = {*kept};
  }
  t.communicator = forward ? communicators_.forward : communicators_.backward;
  t.peer = static_cast<std::int32_t>(shape_.stages.stage_of(from));
  t.format = compute_;
  t.after_compute = false;
  writer_.await(writer_.transfer(forward ? Channel::kForward : Channel::kBackward, t));
  if (traits_.synchronous_messages && !job_.parallel.overlap.pipeline) {
    writer_.synchronise_host();
  }
  if (scatter_gather()) {
    OpWriter::Transfer gather;
    gather.kind = OpKind::kAllGather;
    gather.name = "pipeline.gather";
    gather.elements = shape_.rows * shape_.residual();
    gather.in = gather.out = {tensor};
    gather.communicator = communicators_.tensor;
    gather.format = compute_;
    writer_.await(writer_.transfer(Channel::kTensor, gather));
  }
}

void TransformerStage::write_begin() {
  const std::int64_t last = shape_.stages.stage_of(shape_.stages.count() - 1);
  const bool reads_tokens = stage_ == 0 || stage_ == last;
  writer_.set_phase(Phase::kInput);
  if (reads_tokens) {
    const std::int64_t further = 1 + shape_.predictions;
    const std::int64_t tokens = shape_.microbatches * shape_.samples * (shape_.sequence + further);
    writer_.compute(OpKind::kLoadBatch, "batch.load", {4 * tokens}).format(Format::kInt32);
  }
  quantise_weights();
}

std::uint32_t TransformerStage::write_forward(std::int64_t chunk) {
  const ChunkTensors& c = chunks_[static_cast<std::size_t>(chunk)];
  const LayerRange& range = shape_.range(stage_, chunk);
  const std::uint32_t segment =
      writer_.begin_segment(fmt::format("forward.{}", chunk), SegmentKind::kForward);
  writer_.set_phase(Phase::kForward);
  OpWriter::Event looked_up = -1;
  if (has_embedding(chunk)) {
    writer_.uses_weights(kEmbeddingUnit);
    if (shape_.model.residual_streams > 1) {
      const TensorId rows =
          writer_.workspace("embedding.streams", shape_.rows, shape_.model.hidden, compute_);
      embedding_forward(rows, false);
      spread(rows, c.input);
    } else {
      looked_up = embedding_forward(c.input, range.count == 0);
    }
  } else if (!follows_own(chunk)) {
    receive("pipeline.receive", c.input, virtual_stage(chunk), true);
  }
  for (std::int64_t i = 0; i < range.count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const TensorId output = at + 1 < c.layers.size() ? c.layers[at + 1].input : c.output;
    writer_.uses_weights(range.first + i);
    quantise_layer(range.first + i);
    writer_.part(LayerPart::kLayer, range.first + i, [&] { layer_forward(c.layers[at], output); });
  }
  writer_.builder().set_layer(kNoLayer);
  if (has_head(chunk)) {
    predictions_forward();
    if (head_unit() == kHeadUnit) {
      writer_.uses_weights(kHeadUnit);
    }
    head_forward(c.output);
  } else if (!precedes_own(chunk)) {
    send("pipeline.send", c.output, virtual_stage(chunk) + 1, true, looked_up);
  }
  writer_.end_segment();
  return segment;
}

std::uint32_t TransformerStage::write_backward(std::int64_t chunk) {
  const ChunkTensors& c = chunks_[static_cast<std::size_t>(chunk)];
  const LayerRange& range = shape_.range(stage_, chunk);
  const std::uint32_t segment =
      writer_.begin_segment(fmt::format("backward.{}", chunk), SegmentKind::kBackward);
  writer_.set_phase(Phase::kBackward);
  deferred_.clear();
  if (has_head(chunk)) {
    writer_.adds_gradients(head_unit());
    head_backward(c.output, c.output_gradient);
    predictions_backward(c.output_gradient);
  } else if (!precedes_own(chunk)) {
    receive("pipeline.receive_gradient", c.output_gradient, virtual_stage(chunk), false,
            traits_.keeps_outputs ? std::optional(c.output) : std::nullopt);
  }
  TensorId from = c.output_gradient;
  for (std::int64_t i = range.count - 1; i >= 0; --i) {
    writer_.uses_weights(range.first + i);
    quantise_layer(range.first + i);
    writer_.adds_gradients(range.first + i);
    scope_ = fmt::format("layer.{}.input_", range.first + i);
    const TensorId to =
        i == 0 ? c.input_gradient : gradient("gradient", shape_.rows, shape_.residual());
    scope_.clear();
    layer_backward(c.layers[static_cast<std::size_t>(i)], from, to);
    from = to;
  }
  writer_.builder().set_layer(kNoLayer);
  if (has_embedding(chunk)) {
    if (!has_head(chunk) || head_unit() != kEmbeddingUnit) {
      writer_.adds_gradients(kEmbeddingUnit);
    }
    embedding_backward(spread_backward(c.input_gradient));
  } else if (!follows_own(chunk)) {
    send("pipeline.send_gradient", c.input_gradient, virtual_stage(chunk) - 1, false);
  }
  writer_.end_segment();
  return segment;
}

/// The weight gradients that the backward pass left, in its order.
std::uint32_t TransformerStage::write_weights(std::int64_t chunk) {
  const std::uint32_t segment =
      writer_.begin_segment(fmt::format("weights.{}", chunk), SegmentKind::kWeights);
  writer_.set_phase(Phase::kBackward);
  for (const Deferred& d : deferred_) {
    writer_.left_over(d.instead_of);
    writer_.builder().set_layer(d.layer);
    Product p = d.product;
    p.name = d.name.c_str();
    const auto gather = [&](TensorId& rows, const char* name, Rows kind) {
      if (writer_.builder().tensor_at(rows).rows < p.k) {                    // a part of them
        rows = gathered(name, rows, kind, false, Channel::kCompute).tensor;  // its product follows
      }
    };
    gather(p.a, "layer.weight_gradient.gather", Rows::kInput);
    gather(p.b, "layer.weight_gradient.gather_gradient", Rows::kGradient);
    gemm(p);
  }
  writer_.end_segment();
  return segment;
}

/// Adds up the key and value columns of what tensor ranks with the same heads found, through one
/// packed buffer.
void TransformerStage::sum_key_value_gradients() {
  const Format format = job_.formats.gradient;
  const std::int64_t keys = 2 * shape_.kv_heads * shape_.model.head_dim;
  std::vector<std::string> names;
  for (std::int64_t chunk = 0; chunk < shape_.chunks; ++chunk) {
    const LayerRange& range = shape_.range(stage_, chunk);
    const std::int64_t end = range.first + range.count + (has_head(chunk) ? shape_.predictions : 0);
    for (std::int64_t layer = range.first; layer < end; ++layer) {
      if (!shape_.model.kind_of(layer).attends()) {
        continue;
      }
      names.push_back(fmt::format("layer.{}.attention.qkv.weight", layer));
      if (gpt_) {
        names.push_back(fmt::format("layer.{}.attention.qkv.bias", layer));
      }
    }
  }
  if (names.empty()) {
    return;
  }
  std::int64_t rows = 0;
  for (const std::string& name : names) {
    rows += writer_.builder().tensor_at(parameter(name).gradient).rows;
  }
  const TensorId packed = writer_.workspace("key_value.gradients", rows, keys, format);
  const auto copy = [&](const char* op, bool pack) {
    std::int64_t row = 0;
    for (const std::string& name : names) {
      const TensorId gradient = parameter(name).gradient;
      const std::int64_t count = writer_.builder().tensor_at(gradient).rows;
      ColumnBlock block;
      block.columns = keys;
      (pack ? block.from_offset : block.to_offset) = shape_.query_width;
      (pack ? block.from_pitch : block.to_pitch) = shape_.qkv_width;
      (pack ? block.to_offset : block.from_offset) = row * keys;
      (pack ? block.to_pitch : block.from_pitch) = keys;
      row += count;
      const std::int32_t blocks = writer_.builder().column_copy({block});
      writer_.compute(OpKind::kCopyColumns, op, {count, keys})
          .in({pack ? gradient : packed})
          .out({pack ? packed : gradient})
          .attributes(ColumnAttributes{blocks})
          .format(format);
    }
  };
  copy("gradients.key_value_pack", true);
  OpWriter::Transfer t;
  t.name = "gradients.key_value_sum";
  t.elements = rows * keys;
  t.in = t.out = {packed};
  t.communicator = communicators_.key_value;
  t.format = format;
  writer_.transfer(Channel::kCompute, t);
  copy("gradients.key_value_unpack", false);
}

void TransformerStage::call_in_order() {
  ProgramBuilder& b = writer_.builder();
  const std::uint32_t begin = writer_.begin_segment("begin", SegmentKind::kBegin);
  write_begin();
  writer_.end_segment();
  std::vector<DependencyInfo::Chunk>& chunks = writer_.order().chunks;
  for (std::int64_t i = 0; i < shape_.chunks; ++i) {
    DependencyInfo::Chunk& chunk = chunks[static_cast<std::size_t>(i)];
    chunk.forward = write_forward(i);
    if (shape_.inference) {
      continue;
    }
    chunk.backward = write_backward(i);
    if (splits_) {
      chunk.weights = write_weights(i);
    }
  }
  const std::uint32_t finish = writer_.begin_segment("optimizer", SegmentKind::kFinish);
  if (!shape_.inference && shape_.kv_copies > 1 && !job_.lora) {
    writer_.set_phase(Phase::kGradientSync);
    sum_key_value_gradients();
  }
  writer_.end_segment();

  const PipelineShape pipeline{static_cast<std::int32_t>(shape_.pipeline),
                               static_cast<std::int32_t>(shape_.chunks),
                               static_cast<std::int32_t>(shape_.microbatches),
                               static_cast<std::int32_t>(job_.parallel.chunk_microbatches)};
  b.call(begin, 0);
  for (const ScheduleStep& s :
       pipeline_schedule(job_.parallel.schedule, pipeline, static_cast<std::int32_t>(stage_))) {
    const DependencyInfo::Chunk& chunk = chunks[static_cast<std::size_t>(s.chunk)];
    const std::optional<std::uint32_t>& segment = s.pass == Pass::kForward    ? chunk.forward
                                                  : s.pass == Pass::kBackward ? chunk.backward
                                                                              : chunk.weights;
    if (segment) {
      b.call(*segment, s.microbatch);
    }
  }
  b.call(finish, 0);
}

}  // namespace stepcast::workloads
