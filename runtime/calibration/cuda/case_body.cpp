#include "runtime/calibration/cuda/case_body.h"

#include <array>
#include <future>
#include <memory>
#include <random>

#include "core/access/access.h"
#include "core/error.h"
#include "runtime/cuda/kernels/activation.h"
#include "runtime/cuda/kernels/elementwise.h"
#include "runtime/cuda/kernels/embedding.h"
#include "runtime/cuda/kernels/interaction.h"
#include "runtime/cuda/kernels/loss.h"
#include "runtime/cuda/kernels/norm.h"
#include "runtime/cuda/kernels/optimizer.h"
#include "runtime/cuda/kernels/position.h"
#include "runtime/cuda/kernels/quantise.h"
#include "runtime/cuda/kernels/token.h"

namespace stepcast::runtime::calibration {
namespace {

namespace kernels = cuda::kernels;
using kernels::MatrixView;
using kernels::Vector;
using kernels::Workspace;

constexpr std::int64_t kBatches =
    3;  // distinct lookups, so that no repeat finds the last one's rows by itself

CaseBody embedding_body(const DeviceCase& c, Arena& arena, std::uint64_t seed) {
  const EmbeddingCase& e = c.embedding;
  const Access law = e.zipf > 0 ? Access::zipf(e.rows, e.zipf, seed) : Access::uniform(e.rows);
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(e.batch + 1));
  for (std::int64_t b = 0; b <= e.batch; ++b) {
    offsets[static_cast<std::size_t>(b)] = b * e.pooling;
  }
  const std::int64_t* device_offsets = arena.upload(offsets);
  auto tables = std::make_shared<std::array<kernels::EmbeddingTable, kBatches>>();
  const bool forward = c.op.kind == OpKind::kEmbeddingForward;
  kernels::EmbeddingTable table;
  table.weights = arena.matrix(c.op.format, e.rows, e.dim);
  table.pooled = arena.matrix(Format::kFp32, e.batch, e.dim);
  if (!forward && e.optimizer == OptimizerKind::kRowwiseAdagrad) {
    const MatrixView state = arena.matrix(Format::kFp32, e.rows, 1);
    kernels::fill(state, 1.0F, nullptr);  // a sum of squares is not negative
    table.first = static_cast<float*>(state.data);
  }
  // Drawing takes as long as the device's work: a thread for each batch.
  std::array<std::future<std::vector<std::int64_t>>, kBatches> drawn;
  for (std::uint64_t batch = 0; batch < kBatches; ++batch) {
    drawn[batch] = std::async(std::launch::async, [&law, &e, of = seed + (batch << 32U)] {
      std::vector<std::int64_t> ids(static_cast<std::size_t>(e.lookups()));
      AccessSampler(law, of).fill_rows(ids);
      return ids;
    });
  }
  for (std::size_t batch = 0; batch < kBatches; ++batch) {
    kernels::EmbeddingTable& t = (*tables)[batch];
    t = table;
    t.bags = {arena.upload(drawn[batch].get()), device_offsets, e.batch, e.lookups()};
  }
  if (forward) {
    return [tables](std::int64_t repeat, cudaStream_t stream) {
      kernels::embedding_forward(&tables->at(static_cast<std::size_t>(repeat % kBatches)), 1,
                                 stream);
    };
  }
  OptimizerSettings settings;
  settings.kind = e.optimizer;
  settings.learning_rate = 1e-6F;
  const Workspace workspace =
      arena.workspace(kernels::embedding_backward_workspace(tables->data(), 1));
  return [tables, settings, workspace](std::int64_t repeat, cudaStream_t stream) {
    kernels::embedding_backward(&tables->at(static_cast<std::size_t>(repeat % kBatches)), 1,
                                settings, nullptr, workspace, stream);
  };
}

/// An fp8 product of operands that stand ready, as those that casts made for it.
CaseBody fp8_body(cuda::Product p, Arena& arena, cuda::Matmul& matmul) {
  p.transpose_a = false;  // the layouts differ in the casts, not in the product
  p.transpose_b = true;
  p.stride_a = p.stride_b = p.k;
  p.a = p.b = p.c = Format::kBf16;
  const auto operand = [&](std::int64_t rows) {
    const MatrixView x = arena.matrix(Format::kBf16, rows, p.k);
    void* copy = arena.take(static_cast<std::size_t>(rows * p.k));
    const float* factor = kernels::quantise({x, kernels::Fp8::kE4m3, {copy, p.k}, {}},
                                            arena.workspace(kernels::kQuantiseWorkspace), nullptr);
    return cuda::Matmul::Operand(x.data, {copy, factor});
  };
  const auto a = operand(p.m);
  const auto b = operand(p.n);
  void* out = arena.matrix(p.c, p.m, p.n).data;
  const Workspace workspace = arena.workspace(cuda::Matmul::library_workspace());
  return
      [=, &matmul](std::int64_t, cudaStream_t stream) { matmul(p, a, b, out, workspace, stream); };
}

CaseBody gemm_body(const DeviceCase& c, Arena& arena, cuda::Matmul& matmul) {
  cuda::Product p;
  p.m = c.op.shape[0];
  p.n = c.op.shape[1];
  p.k = c.op.shape[2];
  p.batch = std::max<std::int64_t>(1, c.op.shape[3]);
  p.step_a = p.m * p.k;
  p.step_b = p.n * p.k;
  p.step_c = p.m * p.n;
  p.transpose_a = (c.op.flags & op_flags::kTransposeA) != 0;
  p.transpose_b = (c.op.flags & op_flags::kTransposeB) != 0;
  p.stride_a = p.transpose_a ? p.m : p.k;
  p.stride_b = p.transpose_b ? p.k : p.n;
  p.stride_c = p.n;
  if (c.op.format == Format::kFp8) {
    p.compute = Format::kFp8;
    return fp8_body(p, arena, matmul);
  }
  const Format stored = c.op.format == Format::kTf32 ? Format::kFp32 : c.op.format;
  p.a = p.b = p.c = stored;
  p.compute = c.op.format;
  const void* a = arena.matrix(stored, p.batch * p.m, p.k).data;
  const void* b = arena.matrix(stored, p.batch * p.k, p.n).data;
  void* out = arena.matrix(stored, p.batch * p.m, p.n).data;
  const cuda::MatmulPlan plan =
      matmul_plan(p, reinterpret_cast<std::uintptr_t>(a), reinterpret_cast<std::uintptr_t>(b),
                  reinterpret_cast<std::uintptr_t>(out));
  const Workspace workspace = arena.workspace(cuda::Matmul::workspace_bytes(plan));
  return [p, a, b, out, workspace, &matmul](std::int64_t, cudaStream_t stream) {
    matmul(p, a, b, out, workspace, stream);
  };
}

/// Operands of row-wise and elementwise kinds: [rows, width] matrices of the op's format, fp32
/// parameters.
class Operands {
 public:
  Operands(const DeviceCase& c, Arena& arena)
      : format_(c.op.format),
        rows_(c.op.shape[0]),
        width_(std::max<std::int64_t>(1, c.op.shape[1])),
        arena_(arena) {}
  MatrixView matrix() { return arena_.matrix(format_, rows_, width_); }
  MatrixView wide(std::int64_t times) { return arena_.matrix(format_, rows_, times * width_); }
  Vector vector() { return {arena_.matrix(Format::kFp32, 1, width_).data, Format::kFp32}; }
  float* per_row(std::int64_t times = 1) {
    return static_cast<float*>(arena_.matrix(Format::kFp32, rows_, times).data);
  }

