#include "planner/embedding/placement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "planner/embedding/overlapped_arrival.h"

namespace stepcast::planner {

Femtoseconds to_load(double seconds) {
  if (!(seconds >= 0 && seconds < 4e3)) {
    throw InputError("job",
                     fmt::format("a rank's part of the tables takes {:.3g} s of a step, which "
                                 "no plan can mend: see the bandwidths of the system, its "
                                 "fitted points and batch.global",
                                 seconds));
  }
  return 1000 * std::llround(seconds * 1e12);
}

Femtoseconds total(const Load& load) {
  return std::accumulate(load.begin(), load.end(), Femtoseconds{0});
}

PlacementOption::Skews::Skews(std::vector<Skew> list) {
  for (const Skew& s : list) {
    most_ = std::max(most_, s.times);
  }
  if (!list.empty()) {
    list_ = std::make_shared<const std::vector<Skew>>(std::move(list));
  }
}

Load PlacementOption::extra(const Skew& s) const {
  Load more{};
  for (std::size_t p = 0; p < kPhases; ++p) {
    more[p] = extra(s, p);
  }
  return more;
}

Load PlacementOption::most_extra() const {
  return skew.empty() ? Load{} : extra(Skew{0, skew.most()});
}

std::vector<std::int32_t> PlacementOption::heaviest_first(std::vector<std::int32_t> groups) const {
  if (!uneven_pieces() || groups.empty()) {
    return groups;
  }
  std::vector<float> most(static_cast<std::size_t>(pieces), 0);
  for (const Skew& s : skew) {
    float& here = most[static_cast<std::size_t>(s.position / group)];
    here = std::max(here, s.times);
  }
  std::vector<std::size_t> order(most.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&most](std::size_t a, std::size_t b) { return most[a] > most[b]; });
  std::vector<std::int32_t> placed(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    placed[order[i]] = groups[i];
  }
  return placed;
}

Load PlacementOption::sum_of_extras() const {
  Load sum{};
  for (std::size_t p = 0; p < kPhases; ++p) {
    if (skewed[p] != 0) {
      for (const Skew& s : skew) {
        sum[p] += extra(s, p);
      }
    }
  }
  return sum;
}

Femtoseconds PlacementOption::piece_total() const {
  return total(load) + total(everywhere) + total(most_extra());
}

double PlacementProblem::space_log10() const {
  double sum = 0;
  for (const PlacementTable& table : tables) {
    double ways = 0;
    for (const PlacementOption& o : table.options) {
      const double groups = ranks / o.group;
      double choices = 1;
      for (std::int32_t p = 0; p < o.pieces && groups > 1; ++p) {
        choices *= std::max(1.0, (groups - p) / (p + 1));
      }
      ways += choices;
    }
    sum += std::log10(std::max(1.0, ways));
  }
  return sum;
}

std::vector<std::size_t> PlacementProblem::phases() const {
  std::array<bool, kPhases> used{};
  for (const PlacementTable& table : tables) {
    for (const PlacementOption& o : table.options) {
      for (std::size_t p = 0; p < kPhases; ++p) {
        used[p] = used[p] || o.load[p] != 0 || o.everywhere[p] != 0 ||
                  (!o.skew.empty() && o.skewed[p] != 0);
      }
    }
  }
  std::vector<std::size_t> all;
  for (std::size_t p = 0; p < kPhases; ++p) {
    if (used[p]) {
      all.push_back(p);
    }
  }
  return all;
}

namespace {

void add(Load& to, const Load& load, Femtoseconds times) {
  for (std::size_t p = 0; p < kPhases; ++p) {
    to[p] += times * load[p];
  }
}

/// In time that grows with the ranks that hold a piece, not with tables times ranks.
std::vector<Load> loads_of(const PlacementProblem& problem, const Placement& placement) {
  std::vector<Load> load(static_cast<std::size_t>(problem.ranks));
  Load on_all{};
  for (std::size_t t = 0; t < placement.size(); ++t) {
    const Choice& c = placement[t];
    const PlacementOption& o = problem.tables[t].options[static_cast<std::size_t>(c.option)];
    add(on_all, o.everywhere, 1);
    if (o.group == problem.ranks) {
      add(on_all, o.load, o.pieces);
    } else {
      for (const std::int32_t g : c.groups) {
        const auto first = load.begin() + static_cast<std::ptrdiff_t>(g) * o.group;
        std::for_each(first, first + o.group, [&o](Load& at) { add(at, o.load, 1); });
      }
    }
    for (const PlacementOption::Skew& s : o.skew) {
      add(load[static_cast<std::size_t>(o.rank_of(s, c.groups))], o.extra(s), 1);
    }
  }
  for (Load& at : load) {
    add(at, on_all, 1);
  }
  return load;
}

Femtoseconds charges_of(const PlacementProblem& problem, const Placement& placement) {
  std::uint32_t routes = 0;
  for (std::size_t t = 0; t < placement.size(); ++t) {
    routes |= problem.tables[t].options[static_cast<std::size_t>(placement[t].option)].routes;
  }
  Femtoseconds total = problem.constant;
  for (std::size_t f = 0; f < problem.fixed.size(); ++f) {
    total += (routes >> f & 1U) != 0 ? problem.fixed[f] : 0;
  }
  return total;
}

}  // namespace

