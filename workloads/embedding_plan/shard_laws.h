#pragma once
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "workloads/embedding_plan/plan_layout.h"
#include "workloads/embedding_plan/row_shares.h"

namespace stepcast::workloads {

/// Lookups that the holders of a plan's slices are asked for: the share of a table's lookups that
/// falls to each of them (RowShares: where the hottest rows lie), the law over the rows they hold,
/// and their distinct rows. Laws are made once per distinct set of rows, whatever the number of
/// ranks.
class ShardLaws {
 public:
  ShardLaws(const Job& job, const EmbeddingPlacement& layout);

  /// Over the rows that a holder has, renormalised.
  [[nodiscard]] const std::shared_ptr<const Access>& access(std::int32_t slice, std::int32_t rank);
  /// Share of the table's lookups that goes to a holder; for ranks in one class (`average`) the
  /// mean.
  [[nodiscard]] double mass(std::int32_t slice, std::int32_t rank) const;
  /// That share were the hottest rows spread evenly as well: what `access` stands for. A rank that
  /// holds a hot row is asked more often, but for hardly more rows.
  [[nodiscard]] double even_mass(std::int32_t slice, std::int32_t rank) const;
  /// Share of the table's lookups that the slice takes: of all members of a group together.
  [[nodiscard]] double range_mass(std::int32_t slice) const;
  /// Expected distinct rows among `lookups` lookups, of a shard with its even share of them.
  [[nodiscard]] double unique(std::int32_t slice, std::int32_t rank, double lookups);

  /// Whether holders of a slice differ by more than the number of their rows.
  [[nodiscard]] bool uneven(std::int32_t slice) const;
  /// Whether the law over a holder's rows depends on which they are, not only on how many.
  [[nodiscard]] bool ordered(std::int32_t slice) const;
  /// Ranks of one class get the mean of their shares of every slice that they all hold with others
  /// and that has one copy; the shares of all holders still add up.
  void average(std::vector<std::int32_t> class_of, std::size_t classes);

 private:
  // Table, range, rows held, first row held if the law depends on it.
  using Key = std::tuple<std::int32_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  using SplitKey = std::tuple<std::int32_t, std::int64_t, std::int64_t, Split, std::int64_t, bool>;
  [[nodiscard]] const EmbeddingSlice& slice(std::int32_t id) const {
    return layout_.slices[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] const RowShares& shares(std::int32_t id) const {
    return *shares_[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] Key key_of(std::int32_t id, const HeldRows& held) const;
  [[nodiscard]] std::shared_ptr<const Access> make(const EmbeddingSlice& slice,
                                                   const HeldRows& held);
  [[nodiscard]] std::shared_ptr<const Access> range(const EmbeddingSlice& slice);
  /// Lookups of a slice's table in the order of rows that its plan brings.
  const LookupsInOrder& in_order(const EmbeddingSlice& slice);

  const LayeredWorkload& workload_;
  const EmbeddingPlacement& layout_;
  std::map<std::int32_t, LookupsInOrder> in_order_;  ///< by table
  std::map<SplitKey, RowShares> made_;
  std::vector<const RowShares*> shares_;  ///< by slice
  std::vector<std::int32_t> class_of_;    ///< by rank; empty before `average`
  std::vector<std::vector<double>> class_mass_;
  std::map<Key, std::shared_ptr<const Access>> laws_;
  /// Laws of a slice's range, and of as many random rows of it.
  std::map<Key, std::shared_ptr<const Access>> ranges_, subsets_;
  std::map<std::pair<Key, double>, double> unique_;
};

}  // namespace stepcast::workloads
