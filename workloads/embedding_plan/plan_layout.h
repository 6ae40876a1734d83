#pragma once
#include <cstdint>
#include <memory>

#include "core/graph/embedding_placement.h"
#include "core/job/job.h"

namespace stepcast::workloads {

/// Share of a pooled table's lists of ids, and of their ids, that is left on a rank if each
/// distinct list counts once; 1 where the job does not deduplicate ids or its sessions repeat too
/// few lists, the table is unpooled, or rows travel in towers.
struct ListShares {
  double lists = 1, ids = 1;
};
ListShares list_shares(const Job& job, const EmbeddingTable& table);

/// The kind of route of a plan's shard, at level 0. `shares`: list_shares of the table.
EmbeddingRoute route_of(const PlanShard& s, const EmbeddingTable& t, const Job& job,
                        const ListShares& shares);

/// Whether a table that a rank holds whole pools distinct lists of its samples once: where their
/// rows and a copy for each sample are less than nine tenths of the rows of all lists.
bool pays_to_pool_locally(const ListShares& shares, const EmbeddingTable& table);

/// Whether a table whose rows are split over `members` ranks pools distinct lists once: a whole one
/// wherever the job does; else where what that sends between machines, or inside one if it has all
/// `span` ranks that exchange, is less than nine tenths of what all samples' lists send, whose
/// partial sums of a machine's ranks are added up before they leave it.
bool pays_to_pool_once(const Job& job, const ListShares& shares, std::int64_t members,
                       std::int64_t span);

/// The order of rows that a plan brings for a table, where the table's law does not follow it row
/// for row and rows can be followed by id; else none: rows stand as the law has them.
std::shared_ptr<const RowOrder> own_order(const PlanTable& plan, const EmbeddingTable& table);

/// The layout of a job's plan. Errors: InputError as check_embedding_plan.
EmbeddingPlacement embedding_layout(const Job& job);
/// That of another plan, which must obey the rules (plan_rules.h).
EmbeddingPlacement embedding_layout(const Job& job, const EmbeddingPlan& plan);

}  // namespace stepcast::workloads
