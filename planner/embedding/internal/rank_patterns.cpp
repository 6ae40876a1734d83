#include "planner/embedding/internal/rank_patterns.h"

#include <limits>

namespace stepcast::planner::internal {
namespace {

/// Least load that an option puts on any rank that holds a piece of it.
PatternItem pattern_item(const PlacementOption& o, std::size_t option, std::int32_t ranks) {
  const Femtoseconds load = total(o.load);
  const std::int32_t copies = o.group == ranks ? o.pieces : 1;
  return {load_seconds(load * copies), 1.0 / (static_cast<double>(o.pieces) * o.group / copies),
          option};
}

}  // namespace

PatternItems::PatternItems(const PlacementProblem& problem, std::uint32_t routes, double most) {
  for (const PlacementTable& table : problem.tables) {
    std::vector<PatternItem> here;
    double common = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < table.options.size(); ++i) {
      const PlacementOption& o = table.options[i];
      if ((o.routes & ~routes) != 0) {
        continue;
      }
      const double everywhere = load_seconds(total(o.everywhere));
      const PatternItem item = pattern_item(o, i, problem.ranks);
      if (item.load + everywhere <= most) {
        here.push_back(item);
        common = std::min(common, everywhere);
      }
    }
    if (here.empty()) {
      possible_ = false;
      return;
    }
    common_ += common;
    std::sort(here.begin(), here.end(), [](const PatternItem& a, const PatternItem& b) {
      return a.part != b.part ? a.part > b.part : a.load < b.load;
    });
    // A smaller part must be lighter.
    std::vector<PatternItem> kept;
    for (const PatternItem& i : here) {
      if (kept.empty() || i.load < kept.back().load) {
        kept.push_back(i);
      }
    }
    tables_.push_back(std::move(kept));
  }
}

double PatternItems::mean(double ranks) const {
  double sum = 0;
  for (const auto& table : tables_) {
    double least = std::numeric_limits<double>::infinity();
    for (const PatternItem& i : table) {
      least = std::min(least, i.load / i.part);
    }
    sum += least;
  }
  return sum / ranks;
}

}  // namespace stepcast::planner::internal