 private:
  Format format_;
  std::int64_t rows_, width_;
  Arena& arena_;
};

kernels::TokenRows tokens_of(std::int64_t rows, std::int64_t vocabulary, Arena& arena,
                             std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows));
  for (std::int32_t& t : tokens) {
    t = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocabulary));
  }
  return {arena.upload(tokens), rows, rows};
}

CaseBody activation_body(const DeviceCase& c, Arena& arena) {
  Operands o(c, arena);
  const auto activation = c.op.as<ActivationAttributes>().activation;
  const bool gated = activation == Activation::kSwiGlu || activation == Activation::kGeGlu;
  const MatrixView x = o.wide(gated ? 2 : 1);
  const MatrixView y = o.matrix();
  const MatrixView dx =
      c.op.kind == OpKind::kActivationBackward ? o.wide(gated ? 2 : 1) : MatrixView();
  if (c.op.kind == OpKind::kActivationForward) {
    return
        [=](std::int64_t, cudaStream_t s) { kernels::activation_forward(activation, x, {}, y, s); };
  }
  return [=](std::int64_t, cudaStream_t s) {
    kernels::activation_backward(activation, x, {}, y, dx, {}, {}, s);
  };
}

CaseBody bias_body(const DeviceCase& c, Arena& arena) {
  Operands o(c, arena);
  const auto activation = c.op.as<ActivationAttributes>().activation;
  const MatrixView x = o.matrix();
  const MatrixView y = o.matrix();
  const Vector bias = o.vector();
  if (c.op.kind == OpKind::kBiasActivationForward) {
    return [=](std::int64_t, cudaStream_t s) {
      kernels::activation_forward(activation, x, bias, y, s);
    };
  }
  const Workspace w = arena.workspace(kernels::activation_backward_workspace(x.rows, x.columns));
  return [=](std::int64_t, cudaStream_t s) {
    kernels::bias_activation_backward(activation, x, y, x, bias, w, s);
  };
}

