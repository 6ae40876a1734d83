#include "workloads/transformer_stage.h"

// What stands before the first layer and after the last: vocabulary-parallel embedding, final norm,
// head and cross-entropy.
namespace stepcast::workloads {

/// The transfer that a message of the output has to wait for; -1: none. In a chunk without layers
/// no compute op follows that would wait for a sum on a stream of its own, so the message does, and
/// the next lookup, whose rows it reads.
OpWriter::Event TransformerStage::embedding_forward(TensorId output, bool alone) {
  const std::int64_t n = shape_.tokens;
  const std::int64_t h = shape_.model.hidden;
  std::vector<TensorId> in{parameter("embedding.weight").weight};
  if (gpt_) {
    in.push_back(parameter("embedding.positions").weight);
  }
  const bool apart =
      alone && shape_.tensor > 1 && job_.parallel.overlap.tensor && job_.parallel.overlap.pipeline;
  const OpWriter::Event summed = apart ? writer_.builder().event() : -1;
  writer_.await(summed);
  // Without sequence parallelism the sum over tensor ranks can happen in place.
  const char* rows = apart ? "embedding.partial" : "partial";
  const TensorId lookup =
      shape_.sequence_parallel ? writer_.workspace(rows, n, h, compute_) : output;
  writer_.compute(OpKind::kTokenEmbeddingForward, "embedding.lookup", {n, h, shape_.vocabulary})
      .in(in)
      .out(dropout() ? std::vector{lookup, ends_.embedding_mask} : std::vector{lookup});
  if (shape_.tensor == 1) {
    return -1;
  }
  OpWriter::Transfer t;
  t.kind = shape_.sequence_parallel ? OpKind::kReduceScatter : OpKind::kAllReduce;
  t.name = "embedding.reduce";
  t.elements = n * h;
  t.in = {lookup};
  t.out = {output};
  t.communicator = communicators_.tensor;
  t.format = compute_;
  t.event = summed;
  const OpWriter::Event done = writer_.transfer("tensor", job_.parallel.overlap.tensor, t);
  if (apart) {
    return done;
  }
  writer_.await(done);
  return -1;
}

void TransformerStage::embedding_backward(TensorId gradient) {
  const Gathered dy = gathered("embedding.gather_gradient", gradient, "gathered.gradient");
  writer_.await(dy.ready);
  std::vector<TensorId> out{parameter("embedding.weight").gradient};
  if (gpt_) {
    out.push_back(parameter("embedding.positions").gradient);
  }
  writer_
      .compute(OpKind::kTokenEmbeddingBackward, "embedding.gradient",
               {shape_.tokens, shape_.model.hidden, shape_.vocabulary})
      .in(dropout() ? std::vector{dy.tensor, ends_.embedding_mask} : std::vector{dy.tensor})
      .out(out);
  if (gpt_) {
    parameters_.finished("embedding.positions");
  }
  parameters_.finished("embedding.weight");
}

void TransformerStage::head_forward(TensorId input) {
  const std::int64_t n = shape_.tokens;
  const std::int64_t v = shape_.vocabulary;
  norm_forward("head.norm", "head.norm", input, ends_.norm, ends_.norm_statistics);
  if (shape_.inference) {  // only the last token of each sequence has a successor to choose
    gemm({"head.logits", shape_.samples, v, shape_.model.hidden, ends_.norm,
          parameter(head_weight()).weight, ends_.logits, op_flags::kTransposeB});
    return;
  }
  const Gathered x = gathered("head.gather", ends_.norm, "gathered");
  writer_.await(x.ready);
  gemm({"head.logits", n, v, shape_.model.hidden, x.tensor, parameter(head_weight()).weight,
        ends_.logits, op_flags::kTransposeB});
  if (traits_.eager_loss) {
    eager_loss();
    return;
  }
  const TensorId maxima = writer_.workspace("loss.maxima", n, 1, Format::kFp32);
  const TensorId sums = writer_.workspace("loss.sums", 2, n, Format::kFp32);
  writer_.compute(OpKind::kCrossEntropyMax, "loss.max", {n, v})
      .in({ends_.logits})
      .out({maxima})
      .format(Format::kFp32);
  if (shape_.tensor > 1) {
    writer_.await(reduce_in_place("loss.reduce_max", maxima, n, 1));
  }
  writer_.compute(OpKind::kCrossEntropySum, "loss.sum", {n, v})
      .in({ends_.logits, maxima})
      .out({sums})
      .format(Format::kFp32);
  if (shape_.tensor > 1) {
    writer_.await(reduce_in_place("loss.reduce_sum", sums, 2 * n, 0));
  }
  writer_.compute(OpKind::kCrossEntropyLoss, "loss.gradient", {n, v})
      .in({ends_.logits, maxima, sums})
      .out({ends_.logits})
      .format(Format::kFp32);
}

/// PyTorch's: a copy in fp32, log-probabilities, and in the backward pass the gradients of both and
/// the copy back. Each kernel reads and writes all of its operands.
void TransformerStage::eager_loss() {
  const std::int64_t n = shape_.tokens;
  const std::int64_t v = shape_.vocabulary;
  const TensorId probabilities = writer_.workspace("loss.log_probabilities", n, v, Format::kFp32);
  const TensorId gradient = writer_.workspace("loss.probability_gradient", n, v, Format::kFp32);
  const auto pass = [&](const char* name, TensorId from, TensorId to, double read, double written) {
    const auto all = static_cast<double>(n * v);
    auto op = writer_.compute(OpKind::kCast, name, {n * v});
    op.in({from}).out({to}).format(Format::kFp32);
    op.work(Flops(2 * all), Bytes(read * all), Bytes(written * all));
  };
  const double wide = 4;
  const double narrow = bits_per_element(compute_) / 8;
  pass("loss.widen", ends_.logits, ends_.logits, narrow, wide);
  pass("loss.log_softmax", ends_.logits, probabilities, 2 * wide, wide);
  if (shape_.tensor > 1) {
    const TensorId sums = writer_.workspace("loss.sums", 2, n, Format::kFp32);
    writer_.await(reduce_in_place("loss.reduce_max", sums, n, 1));
    writer_.await(reduce_in_place("loss.reduce_sum", sums, 2 * n, 0));
  }
  pass("loss.pick_gradient", probabilities, gradient, 0, wide);
  pass("loss.log_softmax_gradient", gradient, ends_.logits, 2 * wide, wide);
  pass("loss.narrow", ends_.logits, ends_.logits, wide, narrow);
}

void TransformerStage::head_backward(TensorId input, TensorId input_gradient) {
  const std::int64_t n = shape_.tokens;
  const std::int64_t h = shape_.model.hidden;
  const std::int64_t v = shape_.vocabulary;
  const auto& head = parameter(head_weight());
  const TensorId partial = writer_.workspace("partial", n, h, compute_);
  const Gathered x = gathered("head.gather", ends_.norm, "gathered");
  gemm({"head.input_gradient", n, h, v, ends_.logits, head.weight, partial, 0});
  const Gathered d_norm = reduced("head.reduce_gradient", partial);
  writer_.await(x.ready);
  gemm({"head.weight_gradient", v, h, n, ends_.logits, x.tensor, head.gradient,
        op_flags::kTransposeA | op_flags::kAccumulate});
  if (!shape_.model.tied_embeddings || shape_.pipeline > 1) {
    parameters_.finished(head_weight());  // else the embedding's backward pass adds to it
  }
  writer_.await(d_norm.ready);
  norm_backward("head.norm_gradient", "head.norm",
                {d_norm.tensor, input, ends_.norm_statistics, d_norm.tensor, input_gradient});
}

}  // namespace stepcast::workloads
