#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/expert_points.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/device_memory.h"
#include "runtime/cuda/kernels/activation.h"
#include "runtime/cuda/kernels/experts.h"
#include "runtime/cuda/nccl_exchange.h"
#include "runtime/cuda/ops_experts.h"
#include "runtime/expert_plan.h"

// Ops on copies of routed tokens. Operands and semantics: runtime/cpu/ops_experts.cpp. The host
// knows how many copies go where, as the draw is a closed form; which copy is whose, the device
// works out itself. Nothing is read back.
namespace stepcast::runtime::cuda {
namespace {

using kernels::MatrixView;

/// Where each expert's share begins (core/expert_points.h). A draw answers for points: a bound is
/// the first point that belongs to its expert or a later one.
std::vector<std::uint64_t> bounds_of(const ExpertDraw& draw) {
  const std::uint64_t end = static_cast<std::uint64_t>(draw.per_token()) * expert_points::kUnit;
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(draw.per_token()));
  std::vector<std::uint64_t> bounds{0};
  for (std::int32_t expert = 1; expert < draw.experts(); ++expert) {
    std::uint64_t first = bounds.back();
    for (std::uint64_t last = end; first < last;) {
      const std::uint64_t middle = first + (last - first) / 2;
      draw.experts_of(0, middle % expert_points::kUnit, chosen);
      if (chosen[middle / expert_points::kUnit] >= expert) {
        last = middle;
      } else {
        first = middle + 1;
      }
    }
    bounds.push_back(first);
  }
  bounds.push_back(end);
  return bounds;
}

/// The plan of one layer and micro-batch, and what of it the device has: its orders, and each
/// choice's expert and copy.
struct LayerPlan {
  ExpertPlan plan;
  const std::vector<std::uint64_t>& bounds;
  std::size_t words = 0;           ///< of [bounds][sent][unsorted][sorted], 8 bytes each
  std::int64_t* host = nullptr;    ///< the orders, page-locked
  std::int64_t* orders = nullptr;  ///< device
  kernels::PlacedCopies placed{};
};

/// Plans by routing and micro-batch: of the first part of each layer.
struct ExpertState : OpState {
  ExpertState(const Job& job, const Program& program, std::int32_t rank, Ledger& ledger)
      : microbatches(program.microbatches),
        host(Buffer::Kind::kPinned, "expert routing"),
        orders(Buffer::Kind::kDevice, "expert routing", &ledger),
        copies(Buffer::Kind::kDevice, "expert routing", &ledger) {
    std::size_t words = 0;
    std::size_t choices = 0;
    for (const ExpertRouting& routing : program.routings) {
      if (bounds.find(routing.draw.get()) == bounds.end()) {
        bounds.emplace(routing.draw.get(), bounds_of(*routing.draw));
      }
      for (std::int32_t m = 0; m < microbatches; ++m) {
        auto& layer = plans.emplace_back();
        if (routing.part == 0) {
          layer = std::make_unique<LayerPlan>(
              LayerPlan{{job, routing, rank}, bounds.at(routing.draw.get())});
          const ExpertPlan& p = layer->plan;
          layer->words =
              layer->bounds.size() +
              static_cast<std::size_t>(routing.parts * (p.experts + 2 * p.sources * p.local) + 3);
          words += layer->words;
          choices += static_cast<std::size_t>(routing.rows * p.per_token);
        }
      }
    }
    auto* next_host = host.reserve_of<std::int64_t>(words);
    auto* next_orders = orders.reserve_of<std::int64_t>(words);
    auto* next_copies = copies.reserve_of<std::int32_t>(2 * choices);
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (LayerPlan* layer = plans[i].get()) {
        const auto& routing = program.routings[i / static_cast<std::size_t>(microbatches)];
        const std::int64_t lists = routing.rows * layer->plan.per_token;
        layer->host = std::exchange(next_host, next_host + layer->words);
        layer->orders = std::exchange(next_orders, next_orders + layer->words);
        layer->placed = {layer->plan.per_token, next_copies, next_copies + lists};
        next_copies += 2 * lists;
      }
    }
  }
  std::int32_t microbatches;
  std::map<const ExpertDraw*, std::vector<std::uint64_t>> bounds;
  Buffer host, orders, copies;
  std::vector<std::unique_ptr<LayerPlan>> plans;
};

const ExpertRouting& routing_of(const OpContext& c) {
  return c.program.routings[static_cast<std::size_t>(c.op.routing)];
}
std::int64_t part_of(const OpContext& c) { return routing_of(c).part; }

