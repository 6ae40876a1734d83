#include "validation/published/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "studies/fit/error_statistics.h"
#include "validation/published/paces.h"
#include "validation/published/select.h"
#include "validation/published/spread.h"

namespace stepcast::validation {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr const char* kConstantMfu = "constant MFU";

using SourceOnDevice = std::pair<std::string, std::string>;  // source, device

SourceOnDevice key_of(const PublishedPrediction& p) { return {p.source, p.device}; }

/// Among those that could be predicted, with a plan that fits: others say nothing of a pace.
template <typename Wanted>
Predictions predicted_where(const Predictions& all, Wanted wanted) {
  return where(all, [&](const PublishedPrediction& p) {
    return p.skipped.empty() && p.fits() && wanted(p);
  });
}

/// Utilisation that rows show, the middle one.
double mfu_of(const Predictions& of) {
  std::vector<double> shares;
  for (const PublishedPrediction* p : of) {
    shares.push_back(p->at_peak / p->measured);
  }
  return shares.empty() ? 1 : median_of(std::move(shares));
}

/// Plans of one model: what can be ranked.
std::string model_of(const PublishedPrediction& p) {
  return fmt::format("{}|{}|{}", p.row->table, p.row->model, p.format);
}

/// For scores for every row in the order of `all`: what the row shows.
ValidationRow shown(const ScaledPrediction& s) {
  const PublishedPrediction& p = *s.prediction;
  ValidationRow row{p.row->id, p.measured, s.seconds, {}};
  if (!p.skipped.empty()) {
    row.measured = p.row->seconds;
    row.skipped = p.skipped;
  } else if (!s.reference.empty()) {
    row.skipped = s.reference;
  }
  if (p.skipped.empty()) {
    row.run = ValidationRow::Run{p.source, p.device,     p.framework, p.plan,
                                 p.format, p.seconds(1), p.fits()};
  }
  if (p.row->memory_gib > 0 && p.skipped.empty()) {
    row.measured_memory = p.row->memory_gib * kGiB;
    row.predicted_memory = p.memory;
  }
  return row;
}

/// The bar of every group: where utilisation varies, half of what a constant one misses.
void hold_to_baseline(const std::vector<ScaledPrediction>& of, ValidationGroup& group) {
  constexpr double kSpan = 1.3;
  double least = 1e300;
  double most = 0;
  for (const ScaledPrediction& s : of) {
    if (s.prediction->skipped.empty()) {
      const double mfu = s.prediction->at_peak / s.prediction->measured;
      least = std::min(least, mfu);
      most = std::max(most, mfu);
    }
  }
  if (group.errors.n > 1 && most >= kSpan * least) {
    group.bound = fmt::format("mean <= half of the constant MFU's {:.1f} %, MFU spans {:.2f}x",
                              100 * group.baseline_mean, most / least);
    group.pass = group.errors.mean <= 0.5 * group.baseline_mean;
  }
}

/// What a regime makes of one row: a factor on its step or host, and a constant MFU to compare
/// with.
struct Scalar {
  double factor = 1, mfu = 1;
};

/// Rows of a source and device are calibrated by its first row.
std::vector<ScaledPrediction> by_one_row(const Predictions& all) {
  std::map<SourceOnDevice, std::pair<const PublishedPrediction*, Scalar>> references;
  std::vector<ScaledPrediction> out;
  for (const PublishedPrediction* p : all) {
    ScaledPrediction s{p, 0, 0, {}};
    if (p->skipped.empty()) {
      const auto [at, first] = references.try_emplace(key_of(*p), p, Scalar{});
      auto& [reference, scalar] = at->second;
      if (first) {
        scalar = {published_scalar({p}), mfu_of({p})};
      }
      s.seconds = p->seconds(scalar.factor);
      s.naive = p->at_peak / scalar.mfu;
      if (reference == p) {
        s.reference = fmt::format("gives the scalar of {} / {}, x{:.4g}", p->source, p->device,
                                  scalar.factor);
      }
    }
    out.push_back(std::move(s));
  }
  return out;
}

/// Rows at the pace that rows of other sources show, or at that of a table.
std::vector<ScaledPrediction> at_pace(const Predictions& all, const Predictions& others,
                                      const PaceTable* table) {
  std::map<std::array<std::string, 4>, Scalar> scalars;
  std::vector<ScaledPrediction> out;
  for (const PublishedPrediction* p : all) {
    ScaledPrediction s{p, 0, 0, {}};
    if (p->skipped.empty()) {
      const auto [at, fresh] =
          scalars.try_emplace({p->source, p->device, p->framework, p->plan}, Scalar{});
      if (fresh) {
        const Predictions rows = pace_rows(
            where(others, [p](const PublishedPrediction& o) { return o.source != p->source; }), *p);
        at->second = {pace_factor(rows), mfu_of(rows)};
        const PaceGroup* group =
            table == nullptr ? nullptr : nearest_pace(*table, p->device, p->framework, p->plan);
        if (group != nullptr) {
          at->second.factor = group->factor;
        }
      }
      s.seconds = p->seconds(1) * at->second.factor;
      s.naive = p->at_peak / at->second.mfu;
    }
    out.push_back(std::move(s));
  }
  return out;
}

/// From hardware facts only.
std::vector<ScaledPrediction> of_facts(const Predictions& all) {
  std::vector<ScaledPrediction> out;
  for (const PublishedPrediction* p : all) {
    out.push_back({p, p->skipped.empty() ? p->facts : 0, p->skipped.empty() ? p->at_peak : 0, {}});
  }
  return out;
}

std::string group_name(const SourceOnDevice& key) {
  return fmt::format("{} / {}", key.first.empty() ? "unknown source" : key.first, key.second);
}

/// The same rows by what they have in common, and those apart whose own ledger does not fit.
void add_cuts(const Scores& scores, ValidationSuite& suite) {
  const auto scored = [](const PublishedPrediction& p) { return p.skipped.empty(); };
  const auto add = [&](const std::string& name, const Scores& of) {
    if (!of.empty()) {
      ValidationGroup group = published_group(name, of);
      group.bound.clear();
      group.pass = true;
      suite.groups.push_back(std::move(group));
    }
  };
  const auto cut = [&](const char* name, auto key) {
    std::vector<std::string> keys;
    for (const ScaledPrediction& s : scores) {
      const std::string& of = key(*s.prediction);
      if (scored(*s.prediction) && std::find(keys.begin(), keys.end(), of) == keys.end()) {
        keys.push_back(of);
      }
    }
    std::sort(keys.begin(), keys.end());
    for (const std::string& of : keys) {
      add(fmt::format("{}: {}", name, of), where(scores, [&](const PublishedPrediction& p) {
            return scored(p) && p.fits() && key(p) == of;
          }));
    }
  };
  cut("plans", [](const PublishedPrediction& p) -> const std::string& { return p.plan; });
  cut("GPU", [](const PublishedPrediction& p) -> const std::string& { return p.device; });
  cut("framework", [](const PublishedPrediction& p) -> const std::string& { return p.framework; });
  cut("format", [](const PublishedPrediction& p) -> const std::string& { return p.format; });
  add("all runs that fit",
      where(scores, [&](const PublishedPrediction& p) { return scored(p) && p.fits(); }));
  add("apart: does not fit by our ledger",
      where(scores, [&](const PublishedPrediction& p) { return scored(p) && !p.fits(); }));
}

/// What happened to the rows, each kind of reason with its count.
void add_counts(const Scores& scores, ValidationSuite& suite) {
  std::map<std::string, std::size_t> left_out;
  std::size_t predicted = 0;
  std::size_t refused = 0;
  std::size_t tight = 0;
  for (const ScaledPrediction& s : scores) {
    const PublishedPrediction& p = *s.prediction;
    predicted += p.skipped.empty() ? 1 : 0;
    tight += p.skipped.empty() && !p.fits() ? 1 : 0;
    refused += !p.skipped.empty() && p.left_out.empty() ? 1 : 0;
    if (!p.left_out.empty()) {
      ++left_out[p.left_out];
    }
  }
  std::string apart;
  for (const auto& [reason, count] : left_out) {
    apart += fmt::format("; {}: {}", reason, count);
  }
  suite.notes.push_back(fmt::format(
      "{} rows: {} predicted, of which {} do not fit by our ledger and are listed apart; {} refused{}",
      scores.size(), predicted, tight, refused, apart));
}

/// How many of each group's rows lie in the interval that the other sources give.
std::vector<std::string> add_intervals(const std::vector<PublishedPrediction>& predictions,
                                       PublishedRegime regime,
                                       const std::vector<ScaledPrediction>& scores,
                                       std::vector<ValidationGroup>& groups) {
  constexpr double kShare = 0.8;
  if (regime == PublishedRegime::kShipped) {
    return {};  // the table has seen the rows
  }
  const std::vector<IntervalCheck> checks = check_intervals(predictions, regime, kShare);
  if (checks.size() < 2) {
    return {};
  }
  std::size_t rows = 0;
  std::size_t held = 0;
  for (const IntervalCheck& c : checks) {
    rows += c.rows;
    held += c.held;
    for (ValidationGroup& g : groups) {
      double inside = 0;
      double all = 0;
      for (const ScaledPrediction& s : scores) {
        const PublishedPrediction& p = *s.prediction;
        if (p.source == c.source && group_name(key_of(p)) == g.name && p.skipped.empty() &&
            s.reference.empty()) {
          all += 1;
          inside += c.spread.holds(std::log(p.measured / s.seconds)) ? 1 : 0;
        }
      }
      if (all > 0) {
        g.covered = inside / all;
      }
    }
  }
  const auto factors = [&](SpreadOf of, double level) {
    const StepSpread s = published_spread(predictions, of, level);
    return fmt::format("x{:.3f} .. x{:.3f}", std::exp(s.low), std::exp(s.high));
  };
  return {fmt::format("intervals from the other sources, said to hold {:.0f} %, hold {:.0f} % of "
                      "rows, {:.0f} % on the mean of {} sources",
                      100 * kShare, 100.0 * static_cast<double>(held) / static_cast<double>(rows),
                      100 * mean_coverage(checks), checks.size()),
          fmt::format("a source to come, 80 and 90 % of its rows: {}, {} of the prediction; {}, {} "
                      "once a row of it gave a scalar",
                      factors(SpreadOf::kPlain, 0.8), factors(SpreadOf::kPlain, 0.9),
                      factors(SpreadOf::kScaled, 0.8), factors(SpreadOf::kScaled, 0.9))};
}

}  // namespace

