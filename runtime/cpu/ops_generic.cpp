#include <algorithm>
#include <cstring>
#include <string_view>

#include "core/error.h"
#include "runtime/cpu/kernels/activation.h"
#include "runtime/cpu/kernels/data_movement.h"
#include "runtime/cpu/kernels/elementwise.h"
#include "runtime/cpu/kernels/gemm.h"
#include "runtime/cpu/kernels/optimizer.h"
#include "runtime/cpu/op_context.h"

namespace stepcast::runtime::cpu {
namespace {

kernels::MatrixView view(const Matrix& m) { return {m.data, m.rows, m.columns}; }

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
  if (batch == 1) {
    kernels::gemm(shape, a.data, b.data, out.data);
  } else {
    kernels::batched_gemm(shape, batch, a.data, m * k, b.data, n * k, out.data, m * n);
  }
}

void bias_activation_forward(OpContext& c) {
  const float* bias = c.op.inputs > 1 ? c.input(1).data : nullptr;
  kernels::bias_activation_forward(view(c.input(0)), bias, static_cast<Activation>(c.op.variant),
                                   view(c.output(0)));
}

void bias_activation_backward(OpContext& c) {
  const auto activation = static_cast<Activation>(c.op.variant);
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

void copy_named_blocks(OpContext& c) {
  const std::int64_t rows = c.op.shape[0];
  for (const ColumnBlock& b : c.program.column_copies.at(static_cast<std::size_t>(c.op.detail))) {
    const Matrix from = c.input(static_cast<std::size_t>(b.input));
    const Matrix to = c.output(static_cast<std::size_t>(b.output));
    kernels::copy_block({from.data + b.from_offset, rows, b.columns, b.from_pitch},
                        {to.data + b.to_offset, rows, b.columns, b.to_pitch});
  }
}

/// Inputs side by side make the same matrix as the outputs side by side.
void copy_columns(OpContext& c) {
  if (c.op.detail >= 0) {
    copy_named_blocks(c);
    return;
  }
  std::size_t from = 0;
  std::size_t to = 0;
  std::int64_t from_column = 0;
  std::int64_t to_column = 0;
  while (from < c.op.inputs && to < c.op.outputs) {
    const kernels::MatrixView source = view(c.input(from));
    const kernels::MatrixView target = view(c.output(to));
    const std::int64_t width = std::min(source.columns - from_column, target.columns - to_column);
    kernels::copy_block(source.block(from_column, width), target.block(to_column, width));
    from_column += width;
    to_column += width;
    if (from_column == source.columns) {
      ++from;
      from_column = 0;
    }
    if (to_column == target.columns) {
      ++to;
      to_column = 0;
    }
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

/// Kept between steps so that no step allocates.
struct GenericState : OpState {
  struct Update {
    TensorId gradient = 0;
    TensorId weight = 0;
    TensorId first = 0;
    TensorId second = 0;
    int states = 0;
  };
  std::vector<std::vector<Update>> updates;  ///< by op
  std::vector<char> planned;
};

void collect(const OpContext& c, TensorRole role, std::vector<TensorId>& ids) {
  for (const auto operands : {c.program.inputs(c.op), c.program.outputs(c.op)}) {
    for (const TensorId id : operands) {
      if (c.program.tensors[id].role == role &&
          std::find(ids.begin(), ids.end(), id) == ids.end()) {
        ids.push_back(id);
      }
    }
  }
}

/// Gradient i belongs to weight i; states come per weight (m0, v0, m1, v1) or per kind
/// (m0, m1, v0, v1), told apart by their sizes only when they differ: the builder's order is
/// per weight when the names say so, that is when state i * states starts with weight i's name.
std::vector<GenericState::Update> plan_updates(const OpContext& c) {
  std::vector<TensorId> gradients;
  std::vector<TensorId> weights;
  std::vector<TensorId> states;
  collect(c, TensorRole::kGradient, gradients);
  collect(c, TensorRole::kParameter, weights);
  collect(c, TensorRole::kEmbedding, weights);  // replicated tables
  collect(c, TensorRole::kOptimizerState, states);
  STEPCAST_CHECK(
      !weights.empty() && gradients.size() == weights.size() && states.size() % weights.size() == 0,
      "'{}' has {} gradients, {} weights and {} states", c.program.name(c.op), gradients.size(),
      weights.size(), states.size());
  const std::size_t each = states.size() / weights.size();
  const bool per_weight =
      each < 2 || weights.size() < 2 ||
      c.program.tensors[states[1]].name.starts_with(c.program.tensors[weights[0]].name);
  std::vector<GenericState::Update> updates;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    GenericState::Update u{gradients[i], weights[i], 0, 0, static_cast<int>(each)};
    if (each > 0) {
      u.first = per_weight ? states[i * each] : states[i];
    }
    if (each > 1) {
      u.second = per_weight ? states[i * each + 1] : states[weights.size() + i];
    }
    updates.push_back(u);
  }
  return updates;
}

const std::vector<GenericState::Update>& updates_of(OpContext& c) {
  auto& state = static_cast<GenericState&>(*c.state);
  const auto index = static_cast<std::size_t>(&c.op - c.program.ops.data());
  if (state.planned[index] == 0) {
    state.updates[index] = plan_updates(c);
    state.planned[index] = 1;
  }
  return state.updates[index];
}

void optimizer(OpContext& c) {
  kernels::OptimizerSettings settings;
  settings.kind = static_cast<OptimizerKind>(c.op.variant);
  settings.learning_rate = learning_rate(settings.kind);
  settings.step = c.step + 1;
  for (const GenericState::Update& u : updates_of(c)) {
    const Matrix gradient = c.tensor(u.gradient);
    const Matrix weight = c.tensor(u.weight);
    float* first = u.states > 0 ? c.tensor(u.first).data : nullptr;
    float* second = u.states > 1 ? c.tensor(u.second).data : nullptr;
    if (settings.kind == OptimizerKind::kRowwiseAdagrad) {
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
    const std::string_view name = c.program.tensors[id].name;
    const Matrix out = c.tensor(id);
    if (name.ends_with("dense")) {
      load(c, c.batch.dense, out);
    } else if (name.ends_with("labels")) {
      load(c, c.batch.labels, out);
    } else if (name.ends_with("tokens")) {
      load(c, c.batch.tokens, out);
    }
  }
}

}  // namespace

OpFamily generic_ops() {
  return {{{OpKind::kGemm, gemm},
           {OpKind::kBiasActivationForward, bias_activation_forward},
           {OpKind::kBiasActivationBackward, bias_activation_backward},
           {OpKind::kAdd, add},
           {OpKind::kCopyColumns, copy_columns},
           {OpKind::kFill, fill},
           {OpKind::kCast, cast},
           {OpKind::kOptimizer, optimizer},
           {OpKind::kLoadBatch, load_batch}},
          [](const Job&, const Program& program, std::int32_t) -> std::unique_ptr<OpState> {
            auto state = std::make_unique<GenericState>();
            state->updates.resize(program.ops.size());
            state->planned.assign(program.ops.size(), 0);
            return state;
          }};
}

}  // namespace stepcast::runtime::cpu
