#include "runtime/cpu/ops_dlrm.h"

#include <algorithm>

#include "core/error.h"
#include "runtime/cpu/kernels/elementwise.h"
#include "runtime/cpu/kernels/interaction.h"
#include "runtime/cpu/kernels/loss.h"

namespace stepcast::runtime::cpu {
namespace {

void dot_interaction_forward(OpContext& c) {
  const kernels::DotInteraction shape{c.op.shape[1], c.op.shape[2]};
  float* scratch = c.scratch_floats(static_cast<std::size_t>(shape.scratch_floats()));
  kernels::dot_interaction_forward(shape, view(c.input(0)), view(c.output(0)), scratch);
}

void dot_interaction_backward(OpContext& c) {
  const kernels::DotInteraction shape{c.op.shape[1], c.op.shape[2]};
  float* scratch = c.scratch_floats(static_cast<std::size_t>(shape.scratch_floats()));
  kernels::dot_interaction_backward(shape, view(c.input(1)), view(c.input(0)), view(c.output(0)),
                                    scratch);
}

void cross_forward(OpContext& c) {
  kernels::cross_forward(view(c.input(0)), view(c.input(1)), c.input(2).data, view(c.input(3)),
                         view(c.output(0)));
}

void cross_backward(OpContext& c) {
  const Matrix d_first = c.output(1);
  if ((c.op.flags & op_flags::kAccumulate) == 0) {
    kernels::fill(d_first.data, 0, d_first.elements());
  }
  const Matrix d_out = c.input(3);
  kernels::cross_backward(view(d_out), view(c.input(0)), view(c.input(1)), c.input(2).data,
                          view(c.output(0)), c.output(2).data, view(d_first), view(d_out));
}

void binary_cross_entropy(OpContext& c) {
  const float factor = 1.0F / static_cast<float>(c.graph.inputs.batch.global);
  *c.loss += kernels::binary_cross_entropy(c.input(0).data, c.input(1).data, c.op.shape[0], factor,
                                           c.output(0).data);
}

}  // namespace

DlrmState::DlrmState(const ExecutionGraph& graph, std::int32_t its_rank,
                     std::shared_ptr<const RowRemaps> its_remaps,
                     std::shared_ptr<TieredRows> its_tiers)
    : EmbeddingExchange(graph, its_rank),
      lists(kRoutes),
      selections(layout.slices.size()),
      dedup(graph.inputs.distinct_ids),
      remaps(std::move(its_remaps)),
      tiers(std::move(its_tiers)) {
  for (std::size_t r = 0; r < kRoutes; ++r) {
    lists[r].resize(shards[r].size());
  }
  sent_lengths.resize(static_cast<std::size_t>(lengths_sent));
  lengths.resize(static_cast<std::size_t>(lengths_received));
}

kernels::Bags DlrmState::local_bags(const OpContext& c, const EmbeddingSlice& s) const {
  const auto t = static_cast<std::size_t>(s.table);
  STEPCAST_CHECK(c.batch.offsets.at(t).size() == static_cast<std::size_t>(batch) + 1,
                 "table '{}' has {} bag offsets for {} samples", table(s).name,
                 c.batch.offsets[t].size(), batch);
  return {c.batch.lookups.at(t).data(), c.batch.offsets[t].data(), batch};
}

kernels::Bags DlrmState::pooled_bags(const OpContext& c, std::int32_t id) const {
  const EmbeddingSlice& s = slice(id);
  return s.pools_lists_once() ? selections[static_cast<std::size_t>(id)].lists.lists()
                              : local_bags(c, s);
}

void DlrmState::select_rows(const OpContext& c, std::int32_t id) {
  const EmbeddingSlice& s = slice(id);
  if (s.pools_lists_once()) {
    selections[static_cast<std::size_t>(id)].lists.find(local_bags(c, s));
  }
  if (s.row_range() || s.remapped()) {
    select_range(c, id);
  }
  if (deduplicates(s)) {
    const kernels::Bags bags = looked_up_bags(c, id);
    Selection& chosen = selections[static_cast<std::size_t>(id)];
    chosen.ids.find(bags.indices + (batch > 0 ? bags.begin(0) : 0), bags.lookups());
    chosen.distinct_offsets.assign(static_cast<std::size_t>(batch) + 1,
                                   static_cast<std::int64_t>(chosen.ids.distinct().size()));
    chosen.distinct_offsets.front() = 0;
  }
}

/// The lookups that fall into the slice's range of rows, in the plan's order of rows.
void DlrmState::select_range(const OpContext& c, std::int32_t id) {
  const EmbeddingSlice& s = slice(id);
  const kernels::Bags all = pooled_bags(c, id);
  Selection& chosen = selections[static_cast<std::size_t>(id)];
  const auto most = static_cast<std::size_t>(all.lookups());
  chosen.rows.resize(std::max(chosen.rows.size(), most));
  chosen.offsets.resize(static_cast<std::size_t>(all.count) + 1);
  const auto& remap = (*remaps)[static_cast<std::size_t>(s.table)];
  const std::uint32_t* place = s.remapped() && !remap.empty() ? remap.data() : nullptr;
  std::int64_t* out = chosen.rows.data();
  chosen.offsets[0] = 0;
  for (kernels::Index b = 0; b < all.count; ++b) {
    for (kernels::Index i = all.begin(b); i < all.end(b); ++i) {
      const std::int64_t row =
          (place != nullptr ? place[all.indices[i]] : all.indices[i]) - s.first_row;
      *out = row;
      out += row >= 0 && row < s.rows ? 1 : 0;
    }
    chosen.offsets[static_cast<std::size_t>(b) + 1] = out - chosen.rows.data();
  }
  if (is_local(s.route) && s.row_range() && table(s).mode != PoolingMode::kSum) {
    chosen.factors.resize(static_cast<std::size_t>(all.count));
    kernels::mean_factors(all, chosen.factors.data());
  }
}

kernels::Bags DlrmState::slice_bags(const OpContext& c, std::int32_t id) const {
  if (deduplicates(slice(id))) {
    const Selection& chosen = selections[static_cast<std::size_t>(id)];
    return {chosen.ids.distinct().data(), chosen.distinct_offsets.data(), batch};
  }
  return looked_up_bags(c, id);
}

kernels::Bags DlrmState::looked_up_bags(const OpContext& c, std::int32_t id) const {
  const EmbeddingSlice& s = slice(id);
  if (!s.row_range() && !s.remapped()) {
    return pooled_bags(c, id);
  }
  const Selection& chosen = selections[static_cast<std::size_t>(id)];
  return {chosen.rows.data(), chosen.offsets.data(),
          static_cast<kernels::Index>(chosen.offsets.size()) - 1};
}

DlrmBatches::DlrmBatches(const ExecutionGraph& graph, const Program& program, std::int32_t rank)
    : now(std::make_unique<DlrmState>(graph, rank,
                                      std::make_shared<const RowRemaps>(row_remaps(graph)),
                                      std::make_shared<TieredRows>(program))) {
  const bool pipelined = std::any_of(program.ops.begin(), program.ops.end(), [](const Op& op) {
    return (op.flags & op_flags::kNextBatch) != 0;
  });
  if (pipelined) {
    next = std::make_unique<DlrmState>(graph, rank, now->remaps, now->tiers);
  }
}

OpFamily dlrm_ops() {
  return {{STEPCAST_DLRM_OPS(STEPCAST_OP)},
          [](const ExecutionGraph& graph, const Program& program,
             std::int32_t rank) -> std::unique_ptr<OpState> {
            return std::make_unique<DlrmBatches>(graph, program, rank);
          }};
}

}  // namespace stepcast::runtime::cpu