std::optional<PublishedRegime> regime_named(std::string_view name) {
  if (name == "facts") {
    return PublishedRegime::kFacts;
  }
  if (name == "loso") {
    return PublishedRegime::kLoso;
  }
  if (name == "shipped") {
    return PublishedRegime::kShipped;
  }
  return name == "one-row" ? std::optional(PublishedRegime::kOneRow) : std::nullopt;
}

std::vector<ScaledPrediction> scaled(const Predictions& all, PublishedRegime regime,
                                     const PaceTable& paces) {
  switch (regime) {
    case PublishedRegime::kFacts:
      return of_facts(all);
    case PublishedRegime::kOneRow:
      return by_one_row(all);
    case PublishedRegime::kLoso:
      return at_pace(all, all, nullptr);
    case PublishedRegime::kShipped:
      break;
  }
  return at_pace(all, all, &paces);
}

std::vector<ScaledPrediction> scaled_from(const Predictions& all, const Predictions& others) {
  return at_pace(all, others, nullptr);
}

std::vector<ScaledPrediction> scaled_by_folds(const Predictions& of) {
  std::map<std::pair<std::int64_t, std::int64_t>, Predictions> training;
  const auto fold = [](const PublishedPrediction& p) {
    return std::pair{p.row->hidden, p.row->devices};
  };
  std::map<std::pair<std::int64_t, std::int64_t>, std::pair<double, double>> scalars;
  for (const PublishedPrediction* p : of) {
    if (p->skipped.empty() && !scalars.contains(fold(*p))) {
      const Predictions others =
          predicted_where(of, [&](const PublishedPrediction& o) { return fold(o) != fold(*p); });
      scalars[fold(*p)] = {published_scalar(others), mfu_of(others)};
    }
  }
  std::vector<ScaledPrediction> out;
  for (const PublishedPrediction* p : of) {
    if (p->skipped.empty()) {
      const auto [scalar, mfu] = scalars.at(fold(*p));
      out.push_back({p, p->seconds(scalar), p->at_peak / mfu, {}});
    }
  }
  return out;
}

