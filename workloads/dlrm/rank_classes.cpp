#include "workloads/dlrm/step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/numbers.h"

namespace stepcast::workloads {
namespace {

constexpr std::int64_t kExactRanks = 16;
constexpr double kBinWidth = 0.02;
constexpr std::size_t kMostClasses = 64;

/// Ranks with equal entries run the same ops on the same sizes.
using Signature = std::vector<std::array<std::int64_t, 3>>;

class RankClasses {
 public:
  RankClasses(const Job& job, const EmbeddingPlacement& layout, const ShardLaws& laws)
      : job_(job), layout_(layout), laws_(laws), ranks_(static_cast<std::size_t>(job.devices)) {}

  /// Class of each rank, numbered in the order of their first ranks.
  std::vector<std::int32_t> run() {
    std::map<Signature, std::int32_t> groups;
    std::vector<std::int32_t> group(ranks_);
    for (std::size_t r = 0; r < ranks_; ++r) {
      group[r] = groups
                     .try_emplace(signature_of(static_cast<std::int32_t>(r)),
                                  static_cast<std::int32_t>(groups.size()))
                     .first->second;
    }
    gather_loads();
    if (loads_.empty()) {
      return numbered(group, std::vector<std::vector<std::int64_t>>(ranks_));
    }
    for (double width = kBinWidth;; width *= 2) {
      std::vector<std::int32_t> classes = numbered(group, binned(width));
      const auto count =
          static_cast<std::size_t>(*std::max_element(classes.begin(), classes.end()) + 1);
      if (count <= kMostClasses + groups.size() || width > 1) {
        return classes;
      }
    }
  }

 private:
  /// The place of a rank in a slice, where ranks at different places are never alike.
  [[nodiscard]] bool by_place(std::int32_t id) const {
    return laws_.ordered(id) || (laws_.uneven(id) && (layout_.slices[index(id)].copies > 1 ||
                                                      job_.devices <= kExactRanks));
  }

  [[nodiscard]] Signature signature_of(std::int32_t rank) const {
    Signature signature;
    if (job_.sptt) {  // ranks of a node share its tower
      signature.push_back({-1, rank / layout_.node, 0});
    }
    for (const std::int32_t id : layout_.held[index(rank)]) {
      const EmbeddingSlice& s = layout_.slices[index(id)];
      signature.push_back({id, held_rows(s, rank).rows, by_place(id) ? s.position(rank) : -1});
    }
    return signature;
  }

  /// Elements by route and ids, of the slices that lie unevenly on their holders.
  void gather_loads() {
    const std::size_t ids = kRoutes;
    std::vector<std::vector<double>> loads(kRoutes + 1);
    for (std::size_t id = 0; id < layout_.slices.size(); ++id) {
      const EmbeddingSlice& s = layout_.slices[id];
      const auto slice = static_cast<std::int32_t>(id);
      const bool distinct = job_.embedding_dedup && is_sequence(s.route) && !s.pools_lists_once();
      if (by_place(slice) || distinct || !laws_.uneven(slice)) {
        continue;
      }
      const EmbeddingTable& t = job_.workload.layered()->tables[index(s.table)];
      for (const std::size_t to : {static_cast<std::size_t>(s.route), ids}) {
        std::vector<double>& load = loads[to];
        load.resize(ranks_);
        const double weight = t.pooling * s.id_share * (to == ids ? 1 : real(s.dim));
        for (const std::int32_t r : s.ranks) {
          load[index(r)] += weight * laws_.mass(slice, r);
        }
      }
    }
    for (std::vector<double>& load : loads) {
      if (!load.empty()) {
        loads_.push_back(std::move(load));
      }
    }
  }

  [[nodiscard]] std::vector<std::vector<std::int64_t>> binned(double width) const {
    std::vector<std::vector<std::int64_t>> bins(ranks_);
    for (const std::vector<double>& load : loads_) {
      const double most = *std::max_element(load.begin(), load.end());
      for (std::size_t r = 0; r < ranks_; ++r) {
        // Rounded, so that loads which differ in their last bits are equal.
        const double below = load[r] > 0 ? std::log(most / load[r]) : 1e3;
        bins[r].push_back(below < 1e-9 ? -1 : static_cast<std::int64_t>(below / width));
      }
    }
    return bins;
  }

  [[nodiscard]] std::vector<std::int32_t> numbered(
      const std::vector<std::int32_t>& group,
      const std::vector<std::vector<std::int64_t>>& bins) const {
    std::map<std::pair<std::int32_t, std::vector<std::int64_t>>, std::int32_t> known;
    std::vector<std::int32_t> classes(ranks_);
    for (std::size_t r = 0; r < ranks_; ++r) {
      classes[r] = known.try_emplace({group[r], bins[r]}, static_cast<std::int32_t>(known.size()))
                       .first->second;
    }
    return classes;
  }

  const Job& job_;
  const EmbeddingPlacement& layout_;
  const ShardLaws& laws_;
  std::size_t ranks_;
  std::vector<std::vector<double>> loads_;  ///< by what loads ranks unevenly, then by rank
};

}  // namespace

std::vector<RankClass> rank_classes(const Job& job, const EmbeddingPlacement& layout,
                                    ShardLaws& laws) {
  std::vector<std::int32_t> class_of = RankClasses(job, layout, laws).run();
  std::vector<RankClass> classes;
  for (std::size_t r = 0; r < class_of.size(); ++r) {
    if (index(class_of[r]) == classes.size()) {
      classes.push_back({class_of[r], {}});
    }
    classes[index(class_of[r])].ranks.push_back(static_cast<std::int32_t>(r));
  }
  laws.average(std::move(class_of), classes.size());
  return classes;
}

}  // namespace stepcast::workloads
