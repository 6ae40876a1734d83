#include <memory>

#include "core/error.h"
#include "runtime/cpu/kernels/activation.h"
#include "runtime/cpu/kernels/attention.h"
#include "runtime/cpu/kernels/elementwise.h"
#include "runtime/cpu/kernels/gemm.h"
#include "runtime/cpu/op_context.h"
#include "runtime/expert_ops.h"
#include "runtime/expert_plan.h"

namespace stepcast::runtime::cpu {
namespace {

using kernels::MatrixView;

struct ExpertState : OpState {
  ExpertState(const ExecutionGraph& graph, const Program& program, std::int32_t rank)
      : plans(program, [&](const ExpertRouting& routing) {
          return std::make_unique<ExpertPlan>(graph, routing, rank);
        }) {}
  ExpertLayers<ExpertPlan> plans;
};

std::int64_t part_of(const OpContext& c) { return routing_of(c.program, c.op).part; }

/// The plan of the micro-batch, drawn by the first op that asks: the router.
const ExpertPlan& plan_of(const OpContext& c) {
  const auto& state = static_cast<const ExpertState&>(*c.state);
  ExpertPlan& plan = state.plans.of(c.op, c.microbatch);
  if (plan.draw(c.step, c.microbatch)) {
    plan.place_copies();
  }
  return plan;
}

float* row(const Matrix& m, std::int64_t i) { return m.data + i * m.columns; }

void require_room(const OpContext& c, const Matrix& m, std::int64_t rows) {
  STEPCAST_CHECK(rows <= m.rows, "'{}' needs {} rows of a tensor of {}", c.program.name(c.op), rows,
                 m.rows);
}

// Router.

void route_forward(OpContext& c) {
  plan_of(c);
  const Matrix logits = c.input(0);
  const Matrix probabilities = c.output(0);
  kernels::copy(logits.data, probabilities.data, logits.elements());
  kernels::softmax_rows(view(probabilities), probabilities.columns, nullptr);
}

void route_backward(OpContext& c) {
  const Matrix p = c.input(1);
  const Matrix d = c.output(0);
  for (std::int64_t i = 0; i < p.rows; ++i) {
    const float* pi = row(p, i);
    float* di = row(d, i);
    float sum = 0;
    for (std::int64_t e = 0; e < p.columns; ++e) {
      sum += pi[e] * di[e];
    }
    for (std::int64_t e = 0; e < p.columns; ++e) {
      di[e] = pi[e] * (di[e] - sum);
    }
  }
}

// Copies.

/// Blocks of the order in which copies come to that of this rank's experts, or back.
void sort_copies(OpContext& c) {
  const ExpertPlan& plan = plan_of(c);
  const Matrix from = c.input(0);
  const Matrix to = c.output(0);
  const bool there = c.op.as<DispatchAttributes>().way == CopyWay::kThere;
  const std::int64_t part = part_of(c);
  for (std::int64_t s = 0; s < plan.sources; ++s) {
    for (std::int64_t l = 0; l < plan.local; ++l) {
      const auto come =
          ExpertPlan::blocks(plan.unsorted, (part * plan.sources + s) * plan.local + l, 1);
      const auto sorted =
          ExpertPlan::blocks(plan.sorted, (part * plan.local + l) * plan.sources + s, 1);
      require_room(c, there ? to : from, sorted.first + sorted.count);
      require_room(c, there ? from : to, come.first + come.count);
      kernels::copy(row(from, there ? come.first : sorted.first),
                    row(to, there ? sorted.first : come.first), come.count * from.columns);
    }
  }
}

void dispatch_forward(OpContext& c) {
  if (c.op.inputs == 1) {
    sort_copies(c);
    return;
  }
  const ExpertPlan& plan = plan_of(c);
  const Matrix rows = c.input(0);
  const Matrix copies = c.output(0);
  require_room(c, copies, plan.copies());
  for (std::int64_t i = 0; i < plan.copies(); ++i) {
    kernels::copy(row(rows, plan.row_of[static_cast<std::size_t>(i)]), row(copies, i),
                  rows.columns);
  }
}

/// out_i = sum over the row's copies of weight(row, expert) * copy.
template <class Weight>
void sum_copies(const ExpertPlan& plan, const Matrix& copies, const Matrix& out,
                const Weight& weight) {
  for (std::int64_t i = 0; i < out.rows; ++i) {
    float* sum = row(out, i);
    kernels::fill(sum, 0, out.columns);
    for (std::int64_t j = i * plan.per_token; j < (i + 1) * plan.per_token; ++j) {
      const std::int64_t copy = plan.copy_of[static_cast<std::size_t>(j)];
      if (copy >= 0) {
        kernels::axpy(weight(i, plan.chosen[static_cast<std::size_t>(j)]), row(copies, copy), sum,
                      out.columns);
      }
    }
  }
}

void dispatch_backward(OpContext& c) {
  sum_copies(plan_of(c), c.input(0), c.output(0), [](std::int64_t, std::int32_t) { return 1.0F; });
}

void combine_forward(OpContext& c) {
  const Matrix p = c.input(1);
  sum_copies(plan_of(c), c.input(0), c.output(0),
             [&](std::int64_t i, std::int32_t expert) { return row(p, i)[expert]; });
}

void combine_backward(OpContext& c) {
  const ExpertPlan& plan = plan_of(c);
  const Matrix d_rows = c.input(0);
  const Matrix made = c.input(1);
  const Matrix p = c.input(2);
  const Matrix d_copies = c.output(0);
  const Matrix d_weights = c.output(1);
  require_room(c, d_copies, plan.copies());
  kernels::fill(d_weights.data, 0, d_weights.elements());
  for (std::int64_t i = 0; i < plan.copies(); ++i) {
    const std::int64_t r = plan.row_of[static_cast<std::size_t>(i)];
    const std::int32_t expert = plan.expert_of[static_cast<std::size_t>(i)];
    const float* dy = row(d_rows, r);
    kernels::scale(dy, row(p, r)[expert], row(d_copies, i), d_rows.columns);
    row(d_weights, r)[expert] = kernels::dot(dy, row(made, i), d_rows.columns);
  }
}

// Experts.

void grouped_gemm(OpContext& c) {
  const ExpertPlan& plan = plan_of(c);
  const auto [m, n, k, batches, unused4, unused5] = c.op.shape;
  STEPCAST_CHECK(batches == plan.local, "'{}' has {} products, not one for each of {} experts",
                 c.program.name(c.op), batches, plan.local);
  kernels::Gemm shape;
  shape.transpose_a = (c.op.flags & op_flags::kTransposeA) != 0;
  shape.transpose_b = (c.op.flags & op_flags::kTransposeB) != 0;
  shape.beta = (c.op.flags & op_flags::kAccumulate) != 0 ? 1.0F : 0.0F;
  shape.n = n;
  const Matrix a = c.input(0);
  const Matrix b = c.input(1);
  const Matrix out = c.output(0);
  for (std::int64_t expert = 0; expert < plan.local; ++expert) {
    const auto rows = plan.rows_of(part_of(c), expert);
    require_room(c, a, rows.first + rows.count);
    if (shape.transpose_a) {  // gradient of this expert's weights
      require_room(c, b, rows.first + rows.count);
      shape.m = m;
      shape.k = rows.count;
      kernels::gemm(shape, row(a, rows.first), row(b, rows.first), out.data + expert * m * n);
    } else {
      require_room(c, out, rows.first + rows.count);
      shape.m = rows.count;
      shape.k = k;
      kernels::gemm(shape, row(a, rows.first), b.data + expert * n * k, row(out, rows.first));
    }
  }
}

/// Rows of this rank's experts in the op's part.
MatrixView computed(const OpContext& c, const Matrix& m) {
  const auto rows = plan_of(c).computed(part_of(c));
  require_room(c, m, rows.first + rows.count);
  return view(m).slice(rows.first, rows.count);
}

void routed_activation_forward(OpContext& c) {
  kernels::activation_forward(c.op.as<ActivationAttributes>().activation, computed(c, c.input(0)),
                              computed(c, c.output(0)));
}

void routed_activation_backward(OpContext& c) {
  kernels::activation_backward(c.op.as<ActivationAttributes>().activation, computed(c, c.input(1)),
                               computed(c, c.input(0)), computed(c, c.output(0)));
}

// Ranks.

void exchange(OpContext& c) {
  const auto copies = plan_of(c).exchange(part_of(c), c.op.as<CollectiveAttributes>().way);
  const Matrix from = c.input(0);
  const Matrix to = c.output(0);
  struct Side {
    std::vector<std::int64_t> counts, offsets;
  };
  const auto side = [&c](const std::vector<ExpertPlan::Block>& blocks, const Matrix& m) {
    Side s;
    for (const ExpertPlan::Block& block : blocks) {
      require_room(c, m, block.first + block.count);
      s.counts.push_back(block.count * m.columns);
      s.offsets.push_back(block.first * m.columns);
    }
    return s;
  };
  const Side send = side(copies.send, from);
  const Side receive = side(copies.receive, to);
  c.bytes_sent =
      static_cast<double>(copies.leaving(c.collectives->rank()) * from.columns) * sizeof(float);
  c.collectives->all_to_all_v(from.data, send.counts, send.offsets, to.data, receive.counts,
                              receive.offsets, sizeof(float));
}

/// Tensor ranks meet with equal parts: as many rows as the one with most has. Copies of all stand
/// in scratch memory meanwhile.
struct GatheredCopies {
  explicit GatheredCopies(OpContext& context, std::int64_t columns)
      : c(context),
        plan(plan_of(c)),
        tensors(plan.tensors()),
        width(columns),
        rows(plan.most_gathered(part_of(c))) {
    all = c.scratch_floats(static_cast<std::size_t>((tensors + 1) * count()));
    own = all + tensors * count();
    c.bytes_sent = static_cast<double>(count() * (tensors - 1)) * sizeof(float);
  }
  [[nodiscard]] ExpertPlan::Block of(std::int64_t tensor) const {
    return plan.gathered_from(part_of(c), tensor);
  }
  [[nodiscard]] std::int64_t count() const { return rows * width; }
  [[nodiscard]] ExpertPlan::Block brought() const {
    return plan.brought(part_of(c), c.collectives->rank());
  }

