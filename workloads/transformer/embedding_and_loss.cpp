#include "workloads/transformer/stage.h"

// Ops before the first layer: the vocabulary-parallel embedding.
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
  const OpWriter::Event summed = apart ? writer_.name_transfer(Channel::kTensor) : kNoTransfer;
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
  const OpWriter::Event done = writer_.transfer(Channel::kTensor, t);
  if (apart) {
    return done;
  }
  writer_.await(done);
  return -1;
}

void TransformerStage::embedding_backward(TensorId gradient) {
  if (!trains("embedding.weight")) {
    return;
  }
  const Gathered dy = gathered("embedding.gather_gradient", gradient, Rows::kEmbedding);
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
}

}  // namespace stepcast::workloads