/// Sends the orders of a plan just drawn to the device and has it place the copies.
void place(const OpContext& c, LayerPlan& layer) {
  const ExpertPlan& plan = layer.plan;
  const ExpertRouting& routing = routing_of(c);
  const std::size_t shares = layer.bounds.size();
  std::memcpy(layer.host, layer.bounds.data(), shares * sizeof(std::uint64_t));
  std::int64_t* end = layer.host + shares;
  for (const auto* order : {&plan.sent, &plan.unsorted, &plan.sorted}) {
    end = std::copy(order->begin(), order->end(), end);
  }
  STEPCAST_CHECK(end == layer.host + layer.words, "{} words of orders, {} expected",
                 end - layer.host, layer.words);
  check(cudaMemcpyAsync(layer.orders, layer.host, layer.words * sizeof(std::int64_t),
                        cudaMemcpyHostToDevice, c.stream),
        "cudaMemcpyAsync of the order of copies");
  kernels::place_copies({.rows = routing.rows,
                         .per_token = plan.per_token,
                         .experts = plan.experts,
                         .parts = routing.parts,
                         .first_token = static_cast<std::uint64_t>(plan.first_token),
                         .phase = plan.phase,
                         .bounds = reinterpret_cast<const std::uint64_t*>(layer.orders),
                         .sent = layer.orders + shares},
                        layer.placed, c.stream);
}

/// The plan of the micro-batch, drawn by the first op that asks: the router.
const LayerPlan& layer_of(const OpContext& c) {
  const auto& state = static_cast<const ExpertState&>(*c.state);
  const std::int64_t first = c.op.routing - part_of(c);
  LayerPlan& layer =
      *state.plans[static_cast<std::size_t>(first * state.microbatches + c.microbatch)];
  if (layer.plan.draw(c.step, c.microbatch)) {
    place(c, layer);
  }
  return layer;
}
const ExpertPlan& plan_of(const OpContext& c) { return layer_of(c).plan; }

void require_room(const OpContext& c, const MatrixView& m, const ExpertPlan::Block& rows) {
  STEPCAST_CHECK(rows.first + rows.count <= m.rows, "'{}' needs {} rows of a tensor of {}",
                 c.program.name(c.op), rows.first + rows.count, m.rows);
}
MatrixView rows_of(const OpContext& c, const MatrixView& m, const ExpertPlan::Block& rows) {
  require_room(c, m, rows);
  return m.slice(rows.first, rows.count);
}

std::size_t bytes_of(const MatrixView& m) {
  return static_cast<std::size_t>(m.elements()) * stored_bytes(m.format);
}
void copy(const OpContext& c, const MatrixView& from, const MatrixView& to) {
  check(cudaMemcpyAsync(to.data, from.data, bytes_of(from), cudaMemcpyDeviceToDevice, c.stream),
        "cudaMemcpyAsync");
}

// Router.

void route_forward(OpContext& c) {
  layer_of(c);
  kernels::route_forward(c.input(0), c.output(0), c.stream);
}

void route_backward(OpContext& c) { kernels::route_backward(c.input(1), c.output(0), c.stream); }

// Copies.

/// Rows of this rank's experts in the op's part, in either order.
ExpertPlan::Block expert_rows(const OpContext& c, const ExpertPlan& plan) {
  const std::int64_t blocks = plan.local * plan.sources;
  return ExpertPlan::blocks(plan.sorted, part_of(c) * blocks, blocks);
}

void sort_copies(OpContext& c) {
  const LayerPlan& layer = layer_of(c);
  const ExpertPlan& plan = layer.plan;
  const auto rows = expert_rows(c, plan);
  require_room(c, c.input(0), rows);
  require_room(c, c.output(0), rows);
  const std::int64_t first = part_of(c) * plan.local * plan.sources;
  const std::int64_t* unsorted = layer.orders + layer.bounds.size() + plan.sent.size();
  kernels::sort_copies({.sources = plan.sources,
                        .local = plan.local,
                        .first_come = unsorted + first,
                        .first_sorted = unsorted + plan.unsorted.size() + first,
                        .there = static_cast<CopyWay>(c.op.variant) == CopyWay::kThere,
                        .first = rows.first,
                        .rows = rows.count},
                       c.input(0), c.output(0), c.stream);
}

void dispatch_forward(OpContext& c) {
  if (c.op.inputs == 1) {
    sort_copies(c);
    return;
  }
  const LayerPlan& layer = layer_of(c);
  require_room(c, c.output(0), {0, layer.plan.copies()});
  kernels::dispatch_copies(c.input(0), layer.placed, c.output(0), c.stream);
}

void dispatch_backward(OpContext& c) {
  kernels::combine_copies(c.input(0), layer_of(c).placed, {}, c.output(0), c.stream);
}

void combine_forward(OpContext& c) {
  kernels::combine_copies(c.input(0), layer_of(c).placed, c.input(1), c.output(0), c.stream);
}

