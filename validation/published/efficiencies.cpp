#include "validation/published/efficiencies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "core/statistics.h"

namespace stepcast::validation {
namespace {

constexpr double kLevel = 0.9;               // of the steps of a source to come
constexpr std::size_t kSourcesOfSpread = 3;  // fewer say little of how far sources lie apart
constexpr std::size_t kWidths = 5;

/// Device, framework and family of plans; empty: any.
using Keys = std::array<std::string, 3>;

/// For a prediction, from its own group to all runs.
std::array<Keys, kWidths> chain_of(const PublishedPrediction& p) {
  return {Keys{p.device, p.framework, p.plan}, Keys{"", p.framework, p.plan},
          Keys{p.device, "", p.plan}, Keys{"", "", p.plan}, Keys{"", "", ""}};
}

bool in_group(const PublishedPrediction& p, const Keys& keys) {
  const auto fits = [](const std::string& key, const std::string& of) {
    return key.empty() || key == of;
  };
  return fits(keys[0], p.device) && fits(keys[1], p.framework) && fits(keys[2], p.plan);
}

/// The rows of the nearest group, and how wide it is.
std::pair<Predictions, std::size_t> nearest(const Predictions& from,
                                            const PublishedPrediction& of) {
  const std::array<Keys, kWidths> chain = chain_of(of);
  for (std::size_t width = 0; width < kWidths; ++width) {
    Predictions rows = where(
        from, [&](const auto* p) { return gives_efficiency(p) && in_group(*p, chain[width]); });
    if (!rows.empty()) {
      return {std::move(rows), width};
    }
  }
  return {{}, kWidths};
}

double log_ratio(const PublishedPrediction& p) { return std::log(p.measured / p.seconds(1)); }

/// Width that holds a share `level` of the distances from `middle` of a source to come; 0 of no
/// rows.
double half_width(const Residuals& residuals, double level = kLevel, double middle = 0) {
  std::vector<WeightedValue> distances;
  for (const auto& [source, of] : residuals) {
    for (const double r : of) {
      distances.emplace_back(std::abs(r - middle), 1 / static_cast<double>(of.size()));
    }
  }
  const auto sources = static_cast<double>(residuals.size());
  return weighted_quantile(std::move(distances), std::min(1.0, level * (sources + 1) / sources));
}

/// How far the rows of each source lie from the efficiencies of the others.
struct LeftOut {
  std::map<Keys, Residuals> of_group;  // rows that their own group predicts
  /// All rows by family of plans (empty: all of them) and how wide their group was.
  std::map<std::string, std::array<Residuals, kWidths>> of_width;

  /// For a family at groups so wide, never less than at narrower ones; where no source was
  /// predicted at either, as at the next wider ones, which tell less of a row; 0 where nothing is
  /// known.
  [[nodiscard]] double half(const std::string& family, std::size_t width) const {
    const auto at = of_width.find(family);
    double most = 0;
    for (std::size_t w = 0; at != of_width.end() && w <= width; ++w) {
      most = std::max(most, half_width(at->second[w]));
    }
    for (std::size_t w = width + 1; at != of_width.end() && most == 0 && w < kWidths; ++w) {
      most = half_width(at->second[w]);
    }
    // Sources of all families answer where no source of the family was predicted.
    return most > 0 || family.empty() ? most : half("", kWidths - 1);
  }
};

LeftOut left_out_in_turn(const Predictions& from) {
  LeftOut out;
  std::map<std::pair<std::string, Keys>, std::pair<double, std::size_t>> known;
  for (const PublishedPrediction* p : from) {
    const Keys own = chain_of(*p)[0];
    auto at = known.find({p->source, own});
    if (at == known.end()) {
      const Predictions others = where(from, [p](const auto* o) { return o->source != p->source; });
      const auto [rows, width] = nearest(others, *p);
      at =
          known.emplace(std::pair{p->source, own}, std::pair{efficiency_factor(rows), width}).first;
    }
    const auto [factor, width] = at->second;
    if (width == kWidths) {
      continue;  // no other source at all
    }
    const double residual = log_ratio(*p) - std::log(factor);
    out.of_width[p->plan][width][p->source].push_back(residual);
    out.of_width[""][width][p->source].push_back(residual);
    if (width == 0) {
      out.of_group[own][p->source].push_back(residual);
    }
  }
  return out;
}

/// Figures are data with four digits.
double rounded(double x) { return std::round(x * 1e4) / 1e4; }

}  // namespace

bool gives_efficiency(const PublishedPrediction* p) {
  // Adapters are predicted at the efficiency of full training, which tells whether their ops are
  // right.
  return p->skipped.empty() && p->fits() && p->row->hours_of != "run" && p->row->task != "lora";
}

Predictions efficiency_rows(const Predictions& from, const PublishedPrediction& of) {
  return nearest(from, of).first;
}

double efficiency_factor(const Predictions& rows) {
  std::map<std::string, std::size_t> count;
  for (const PublishedPrediction* p : rows) {
    ++count[p->source];
  }
  std::vector<std::pair<double, double>> logs;
  for (const PublishedPrediction* p : rows) {
    logs.emplace_back(log_ratio(*p), 1 / static_cast<double>(count.at(p->source)));
  }
  return logs.empty() ? 1 : std::exp(weighted_quantile(std::move(logs), 0.5));
}

EfficiencyTable fit_efficiencies(const Predictions& all) {
  const Predictions from = where(all, gives_efficiency);
  const LeftOut left_out = left_out_in_turn(from);
  std::array<std::set<Keys>, kWidths> groups;
  for (const PublishedPrediction* p : from) {
    const auto chain = chain_of(*p);
    for (std::size_t width = 0; width < kWidths; ++width) {
      groups[width].insert(chain[width]);
    }
  }
  EfficiencyTable table;
  for (std::size_t width = 0; width < kWidths; ++width) {
    for (const Keys& keys : groups[width]) {
      const Predictions rows = where(from, [&keys](const auto* p) { return in_group(*p, keys); });
      std::set<std::string> sources;
      for (const PublishedPrediction* p : rows) {
        sources.insert(p->source);
      }
      const auto own = left_out.of_group.find(keys);
      const bool of_its_own =
          own != left_out.of_group.end() && own->second.size() >= kSourcesOfSpread;
      const double half = of_its_own ? half_width(own->second) : left_out.half(keys[2], width);
      const double factor = efficiency_factor(rows);
      table.groups.push_back({.device = keys[0],
                              .framework = keys[1],
                              .family = keys[2],
                              .factor = rounded(factor),
                              .low = rounded(factor * std::exp(-half)),
                              .high = rounded(factor * std::exp(half)),
                              .rows = static_cast<std::int64_t>(rows.size()),
                              .sources = static_cast<std::int64_t>(sources.size())});
    }
  }
  return table;
}

std::string StepSpread::factors() const {
  return fmt::format("x{:.3f} .. x{:.3f}", std::exp(low), std::exp(high));
}

StepSpread spread_of(const Residuals& residuals, double level) {
  StepSpread spread{level, 0, 0, residuals.size(), 0};
  std::vector<WeightedValue> all;
  for (const auto& [source, of] : residuals) {
    spread.rows += of.size();
    for (const double r : of) {
      all.emplace_back(r, 1 / static_cast<double>(of.size()));
    }
  }
  if (!all.empty()) {
    const double middle = weighted_quantile(std::move(all), 0.5);
    const double half = half_width(residuals, level, middle);
    spread.low = middle - half;
    spread.high = middle + half;
  }
  return spread;
}

}  // namespace stepcast::validation
