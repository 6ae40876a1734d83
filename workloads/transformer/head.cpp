#include <algorithm>

#include "workloads/transformer/stage.h"

// Ops after the last layer: final norm, vocabulary-parallel head and cross-entropy, in the
// ways of core/job/job.h, LossKind.
//
// Logits of n tokens and v entries, bytes an element with products in 16 bits:
//            forward               from forward to backward   backward
//   in place 4                     4                          4
//   copied   2 + 4                 4                          4 + 2
//   compiled 2 + 4 + 4             4                          4 + 2
//   eager    4 + 8                 4                          4
//   fused    2                     2                          2
// In c chunks of the tokens: all of it in the forward pass, on n / c tokens at a time; the
// gradients of the head's input (n x hidden) and of its weights stay until the backward pass.
// Source: Megatron-LM, core/tensor_parallel/cross_entropy.py and core/fusions/
// fused_cross_entropy.py; Hsu et al., arXiv 2410.10989, section 3.2 (Liger).
namespace stepcast::workloads {
namespace {

/// In the products' own format: those that a loss in fp32 only gets a copy of.
bool copies(LossKind kind) { return kind == LossKind::kCopied || kind == LossKind::kCompiled; }

}  // namespace

void TransformerStage::plan_head() {
  ProgramBuilder& b = writer_.builder();
  ends_.norm = b.activation("head.norm", shape_.head_rows(), shape_.model.hidden, compute_);
  ends_.norm_statistics =
      b.activation("head.norm_statistics", shape_.head_rows(), 2, Format::kFp32);
  if (shape_.model.residual_streams > 1) {
    ends_.streams.name = "head.streams";
    ends_.streams.entered =
        b.activation("head.entered", shape_.rows, shape_.model.hidden, compute_);
  }
  const std::int64_t rows = shape_.inference ? shape_.samples : shape_.head_tokens();
  const Format format = job_.loss.kind == LossKind::kFused ? compute_ : Format::kFp32;
  if (job_.loss.chunks > 1) {
    ends_.logits =
        writer_.workspace("head.logits", rows / job_.loss.chunks, shape_.vocabulary, format);
    ends_.input_gradient =
        b.activation("head.input_gradient", shape_.head_tokens(), shape_.model.hidden, compute_);
    ends_.weight_gradient =
        b.activation("head.weight_gradient", shape_.vocabulary, shape_.model.hidden, compute_);
  } else {
    ends_.logits = b.activation("head.logits", rows, shape_.vocabulary, format);
  }
  b.set_purpose(ends_.logits, TensorPurpose::kLogits);
  const std::int64_t deferred = std::min<std::int64_t>(job_.loss.deferred, shape_.microbatches);
  const bool later = job_.loss.chunks == 1 && job_.parallel.pipeline > 1 && trains(head_weight());
  if (deferred > 0 && later) {
    b.set_purpose(b.buffer("head.deferred", deferred * rows,
                           shape_.vocabulary + shape_.model.hidden, compute_),
                  TensorPurpose::kLogits);
  }
}

void TransformerStage::head_forward(TensorId input) {
  const std::int64_t v = shape_.vocabulary;
  const std::int64_t h = shape_.model.hidden;
  if (casts_each_pass()) {
    quantise_unit(head_unit());
  }
  norm_forward("head.norm", "head.norm", enter(ends_.streams, input), ends_.norm,
               ends_.norm_statistics, is_narrow(ProductPlace::kHead), predicted());
  const TensorId head = parameter(head_weight()).weight;
  if (shape_.inference) {  // only the last token of each sequence has a successor to choose
    gemm({"head.logits", shape_.samples, v, h, ends_.norm, head, ends_.logits,
          op_flags::kTransposeB, ProductPlace::kHead});
    return;
  }
  const Gathered x = gathered("head.gather", ends_.norm, Rows::kInput);
  writer_.await(x.ready);
  const std::int64_t chunks = job_.loss.chunks;
  const std::int64_t n = shape_.head_tokens() / chunks;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    const TensorId logits = product_logits();
    gemm({"head.logits", n, v, h, x.tensor, head, logits, op_flags::kTransposeB,
          ProductPlace::kHead});
    if (logits != ends_.logits) {
      widen_logits(logits);
    }
    if (job_.loss.kind == LossKind::kEager) {
      eager_loss();
    } else {
      loss_and_gradient(n);
    }
    if (chunks > 1) {
      narrow_logits();
      gemm({"head.input_gradient", n, h, v, product_logits(), head, ends_.input_gradient, 0,
            ProductPlace::kHead});
      if (!trains(head_weight())) {
        continue;
      }
      const std::uint8_t sum = chunk > 0 ? op_flags::kAccumulate : 0;
      gemm({"head.weight_gradient", v, h, n, product_logits(), x.tensor, ends_.weight_gradient,
            static_cast<std::uint8_t>(op_flags::kTransposeA | sum), ProductPlace::kHead});
    }
  }
}

/// Logits that the head's products write and read.
TensorId TransformerStage::product_logits() {
  if (!copies(job_.loss.kind) || bits_per_element(compute_) >= 32) {
    return ends_.logits;
  }
  return writer_.workspace("head.narrow_logits", shape_.head_tokens() / job_.loss.chunks,
                           shape_.vocabulary, compute_);
}

void TransformerStage::copy_logits(const char* name, TensorId from, TensorId to) {
  const Tensor& read = writer_.builder().tensor_at(from);
  const Bytes bytes = read.bytes();
  auto op = writer_.compute(OpKind::kCast, name, {read.elements()});
  op.in({from}).out({to}).format(compute_);
  op.work({}, bytes, writer_.builder().tensor_at(to).bytes());
}