Load slowest_of(const PlacementProblem& problem, const Placement& placement) {
  Load most{};
  for (const Load& at : loads_of(problem, placement)) {
    for (std::size_t p = 0; p < kPhases; ++p) {
      most[p] = std::max(most[p], at[p]);
    }
  }
  return most;
}

Load mean_of(const PlacementProblem& problem, const Placement& placement) {
  Load mean{};
  for (const Load& at : loads_of(problem, placement)) {
    add(mean, at, 1);
  }
  for (Femtoseconds& phase : mean) {
    phase /= problem.ranks;
  }
  return mean;
}

Femtoseconds objective_of(const PlacementProblem& problem, const Placement& placement) {
  const Load most = slowest_of(problem, placement);
  const Femtoseconds charges = charges_of(problem, placement);
  if (!problem.arrival_overlaps) {
    return charges + total(most);
  }
  return charges + total(most) - most[kArrival] + arrival_delay(problem, placement);
}

std::vector<std::vector<std::int64_t>> bytes_of(const PlacementProblem& problem,
                                                const Placement& placement) {
  std::vector<std::vector<std::int64_t>> bytes;
  for (std::size_t tier = 0; tier < problem.tiers.size(); ++tier) {
    const std::int32_t shared = problem.tiers[tier].shared_by;
    auto& units = bytes.emplace_back(problem.tiers[tier].capacity.size(), 0);
    std::int64_t on_all = 0;
    for (std::size_t t = 0; t < placement.size(); ++t) {
      const Choice& c = placement[t];
      const PlacementOption& o = problem.tables[t].options[static_cast<std::size_t>(c.option)];
      on_all += o.bytes_everywhere[tier];
      if (o.group == problem.ranks) {
        on_all += o.pieces * o.bytes[tier];
        continue;
      }
      for (const std::int32_t g : c.groups) {
        for (std::int32_t r = g * o.group; r < (g + 1) * o.group; ++r) {
          units[static_cast<std::size_t>(r / shared)] += o.bytes[tier];
        }
      }
    }
    for (std::int32_t r = 0; r < problem.ranks; ++r) {
      units[static_cast<std::size_t>(r / shared)] += on_all;
    }
  }
  return bytes;
}

bool fits(const PlacementProblem& problem, const Placement& placement) {
  if (problem.moves) {
    std::int64_t moved = 0;
    for (std::size_t t = 0; t < placement.size(); ++t) {
      moved += problem.moves->bytes(t, placement[t]);
    }
    if (moved > problem.moves->allowed) {
      return false;
    }
  }
  const auto bytes = bytes_of(problem, placement);
  for (std::size_t tier = 0; tier < bytes.size(); ++tier) {
    for (std::size_t u = 0; u < bytes[tier].size(); ++u) {
      if (bytes[tier][u] > problem.tiers[tier].capacity[u]) {
        return false;
      }
    }
  }
  return true;
}

std::int64_t bytes_on_a_unit(const PlacementProblem& problem, const PlacementOption& option,
                             std::size_t tier) {
  const std::int32_t shared = std::min(problem.tiers[tier].shared_by, problem.ranks);
  const std::int64_t pieces = option.group == problem.ranks ? option.pieces : 1;
  return std::min(shared, option.group) * option.bytes[tier] * pieces +
         shared * option.bytes_everywhere[tier];
}

bool fits_alone(const PlacementProblem& problem, const PlacementOption& option) {
  for (std::size_t t = 0; t < problem.tiers.size(); ++t) {
    const auto& capacity = problem.tiers[t].capacity;
    if (bytes_on_a_unit(problem, option, t) > *std::max_element(capacity.begin(), capacity.end())) {
      return false;
    }
  }
  return true;
}

bool left_out(const PlacementProblem& problem, const PlacementTable& table,
              const PlacementOption& option) {
  return !fits_alone(problem, option) &&
         std::any_of(table.options.begin(), table.options.end(),
                     [&](const PlacementOption& o) { return fits_alone(problem, o); });
}

}  // namespace stepcast::planner
