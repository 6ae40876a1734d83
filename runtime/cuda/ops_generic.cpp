
#include "core/error.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernels/activation.h"
#include "runtime/cuda/kernels/elementwise.h"
#include "runtime/cuda/kernels/optimizer.h"
#include "runtime/cuda/op_context.h"
#include "runtime/op_operands.h"

namespace stepcast::runtime::cuda {
namespace {

using kernels::ConstMatrixView;
using kernels::ConstVector;
using kernels::MatrixView;
using kernels::Vector;

/// Consequences of an op's operands, worked out when it first runs.
struct GenericState : OpState {
  explicit GenericState(std::size_t ops) : updates(ops), copies(ops) {}
  std::vector<std::vector<ParameterUpdate>> updates;  ///< by op
  std::vector<std::vector<ColumnBlock>> copies;       ///< by op
};

std::size_t index_of(const OpContext& c) {
  return static_cast<std::size_t>(&c.op - c.program.ops.data());
}

void gemm(OpContext& c) {
  if (has_epilogue(c.op)) {
    const FusedProduct product =
        fused_product(c.program, c.op, [&c](TensorId id) { return c.tensor(id); });
    c.products.run(product, c.workspace(FusedProducts::workspace_bytes(product)), c.stream);
    return;
  }
  const Product product = product_of(c.program, c.op);
  const void* a = c.input(0).data;
  const void* b = c.input(1).data;
  void* out = c.output(0).data;
  const auto address = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
  const MatmulPlan plan = matmul_plan(product, address(a), address(b), address(out));
  c.multiply(product, {a, c.quantised.a(c.issue)}, {b, c.quantised.b(c.issue)}, out,
             c.workspace(Matmul::workspace_bytes(plan)), c.stream);
}

void bias_activation_forward(OpContext& c) {
  const ConstVector bias = c.op.inputs > 1 ? ConstVector(c.vector(c.input(1))) : ConstVector();
  kernels::activation_forward(c.op.as<ActivationAttributes>().activation, c.input(0), bias,
                              c.output(0), c.stream);
}

void bias_activation_backward(OpContext& c) {
  const auto activation = c.op.as<ActivationAttributes>().activation;
  const MatrixView dy = c.input(0);
  const MatrixView y = c.op.inputs > 1 ? c.input(1) : dy;
  STEPCAST_CHECK(c.op.inputs > 1 || activation == Activation::kNone,
                 "'{}' needs the forward's output", c.program.name(c.op));
  const Vector d_bias = c.op.outputs > 1 ? c.vector(c.output(1)) : Vector{};
  const std::size_t bytes =
      d_bias.data != nullptr ? kernels::activation_backward_workspace(dy.rows, dy.columns) : 0;
  kernels::bias_activation_backward(activation, dy, y, c.output(0), d_bias, c.workspace(bytes),
                                    c.stream);
}

/// The output may be one of the inputs: start from it, so that nothing is overwritten early.
void add(OpContext& c) {
  const MatrixView out = c.output(0);
  // Operands of other shapes have the same number of elements.
  const auto input = [&](std::size_t i) {
    const MatrixView x = c.input(i);
    return MatrixView(x.data, x.format, out.rows, out.columns);
  };
  if (c.op.inputs == 3 && c.input(2).rows == 1 && out.rows > 1) {
    kernels::add_with_row(c.input(0), c.input(1), c.vector(c.input(2)), out, c.stream);
    return;
  }
  std::size_t first = 0;
  for (std::size_t i = 0; i < c.op.inputs; ++i) {
    first = c.input(i).data == out.data ? i : first;
  }
  if (c.op.inputs == 1) {  // y += x
    kernels::add(input(0), out, out, c.stream);
    return;
  }
  const std::size_t second = first == 0 ? 1 : 0;
  kernels::add(input(first), input(second), out, c.stream);
  for (std::size_t i = 0; i < c.op.inputs; ++i) {
    if (i != first && i != second) {
      kernels::axpy(1.0F, input(i), out, c.stream);
    }
  }
}

void copy_columns(OpContext& c) {
  const kernels::Index rows =
      c.op.as<ColumnAttributes>().blocks >= 0 ? c.op.shape[0] : c.output(0).rows;
  auto& columns = static_cast<GenericState&>(*c.state).copies[index_of(c)];
  if (columns.empty()) {
    columns = column_blocks(c.program, c.op);
  }
  std::vector<kernels::BlockCopy> blocks;
  for (const ColumnBlock& b : columns) {
    const MatrixView from = c.input(static_cast<std::size_t>(b.input));
    const MatrixView to = c.output(static_cast<std::size_t>(b.output));
    const auto at = [](const MatrixView& m, std::int64_t offset) {
      return static_cast<char*>(m.data) +
             static_cast<std::size_t>(offset) * kernels::element_bytes(m.format);
    };
    blocks.push_back({{at(from, b.from_offset), from.format, rows, b.columns, b.from_pitch},
                      {at(to, b.to_offset), to.format, rows, b.columns, b.to_pitch}});
  }
  if (c.has(op_flags::kAccumulate)) {
    for (const kernels::BlockCopy& b : blocks) {
      kernels::add(b.from, b.to, b.to, c.stream);
    }
    return;
  }
  kernels::copy_blocks(blocks.data(), static_cast<kernels::Index>(blocks.size()), c.stream);
}

void fill(OpContext& c) {
  for (std::size_t i = 0; i < c.op.outputs; ++i) {
    const MatrixView out = c.output(i);
    check(cudaMemsetAsync(out.data, 0,
                          static_cast<std::size_t>(out.elements()) * stored_bytes(out.format),
                          c.stream),
          "cudaMemsetAsync");
  }
}

void cast(OpContext& c) {
  if (c.op.format == Format::kFp8) {  // the values stay; products read the copies
    c.quantised.make(c.issue, c.input(0), c.stream);
  } else if (c.op.format == Format::kBf16 || c.op.format == Format::kFp16) {
    kernels::copy_rounded(c.input(0), c.op.format, c.output(0), c.stream);
  } else {
    kernels::copy_block(c.input(0), c.output(0), c.stream);
  }
}

void optimizer(OpContext& c) {
  const OptimizerSettings settings = optimizer_settings(c.program, c.op, c.step);
  std::vector<kernels::Parameter> parameters;
  // A table: rows that were not looked up keep their moments, as in the fused backward.
  const bool lazy = settings.kind == OptimizerKind::kAdam && c.op.shape[1] > 0;
  auto& updates = static_cast<GenericState&>(*c.state).updates[index_of(c)];
  if (updates.empty()) {
    updates = parameter_updates(c.program, c.op);
  }
  for (const ParameterUpdate& u : updates) {
    kernels::Parameter p;
    p.gradient = c.tensor(u.gradient);
    p.weights = c.tensor(u.weight);
    if (lazy) {  // by rows of the table
      const kernels::Index width = c.op.shape[1];
      const kernels::Index rows = p.weights.elements() / width;
      p.gradient = {p.gradient.data, p.gradient.format, rows, width};
      p.weights = {p.weights.data, p.weights.format, rows, width};
    }
    p.first = u.states > 0 ? c.floats(c.tensor(u.first)) : nullptr;
    p.second = u.states > 1 ? c.floats(c.tensor(u.second)) : nullptr;
    p.master = u.master ? c.floats(c.tensor(*u.master)) : nullptr;
    parameters.push_back(p);
  }
  kernels::optimizer_update(settings, parameters.data(),
                            static_cast<kernels::Index>(parameters.size()), lazy, c.adam_factors,
                            c.stream);
}

void load(OpContext& c, const BatchLayout::List& list, const MatrixView& out) {
  const auto n = static_cast<std::size_t>(out.elements());
  const bool whole = list.count == n;
  const std::size_t first = whole ? 0 : static_cast<std::size_t>(c.microbatch) * n;
  STEPCAST_CHECK(first + n <= list.count, "'{}' loads [{}, {}) of {} numbers", c.program.name(c.op),
                 first, first + n, list.count);
  const ConstMatrixView from(c.batch.list<float>(list) + first, Format::kFp32, out.rows,
                             out.columns);
  kernels::copy_block(from, out, c.stream);
}

void load_batch(OpContext& c) {
  c.batch.upload(c.stream);
  for (std::size_t i = 0; i < c.op.outputs; ++i) {
    const TensorPurpose purpose = c.program.tensors[c.program.outputs(c.op)[i]].purpose;
    if (purpose == TensorPurpose::kDense) {
      load(c, c.batch.layout().dense, c.output(i));
    } else if (purpose == TensorPurpose::kLabels) {
      load(c, c.batch.layout().labels, c.output(i));
    }
  }
}

}  // namespace

OpFamily generic_ops() {
  return {{STEPCAST_GENERIC_OPS(STEPCAST_OP)},
          [](const ExecutionGraph&, const Program& program, std::int32_t,
             Ledger&) -> std::unique_ptr<OpState> {
            return std::make_unique<GenericState>(program.ops.size());
          }};
}

}  // namespace stepcast::runtime::cuda
