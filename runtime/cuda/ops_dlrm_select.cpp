#include "core/access/row_order.h"
#include "core/error.h"
#include "core/graph/embedding_placement.h"
#include "core/numbers.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernels/distinct_lists.h"
#include "runtime/cuda/kernels/row_selection.h"
#include "runtime/cuda/ops_dlrm.h"

// Which lookups of the local batch concern a slice of a plan: rows in its order, in its range, and
// where the job asks for it each of them once, or each list of them.

namespace stepcast::runtime::cuda {
namespace {}  // namespace

RowOrder::RowOrder(const ExecutionGraph& graph, Ledger& ledger) {
  for (const std::vector<std::uint32_t>& remap : row_remaps(graph)) {
    Buffer& buffer = memory.emplace_back(Buffer::Kind::kDevice, "row orders", &ledger);
    if (!remap.empty()) {
      const std::size_t bytes = remap.size() * sizeof(std::uint32_t);
      check(cudaMemcpy(buffer.reserve(bytes), remap.data(), bytes, cudaMemcpyHostToDevice),
            "cudaMemcpy of a row order");
    }
    of_table.push_back(buffer.as<std::uint32_t>());
  }
}

DlrmState::Selection::Selection(Ledger* ledger)
    : lengths(Buffer::Kind::kDevice, "index lists", ledger),
      rows(Buffer::Kind::kDevice, "index lists", ledger),
      offsets(Buffer::Kind::kDevice, "index lists", ledger),
      factors(Buffer::Kind::kDevice, "index lists", ledger),
      distinct(Buffer::Kind::kDevice, "index lists", ledger),
      distinct_offsets(Buffer::Kind::kDevice, "index lists", ledger),
      inverse(Buffer::Kind::kDevice, "index lists", ledger),
      lists(Buffer::Kind::kDevice, "index lists", ledger),
      packed(Buffer::Kind::kDevice, "unpooled rows", ledger) {}

kernels::Bags DlrmState::local_bags(const OpContext& c, const EmbeddingSlice& s) const {
  const auto t = static_cast<std::size_t>(s.table);
  const BatchLayout& at = c.batch.layout();
  STEPCAST_CHECK(at.offsets.at(t).count == index(batch) + 1,
                 "table '{}' has {} bag offsets for {} samples", table(s).name, at.offsets[t].count,
                 batch);
  const BatchLayout::List& rows = at.lookups.at(t);
  return {c.batch.list<std::int64_t>(rows), c.batch.list<std::int64_t>(at.offsets[t]), batch,
          static_cast<kernels::Index>(rows.count)};
}

kernels::RowSplit DlrmState::row_split(std::int32_t id) const {
  const EmbeddingSlice& s = slice(id);
  // Without a split by rows one part owns them all: row mod 1 = 0, row / 1 = row.
  return {s.row_split() ? s.members() : 1, boundaries_of[index(id)]};
}

kernels::Bags DlrmState::pooled_bags(const OpContext& c, std::int32_t id) const {
  const EmbeddingSlice& s = slice(id);
  kernels::Bags bags = local_bags(c, s);
  if (s.pools_lists_once()) {
    const Selection& chosen = selections[index(id)];
    bags.indices = chosen.distinct.as<std::int64_t>();
    bags.offsets = chosen.distinct_offsets.as<std::int64_t>();
  }
  return bags;
}

void DlrmState::select_rows(const OpContext& c, std::int32_t id) {
  const EmbeddingSlice& s = slice(id);
  if (s.pools_lists_once()) {
    find_lists(c, id);
  }
  if (s.row_range() || s.remapped()) {
    select_range(c, id);
  }
  if (deduplicates(s)) {
    find_distinct(c, id);
  }
}

void DlrmState::find_lists(const OpContext& c, std::int32_t id) {
  const kernels::Bags bags = local_bags(c, slice(id));
  Selection& chosen = selections[index(id)];
  const kernels::DistinctLists out{
      chosen.distinct.reserve_of<std::int64_t>(index(bags.lookups)),
      chosen.distinct_offsets.reserve_of<std::int64_t>(index(batch) + 1),
      chosen.inverse.reserve_of<std::int64_t>(index(batch)),
      chosen.lists.reserve_of<std::int64_t>(1)};
  kernels::distinct_lists(bags, out, c.workspace(kernels::distinct_lists_workspace(batch)),
                          c.stream);
}

void DlrmState::select_range(const OpContext& c, std::int32_t id) {
  const EmbeddingSlice& s = slice(id);
  const kernels::Bags all = pooled_bags(c, id);
  const kernels::RowRange range{s.first_row, s.rows,
                                s.remapped() ? order->of_table[index(s.table)] : nullptr};
  Selection& chosen = selections[index(id)];
  auto* sizes = chosen.lengths.reserve_of<std::int32_t>(index(batch));
  auto* firsts = chosen.offsets.reserve_of<std::int64_t>(index(batch) + 1);
  kernels::count_in_range(all, range, sizes, c.stream);
  kernels::lengths_to_offsets(sizes, batch, 0, firsts,
                              c.workspace(kernels::lengths_to_offsets_workspace(batch)), c.stream);
  kernels::fill_in_range(all, range, firsts,
                         chosen.rows.reserve_of<std::int64_t>(index(all.lookups)), c.stream);
  if (s.row_range() && table(s).mode != PoolingMode::kSum) {
    kernels::mean_factors(all, chosen.factors.reserve_of<float>(index(batch)), c.stream);
  }
}

void DlrmState::find_distinct(const OpContext& c, std::int32_t id) {
  const EmbeddingSlice& s = slice(id);
  const kernels::Bags bags = looked_up_bags(c, id);
  Selection& chosen = selections[index(id)];
  const auto most = index(bags.lookups);
  kernels::distinct_rows(bags, row_split(id), s.row_split() ? s.row_rule().block() : s.rows,
                         {chosen.distinct.reserve_of<std::int64_t>(most),
                          chosen.distinct_offsets.reserve_of<std::int64_t>(index(batch) + 1),
                          chosen.inverse.reserve_of<std::int64_t>(most)},
                         c.workspace(kernels::distinct_rows_workspace(bags)), c.stream);
}

kernels::Bags DlrmState::looked_up_bags(const OpContext& c, std::int32_t id) const {
  const EmbeddingSlice& s = slice(id);
  kernels::Bags bags = pooled_bags(c, id);
  if (s.row_range() || s.remapped()) {
    const Selection& chosen = selections[index(id)];
    bags.indices = chosen.rows.as<std::int64_t>();
    bags.offsets = chosen.offsets.as<std::int64_t>();
  }
  return bags;
}

kernels::Bags DlrmState::slice_bags(const OpContext& c, std::int32_t id) const {
  kernels::Bags bags = looked_up_bags(c, id);
  if (deduplicates(slice(id))) {
    const Selection& chosen = selections[index(id)];
    bags.indices = chosen.distinct.as<std::int64_t>();
    bags.offsets = chosen.distinct_offsets.as<std::int64_t>();
  }
  return bags;
}

}  // namespace stepcast::runtime::cuda
