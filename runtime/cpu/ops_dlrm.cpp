#include "runtime/cpu/ops_dlrm.h"

#include <algorithm>

#include "core/error.h"
#include "runtime/cpu/kernels/elementwise.h"
#include "runtime/cpu/kernels/interaction.h"
#include "runtime/cpu/kernels/loss.h"

namespace stepcast::runtime::cpu {
namespace {

kernels::MatrixView view(const Matrix& m) { return {m.data, m.rows, m.columns}; }

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
  const float factor = 1.0F / static_cast<float>(c.job.batch.global);
  *c.loss += kernels::binary_cross_entropy(c.input(0).data, c.input(1).data, c.op.shape[0], factor,
                                           c.output(0).data);
}

}  // namespace

DlrmState::DlrmState(const Job& job, std::int32_t its_rank)
    : EmbeddingExchange(job, its_rank), lists(workloads::kRoutes) {
  for (std::size_t r = 0; r < workloads::kRoutes; ++r) {
    lists[r].resize(shards[r].size());
  }
  sent_lengths.resize(static_cast<std::size_t>(lengths_sent));
  lengths.resize(static_cast<std::size_t>(lengths_received));
}

kernels::Bags DlrmState::local_bags(const OpContext& c, const workloads::EmbeddingSlice& s) const {
  const auto t = static_cast<std::size_t>(s.table);
  const std::vector<std::int64_t>& rows =
      s.frequency_order && s.row_split() ? c.batch.ranks.at(t) : c.batch.lookups.at(t);
  STEPCAST_CHECK(c.batch.offsets.at(t).size() == static_cast<std::size_t>(batch) + 1 &&
                     rows.size() == c.batch.lookups[t].size(),
                 "table '{}' has {} bag offsets for {} samples, {} rows for {} lookups",
                 table(s).name, c.batch.offsets[t].size(), batch, rows.size(),
                 c.batch.lookups[t].size());
  return {rows.data(), c.batch.offsets[t].data(), batch};
}

DlrmBatches::DlrmBatches(const Job& job, const Program& program, std::int32_t rank)
    : now(std::make_unique<DlrmState>(job, rank)) {
  const bool pipelined = std::any_of(program.ops.begin(), program.ops.end(), [](const Op& op) {
    return (op.flags & op_flags::kNextBatch) != 0;
  });
  if (pipelined) {
    next = std::make_unique<DlrmState>(job, rank);
  }
}

OpFamily dlrm_ops() {
  return {
      {{OpKind::kIndexPack, index_pack},
       {OpKind::kIndexUnpack, index_unpack},
       {OpKind::kAllToAllV, all_to_all_v},
       {OpKind::kEmbeddingForward, embedding_forward},
       {OpKind::kEmbeddingBackward, embedding_backward},
       {OpKind::kEmbeddingGradient, embedding_gradient},
       {OpKind::kSequencePoolForward, sequence_pool_forward},
       {OpKind::kSequencePoolBackward, sequence_pool_backward},
       {OpKind::kDotInteractionForward, dot_interaction_forward},
       {OpKind::kDotInteractionBackward, dot_interaction_backward},
       {OpKind::kCrossForward, cross_forward},
       {OpKind::kCrossBackward, cross_backward},
       {OpKind::kBinaryCrossEntropy, binary_cross_entropy}},
      [](const Job& job, const Program& program, std::int32_t rank) -> std::unique_ptr<OpState> {
        return std::make_unique<DlrmBatches>(job, program, rank);
      }};
}

}  // namespace stepcast::runtime::cpu