void combine_backward(OpContext& c) {
  const LayerPlan& layer = layer_of(c);
  require_room(c, c.output(0), {0, layer.plan.copies()});
  kernels::combine_copies_backward(c.input(0), c.input(1), c.input(2), layer.placed, c.output(0),
                                   c.output(1), c.stream);
}

// Experts.

/// Whether all experts held here got as many copies: one strided batch then serves them.
bool even(const OpContext& c, const ExpertPlan& plan) {
  for (std::int64_t expert = 1; expert < plan.local; ++expert) {
    if (plan.rows_of(part_of(c), expert).count != plan.rows_of(part_of(c), 0).count) {
      return false;
    }
  }
  return true;
}

void grouped_gemm(OpContext& c) {
  const ExpertPlan& plan = plan_of(c);
  const auto [m, n, k, batches, unused4, unused5] = c.op.shape;
  STEPCAST_CHECK(batches == plan.local, "'{}' has {} products, not one for each of {} experts",
                 c.program.name(c.op), batches, plan.local);
  const MatrixView a = c.input(0);
  const MatrixView b = c.input(1);
  const MatrixView out = c.output(0);
  Product p;
  p.n = n;
  p.transpose_a = c.has(op_flags::kTransposeA);
  p.transpose_b = c.has(op_flags::kTransposeB);
  p.beta = c.has(op_flags::kAccumulate) ? 1.0F : 0.0F;
  p.a = a.format;
  p.b = b.format;
  p.c = out.format;
  p.compute = c.op.format;
  p.batch = even(c, plan) ? plan.local : 1;
  for (std::int64_t expert = 0; expert < plan.local; expert += p.batch) {
    const auto rows = plan.rows_of(part_of(c), expert);
    const ExpertPlan::Block all{rows.first, p.batch * rows.count};
    const auto address = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at); };
    const auto at = [](const MatrixView& matrix, std::int64_t element) {
      return static_cast<char*>(matrix.data) +
             element * static_cast<std::int64_t>(stored_bytes(matrix.format));
    };
    const void* left = rows_of(c, a, all).data;
    const void* right = nullptr;
    void* result = nullptr;
    if (p.transpose_a) {  // gradients of these experts' weights
      p.m = m;
      p.k = rows.count;
      right = rows_of(c, b, all).data;
      result = at(out, expert * m * n);
    } else {
      p.m = rows.count;
      p.k = k;
      right = at(b, expert * n * k);
      result = rows_of(c, out, all).data;
    }
    p.step_a = p.m * p.k;
    p.step_b = p.n * p.k;
    p.step_c = p.m * p.n;
    std::size_t workspace = 0;
    if (p.m > 0 && p.k > 0) {
      workspace =
          Matmul::workspace_bytes(matmul_plan(p, address(left), address(right), address(result)));
    }
    c.multiply(p, left, right, result, c.workspace(workspace), c.stream);
  }
}

MatrixView computed(const OpContext& c, const MatrixView& m) {
  return rows_of(c, m, expert_rows(c, plan_of(c)));
}

void activation_forward(OpContext& c) {
  kernels::activation_forward(static_cast<Activation>(c.op.variant), computed(c, c.input(0)), {},
                              computed(c, c.output(0)), c.stream);
}

void activation_backward(OpContext& c) {
  kernels::activation_backward(static_cast<Activation>(c.op.variant), computed(c, c.input(1)), {},
                               computed(c, c.input(0)), computed(c, c.output(0)), {}, {}, c.stream);
}

// Ranks.

void exchange(OpContext& c) {
  const ExpertPlan& plan = plan_of(c);
  const MatrixView from = c.input(0);
  const MatrixView to = c.output(0);
  const bool there = static_cast<CopyWay>(c.op.variant) == CopyWay::kThere;
  std::vector<std::int64_t> send;
  std::vector<std::int64_t> receive;
  ExpertPlan::Block all_out;  // blocks of a part stand side by side in the order of members
  ExpertPlan::Block all_in;
  for (std::int64_t member = 0; member < plan.members; ++member) {
    const auto own = plan.sent_to(part_of(c), member);
    const auto theirs = plan.received_from(part_of(c), member);
    const auto& out = there ? own : theirs;
    const auto& in = there ? theirs : own;
    if (member == 0) {
      all_out.first = out.first;
      all_in.first = in.first;
    }
    all_out.count += out.count;
    all_in.count += in.count;
    send.push_back(out.count * from.columns);
    receive.push_back(in.count * from.columns);
    c.bytes_sent += member == c.communicator->rank()
                        ? 0
                        : static_cast<double>(out.count * from.columns) *
                              static_cast<double>(stored_bytes(from.format));
  }
  all_to_all_v(*c.communicator, rows_of(c, from, all_out).data, send, rows_of(c, to, all_in).data,
               receive, nccl_type(from.format), stored_bytes(from.format), c.stream);
}