void rank_plans(const std::vector<ScaledPrediction>& of, PlansOf plans, ValidationGroup& group) {
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> models;
  for (const ScaledPrediction& s : of) {
    if (!s.prediction->skipped.empty()) {
      continue;
    }
    auto& [predicted, measured] =
        models[plans == PlansOf::kModel ? model_of(*s.prediction) : s.prediction->row->table];
    const double per_flop = s.prediction->device_seconds / s.prediction->measured;
    predicted.push_back(s.seconds * per_flop);
    measured.push_back(s.prediction->device_seconds);
  }
  double pairs = 0;
  double tau = 0;
  double regret = 0;
  double ranked = 0;
  for (const auto& [model, costs] : models) {
    const auto n = static_cast<double>(costs.second.size());
    if (n < 2) {
      continue;
    }
    tau += n * (n - 1) * studies::kendall_tau(costs.first, costs.second);
    pairs += n * (n - 1);
    regret += studies::regret_of(costs.first, costs.second);
    ranked += 1;
  }
  if (ranked > 0) {
    group.kendall_tau = tau / pairs;
    group.regret = regret / ranked;
  }
}

ValidationGroup published_group(const std::string& name, const std::vector<ScaledPrediction>& of) {
  std::vector<ValidationRow> rows;
  std::vector<double> memory;
  double in_range = 0;
  double naive = 0;
  std::size_t skipped = 0;
  for (const ScaledPrediction& s : of) {
    const PublishedPrediction& p = *s.prediction;
    if (!p.skipped.empty()) {
      ++skipped;
      continue;
    }
    if (p.row->memory_gib > 0) {
      memory.push_back(p.memory / (p.row->memory_gib * kGiB) - 1);
    }
    if (s.reference.empty()) {
      rows.push_back({p.row->id, p.measured, s.seconds, {}});
      in_range += p.in_range ? 1 : 0;
      naive += std::abs(s.naive / p.measured - 1);
    }
  }
  ValidationGroup group = group_of(name, rows);
  const double n = std::max<double>(1, static_cast<double>(rows.size()));
  group.skipped = skipped;
  group.in_range_share = in_range / n;
  group.baseline = kConstantMfu;
  group.baseline_mean = naive / n;
  if (!memory.empty()) {
    group.memory = studies::statistics_of(memory);
  }
  rank_plans(of, PlansOf::kModel, group);
  hold_to_baseline(of, group);
  return group;
}

