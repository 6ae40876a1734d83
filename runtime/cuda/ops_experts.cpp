#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/access/row_order.h"
#include "core/error.h"
#include "core/graph/expert_draw.h"
#include "core/graph/expert_points.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/device_memory.h"
#include "runtime/cuda/kernels/activation.h"
#include "runtime/cuda/kernels/experts.h"
#include "runtime/cuda/nccl_exchange.h"
#include "runtime/cuda/ops_experts.h"
#include "runtime/expert_ops.h"
#include "runtime/expert_plan.h"

// The host knows how many copies go where, as the draw is a closed form; which copy is whose, the
// device works out itself. Nothing is read back.
namespace stepcast::runtime::cuda {
namespace {

using kernels::MatrixView;

/// Begin of each expert's share (core/graph/expert_points.h). A draw answers for points: a
/// bound is the first point that belongs to its expert or a later one.
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
  std::int64_t choices = 0;        ///< rows * experts a row
  std::size_t words = 0;           ///< of [bounds][sent][unsorted][sorted], 8 bytes each
  std::int64_t* host = nullptr;    ///< the orders, page-locked
  std::int64_t* orders = nullptr;  ///< device
  kernels::PlacedCopies placed{};
};

struct ExpertState : OpState {
  ExpertState(const ExecutionGraph& graph, const Program& program, std::int32_t rank,
              Ledger& ledger)
      : host(Buffer::Kind::kPinned, "expert routing"),
        orders(Buffer::Kind::kDevice, "expert routing", &ledger),
        copies(Buffer::Kind::kDevice, "expert routing", &ledger),
        layers(program, [&](const ExpertRouting& routing) {
          auto& shares = bounds[routing.draw.get()];
          if (shares.empty()) {
            shares = bounds_of(*routing.draw);
          }
          auto layer = std::make_unique<LayerPlan>(LayerPlan{{graph, routing, rank}, shares});
          const ExpertPlan& p = layer->plan;
          layer->words =
              shares.size() +
              static_cast<std::size_t>(routing.parts * (p.experts + 2 * p.sources * p.local) + 3);
          layer->choices = routing.rows * p.per_token;
          return layer;
        }) {
    std::size_t words = 0;
    std::size_t choices = 0;
    for (const auto& layer : layers.all) {
      words += layer->words;
      choices += static_cast<std::size_t>(layer->choices);
    }
    auto* next_host = host.reserve_of<std::int64_t>(words);
    auto* next_orders = orders.reserve_of<std::int64_t>(words);
    auto* next_copies = copies.reserve_of<std::int32_t>(2 * choices);
    for (const auto& layer : layers.all) {
      layer->host = std::exchange(next_host, next_host + layer->words);
      layer->orders = std::exchange(next_orders, next_orders + layer->words);
      layer->placed = {layer->plan.per_token, next_copies, next_copies + layer->choices};
      next_copies += 2 * layer->choices;
    }
  }
  std::map<const ExpertDraw*, std::vector<std::uint64_t>> bounds;
  Buffer host, orders, copies;
  ExpertLayers<LayerPlan> layers;
};

std::int64_t part_of(const OpContext& c) { return routing_of(c.program, c.op).part; }

/// Sends the orders of a plan just drawn to the device and has it place the copies.
void place(const OpContext& c, LayerPlan& layer) {
  const ExpertPlan& plan = layer.plan;
  const ExpertRouting& routing = routing_of(c.program, c.op);
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
  LayerPlan& layer = state.layers.of(c.op, c.microbatch);
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

void sort_copies(OpContext& c) {
  const LayerPlan& layer = layer_of(c);
  const ExpertPlan& plan = layer.plan;
  const auto rows = plan.computed(part_of(c));
  require_room(c, c.input(0), rows);
  require_room(c, c.output(0), rows);
  const std::int64_t first = part_of(c) * plan.local * plan.sources;
  const std::int64_t* unsorted = layer.orders + layer.bounds.size() + plan.sent.size();
  kernels::sort_copies({.sources = plan.sources,
                        .local = plan.local,
                        .first_come = unsorted + first,
                        .first_sorted = unsorted + plan.unsorted.size() + first,
                        .there = c.op.as<DispatchAttributes>().way == CopyWay::kThere,
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
  p.rows_vary = p.batch == 1;
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

/// Rows of this rank's experts in the op's part.
MatrixView computed(const OpContext& c, const MatrixView& m) {
  return rows_of(c, m, plan_of(c).computed(part_of(c)));
}

void routed_activation_forward(OpContext& c) {
  kernels::activation_forward(c.op.as<ActivationAttributes>().activation, computed(c, c.input(0)),
                              {}, computed(c, c.output(0)), c.stream);
}

void routed_activation_backward(OpContext& c) {
  kernels::activation_backward(c.op.as<ActivationAttributes>().activation, computed(c, c.input(1)),
                               {}, computed(c, c.input(0)), computed(c, c.output(0)), {}, {},
                               c.stream);
}

// Ranks.

void exchange(OpContext& c) {
  const auto copies = plan_of(c).exchange(part_of(c), c.op.as<CollectiveAttributes>().way);
  const MatrixView from = c.input(0);
  const MatrixView to = c.output(0);
  struct Side {
    void* data;
    std::vector<std::int64_t> counts;
  };
  const auto side = [&c](const std::vector<ExpertPlan::Block>& blocks, const MatrixView& m) {
    Side s;
    ExpertPlan::Block all{blocks.front().first, 0};
    for (const ExpertPlan::Block& block : blocks) {
      all.count += block.count;
      s.counts.push_back(block.count * m.columns);
    }
    s.data = rows_of(c, m, all).data;
    return s;
  };
  const Side send = side(copies.send, from);
  const Side receive = side(copies.receive, to);
  const std::size_t element = stored_bytes(from.format);
  c.bytes_sent = static_cast<double>(copies.leaving(c.communicator->rank()) * from.columns) *
                 static_cast<double>(element);
  all_to_all_v(*c.communicator, send.data, send.counts, receive.data, receive.counts,
               nccl_type(from.format), element, c.stream);
}

/// Tensor ranks meet with equal parts: as many rows as the one with most has. Where all have as
/// many, parts stand where they belong; else they stand in scratch memory meanwhile.
struct GatheredCopies {
  explicit GatheredCopies(OpContext& context, const MatrixView& matrix)
      : c(context),
        plan(plan_of(c)),
        tensors(plan.tensors()),
        width(matrix.columns),
        rows(plan.most_gathered(part_of(c))) {
    for (std::int64_t t = 0; t < tensors; ++t) {
      even = even && of(t).count == rows;
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
  [[nodiscard]] ExpertPlan::Block brought() const {
    return plan.brought(part_of(c), c.communicator->rank());
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
  std::int64_t rows;
  bool even = true;
  MatrixView padded;
};

void gather_copies(OpContext& c) {
  const MatrixView from = c.input(0);
  const MatrixView to = c.output(0);
  const GatheredCopies g(c, from);
  const MatrixView mine = rows_of(c, from, g.brought());
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
  const MatrixView mine = rows_of(c, to, g.brought());
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
          [](const ExecutionGraph& graph, const Program& program, std::int32_t rank,
             Ledger& ledger) -> std::unique_ptr<OpState> {
            return std::make_unique<ExpertState>(graph, program, rank, ledger);
          },
          {STEPCAST_EXPERT_OPS(STEPCAST_OP)}};
}

}  // namespace stepcast::runtime::cuda
