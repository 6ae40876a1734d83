#pragma once
#include "core/graph/program_fwd.h"
#include "core/job/job.h"
#include "workloads/build_graph.h"
#include "workloads/passes/draft.h"

namespace stepcast::workloads {

/// One training step of a DLRM (arXiv 1906.00091) under the job's embedding plan, per rank:
///
///   load batch -> index pack, lengths and ids all-to-all-v, index unpack
///   -> embedding forward, one table-batched op per route -> output exchange
///   | bottom MLP -> columns assembled [bottom | tables] -> interaction -> top MLP
///   -> binary cross-entropy
///   -> the same backwards, dense gradients all-reduced in buckets
///   -> embedding backward with its optimizer fused -> dense optimizer.
///
/// The dense half (bottom MLP, interaction, top MLP) is a list of layers (core/job/layers.h), of a
/// DLRM as of every kind that is not a transformer; lists without tables have no sparse half.
///
/// Routes (EmbeddingRoute): pooled rows of whole tables travel by all-to-all-v; row-wise partial
/// sums by reduce-scatter (gradients back by all-gather); table-row-wise by reduce-scatter in the
/// node, then all-to-all-v between ranks of equal place in their nodes; sequence tables by
/// all-to-all-v of unpooled rows, mean-pooled on arrival. The loss is the mean over the global
/// batch.
///
/// With parallel.dlrm_pipeline the program is one steady-state step of a pipeline over batches: ops
/// of op_flags::kNextBatch work on batch i + 1, overlapped with or after those of batch i, and fill
/// tensors that trade places with this step's between steps (Tensor::next_of).
///
///   sparse_dist   load_batch and the index exchange of i + 1, on the stream "input", overlapped
///                 with all of i (TorchRec TrainPipelineSparseDist, HugeCTR)
///   prefetch      and the lookups of i + 1, right after the update by i, while the last gradients
///                 of i are reduced; not of replicated tables, which the dense optimizer updates
///   fused         and their exchange, overlapped with the dense optimizer of i
///                 (TrainPipelineFusedSparseDist, but never on rows older than the update)
///
/// Every mode trains on the same numbers as `none`. The first batch is loaded before the first step
/// (Executor::fill_pipeline), outside what a program describes.
///
/// Operands are those of core/graph/op.h and runtime/op_table.h. A communicator is used by one
/// stream only.
///
/// Ranks whose programs differ only in which rows of a table they hold share a program
/// (ParameterPiece::row_per_rank; the group's first_row is then that of the lowest rank of the
/// class). Ops have lanes and follow others by name; streams and events are chosen by a pass
/// (workloads/passes/streams.h). Errors: InputError for plans and shapes that do not fit (batch
/// over devices, dot interaction of unequal widths, ...).
GraphUnderConstruction build_layered(const Job& job);

/// FLOPs of a step over all devices: matrix products and pairwise dots, forward and backward; the
/// first layer needs no gradient of its input. Nothing is recomputed, so all conventions agree.
StepFlops layered_flops(const Job& job);

}  // namespace stepcast::workloads