ValidationSuite published_by_source(const std::vector<ScaledPrediction>& scores) {
  ValidationSuite out;
  out.name = "published";
  std::vector<SourceOnDevice> order;
  for (const ScaledPrediction& s : scores) {
    out.rows.push_back(shown(s));
    const SourceOnDevice key = key_of(*s.prediction);
    if (std::find(order.begin(), order.end(), key) == order.end()) {
      order.push_back(key);
    }
  }
  const auto fitting = [](const PublishedPrediction& p) { return !p.skipped.empty() || p.fits(); };
  for (const SourceOnDevice& key : order) {
    const Scores of = where(scores, [&](const PublishedPrediction& p) {
      return key_of(p) == key && fitting(p) && p.left_out.empty();
    });
    if (of.empty()) {
      continue;
    }
    const std::string name = group_name(key);
    out.groups.push_back(published_group(name, of));
  }
  add_cuts(scores, out);
  add_counts(scores, out);
  return out;
}

ValidationSuite validate_published(const std::vector<PublishedPrediction>& predictions,
                                   PublishedRegime regime, const PaceTable& paces) {
  const Scores scores = scaled(pointers(predictions), regime, paces);
  ValidationSuite suite = published_by_source(scores);
  for (std::string& note : add_intervals(predictions, regime, scores, suite.groups)) {
    suite.notes.push_back(std::move(note));
  }
  std::vector<ValidationGroup> bars = published_bars(predictions);
  std::size_t met = 0;
  for (ValidationGroup& bar : bars) {
    met += bar.pass ? 1 : 0;
  }
  suite.pass = met == bars.size();
  suite.bound = bars.empty() ? "none of the project's bars is on these runs"
                             : fmt::format("{} of {} bars are met", met, bars.size());
  suite.groups.insert(suite.groups.end(), std::make_move_iterator(bars.begin()),
                      std::make_move_iterator(bars.end()));
  return suite;
}

}  // namespace stepcast::validation
