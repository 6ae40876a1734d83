#include "runtime/cuda/ops_dlrm.h"

#include <algorithm>

#include "core/access/row_order.h"
#include "core/error.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernels/interaction.h"
#include "runtime/cuda/kernels/loss.h"
#include "runtime/cuda/ops_dlrm_tiers.h"

namespace stepcast::runtime::cuda {
namespace {

using kernels::MatrixView;

void dot_interaction_forward(OpContext& c) {
  kernels::dot_interaction_forward({c.op.shape[1], c.op.shape[2]}, c.input(0), c.output(0),
                                   c.stream);
}

void dot_interaction_backward(OpContext& c) {
  kernels::dot_interaction_backward({c.op.shape[1], c.op.shape[2]}, c.input(1), c.input(0),
                                    c.output(0), c.stream);
}

void cross_forward(OpContext& c) {
  kernels::cross_forward(c.input(0), c.input(1), c.vector(c.input(2)), c.input(3), c.output(0),
                         c.stream);
}

void cross_backward(OpContext& c) {
  const MatrixView du = c.output(0);
  kernels::cross_backward(c.input(3), c.input(0), c.input(1), c.vector(c.input(2)), du,
                          c.vector(c.output(2)), c.output(1), c.has(op_flags::kAccumulate),
                          c.workspace(kernels::cross_backward_workspace(du.rows, du.columns)),
                          c.stream);
}

void binary_cross_entropy(OpContext& c) {
  const float factor = 1.0F / static_cast<float>(c.graph.inputs.batch.global);
  kernels::binary_cross_entropy(c.input(0), c.input(1), factor, c.output(0), c.loss,
                                c.workspace(kernels::loss_workspace(c.op.shape[0])), c.stream);
}

/// Place of the lengths of each of the parts or arrivals.
template <class Lists>
std::vector<std::int64_t> firsts(const Lists& lists) {
  std::vector<std::int64_t> v;
  for (const auto& list : lists) {
    v.push_back(list.lengths);
  }
  return v;
}

const std::int64_t* upload(Buffer& to, const std::vector<std::int64_t>& values) {
  const std::size_t bytes = values.size() * sizeof(std::int64_t);
  if (bytes > 0) {
    check(cudaMemcpy(to.reserve(bytes), values.data(), bytes, cudaMemcpyHostToDevice),
          "cudaMemcpy of list positions");
  }
  return to.as<std::int64_t>();
}

}  // namespace

DlrmState::Lists::Lists(Ledger* ledger)
    : ids(Buffer::Kind::kDevice, "index lists", ledger),
      offsets(Buffer::Kind::kDevice, "index lists", ledger),
      factors(Buffer::Kind::kDevice, "index lists", ledger),
      slots(Buffer::Kind::kDevice, "index lists", ledger) {}

DlrmState::DlrmState(const ExecutionGraph& graph, std::int32_t its_rank,
                     std::shared_ptr<const RowOrder> its_order,
                     std::shared_ptr<TieredCaches> its_tiers, Ledger& ledger)
    : EmbeddingExchange(graph, its_rank),
      lists(kRoutes),
      part_lengths(Buffer::Kind::kDevice, "index lists", &ledger),
      part_offsets(Buffer::Kind::kDevice, "index lists", &ledger),
      sent_lengths(Buffer::Kind::kDevice, "index lists", &ledger),
      slice_lengths(Buffer::Kind::kDevice, "index lists", &ledger),
      slice_starts(Buffer::Kind::kDevice, "index lists", &ledger),
      whole(Buffer::Kind::kDevice, "index lists", &ledger),
      marked(Buffer::Kind::kDevice, "index lists", &ledger),
      sent_ids(Buffer::Kind::kDevice, "index lists", &ledger),
      lengths(Buffer::Kind::kDevice, "index lists", &ledger),
      ids(Buffer::Kind::kDevice, "index lists", &ledger),
      counts(Buffer::Kind::kDevice, "index lists", &ledger),
      host_counts(Buffer::Kind::kPinned, "index lists"),
      boundaries_on_device(Buffer::Kind::kDevice, "index lists", &ledger),
      part_firsts(Buffer::Kind::kDevice, "index lists", &ledger),
      arrival_firsts(Buffer::Kind::kDevice, "index lists", &ledger),
      sent_rows(Buffer::Kind::kDevice, "unpooled rows", &ledger),
      shard_rows(Buffer::Kind::kDevice, "unpooled rows", &ledger),
      shard_gradient(Buffer::Kind::kDevice, "unpooled rows", &ledger),
      boundaries_of(layout.slices.size(), nullptr),
      dedup(graph.inputs.distinct_ids),
      order(std::move(its_order)),
      tiers(std::move(its_tiers)) {
  for (std::size_t s = 0; s < layout.slices.size(); ++s) {
    selections.emplace_back(&ledger);
  }
  for (std::size_t r = 0; r < kRoutes; ++r) {
    for (std::size_t i = 0; i < shards[r].size(); ++i) {
      lists[r].emplace_back(&ledger);
    }
  }
  if (!parts.empty()) {
    upload_constants();
  }
}

void DlrmState::upload_constants() {
  const std::size_t bags = static_cast<std::size_t>(batch);
  part_lengths.reserve_of<std::int32_t>(parts.size() * bags);
  part_offsets.reserve_of<std::int64_t>(parts.size() * bags + 1);
  sent_lengths.reserve_of<std::int32_t>(static_cast<std::size_t>(lengths_sent));
  slice_lengths.reserve_of<std::int32_t>(parts.size() * bags);
  slice_starts.reserve_of<std::int64_t>(parts.size() * bags);
  whole.reserve_of<std::int32_t>(layout.slices.size() * bags);
  lengths.reserve_of<std::int32_t>(static_cast<std::size_t>(lengths_received));
  counts.reserve_of<std::int64_t>(2 * (parts.size() + arrivals.size()));
  host_counts.reserve_of<std::int64_t>(2 * (parts.size() + arrivals.size()));
  upload(part_firsts, firsts(parts));
  upload(arrival_firsts, firsts(arrivals));
  std::vector<std::int64_t> all;
  std::vector<std::size_t> first_boundary;
  std::size_t next = 0;
  for (std::size_t s = 0; s < layout.slices.size(); ++s) {
    first_slice_list.push_back(next);
    next += parts_of[s].size();
    first_boundary.push_back(all.size());
    all.insert(all.end(), boundaries[s].begin(), boundaries[s].end());
    sends_more = sends_more || (!parts_of[s].empty() && (whole_lengths(layout.slices[s]) ||
                                                         layout.slices[s].pools_lists_once()));
  }
  if (sends_more) {
    marked.reserve_of<std::int32_t>(parts.size() * bags);
  }
  const std::int64_t* on_device = upload(boundaries_on_device, all);
  for (std::size_t s = 0; s < layout.slices.size(); ++s) {
    boundaries_of[s] = boundaries[s].empty() ? nullptr : on_device + first_boundary[s];
  }
}

kernels::Bags DlrmState::shard_bags(EmbeddingRoute route, std::size_t shard) const {
  const auto r = static_cast<std::size_t>(route);
  const Lists& of = lists[r][shard];
  kernels::Index lookups = 0;
  for (const std::int64_t count : shards[r][shard].count) {
    lookups += count;
  }
  return {of.ids.as<std::int64_t>(), of.offsets.as<std::int64_t>(), bags_of(shards[r][shard]),
          lookups};
}

DlrmBatches::DlrmBatches(const ExecutionGraph& graph, const Program& program, std::int32_t rank,
                         Ledger& ledger)
    : now(std::make_unique<DlrmState>(graph, rank, std::make_shared<const RowOrder>(graph, ledger),
                                      std::make_shared<TieredCaches>(program), ledger)) {
  const bool pipelined = std::any_of(program.ops.begin(), program.ops.end(), [](const Op& op) {
    return (op.flags & op_flags::kNextBatch) != 0;
  });
  if (pipelined) {
    next = std::make_unique<DlrmState>(graph, rank, now->order, now->tiers, ledger);
  }
}

std::vector<RowTraffic> DlrmBatches::tier_traffic() const { return now->tiers->rows.traffic; }

OpFamily dlrm_ops() {
  return {{STEPCAST_DLRM_OPS(STEPCAST_OP)},
          [](const ExecutionGraph& graph, const Program& program, std::int32_t rank,
             Ledger& ledger) -> std::unique_ptr<OpState> {
            return std::make_unique<DlrmBatches>(graph, program, rank, ledger);
          }};
}

}  // namespace stepcast::runtime::cuda