  OpContext& c;
  const ExpertPlan& plan;
  std::int64_t tensors;
  std::int64_t width;
  std::int64_t rows;
  float* all = nullptr;  ///< [tensor rank][rows]
  float* own = nullptr;  ///< [rows]
};

void gather_copies(OpContext& c) {
  const Matrix from = c.input(0);
  const Matrix to = c.output(0);
  const GatheredCopies g(c, from.columns);
  const auto own = g.brought();
  require_room(c, from, own.first + own.count);
  kernels::fill(g.own, 0, g.count());
  kernels::copy(row(from, own.first), g.own, own.count * g.width);
  c.collectives->all_gather(g.own, g.all, static_cast<std::size_t>(g.count()));
  for (std::int64_t t = 0; t < g.tensors; ++t) {
    const auto block = g.of(t);
    require_room(c, to, block.first + block.count);
    kernels::copy(g.all + t * g.count(), row(to, block.first), block.count * g.width);
  }
}

void sum_gathered(OpContext& c) {
  const Matrix from = c.input(0);
  const Matrix to = c.output(0);
  const GatheredCopies g(c, from.columns);
  kernels::fill(g.all, 0, g.tensors * g.count());
  for (std::int64_t t = 0; t < g.tensors; ++t) {
    const auto block = g.of(t);
    require_room(c, from, block.first + block.count);
    kernels::copy(row(from, block.first), g.all + t * g.count(), block.count * g.width);
  }
  c.collectives->reduce_scatter(g.all, g.own, static_cast<std::size_t>(g.count()));
  const auto own = g.brought();
  require_room(c, to, own.first + own.count);
  kernels::copy(g.own, row(to, own.first), own.count * g.width);
}

}  // namespace

OpFamily expert_ops() {
  return {{},
          [](const ExecutionGraph& graph, const Program& program,
             std::int32_t rank) -> std::unique_ptr<OpState> {
            return std::make_unique<ExpertState>(graph, program, rank);
          },
          {STEPCAST_EXPERT_OPS(STEPCAST_OP)}};
}

}  // namespace stepcast::runtime::cpu