CaseBody norm_body(const DeviceCase& c, Arena& arena) {
  Operands o(c, arena);
  const auto norm = c.op.as<NormAttributes>().norm;
  const MatrixView x = o.matrix();
  const MatrixView y = o.matrix();
  const Vector weight = o.vector();
  const Vector bias = norm == Norm::kLayerNorm ? o.vector() : Vector{};
  float* statistics = o.per_row(2);
  const CaseBody forward = [=](std::int64_t, cudaStream_t s) {
    kernels::norm_forward(norm, x, weight, bias, 1e-5F, y, statistics, s);
  };
  if (c.op.kind == OpKind::kNormForward) {
    return forward;
  }
  forward(0, nullptr);
  const MatrixView dx = o.matrix();
  const Vector d_weight = o.vector();
  const Vector d_bias = norm == Norm::kLayerNorm ? o.vector() : Vector{};
  const Workspace w = arena.workspace(kernels::norm_backward_workspace(x.rows, x.columns));
  return [=](std::int64_t, cudaStream_t s) {
    kernels::norm_backward(norm, y, x, weight, statistics, {}, dx, d_weight, d_bias, w, s);
  };
}

CaseBody loss_body(const DeviceCase& c, Arena& arena, std::uint64_t seed) {
  Operands o(c, arena);
  auto* loss = static_cast<double*>(arena.take(sizeof(double)));
  if (c.op.kind == OpKind::kBinaryCrossEntropy) {
    const MatrixView logits = o.matrix();
    const MatrixView labels = o.matrix();
    const MatrixView gradient = o.matrix();
    const Workspace w = arena.workspace(kernels::loss_workspace(logits.rows));
    return [=](std::int64_t, cudaStream_t s) {
      kernels::binary_cross_entropy(logits, labels, 1e-3F, gradient, loss, w, s);
    };
  }
  const MatrixView logits = o.matrix();
  const kernels::TokenRows targets = tokens_of(logits.rows, logits.columns, arena, seed);
  float* maximum = o.per_row();
  float* sum = o.per_row();
  float* target = o.per_row();
  kernels::cross_entropy_maximum(logits, maximum, nullptr);
  kernels::cross_entropy_sum(logits, 0, targets, maximum, sum, target, nullptr);
  if (c.op.kind == OpKind::kCrossEntropyMax) {
    return
        [=](std::int64_t, cudaStream_t s) { kernels::cross_entropy_maximum(logits, maximum, s); };
  }
  if (c.op.kind == OpKind::kCrossEntropySum) {
    return [=](std::int64_t, cudaStream_t s) {
      kernels::cross_entropy_sum(logits, 0, targets, maximum, sum, target, s);
    };
  }
  const Workspace w = arena.workspace(kernels::loss_workspace(logits.rows));
  return [=](std::int64_t, cudaStream_t s) {
    kernels::cross_entropy_loss(logits, 0, targets, maximum, sum, target, 1e-3F, logits, loss, w,
                                s);
  };
}

CaseBody token_body(const DeviceCase& c, Arena& arena, std::uint64_t seed) {
  const std::int64_t rows = c.op.shape[0];
  const std::int64_t hidden = c.op.shape[1];
  const std::int64_t vocabulary = c.op.shape[2];
  const MatrixView activations = arena.matrix(c.op.format, rows, hidden);
  const kernels::TokenRows tokens = tokens_of(rows, vocabulary, arena, seed);
  if (c.op.kind == OpKind::kTokenEmbeddingForward) {
    const MatrixView table = arena.matrix(c.op.format, vocabulary, hidden);
    return [=](std::int64_t, cudaStream_t s) {
      kernels::token_embedding_forward(table, 0, tokens, activations, s);
    };
  }
  const MatrixView gradient = arena.matrix(Format::kFp32, vocabulary, hidden);
  const Workspace w =
      arena.workspace(kernels::token_embedding_backward_workspace(rows, vocabulary, hidden));
  return [=](std::int64_t, cudaStream_t s) {
    kernels::token_embedding_backward(activations, 0, tokens, gradient, w, s);
  };
}