/// Tensor ranks meet with equal parts: as many rows as the one with most has. Where all have as
/// many, parts stand where they belong; else they stand in scratch memory meanwhile.
struct GatheredCopies {
  explicit GatheredCopies(OpContext& context, const MatrixView& matrix)
      : c(context), plan(plan_of(c)), tensors(plan.sources / plan.members), width(matrix.columns) {
    for (std::int64_t t = 0; t < tensors; ++t) {
      rows = std::max(rows, of(t).count);
      even = even && of(t).count == of(0).count;
    }
    const std::size_t size = static_cast<std::size_t>(count()) * stored_bytes(matrix.format);
    c.bytes_sent = static_cast<double>(size) * static_cast<double>(tensors - 1);
    if (!even) {
      void* scratch = c.workspace(static_cast<std::size_t>(tensors + 1) * size).data;
      check(cudaMemsetAsync(scratch, 0, static_cast<std::size_t>(tensors + 1) * size, c.stream),
            "cudaMemsetAsync");
      padded = {scratch, matrix.format, (tensors + 1) * rows, width};
    }
  }
  [[nodiscard]] ExpertPlan::Block of(std::int64_t tensor) const {
    return plan.gathered_from(part_of(c), tensor);
  }
  [[nodiscard]] std::int64_t count() const { return rows * width; }
  /// This rank's copies among those received.
  [[nodiscard]] ExpertPlan::Block received() const {
    return {plan.received_from(part_of(c), 0).first, of(c.communicator->rank()).count};
  }
  /// Copies of a tensor rank, and of this one once more, in scratch memory.
  [[nodiscard]] MatrixView part(std::int64_t tensor) const {
    return padded.slice(tensor * rows, of(tensor).count);
  }
  [[nodiscard]] MatrixView own() const {
    return padded.slice(tensors * rows, of(c.communicator->rank()).count);
  }
  /// All copies where they belong.
  [[nodiscard]] ExpertPlan::Block all() const { return {of(0).first, tensors * rows}; }

  OpContext& c;
  const ExpertPlan& plan;
  std::int64_t tensors;
  std::int64_t width;
  std::int64_t rows = 0;
  bool even = true;
  MatrixView padded;
};

void gather_copies(OpContext& c) {
  const MatrixView from = c.input(0);
  const MatrixView to = c.output(0);
  const GatheredCopies g(c, from);
  const MatrixView mine = rows_of(c, from, g.received());
  if (!g.even) {
    copy(c, mine, g.own());
  }
  c.communicator->complete(
      ncclAllGather(g.even ? mine.data : g.own().data,
                    g.even ? rows_of(c, to, g.all()).data : g.padded.data,
                    static_cast<std::size_t>(g.count()), nccl_type(from.format),
                    c.communicator->handle(), c.stream),
      "ncclAllGather");
  for (std::int64_t t = 0; !g.even && t < g.tensors; ++t) {
    copy(c, g.part(t), rows_of(c, to, g.of(t)));
  }
}

void sum_gathered(OpContext& c) {
  const MatrixView from = c.input(0);
  const MatrixView to = c.output(0);
  const GatheredCopies g(c, from);
  const MatrixView mine = rows_of(c, to, g.received());
  for (std::int64_t t = 0; !g.even && t < g.tensors; ++t) {
    copy(c, rows_of(c, from, g.of(t)), g.part(t));
  }
  c.communicator->complete(
      ncclReduceScatter(g.even ? rows_of(c, from, g.all()).data : g.padded.data,
                        g.even ? mine.data : g.own().data, static_cast<std::size_t>(g.count()),
                        nccl_type(from.format), ncclSum, c.communicator->handle(), c.stream),
      "ncclReduceScatter");
  if (!g.even) {
    copy(c, g.own(), mine);
  }
}

}  // namespace

OpFamily expert_ops() {
  return {{},
          [](const Job& job, const Program& program, std::int32_t rank,
             Ledger& ledger) -> std::unique_ptr<OpState> {
            return std::make_unique<ExpertState>(job, program, rank, ledger);
          },
          {{OpKind::kRouteForward, route_forward},
           {OpKind::kRouteBackward, route_backward},
           {OpKind::kDispatchForward, dispatch_forward},
           {OpKind::kDispatchBackward, dispatch_backward},
           {OpKind::kCombineForward, combine_forward},
           {OpKind::kCombineBackward, combine_backward},
           {OpKind::kGemm, grouped_gemm},
           {OpKind::kActivationForward, activation_forward},
           {OpKind::kActivationBackward, activation_backward},
           {OpKind::kAllToAll, exchange},
           {OpKind::kAllToAllV, exchange},
           {OpKind::kAllGather, gather_copies},
           {OpKind::kReduceScatter, sum_gathered}}};
}

}  // namespace stepcast::runtime::cuda