void TransformerStage::widen_logits(TensorId logits) {
  if (job_.loss.kind == LossKind::kCopied) {
    copy_logits("loss.widen", logits, ends_.logits);
    return;
  }
  const TensorId wide = writer_.workspace("loss.wide", shape_.head_tokens() / job_.loss.chunks,
                                          shape_.vocabulary, Format::kFp32);
  copy_logits("loss.widen", logits, wide);
  copy_logits("loss.exponentials", wide, ends_.logits);
}

/// The gradient of the logits in the format that products read.
void TransformerStage::narrow_logits() {
  const TensorId logits = product_logits();
  if (logits != ends_.logits) {
    copy_logits("loss.narrow", ends_.logits, logits);
  }
}

/// Rows [n, vocabulary] become their gradient. A fused kernel finds maxima and sums in one pass.
void TransformerStage::loss_and_gradient(std::int64_t n) {
  const std::int64_t v = shape_.vocabulary;
  const Format format = writer_.builder().tensor_at(ends_.logits).format;
  const TensorId maxima = writer_.workspace("loss.maxima", n, 1, Format::kFp32);
  const TensorId sums = writer_.workspace("loss.sums", 2, n, Format::kFp32);
  if (job_.loss.kind != LossKind::kFused) {
    writer_.compute(OpKind::kCrossEntropyMax, "loss.max", {n, v})
        .in({ends_.logits})
        .out({maxima})
        .format(format);
    if (shape_.tensor > 1) {
      writer_.await(reduce_in_place("loss.reduce_max", maxima, n, Reduction::kMax));
    }
  }
  writer_.compute(OpKind::kCrossEntropySum, "loss.sum", {n, v})
      .in({ends_.logits, maxima})
      .out({sums})
      .format(format);
  if (shape_.tensor > 1) {
    writer_.await(reduce_in_place("loss.reduce_sum", sums, 2 * n, Reduction::kSum));
  }
  writer_.compute(OpKind::kCrossEntropyLoss, "loss.gradient", {n, v})
      .in({ends_.logits, maxima, sums})
      .out({ends_.logits})
      .format(format);
}

/// PyTorch's: a copy in fp32, log-probabilities, and in the backward pass the gradients of both and
/// the copy back. Each kernel reads and writes all of its operands.
void TransformerStage::eager_loss() {
  const std::int64_t n = shape_.head_tokens();
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
    writer_.await(reduce_in_place("loss.reduce_max", sums, n, Reduction::kMax));
    writer_.await(reduce_in_place("loss.reduce_sum", sums, 2 * n, Reduction::kSum));
  }
  pass("loss.pick_gradient", probabilities, gradient, 0, wide);
  pass("loss.log_softmax_gradient", gradient, ends_.logits, 2 * wide, wide);
  pass("loss.narrow", ends_.logits, ends_.logits, wide, narrow);
}

void TransformerStage::head_backward(TensorId input, TensorId input_gradient) {
  const std::int64_t n = shape_.head_tokens();
  const std::int64_t h = shape_.model.hidden;
  const std::int64_t v = shape_.vocabulary;
  const auto& head = parameter(head_weight());
  Gathered d_norm{0};
  if (job_.loss.chunks > 1) {
    d_norm = reduced("head.reduce_gradient", ends_.input_gradient);
  }
  if (job_.loss.chunks > 1 && trains(head_weight())) {
    writer_.compute(OpKind::kAdd, "head.weight_gradient.accumulate", {v, h})
        .in({ends_.weight_gradient, head.gradient})
        .out({head.gradient});
  } else if (job_.loss.chunks == 1) {
    if (casts_each_pass()) {
      quantise_unit(head_unit());
    }
    const TensorId partial =
        writer_.workspace(predictions_.empty() ? "partial" : "head.partial", n, h, compute_);
    const Gathered x = trains(head_weight()) ? gathered("head.gather", ends_.norm, Rows::kInput)
                                             : Gathered{ends_.norm};
    narrow_logits();
    gemm({"head.input_gradient", n, h, v, product_logits(), head.weight, partial, 0,
          ProductPlace::kHead});
    d_norm = reduced("head.reduce_gradient", partial);
    writer_.await(x.ready);
    gemm({"head.weight_gradient", v, h, n, product_logits(), x.tensor, head.gradient,
          op_flags::kTransposeA | op_flags::kAccumulate, ProductPlace::kHead});
  }
  writer_.await(d_norm.ready);
  std::vector<TensorId> gradients;
  for (std::size_t k = 0; k < predictions_.size(); ++k) {
    gradients.push_back(prediction_gradient(k));
  }
  const bool streams = !ends_.streams.name.empty();
  const TensorId d_entered =
      streams ? writer_.workspace("gradient.streams.entered", shape_.rows, h, compute_)
              : input_gradient;
  norm_backward("head.norm_gradient", "head.norm",
                {d_norm.tensor, entered(ends_.streams, input), ends_.norm_statistics, d_norm.tensor,
                 d_entered, predicted(), gradients});
  if (streams) {
    const std::int64_t m = shape_.model.residual_streams;
    const auto& weight = parameter(ends_.streams.name + ".weight");
    const auto& scales = parameter(ends_.streams.name + ".scales");
    pass_over_streams("head.streams_gradient", {d_entered, input, weight.weight, scales.weight},
                      {input_gradient, weight.gradient, scales.gradient}, m + 1, m);
  }
}

}  // namespace stepcast::workloads