CaseBody rope_body(const DeviceCase& c, Arena& arena) {
  const std::int64_t rows = c.op.shape[0];
  const std::int64_t head_dim = c.op.shape[2];
  const std::int64_t length = std::min<std::int64_t>(rows, 2048);
  const MatrixView x = arena.matrix(c.op.format, rows, c.op.shape[1] * head_dim);
  const auto* table = static_cast<const float*>(arena.matrix(Format::kFp32, length, head_dim).data);
  const int direction = c.op.kind == OpKind::kRopeForward ? 1 : -1;
  return [=](std::int64_t, cudaStream_t s) {
    kernels::rotate(table, length, head_dim, direction, x, s);
  };
}

CaseBody interaction_body(const DeviceCase& c, Arena& arena) {
  Operands o(c, arena);
  if (c.op.kind == OpKind::kDotInteractionForward || c.op.kind == OpKind::kDotInteractionBackward) {
    const kernels::DotInteraction shape{c.op.shape[1], c.op.shape[2]};
    const MatrixView x = arena.matrix(c.op.format, c.op.shape[0], shape.features * shape.dim);
    const MatrixView out = arena.matrix(c.op.format, c.op.shape[0], shape.output_width());
    if (c.op.kind == OpKind::kDotInteractionForward) {
      return
          [=](std::int64_t, cudaStream_t s) { kernels::dot_interaction_forward(shape, x, out, s); };
    }
    const MatrixView dx = arena.matrix(c.op.format, c.op.shape[0], shape.features * shape.dim);
    return [=](std::int64_t, cudaStream_t s) {
      kernels::dot_interaction_backward(shape, out, x, dx, s);
    };
  }
  const MatrixView x0 = o.matrix();
  const MatrixView u = o.matrix();
  const MatrixView x = o.matrix();
  const MatrixView out = o.matrix();
  const Vector bias = o.vector();
  if (c.op.kind == OpKind::kCrossForward) {
    return [=](std::int64_t, cudaStream_t s) { kernels::cross_forward(x0, u, bias, x, out, s); };
  }
  const Vector d_bias = o.vector();
  const Workspace w = arena.workspace(kernels::cross_backward_workspace(x.rows, x.columns));
  return [=](std::int64_t, cudaStream_t s) {
    kernels::cross_backward(x, x0, u, bias, u, d_bias, out, false, w, s);
  };
}

CaseBody flat_body(const DeviceCase& c, Arena& arena) {
  const std::int64_t n = c.op.shape[0];
  const auto flat = [&](Format f) { return arena.matrix(f, 1, n); };
  if (c.op.kind == OpKind::kFill) {
    const MatrixView x = flat(Format::kFp32);
    return [=](std::int64_t, cudaStream_t s) { kernels::fill(x, 0, s); };
  }
  if (c.op.kind == OpKind::kCast && c.op.format == Format::kFp8) {
    constexpr std::int64_t kColumns = 256;  // shapes have a multiple of them
    const MatrixView x = arena.matrix(Format::kBf16, n / kColumns, kColumns);
    void* plain = arena.take(static_cast<std::size_t>(n));
    const std::int64_t pitch = (x.rows + cuda::kFp8Pack - 1) / cuda::kFp8Pack * cuda::kFp8Pack;
    void* turned = arena.take(static_cast<std::size_t>(kColumns * pitch));
    const Workspace scales = arena.workspace(kernels::kQuantiseWorkspace);
    return [=](std::int64_t, cudaStream_t s) {
      kernels::quantise({x, kernels::Fp8::kE4m3, {plain, kColumns}, {turned, pitch}}, scales, s);
    };
  }
  if (c.op.kind == OpKind::kCast) {
    const MatrixView x = flat(Format::kFp32);
    const MatrixView y = flat(c.op.format);
    return [=](std::int64_t, cudaStream_t s) { kernels::copy_block(x, y, s); };
  }
  OptimizerSettings settings;
  settings.kind = c.op.as<OptimizerAttributes>().kind;
  settings.learning_rate = 1e-6F;
  kernels::Parameter p;
  p.gradient = flat(Format::kFp32);
  p.weights = flat(Format::kFp32);
  if (settings.kind == OptimizerKind::kAdam) {
    const MatrixView first = flat(Format::kFp32);
    const MatrixView second = flat(Format::kFp32);
    kernels::fill(second, 1.0F, nullptr);  // a mean of squares is not negative
    p.first = static_cast<float*>(first.data);
    p.second = static_cast<float*>(second.data);
  }
  return [=](std::int64_t, cudaStream_t s) {
    kernels::optimizer_update(settings, &p, 1, false, nullptr, s);
  };
}

