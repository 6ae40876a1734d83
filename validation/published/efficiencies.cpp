#include "validation/published/efficiencies.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <span>
#include <tuple>

#include "core/statistics.h"

namespace stepcast::validation {
namespace {

constexpr std::size_t kRowsOfFamily = 10;
constexpr std::size_t kSourcesOfFamily = 2;
constexpr double kMany = 1e9;  // degrees of freedom of the normal distribution
constexpr double kPrior = 4;   // sources that what is known more widely counts as

double log_ratio(const PublishedPrediction& p) { return std::log(p.measured / p.seconds(1)); }

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Sum of squares of the distances from the mean.
double squares_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  return std::accumulate(values.begin(), values.end(), 0.0,
                         [mean](double sum, double v) { return sum + (v - mean) * (v - mean); });
}

/// Groups that a row belongs to, without its family, from all runs to its own.
std::array<EfficiencyKeys, 4> chain_of(const PublishedPrediction& p) {
  return {EfficiencyKeys{},
          {p.generation, "", "", ""},
          {p.generation, "", p.framework, ""},
          {p.generation, p.device, p.framework, ""}};
}

/// The median of each source's rows.
std::vector<double> sources_of(const Predictions& rows) {
  Residuals residuals;
  for (const PublishedPrediction* p : rows) {
    residuals[p->source].push_back(log_ratio(*p));
  }
  std::vector<double> medians;
  for (auto& [source, of] : residuals) {
    medians.push_back(middle_of(std::move(of)));
  }
  return medians;
}

/// Rows by group at one width; a family with enough rows by itself, but not of all runs, where
/// families differ in the GPUs they ran on.
std::map<EfficiencyKeys, Predictions> grouped(const Predictions& from, std::size_t width) {
  if (width == 0 && !from.empty()) {
    return {{EfficiencyKeys{}, from}};
  }
  std::map<EfficiencyKeys, Predictions> groups;
  for (const PublishedPrediction* p : from) {
    if (!p->generation.empty()) {
      groups[chain_of(*p)[width]].push_back(p);
    }
  }
  std::map<EfficiencyKeys, Predictions> apart;
  for (auto& [keys, rows] : groups) {
    for (const EfficiencyFamily family :
         {EfficiencyFamily::kExperts, EfficiencyFamily::kAdapters}) {
      const auto of_family = [family](const auto* p) { return p->family == name_of(family); };
      Predictions own = where(rows, of_family);
      if (own.size() >= kRowsOfFamily && sources_of(own).size() >= kSourcesOfFamily) {
        std::erase_if(rows, of_family);
        EfficiencyKeys own_keys = keys;
        own_keys.family = name_of(family);
        apart.emplace(std::move(own_keys), std::move(own));
      }
    }
  }
  std::erase_if(groups, [](const auto& group) { return group.second.empty(); });
  groups.merge(apart);
  return groups;
}

/// Variances of sources in a group and of groups around their mean.
struct Variances {
  double sources = 0, groups = 0;
};

Variances variances_of(const std::map<EfficiencyKeys, Predictions>& groups) {
  double squares = 0;
  double freedom = 0;
  std::vector<double> all;
  std::vector<std::pair<double, double>> means;  // of a group, its number of sources
  for (const auto& [keys, rows] : groups) {
    const std::vector<double> sources = sources_of(rows);
    const auto n = static_cast<double>(sources.size());
    squares += squares_of(sources);
    freedom += n - 1;
    means.emplace_back(mean_of(sources), n);
    all.insert(all.end(), sources.begin(), sources.end());
  }
  // Half of what all sources differ by stands for kPrior of them.
  const auto weight = static_cast<double>(all.size());
  const double half = squares_of(all) / std::max(1.0, weight - 1) / 2;
  Variances v{(squares + kPrior * half) / (freedom + kPrior), 0};
  double square_weight = 0;
  double middle = 0;
  for (const auto& [mean, n] : means) {
    square_weight += n * n;
    middle += n * mean / weight;
  }
  double q = 0;
  for (const auto& [mean, n] : means) {
    q += n * (mean - middle) * (mean - middle);
  }
  const double scale = weight - square_weight / weight;
  if (scale > 0) {
    v.groups = std::max(0.0, (q - v.sources * static_cast<double>(means.size() - 1)) / scale);
  }
  return v;
}

/// Shares of what the n frameworks of a generation, or the n devices of a framework, differ from
/// the wider group by that count as common to all: n / (n + 1), as one alone does not tell.
double share_in_common(const Predictions& rows, std::size_t width) {
  std::set<std::string> parts;
  for (const PublishedPrediction* p : rows) {
    parts.insert(width == 1 ? p->framework : p->device);
  }
  const auto n = static_cast<double>(parts.size());
  return width == 1 || width == 2 ? n / (n + 1) : 1;
}

/// Factors alone, the widest groups first.
EfficiencyTable factors_of(const Predictions& from) {
  EfficiencyTable table;
  const auto width_of_all = chain_of(PublishedPrediction{}).size();
  const Variances variances = variances_of(grouped(from, width_of_all - 1));
  for (std::size_t width = 0; width < width_of_all; ++width) {
    std::vector<EfficiencyGroup> groups;
    for (const auto& [keys, rows] : grouped(from, width)) {
      const std::vector<double> sources = sources_of(rows);
      const EfficiencyGroup* wider = nearest_efficiency(table, keys);
      double theta = mean_of(sources);
      if (wider != nullptr) {
        const double own = static_cast<double>(sources.size()) * variances.groups;
        const double sum = own + variances.sources;
        const double weight = (sum > 0 ? own / sum : 1) * share_in_common(rows, width);
        theta = weight * theta + (1 - weight) * std::log(wider->factor);
      }
      std::vector<double> errors;
      for (const PublishedPrediction* p : rows) {
        errors.push_back(std::abs(p->seconds(1) * std::exp(theta) / p->measured - 1));
      }
      groups.push_back({.of = keys,
                        .factor = std::exp(theta),
                        .error = middle_of(std::move(errors)),
                        .rows = static_cast<std::int64_t>(rows.size()),
                        .sources = static_cast<std::int64_t>(sources.size())});
    }
    table.groups.insert(table.groups.end(), groups.begin(), groups.end());
  }
  return table;
}

/// Rows of one generation and family that groups as narrow predicted.
struct Cell {
  EfficiencyScope scope = EfficiencyScope::kAll;
  std::string generation, family;
  friend auto operator<=>(const Cell&, const Cell&) = default;
};

/// How far rows lie, by source, from what is known without their publication, without the makers
/// of their software, and without their generation.
std::map<Cell, Residuals> distances_left_out(const Predictions& from) {
  std::map<Cell, Residuals> cells;
  for (const LeaveOut what : {LeaveOut::kSource, LeaveOut::kVendor, LeaveOut::kGeneration}) {
    std::map<std::string, Predictions> blocks;
    for (const PublishedPrediction* p : from) {
      blocks[block_of(*p, what)].push_back(p);
    }
    for (const auto& [block, rows] : blocks) {
      const EfficiencyTable table = factors_of(
          where(from, [&, name = block](const auto* p) { return block_of(*p, what) != name; }));
      for (const PublishedPrediction* p : rows) {
        if (const EfficiencyGroup* group = nearest_efficiency(table, keys_of(*p))) {
          cells[{scope_of(group->of, p->family), p->generation, p->family}][p->source].push_back(
              std::abs(log_ratio(*p) - std::log(group->factor)));
        }
      }
    }
  }
  return cells;
}

/// Every value of a source; its values together count as one.
std::vector<WeightedValue> weighted(const Residuals& sources) {
  std::vector<WeightedValue> all;
  for (const auto& [source, of] : sources) {
    for (const double value : of) {
      all.emplace_back(value, 1 / static_cast<double>(of.size()));
    }
  }
  return all;
}

/// Figures are data with four digits.
double rounded(double x) { return std::round(x * 1e4) / 1e4; }

/// Adds the rows of a cell to those of a wider one, which count as kPrior sources; how many sources
/// the cell has.
double narrow(const Residuals& sources, std::vector<WeightedValue>& distances) {
  double weight = 0;
  for (const auto& [distance, of] : distances) {
    weight += of;
  }
  for (auto& [distance, of] : distances) {
    of *= kPrior / weight;
  }
  const std::vector<WeightedValue> own = weighted(sources);
  distances.insert(distances.end(), own.begin(), own.end());
  return static_cast<double>(sources.size());
}

void add_spreads(const std::map<Cell, Residuals>& cells, EfficiencyTable& to) {
  const auto merged = [&cells](auto wanted) {
    Residuals all;
    for (const auto& [cell, residuals] : cells) {
      if (wanted(cell)) {
        for (const auto& [source, of] : residuals) {
          all[source].insert(all[source].end(), of.begin(), of.end());
        }
      }
    }
    return all;
  };
  const auto add = [&](const Cell& cell, const std::vector<WeightedValue>& distances, double n) {
    to.spreads.push_back({.scope = cell.scope,
                          .generation = cell.generation,
                          .family = cell.family,
                          .width = rounded(weighted_quantile(distances, 0.9) *
                                           student_t95(kPrior + n) / student_t95(kMany)),
                          .sources = std::llround(n)});
  };
  constexpr std::array kRecommenders{EfficiencyFamily::kRecommender};
  const bool recommenders = std::all_of(cells.begin(), cells.end(), [](const auto& cell) {
    return cell.first.family == name_of(EfficiencyFamily::kRecommender);
  });
  const std::span<const EfficiencyFamily> families =
      recommenders ? std::span<const EfficiencyFamily>(kRecommenders) : kEfficiencyFamilies;
  for (const EfficiencyScope scope : {EfficiencyScope::kAll, EfficiencyScope::kGeneration,
                                      EfficiencyScope::kFramework, EfficiencyScope::kDevice}) {
    std::vector<WeightedValue> of_scope;
    narrow(merged([](const Cell&) { return true; }), of_scope);
    narrow(merged([scope](const Cell& c) { return c.scope == scope; }), of_scope);
    for (const EfficiencyFamily of : families) {
      const std::string family(name_of(of));
      const auto wanted = [&](const Cell& c) { return c.scope == scope && c.family == family; };
      std::vector<WeightedValue> of_family = of_scope;
      narrow(merged(wanted), of_family);
      add({scope, "", family}, of_family, 0);  // of a generation that was not measured so
      for (const auto& [cell, residuals] : cells) {
        if (wanted(cell)) {
          std::vector<WeightedValue> own = of_family;
          const double n = narrow(residuals, own);
          add(cell, own, n);
        }
      }
    }
  }
}

/// Standard deviation of a source's rows on one device and framework, of the middle source.
double scatter_of(const Predictions& from) {
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<double>> sources;
  for (const PublishedPrediction* p : from) {
    sources[{p->source, p->device, p->framework}].push_back(log_ratio(*p));
  }
  std::vector<double> variances;
  for (const auto& [source, of] : sources) {
    if (of.size() > 1) {
      variances.push_back(squares_of(of) / static_cast<double>(of.size() - 1));
    }
  }
  return std::sqrt(middle_of(std::move(variances)));
}

}  // namespace

