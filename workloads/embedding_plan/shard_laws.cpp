#include "workloads/embedding_plan/shard_laws.h"

#include "core/access/row_order.h"
#include "core/graph/op.h"

namespace stepcast::workloads {
ShardLaws::ShardLaws(const Job& job, const EmbeddingPlacement& layout)
    : workload_(*job.workload.layered()), layout_(layout) {
  std::map<std::int32_t, std::vector<HotRow>> hottest;
  for (const EmbeddingSlice& s : layout.slices) {
    const Access* law = workload_.tables[static_cast<std::size_t>(s.table)].access.get();
    const SplitKey key{s.table, s.first_row, s.rows, s.split, s.members(), s.frequency_order};
    const auto [it, fresh] = made_.try_emplace(key);
    if (fresh) {
      auto rows = hottest.find(s.table);
      const bool needed = (!s.frequency_order || s.order) && (s.row_split() || s.row_range());
      if (needed && rows == hottest.end()) {
        rows =
            hottest.emplace(s.table, s.order ? hot_rows_of(in_order(s)) : hottest_rows(law)).first;
      }
      it->second = RowShares(law,
                             {.first_row = s.first_row,
                              .rows = s.rows,
                              .table_rows = s.table_rows,
                              .split = s.split,
                              .members = s.members(),
                              .frequency_order = s.frequency_order && !s.order,
                              .own_order = s.order != nullptr},
                             needed ? rows->second : std::vector<HotRow>{});
    }
    shares_.push_back(&it->second);
  }
}

const LookupsInOrder& ShardLaws::in_order(const EmbeddingSlice& s) {
  const auto it = in_order_.find(s.table);
  if (it != in_order_.end()) {
    return it->second;
  }
  const EmbeddingTable& t = workload_.tables[static_cast<std::size_t>(s.table)];
  return in_order_.try_emplace(s.table, *t.access, *s.order, s.hot_rows).first->second;
}

bool ShardLaws::ordered(std::int32_t id) const {
  const EmbeddingSlice& s = slice(id);
  return s.row_split() && s.frequency_order && !s.order && s.split == Split::kBlock &&
         is_skewed(workload_.tables[static_cast<std::size_t>(s.table)].access.get());
}

bool ShardLaws::uneven(std::int32_t id) const {
  return slice(id).row_split() && !shares(id).uneven().empty();
}

double ShardLaws::range_mass(std::int32_t id) const {
  return slice(id).row_range() ? shares(id).total() : 1;
}

double ShardLaws::mass(std::int32_t id, std::int32_t rank) const {
  const EmbeddingSlice& s = slice(id);
  if (!s.splits_bags()) {
    return 1;
  }
  if (!class_mass_.empty() && !class_mass_[static_cast<std::size_t>(id)].empty()) {
    return class_mass_[static_cast<std::size_t>(id)]
                      [static_cast<std::size_t>(class_of_[static_cast<std::size_t>(rank)])];
  }
  return shares(id).of(s.row_split() ? s.position(rank) : 0);
}

double ShardLaws::even_mass(std::int32_t id, std::int32_t rank) const {
  const EmbeddingSlice& s = slice(id);
  return s.splits_bags() ? shares(id).even(s.row_split() ? s.position(rank) : 0) : 1;
}

void ShardLaws::average(std::vector<std::int32_t> class_of, std::size_t classes) {
  class_of_ = std::move(class_of);
  class_mass_.assign(layout_.slices.size(), {});
  for (std::size_t id = 0; id < layout_.slices.size(); ++id) {
    const EmbeddingSlice& s = layout_.slices[id];
    if (s.copies > 1 || !uneven(static_cast<std::int32_t>(id))) {
      continue;
    }
    std::vector<double> sum(classes), holders(classes);
    for (std::size_t i = 0; i < s.ranks.size(); ++i) {
      const auto c = static_cast<std::size_t>(class_of_[static_cast<std::size_t>(s.ranks[i])]);
      sum[c] += shares_[id]->of(static_cast<std::int64_t>(i));
      ++holders[c];
    }
    for (std::size_t c = 0; c < classes; ++c) {
      sum[c] /= holders[c] > 0 ? holders[c] : 1;
    }
    class_mass_[id] = std::move(sum);
  }
}

ShardLaws::Key ShardLaws::key_of(std::int32_t id, const HeldRows& held) const {
  const EmbeddingSlice& s = slice(id);
  return {s.table, s.first_row, s.rows, held.rows, ordered(id) ? held.first : -1};
}

const std::shared_ptr<const Access>& ShardLaws::access(std::int32_t id, std::int32_t rank) {
  const HeldRows held = held_rows(slice(id), rank);
  const auto [it, fresh] = laws_.try_emplace(key_of(id, held));
  if (fresh) {
    it->second = make(slice(id), held);
  }
  return it->second;
}

/// The rows of a slice's range: ranks of the order of popularity, of one that was, or random rows.
std::shared_ptr<const Access> ShardLaws::range(const EmbeddingSlice& s) {
  auto& law = ranges_[Key{s.table, s.first_row, s.rows, 0, 0}];
  if (!law) {
    const EmbeddingTable& t = workload_.tables[static_cast<std::size_t>(s.table)];
    law = t.access ? t.access : std::make_shared<Access>(Access::uniform(t.rows));
    if (s.row_range() && s.order) {
      law = std::make_shared<Access>(in_order(s).range(s.first_row, s.first_row + s.rows).first);
    } else if (s.row_range()) {
      law = std::make_shared<Access>(s.frequency_order
                                         ? law->ranks(s.first_row, s.first_row + s.rows).first
                                         : law->random_subset(s.rows));
    }
  }
  return law;
}

std::shared_ptr<const Access> ShardLaws::make(const EmbeddingSlice& s, const HeldRows& held) {
  if (held.rows == 0) {
    return std::make_shared<Access>(Access::uniform(1));
  }
  std::shared_ptr<const Access> all = range(s);
  if (held.rows == s.rows) {
    return all;
  }
  if (s.frequency_order && !s.order && s.split == Split::kBlock) {
    const auto first = held.first - s.first_row;
    return std::make_shared<Access>(all->ranks(first, first + held.rows).first);
  }
  auto& subset = subsets_[Key{s.table, s.first_row, s.rows, held.rows, 0}];
  if (!subset) {
    subset = std::make_shared<Access>(all->random_subset(held.rows));
  }
  return subset;
}

double ShardLaws::unique(std::int32_t id, std::int32_t rank, double lookups) {
  const HeldRows held = held_rows(slice(id), rank);
  const auto [it, fresh] = unique_.try_emplace({key_of(id, held), lookups}, 0.0);
  if (fresh && held.rows > 0) {
    it->second = access(id, rank)->unique(lookups).value;
  }
  return it->second;
}

}  // namespace stepcast::workloads