CaseBody copy_or_add_body(const DeviceCase& c, Arena& arena) {
  Operands o(c, arena);
  const MatrixView a = o.matrix();
  const MatrixView b = o.matrix();
  if (c.op.kind == OpKind::kCopyColumns) {
    return [=](std::int64_t, cudaStream_t s) { kernels::copy_block(a, b, s); };
  }
  const MatrixView out = o.matrix();
  return [=](std::int64_t, cudaStream_t s) { kernels::add(a, b, out, s); };
}

template <CaseBody (*make)(const DeviceCase&, Arena&)>
CaseBody of_operands(const DeviceCase& c, const Bench& b) {
  return make(c, b.arena);
}
template <CaseBody (*make)(const DeviceCase&, Arena&, std::uint64_t)>
CaseBody of_random_operands(const DeviceCase& c, const Bench& b) {
  return make(c, b.arena, b.seed);
}
CaseBody of_matmul(const DeviceCase& c, const Bench& b) { return gemm_body(c, b.arena, b.matmul); }

constexpr std::pair<OpKind, MakeBody> kOtherBodies[]{
    {OpKind::kEmbeddingForward, of_random_operands<embedding_body>},
    {OpKind::kEmbeddingBackward, of_random_operands<embedding_body>},
    {OpKind::kGemm, of_matmul},
    {OpKind::kActivationForward, of_operands<activation_body>},
    {OpKind::kActivationBackward, of_operands<activation_body>},
    {OpKind::kBiasActivationForward, of_operands<bias_body>},
    {OpKind::kBiasActivationBackward, of_operands<bias_body>},
    {OpKind::kNormForward, of_operands<norm_body>},
    {OpKind::kNormBackward, of_operands<norm_body>},
    {OpKind::kBinaryCrossEntropy, of_random_operands<loss_body>},
    {OpKind::kCrossEntropyMax, of_random_operands<loss_body>},
    {OpKind::kCrossEntropySum, of_random_operands<loss_body>},
    {OpKind::kCrossEntropyLoss, of_random_operands<loss_body>},
    {OpKind::kTokenEmbeddingForward, of_random_operands<token_body>},
    {OpKind::kTokenEmbeddingBackward, of_random_operands<token_body>},
    {OpKind::kRopeForward, of_operands<rope_body>},
    {OpKind::kRopeBackward, of_operands<rope_body>},
    {OpKind::kDotInteractionForward, of_operands<interaction_body>},
    {OpKind::kDotInteractionBackward, of_operands<interaction_body>},
    {OpKind::kCrossForward, of_operands<interaction_body>},
    {OpKind::kCrossBackward, of_operands<interaction_body>},
    {OpKind::kFill, of_operands<flat_body>},
    {OpKind::kCast, of_operands<flat_body>},
    {OpKind::kOptimizer, of_operands<flat_body>},
    {OpKind::kAdd, of_operands<copy_or_add_body>},
    {OpKind::kCopyColumns, of_operands<copy_or_add_body>}};

}  // namespace

CaseBodies other_bodies() { return kOtherBodies; }

CaseBody case_body(const DeviceCase& c, const Bench& bench) {
  bench.arena.reset();
  for (const CaseBodies family : {attention_bodies(), expert_bodies(), other_bodies()}) {
    for (const auto& [kind, make] : family) {
      if (kind == c.op.kind) {
        return make(c, bench);
      }
    }
  }
  throw InputError("", fmt::format("{} has no case of its own", stepcast::name_of(c.op.kind)));
}

}  // namespace stepcast::runtime::calibration
