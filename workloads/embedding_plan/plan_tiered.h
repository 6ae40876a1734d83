#pragma once
#include "core/job/job.h"
#include "core/job/plan.h"

namespace stepcast::workloads {

/// A plan with the rows of every table in order of popularity, in ranges (FlexShard, arXiv
/// 2301.02959): a copy on every rank for rows with more than W expected lookups per global batch (W
/// ranks), a copy in every unit of each size (nested_units: machines, racks, ...) for rows with
/// more than N (N such units), one copy for the rest; all but the first striped over their ranks.
/// At these thresholds the bytes that a copy saves in
/// the exchanges of unpooled rows equal those of its gradient's all-reduce, link level by link
/// level. A rule of thumb to start from: it knows no capacity, no update cost and no link speed;
/// `stepcast plan` weighs those.
EmbeddingPlan make_tiered_plan(const Job& job);

}  // namespace stepcast::workloads