std::string block_of(const PublishedPrediction& p, LeaveOut what) {
  switch (what) {
    case LeaveOut::kSource:
      return p.source;
    case LeaveOut::kVendor:
      return p.maker;
    case LeaveOut::kGeneration:
      return p.generation.empty() ? p.device : p.generation;
    case LeaveOut::kRelease:
      break;
  }
  return p.release.empty() ? p.framework : p.release;
}

bool gives_efficiency(const PublishedPrediction* p) {
  return p->skipped.empty() && p->plausible() && p->row->hours_of != "run";
}

EfficiencyKeys keys_of(const PublishedPrediction& p) {
  return {p.generation, p.device, p.framework, p.family};
}

double student_t95(double n) {
  constexpr double z = 1.6448536269514722;  // of the normal distribution
  const double z3 = z * z * z;
  const double z5 = z3 * z * z;
  const double z7 = z5 * z * z;
  return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n);
}

EfficiencyTable fit_efficiencies(const Predictions& all) {
  const Predictions from = where(all, gives_efficiency);
  EfficiencyTable table = factors_of(from);
  for (EfficiencyGroup& group : table.groups) {
    group.factor = rounded(group.factor);
    group.error = rounded(group.error);
  }
  table.scatter = rounded(scatter_of(from));
  add_spreads(distances_left_out(from), table);
  return table;
}

StepSpread spread_of(const Residuals& residuals, double level) {
  std::vector<WeightedValue> all = weighted(residuals);
  const double middle = weighted_quantile(all, 0.5);
  for (auto& [distance, weight] : all) {
    distance = std::abs(distance - middle);
  }
  const auto sources = static_cast<double>(residuals.size());
  const double half =
      weighted_quantile(std::move(all), std::min(1.0, level * (sources + 1) / sources));
  return {middle - half, middle + half};
}

}  // namespace stepcast::validation
