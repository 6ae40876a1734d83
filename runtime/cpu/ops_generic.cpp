#include <algorithm>

#include "core/error.h"
#include "core/graph/epilogue.h"
#include "runtime/cpu/kernels/activation.h"
#include "runtime/cpu/kernels/data_movement.h"
#include "runtime/cpu/kernels/elementwise.h"
#include "runtime/cpu/kernels/gemm.h"
#include "runtime/cpu/kernels/muon.h"
#include "runtime/cpu/kernels/optimizer.h"
#include "runtime/cpu/op_context.h"
#include "runtime/op_operands.h"

namespace stepcast::runtime::cpu {
namespace {

/// After a product, whose result is in `product`: the first output, or the input of a GELU that is
/// kept. Masks are for libraries that cannot look at y: not written here.
void epilogue(OpContext& c, const kernels::MatrixView& product) {
  const auto wanted = c.op.as<GemmAttributes>().epilogue;
  const kernels::MatrixView out{c.output(0).data, product.rows, product.columns};
  switch (wanted) {
    case Epilogue::kNone:
      return;
    case Epilogue::kBias:
    case Epilogue::kBiasRelu:
    case Epilogue::kBiasReluMask:
      kernels::bias_activation_forward(
          out, c.input(2).data, wanted == Epilogue::kBias ? Activation::kNone : Activation::kRelu,
          out);
      return;
    case Epilogue::kReluBackward:
      kernels::bias_activation_backward(out, {c.input(2).data, out.rows, out.columns},
                                        Activation::kRelu, out, c.output(1).data);
      return;
    case Epilogue::kColumnSums: {
      const kernels::MatrixView b{c.input(1).data, c.op.shape[2], c.op.shape[1]};
      kernels::bias_activation_backward(b, b, Activation::kNone, b, c.output(1).data);
      return;
    }
    case Epilogue::kGelu:
    case Epilogue::kBiasGelu:
    case Epilogue::kGeluInput:
    case Epilogue::kBiasGeluInput:
      if (adds_bias(wanted)) {
        kernels::bias_activation_forward(product, c.input(2).data, Activation::kNone, product);
      }
      kernels::activation_forward(Activation::kGelu, product, out);
      return;
    case Epilogue::kGeluBackward:
    case Epilogue::kGeluBackwardSums: {
      const Matrix input = c.input(2);
      kernels::activation_backward(Activation::kGelu,
                                   {input.data, out.rows, out.columns, input.columns}, out, out);
      if (sums_columns(wanted)) {
        kernels::add_column_sums(out, c.output(1).data);
      }
      return;
    }
  }
}

void gemm(OpContext& c) {
  const auto [m, n, k, batches, unused4, unused5] = c.op.shape;
  const std::int64_t batch = std::max<std::int64_t>(1, batches);
  kernels::Gemm shape;
  shape.m = m;
  shape.n = n;
  shape.k = k;
  shape.transpose_a = (c.op.flags & op_flags::kTransposeA) != 0;
  shape.transpose_b = (c.op.flags & op_flags::kTransposeB) != 0;
  shape.beta = (c.op.flags & op_flags::kAccumulate) != 0 ? 1.0F : 0.0F;
  const Matrix a = c.input(0);
  const Matrix b = c.input(1);
  const Matrix out = c.output(0);
  STEPCAST_CHECK(a.elements() >= batch * m * k && b.elements() >= batch * n * k &&
                     out.elements() >= batch * m * n,
                 "operands of '{}' are smaller than {} x [{}, {}, {}]", c.program.name(c.op), batch,
                 m, n, k);
  kernels::MatrixView product{out.data, m, n};
  if (keeps_gelu_input(c.op.as<GemmAttributes>().epilogue)) {
    product = {c.output(1).data, m, n, c.output(1).columns};
  }
  if (batch == 1) {
    shape.stride_c = product.stride;
    kernels::gemm(shape, a.data, b.data, product.data);
  } else {
    kernels::batched_gemm(shape, batch, a.data, m * k, b.data, n * k, out.data, m * n);
  }
  epilogue(c, product);
}

void bias_activation_forward(OpContext& c) {
  const float* bias = c.op.inputs > 1 ? c.input(1).data : nullptr;
  kernels::bias_activation_forward(view(c.input(0)), bias,
                                   c.op.as<ActivationAttributes>().activation, view(c.output(0)));
}

void bias_activation_backward(OpContext& c) {
  const auto activation = c.op.as<ActivationAttributes>().activation;
  const Matrix dy = c.input(0);
  const Matrix y = c.op.inputs > 1 ? c.input(1) : dy;
  STEPCAST_CHECK(c.op.inputs > 1 || activation == Activation::kNone,
                 "'{}' needs the forward's output", c.program.name(c.op));
  float* bias_gradient = c.op.outputs > 1 ? c.output(1).data : nullptr;
  kernels::bias_activation_backward(view(dy), view(y), activation, view(c.output(0)),
                                    bias_gradient);
}

void add(OpContext& c) {
  const Matrix out = c.output(0);
  const std::int64_t n = out.elements();
  // The output may be one of the inputs: start from it, so that nothing is overwritten early.
  std::size_t first = 0;
  for (std::size_t i = 0; i < c.op.inputs; ++i) {
    if (c.input(i).data == out.data) {
      first = i;
    }
  }
  if (c.op.inputs == 3 && c.input(2).rows == 1 && out.rows > 1) {
    // a + b + a bias row, row by row: one pass over memory.
    for (std::int64_t i = 0; i < out.rows; ++i) {
      float* row = out.data + i * out.columns;
      kernels::add(c.input(0).data + i * out.columns, c.input(1).data + i * out.columns, row,
                   out.columns);
      kernels::add(row, c.input(2).data, row, out.columns);
    }
    return;
  }
  if (c.op.inputs >= 2) {
    const std::size_t second = first == 0 ? 1 : 0;
    kernels::add(c.input(first).data, c.input(second).data, out.data, n);
    for (std::size_t i = 0; i < c.op.inputs; ++i) {
      if (i != first && i != second) {
        kernels::axpy(1.0F, c.input(i).data, out.data, n);
      }
    }
  } else if (c.input(0).data == out.data) {
    kernels::scale(out.data, 2.0F, out.data, n);
  } else {
    kernels::axpy(1.0F, c.input(0).data, out.data, n);
  }
}

void fill(OpContext& c) {
  for (std::size_t i = 0; i < c.op.outputs; ++i) {
    const Matrix out = c.output(i);
    kernels::fill(out.data, 0.0F, out.elements());
  }
}

void cast(OpContext& c) {
  const Matrix x = c.input(0);
  const Matrix y = c.output(0);
  if (c.op.format != Format::kBf16) {
    if (x.data != y.data) {
      kernels::copy(x.data, y.data, y.elements());
    }
    return;
  }
  constexpr std::int64_t kBlock = 4096;
  auto* rounded = reinterpret_cast<std::uint16_t*>(c.scratch_floats(kBlock / 2));
  for (std::int64_t i = 0; i < y.elements(); i += kBlock) {
    const std::int64_t n = std::min(kBlock, y.elements() - i);
    kernels::to_bfloat16(x.data + i, rounded, n);
    kernels::from_bfloat16(rounded, y.data + i, n);
  }
}

/// Consequences of an op's operands, worked out when it first runs, so that no step allocates.
struct GenericState : OpState {
  explicit GenericState(std::size_t ops) : updates(ops), copies(ops) {}
  std::vector<std::vector<ParameterUpdate>> updates;  ///< by op
  std::vector<std::vector<ColumnBlock>> copies;       ///< by op
};

std::size_t index_of(const OpContext& c) {
  return static_cast<std::size_t>(&c.op - c.program.ops.data());
}

void copy_columns(OpContext& c) {
  auto& blocks = static_cast<GenericState&>(*c.state).copies[index_of(c)];
  if (blocks.empty()) {
    blocks = column_blocks(c.program, c.op);
  }
  const std::int64_t rows =
      c.op.as<ColumnAttributes>().blocks >= 0 ? c.op.shape[0] : c.output(0).rows;
  for (const ColumnBlock& b : blocks) {
    const Matrix from = c.input(static_cast<std::size_t>(b.input));
    const Matrix to = c.output(static_cast<std::size_t>(b.output));
    if ((c.op.flags & op_flags::kAccumulate) != 0) {
      for (std::int64_t i = 0; i < rows; ++i) {
        kernels::axpy(1.0F, from.data + b.from_offset + i * b.from_pitch,
                      to.data + b.to_offset + i * b.to_pitch, b.columns);
      }
      continue;
    }
    kernels::copy_block({from.data + b.from_offset, rows, b.columns, b.from_pitch},
                        {to.data + b.to_offset, rows, b.columns, b.to_pitch});
  }
}

const std::vector<ParameterUpdate>& updates_of(OpContext& c) {
  auto& updates = static_cast<GenericState&>(*c.state).updates[index_of(c)];
  if (updates.empty()) {
    updates = parameter_updates(c.program, c.op);
  }
  return updates;
}

void optimizer(OpContext& c) {
  const OptimizerSettings settings = optimizer_settings(c.program, c.op, c.step);
  for (const ParameterUpdate& u : updates_of(c)) {
    const Matrix gradient = c.tensor(u.gradient);
    const Matrix weight = c.tensor(u.weight);
    float* first = u.states > 0 ? c.tensor(u.first).data : nullptr;
    float* second = u.states > 1 ? c.tensor(u.second).data : nullptr;
    if (settings.kind == OptimizerKind::kMuon && first != nullptr) {
      kernels::muon_momentum(gradient.data, first, weight.elements());
    } else if (settings.kind == OptimizerKind::kRowwiseAdagrad) {
      for (std::int64_t i = 0; i < weight.rows; ++i) {
        kernels::optimizer_update(settings, gradient.data + i * weight.columns,
                                  weight.data + i * weight.columns, first + i, nullptr,
                                  weight.columns);
      }
    } else if (settings.kind == OptimizerKind::kAdam && c.op.shape[1] > 0) {
      // A table: rows that were not looked up keep their moments, as in the fused backward.
      const std::int64_t width = c.op.shape[1];
      for (std::int64_t i = 0; i < weight.elements(); i += width) {
        const float* row = gradient.data + i;
        if (std::any_of(row, row + width, [](float g) { return g != 0; })) {
          kernels::optimizer_update(settings, row, weight.data + i, first + i, second + i, width);
        }
      }
    } else {
      kernels::optimizer_update(settings, gradient.data, weight.data, first, second,
                                weight.elements());
    }
  }
}

void orthogonalize(OpContext& c) {
  const Matrix x = c.output(0);
  const std::int64_t matrices = c.op.shape[2];
  const std::int64_t rows = x.rows / matrices;
  const std::int64_t columns = rows == c.op.shape[0] ? c.op.shape[1] : c.op.shape[0];
  for (std::int64_t i = 0; i < matrices; ++i) {
    kernels::orthogonalize(
        {x.data + i * rows * x.columns + c.op.shape[4], rows, columns, x.columns}, c.op.shape[3],
        c.output(1).data, c.output(2).data);
  }
}

template <typename T>
void load(const OpContext& c, const std::vector<T>& source, const Matrix& out) {
  const auto n = static_cast<std::size_t>(out.elements());
  const bool whole = !source.empty() && source.size() == n;
  const std::size_t first = whole ? 0 : static_cast<std::size_t>(c.microbatch) * n;
  STEPCAST_CHECK(first + n <= source.size(), "'{}' loads [{}, {}) of {} numbers",
                 c.program.name(c.op), first, first + n, source.size());
  std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(first), n, out.data);
}

void load_batch(OpContext& c) {
  for (const TensorId id : c.program.outputs(c.op)) {
    const Matrix out = c.tensor(id);
    switch (c.program.tensors[id].purpose) {
      case TensorPurpose::kDense:
        load(c, c.batch.dense, out);
        break;
      case TensorPurpose::kLabels:
        load(c, c.batch.labels, out);
        break;
      default:
        break;
    }
  }
}

}  // namespace

OpFamily generic_ops() {
  return {
      {STEPCAST_GENERIC_OPS(STEPCAST_OP) STEPCAST_CPU_OPS(STEPCAST_OP)},
      [](const ExecutionGraph&, const Program& program, std::int32_t) -> std::unique_ptr<OpState> {
        return std::make_unique<GenericState>(program.ops.size());
      }};
}

}  // namespace stepcast::runtime::cpu
