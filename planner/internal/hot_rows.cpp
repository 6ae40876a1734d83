#include "planner/internal/hot_rows.h"

#include <algorithm>

namespace stepcast::planner::internal {
namespace {

constexpr std::int64_t kPlacedRanks = 16;  // as workloads/dlrm_step.h
constexpr std::int64_t kHottest = 512;

}  // namespace

HotRows hot_rows(const EmbeddingTable& table, std::int64_t members, std::int64_t devices,
                 std::optional<Split> split) {
  HotRows result;
  result.split = split.value_or(Split::kBlock);
  const bool skewed = table.access && table.access->kind() != AccessKind::kUniform &&
                      (table.access->kind() != AccessKind::kZipf || table.access->exponent() > 0);
  if (!skewed || devices > kPlacedRanks) {
    return result;
  }
  const std::int64_t placed = std::min(kHottest, table.rows);
  const std::int64_t block = (table.rows + members - 1) / members;
  const auto count = static_cast<std::size_t>(members);
  struct Member {
    double hot = 0;
    std::int64_t hot_rows = 0;
  };
  std::vector<Member> by_block(count);
  std::vector<Member> by_stripe(count);
  for (std::int64_t k = 0; k < placed; ++k) {
    const std::int64_t row = table.access->row_of_rank(k);
    const double p = table.access->probability(static_cast<double>(k));
    for (auto* to : {&by_block[static_cast<std::size_t>(row / block)],
                     &by_stripe[static_cast<std::size_t>(row % members)]}) {
      to->hot += p;
      ++to->hot_rows;
    }
  }
  const double others = std::max(0.0, 1 - table.access->cdf(static_cast<double>(placed)).value);
  const std::int64_t left = table.rows - placed;
  const auto masses = [&](const std::vector<Member>& from, bool stripe) {
    std::vector<double> mass(count);
    for (std::size_t m = 0; m < count; ++m) {
      const auto i = static_cast<std::int64_t>(m);
      const std::int64_t rows =
          stripe ? std::max<std::int64_t>(0, (table.rows - i + members - 1) / members)
                 : std::clamp<std::int64_t>(table.rows - i * block, 0, block);
      mass[m] = from[m].hot + (left > 0 ? others * static_cast<double>(rows - from[m].hot_rows) /
                                              static_cast<double>(left)
                                        : 0);
    }
    return mass;
  };
  std::vector<double> blocks = masses(by_block, false);
  std::vector<double> stripes = masses(by_stripe, true);
  const bool striped = split ? *split == Split::kStripe
                             : *std::max_element(stripes.begin(), stripes.end()) <
                                   *std::max_element(blocks.begin(), blocks.end());
  result.split = striped ? Split::kStripe : Split::kBlock;
  result.mass = striped ? std::move(stripes) : std::move(blocks);
  return result;
}

}  // namespace stepcast::planner::internal
