#include "validation/published/efficiencies.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include "core/statistics.h"

namespace stepcast::validation {
namespace {

constexpr std::size_t kRowsOfFamily = 10;
constexpr std::size_t kSourcesOfFamily = 2;
constexpr double kPrior = 4;  // sources that the wider interval counts as

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

/// Rows by group at one width; a family with enough rows by itself.
std::map<EfficiencyKeys, Predictions> grouped(const Predictions& from, std::size_t width) {
  std::map<EfficiencyKeys, Predictions> groups;
  for (const PublishedPrediction* p : from) {
    EfficiencyKeys keys = chain_of(*p)[width];
    if (width == 0 || !p->generation.empty()) {
      groups[keys].push_back(p);
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
  std::vector<std::pair<double, double>> means;  // of a group, its number of sources
  for (const auto& [keys, rows] : groups) {
    const std::vector<double> sources = sources_of(rows);
    const auto n = static_cast<double>(sources.size());
    squares += squares_of(sources);
    freedom += n - 1;
    means.emplace_back(mean_of(sources), n);
  }
  // Weights of sources / variance; where no group has two, half of what differs is the groups'.
  Variances v{freedom > 0 ? squares / freedom : 0, 0};
  double weight = 0;
  double square_weight = 0;
  double middle = 0;
  for (const auto& [mean, n] : means) {
    weight += n;
    square_weight += n * n;
    middle += n * mean;
  }
  double q = 0;
  for (const auto& [mean, n] : means) {
    q += n * (mean - middle / weight) * (mean - middle / weight);
  }
  const double scale = weight - square_weight / weight;
  if (scale > 0) {
    v.groups = std::max(0.0, (q - v.sources * static_cast<double>(means.size() - 1)) / scale);
  }
  if (freedom == 0) {
    v.sources = v.groups /= 2;
  }
  return v;
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
      // A family of all runs has all others as its wider group, which goes before it.
      const bool within = width == 0 && !keys.family.empty() && !groups.empty();
      const EfficiencyGroup* wider = within ? &groups.front() : nearest_efficiency(table, keys);
      double theta = mean_of(sources);
      if (wider != nullptr && wider->rows == std::ssize(rows)) {
        theta = std::log(wider->factor);  // the same rows
      } else if (wider != nullptr) {
        const double own = static_cast<double>(sources.size()) * variances.groups;
        const double sum = own + variances.sources;
        const double weight = sum > 0 ? own / sum : 1;
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

/// A source's rows of one generation and family.
using SourceInCell = std::tuple<std::string, std::string, std::string>;

/// Mean squares of the residuals of rows predicted without the makers of their software, and
/// without their generation.
std::map<SourceInCell, double> squares_left_out(const Predictions& from) {
  std::map<SourceInCell, std::vector<double>> squares;
  for (const LeaveOut what : {LeaveOut::kVendor, LeaveOut::kGeneration}) {
    std::map<std::string, Predictions> blocks;
    for (const PublishedPrediction* p : from) {
      blocks[block_of(*p, what)].push_back(p);
    }
    for (const auto& [block, rows] : blocks) {
      const EfficiencyTable table = factors_of(
          where(from, [&, name = block](const auto* p) { return block_of(*p, what) != name; }));
      for (const PublishedPrediction* p : rows) {
        if (const EfficiencyGroup* group = nearest_efficiency(table, keys_of(*p))) {
          const double r = log_ratio(*p) - std::log(group->factor);
          squares[{p->generation, p->family, p->source}].push_back(r * r);
        }
      }
    }
  }
  std::map<SourceInCell, double> means;
  for (const auto& [cell, of] : squares) {
    means[cell] = mean_of(of);
  }
  return means;
}

/// Figures are data with four digits.
double rounded(double x) { return std::round(x * 1e4) / 1e4; }

void add_spreads(const std::map<SourceInCell, double>& squares, EfficiencyTable& to) {
  struct Cell {
    double sum = 0, n = 0;
  };
  std::map<std::pair<std::string, std::string>, Cell> cells;  // generation and family; "" any
  for (const auto& [cell, square] : squares) {
    const auto& [generation, family, source] = cell;
    for (const auto& key : std::set<std::pair<std::string, std::string>>{
             {"", ""}, {"", family}, {generation, family}}) {
      cells[key].sum += square;
      ++cells[key].n;
    }
  }
  const auto variance = [&](const std::pair<std::string, std::string>& key, double wider) {
    const Cell& c = cells[key];
    return (kPrior * wider + c.sum) / (kPrior + c.n);
  };
  if (cells.empty()) {
    cells[{"", ""}] = {to.scatter * to.scatter, 1};
  }
  const double all = cells[{"", ""}].sum / cells[{"", ""}].n;
  const auto add = [&](const std::string& generation, const std::string& family, double square,
                       double n) {
    to.spreads.push_back({.generation = generation,
                          .family = family,
                          .width = rounded(student_t95(kPrior + n) * std::sqrt(square)),
                          .sources = std::llround(n)});
  };
  for (const auto& [key, cell] : std::map(cells)) {
    const auto& [generation, family] = key;
    const double of_family = family.empty() ? all : variance({"", family}, all);
    if (generation.empty()) {
      add("", family, of_family, 0);  // of a generation that was not measured
    } else {
      add(generation, family, variance(key, of_family), cell.n);
    }
  }
}

/// Standard deviation of a source's rows on one device and framework, every source alike.
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
  return variances.empty() ? 0 : std::sqrt(mean_of(variances));
}

/// Width that holds a share `level` of the distances from `middle` of a source to come; 0 of no
/// rows.
double half_width(const Residuals& residuals, double level, double middle) {
  std::vector<WeightedValue> distances;
  for (const auto& [source, of] : residuals) {
    for (const double r : of) {
      distances.emplace_back(std::abs(r - middle), 1 / static_cast<double>(of.size()));
    }
  }
  const auto sources = static_cast<double>(residuals.size());
  return weighted_quantile(std::move(distances), std::min(1.0, level * (sources + 1) / sources));
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
  return p->skipped.empty() && p->fits() && p->row->hours_of != "run";
}

EfficiencyKeys keys_of(const PublishedPrediction& p) {
  return {p.generation, p.device, p.framework, p.family};
}

double student_t95(double degrees) {
  constexpr double z = 1.6448536269514722;  // of the normal distribution
  const double n = degrees;
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
  add_spreads(squares_left_out(from), table);
  return table;
}

StepSpread spread_of(const Residuals& residuals, double level) {
  std::vector<WeightedValue> all;
  for (const auto& [source, of] : residuals) {
    for (const double r : of) {
      all.emplace_back(r, 1 / static_cast<double>(of.size()));
    }
  }
  if (all.empty()) {
    return {};
  }
  const double middle = weighted_quantile(std::move(all), 0.5);
  const double half = half_width(residuals, level, middle);
  return {middle - half, middle + half};
}

}  // namespace stepcast::validation
