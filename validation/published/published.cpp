#include "validation/published/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace stepcast::validation {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr const char* kConstantMfu = "constant MFU";

using SourceOnDevice = std::pair<std::string, std::string>;  // source, device
SourceOnDevice key_of(const PublishedPrediction& p) { return {p.source, p.device}; }

/// Utilisation that rows show, the middle one.
double mfu_of(const Predictions& of) {
  std::vector<double> shares;
  for (const PublishedPrediction* p : of) {
    shares.push_back(p->at_peak / p->measured);
  }
  return shares.empty() ? 1 : median_of(std::move(shares));
}

bool is_scored(const ScaledPrediction& s) { return s->skipped.empty() && s.reference.empty(); }

/// Entry of a row in the suite's list.
Row shown(const ScaledPrediction& s) {
  const PublishedPrediction& p = *s.prediction;
  Row row{p.row->id, p.measured, s.seconds};
  if (!p.skipped.empty()) {
    row.measured = p.row->seconds;
    row.skipped = p.skipped;
    return row;
  }
  if (!s.reference.empty()) {
    row.skipped = s.reference;
  }
  row.naive = s.naive;
  row.in_range = p.in_range;
  row.run = Row::Run{.source = p.source,
                     .device = p.device,
                     .framework = p.framework,
                     .plan = p.plan,
                     .format = p.format,
                     .hardware = p.seconds(1),
                     .fits = p.fits(),
                     .fit = std::string(name_of(p.fit())),
                     .memory_margin = p.memory_margin,
                     .memory_share = p.capacity > 0 ? p.memory / p.capacity : 0};
  if (p.row->memory_gib > 0) {
    row.measured_memory = p.row->memory_gib * kGiB;
    row.predicted_memory = p.memory;
  }
  return row;
}

/// The bar of every group: where utilisation varies, half of what a constant one misses.
void hold_to_baseline(const Scores& of, Group& group) {
  constexpr double kSpan = 1.3;
  double least = 1e300;
  double most = 0;
  for (const ScaledPrediction& s : of) {
    if (s->skipped.empty()) {
      least = std::min(least, s->at_peak / s->measured);
      most = std::max(most, s->at_peak / s->measured);
    }
  }
  if (group.errors.n > 1 && most >= kSpan * least) {
    group.bound = fmt::format("mean <= half of the constant MFU's {:.1f} %, MFU spans {:.2f}x",
                              100 * group.baseline_mean, most / least);
    group.pass = group.errors.mean <= 0.5 * group.baseline_mean;
  }
}

/// Scalars that a regime makes of one row: a factor on its step or host, and a constant MFU to compare
/// with.
struct Scalar {
  double factor = 1, mfu = 1;
};

double at_factor(const PublishedPrediction& p, const Scalar& scalar) {
  return p.seconds(1) * scalar.factor;
}
/// The scalar is that of the step or of the host.
double with_scalar(const PublishedPrediction& p, const Scalar& scalar) {
  return p.seconds(scalar.factor);
}

/// Every row with its scalar; those that were not predicted stay empty.
template <typename ScalarOf, typename SecondsOf>
Scores scale(const Predictions& all, ScalarOf scalar_of, SecondsOf seconds_of) {
  Scores out;
  for (const PublishedPrediction* p : all) {
    ScaledPrediction s{p};
    if (p->skipped.empty()) {
      const Scalar scalar = scalar_of(*p, s);
      s.seconds = seconds_of(*p, scalar);
      s.naive = p->at_peak / scalar.mfu;
    }
    out.push_back(std::move(s));
  }
  return out;
}
Scalar unscaled(const PublishedPrediction&, ScaledPrediction&) { return {}; }

/// Rows of a source and device are calibrated by its first row.
Scores by_one_row(const Predictions& all) {
  std::map<SourceOnDevice, Scalar> scalars;
  const auto scalar_of = [&](const PublishedPrediction& p, ScaledPrediction& s) {
    const auto [at, first] = scalars.try_emplace(key_of(p));
    if (first) {
      at->second = {published_scalar({&p}), mfu_of({&p})};
      s.reference = fmt::format("gives the scalar of {} / {}, x{:.4g}", p.source, p.device,
                                at->second.factor);
    }
    return at->second;
  };
  return scale(all, scalar_of, with_scalar);
}

/// Rows at the efficiency that rows of other sources show, or at that of a table.
Scores at_pace(const Predictions& all, const Predictions& others, const EfficiencyTable* table) {
  std::map<std::array<std::string, 4>, Scalar> scalars;
  const auto scalar_of = [&](const PublishedPrediction& p, ScaledPrediction&) {
    const auto [at, fresh] = scalars.try_emplace({p.source, p.device, p.framework, p.plan});
    if (fresh) {
      const Predictions rows =
          efficiency_rows(where(others, [&p](const auto* o) { return o->source != p.source; }), p);
      at->second = {efficiency_factor(rows), mfu_of(rows)};
      if (const EfficiencyGroup* group =
              table == nullptr ? nullptr : nearest_efficiency(*table, p.device, p.framework, p.plan)) {
        at->second.factor = group->factor;
      }
    }
    return at->second;
  };
  return scale(all, scalar_of, at_factor);
}

std::string group_name(const SourceOnDevice& key) {
  return fmt::format("{} / {}", key.first.empty() ? "unknown source" : key.first, key.second);
}

void add(const std::string& name, const Scores& of, Suite& to) {
  if (!of.empty()) {
    to.groups.push_back(published_group(name, of));
  }
}

/// The same rows by what they have in common, and those apart whose own ledger does not fit.
void add_cuts(const Scores& all, Suite& suite) {
  using P = PublishedPrediction;
  const Scores scored = where(all, [](const auto& s) { return s->skipped.empty(); });
  const Scores fitting = where(scored, [](const auto& s) { return s->fits(); });
  for (const auto& [name, key] : {std::pair{"plans", &P::plan},
                                  {"GPU", &P::device},
                                  {"framework", &P::framework},
                                  {"format", &P::format}}) {
    std::map<std::string, Scores> cuts;
    for (const ScaledPrediction& s : fitting) {
      cuts[s.prediction->*key].push_back(s);
    }
    for (const auto& [of, scores] : cuts) {
      add(fmt::format("{}: {}", name, of), scores, suite);
    }
  }
  add("all runs that fit", fitting, suite);
  add("apart: does not fit by our ledger", where(scored, [](const auto& s) { return !s->fits(); }),
      suite);
}

/// Fates of the rows, each kind of reason with its count.
std::string counts_of(const Scores& scores) {
  std::map<std::string, std::size_t> left_out;
  std::size_t predicted = 0;
  std::size_t rejected = 0;
  std::size_t tight = 0;
  for (const ScaledPrediction& s : scores) {
    predicted += s->skipped.empty() ? 1 : 0;
    tight += s->skipped.empty() && !s->fits() ? 1 : 0;
    rejected += !s->skipped.empty() && s->left_out.empty() ? 1 : 0;
    if (!s->left_out.empty()) {
      ++left_out[s->left_out];
    }
  }
  std::string apart;
  for (const auto& [reason, count] : left_out) {
    apart += fmt::format("; {}: {}", reason, count);
  }
  return fmt::format(
      "{} rows: {} predicted, of which {} do not fit by our ledger and are listed apart; {} "
      "refused{}",
      scores.size(), predicted, tight, rejected, apart);
}

/// Every row, then a group per source and GPU in the order they appear.
Suite by_source(const Scores& scores) {
  Suite out{.name = "published"};
  std::vector<std::pair<SourceOnDevice, Scores>> sources;
  for (const ScaledPrediction& s : scores) {
    out.rows.push_back(shown(s));
    const SourceOnDevice key = key_of(*s.prediction);
    auto at = std::find_if(sources.begin(), sources.end(),
                           [&](const auto& of) { return of.first == key; });
    if (at == sources.end()) {
      at = sources.insert(at, {key, {}});
    }
    if ((!s->skipped.empty() || s->fits()) && s->left_out.empty()) {
      at->second.push_back(s);
    }
  }
  for (const auto& [key, of] : sources) {
    if (!of.empty()) {
      out.groups.push_back(published_group(group_name(key), of));
      hold_to_baseline(of, out.groups.back());
    }
  }
  add_cuts(scores, out);
  out.notes.push_back(counts_of(scores));
  return out;
}

Residuals residuals_of(const Scores& scores) {
  Residuals residuals;
  for (const ScaledPrediction& s : scores) {
    if (is_scored(s) && s.seconds > 0) {
      residuals[s->source].push_back(std::log(s->measured / s.seconds));
    }
  }
  return residuals;
}

/// The steps as `predict` says them, without a scalar.
Scores plain(const Predictions& all) { return scale(all, unscaled, at_factor); }

IntervalCheck check(const std::string& source, const std::vector<double>& residuals,
                    const StepSpread& spread) {
  const auto held =
      std::count_if(residuals.begin(), residuals.end(), [&](double r) { return spread.holds(r); });
  return {source, residuals.size(), static_cast<std::size_t>(held), spread};
}

std::pair<std::size_t, std::size_t> held_of_rows(const std::vector<IntervalCheck>& checks) {
  std::pair<std::size_t, std::size_t> sum;
  for (const IntervalCheck& c : checks) {
    sum.first += c.held;
    sum.second += c.rows;
  }
  return sum;
}

/// How many of each group's rows lie in the interval that the other sources give.
void add_intervals(const std::vector<PublishedPrediction>& predictions, PublishedRegime regime,
                   const Scores& scores, Suite& suite) {
  constexpr double kShare = 0.8;
  if (regime == PublishedRegime::kShipped) {
    return;  // the table has seen the rows
  }
  const std::vector<IntervalCheck> checks = check_intervals(predictions, regime, kShare);
  if (checks.size() < 2) {
    return;
  }
  std::map<std::string, std::pair<double, double>> inside;  // of all, by group
  for (const IntervalCheck& c : checks) {
    for (const ScaledPrediction& s : scores) {
      if (s->source == c.source && is_scored(s)) {
        auto& [held, all] = inside[group_name(key_of(*s.prediction))];
        held += c.spread.holds(std::log(s->measured / s.seconds)) ? 1 : 0;
        all += 1;
      }
    }
  }
  for (Group& g : suite.groups) {
    if (const auto at = inside.find(g.name); at != inside.end()) {
      g.covered = at->second.first / at->second.second;
    }
  }
  const auto [held, rows] = held_of_rows(checks);
  const auto factors = [&](SpreadOf of, double level) {
    return published_spread(predictions, of, level).factors();
  };
  suite.notes.push_back(fmt::format(
      "intervals from the other sources, said to hold {:.0f} %, hold {:.0f} % of rows, {:.0f} % on "
      "the mean of {} sources",
      100 * kShare, 100.0 * static_cast<double>(held) / static_cast<double>(rows),
      100 * mean_coverage(checks), checks.size()));
  suite.notes.push_back(
      fmt::format("a source to come, 80 and 90 % of its rows: {}, {} of the prediction; {}, {} "
                  "once a row of it "
                  "gave a scalar",
                  factors(SpreadOf::kPlain, 0.8), factors(SpreadOf::kPlain, 0.9),
                  factors(SpreadOf::kScaled, 0.8), factors(SpreadOf::kScaled, 0.9)));
}

/// Over sources of many rows and of few alike.
Group each_source_once(const Scores& of) {
  std::map<std::string, Scores> sources;
  for (const ScaledPrediction& s : where(of, [](const auto& s) { return s->skipped.empty(); })) {
    sources[s->source].push_back(s);
  }
  std::vector<Row> rows;
  double naive = 0;
  for (const auto& [source, scores] : sources) {
    const Group group = published_group(source, scores);
    naive += group.baseline_mean;
    rows.push_back({source, 1, 1 + std::copysign(group.errors.mean, group.errors.bias)});
  }
  Group all = group_of("runs: mean of each source, sources alike", rows, kConstantMfu);
  all.baseline_mean = naive / std::max<double>(1, static_cast<double>(rows.size()));
  return all;
}

}  // namespace

std::optional<PublishedRegime> regime_named(std::string_view name) {
  for (const auto& [written, regime] : {std::pair{"facts", PublishedRegime::kFacts},
                                        {"loso", PublishedRegime::kLoso},
                                        {"shipped", PublishedRegime::kShipped},
                                        {"one-row", PublishedRegime::kOneRow}}) {
    if (name == written) {
      return regime;
    }
  }
  return std::nullopt;
}

Scores scaled(const Predictions& all, PublishedRegime regime, const EfficiencyTable& efficiencies) {
  switch (regime) {
    case PublishedRegime::kFacts:
      return scale(all, unscaled, [](const auto& p, const auto&) { return p.facts; });
    case PublishedRegime::kOneRow:
      return by_one_row(all);
    case PublishedRegime::kLoso:
      return at_pace(all, all, nullptr);
    case PublishedRegime::kShipped:
      break;
  }
  return at_pace(all, all, &efficiencies);
}

Scores scaled_by_folds(const Predictions& of) {
  using Fold = std::pair<std::int64_t, std::int64_t>;
  const auto fold = [](const PublishedPrediction& p) {
    return Fold{p.row->hidden, p.row->devices};
  };
  const Predictions predicted = where(of, [](const auto* p) { return p->skipped.empty(); });
  std::map<Fold, Scalar> scalars;
  const auto scalar_of = [&](const PublishedPrediction& p, ScaledPrediction&) {
    const auto [at, fresh] = scalars.try_emplace(fold(p));
    if (fresh) {
      const Predictions others =
          where(predicted, [&](const auto* o) { return o->fits() && fold(*o) != fold(p); });
      at->second = {published_scalar(others), mfu_of(others)};
    }
    return at->second;
  };
  return scale(predicted, scalar_of, with_scalar);
}

void rank_plans(const Scores& of, PlansOf plans, Group& group) {
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> models;
  for (const ScaledPrediction& s : of) {
    if (s->skipped.empty()) {
      auto& [predicted, measured] =
          models[plans == PlansOf::kTable
                     ? s->row->table
                     : fmt::format("{}|{}|{}", s->row->table, s->row->model, s->format)];
      predicted.push_back(s.seconds * (s->device_seconds / s->measured));
      measured.push_back(s->device_seconds);
    }
  }
  double pairs = 0;
  double tau = 0;
  double regret = 0;
  double ranked = 0;
  for (const auto& [model, costs] : models) {
    const auto n = static_cast<double>(costs.second.size());
    if (n > 1) {
      tau += n * (n - 1) * studies::kendall_tau(costs.first, costs.second);
      pairs += n * (n - 1);
      regret += studies::regret_of(costs.first, costs.second);
      ranked += 1;
    }
  }
  if (ranked > 0) {
    group.kendall_tau = tau / pairs;
    group.regret = regret / ranked;
  }
}

Group published_group(const std::string& name, const Scores& of) {
  std::vector<Row> rows;
  std::vector<double> memory;
  for (const ScaledPrediction& s : of) {
    const Row row = shown(s);
    if (row.measured_memory > 0) {
      memory.push_back(row.predicted_memory / row.measured_memory - 1);
    }
    if (s.reference.empty()) {
      rows.push_back(row);
    }
  }
  Group group = group_of(name, rows, kConstantMfu);
  if (!memory.empty()) {
    group.memory = studies::statistics_of(memory);
  }
  rank_plans(of, PlansOf::kModel, group);
  return group;
}

Suite validate_published(const std::vector<PublishedPrediction>& predictions,
                         PublishedRegime regime, const EfficiencyTable& efficiencies) {
  const Scores scores = scaled(pointers(predictions), regime, efficiencies);
  Suite suite = by_source(scores);
  add_intervals(predictions, regime, scores, suite);
  const std::vector<Group> bars = published_bars(predictions);
  const auto met = std::count_if(bars.begin(), bars.end(), [](const Group& g) { return g.pass; });
  suite.pass = met == std::ssize(bars);
  suite.bound = bars.empty() ? "none of the project's bars is on these runs"
                             : fmt::format("{} of {} bars are met", met, bars.size());
  suite.groups.insert(suite.groups.end(), bars.begin(), bars.end());
  return suite;
}

Suite validate_unseen(const std::vector<PublishedPrediction>& runs,
                      const std::vector<PublishedPrediction>& others) {
  const Scores scores = at_pace(pointers(runs), pointers(others), nullptr);
  Scores no_scalar = scores;  // naive as with one
  for (ScaledPrediction& s : no_scalar) {
    s.seconds = s->skipped.empty() ? s->seconds(1) : 0;
  }
  Suite suite = by_source(scores);
  add("runs: all, no scalar", no_scalar, suite);
  add("runs: all", scores, suite);
  suite.groups.push_back(each_source_once(scores));
  add("runs: steps", where(scores, [](const auto& s) { return s->row->hours_of == "steps"; }),
      suite);
  add("runs: whole runs", where(scores, [](const auto& s) { return s->row->hours_of == "run"; }),
      suite);
  add("runs: plan stated", where(scores, [](const auto& s) { return !s->row->plan_by_rule; }),
      suite);
  add("runs: plan by rule", where(scores, [](const auto& s) { return s->row->plan_by_rule; }),
      suite);
  for (const double level : {0.8, 0.9}) {
    const StepSpread spread = published_spread(others, SpreadOf::kPlain, level);
    const std::vector<IntervalCheck> checks = check_unseen(runs, spread);
    const auto [held, rows] = held_of_rows(checks);
    suite.notes.push_back(fmt::format(
        "intervals of the other table, {} of the prediction without a scalar, said to hold {:.0f} "
        "%, hold {} of {} rows, {:.0f} % on the mean of sources",
        spread.factors(), 100 * level, held, rows, 100 * mean_coverage(checks)));
  }
  const auto skipped =
      std::count_if(runs.begin(), runs.end(), [](const auto& p) { return !p.skipped.empty(); });
  suite.pass = skipped == 0;
  suite.bound = fmt::format("every row is predicted ({} are not)", skipped);
  return suite;
}

StepSpread published_spread(const std::vector<PublishedPrediction>& predictions, SpreadOf of,
                            double level) {
  const Predictions all = pointers(predictions);
  return spread_of(
      residuals_of(of == SpreadOf::kPlain
                       ? plain(all)
                       : scaled(where(all, [](const auto* p) { return !p->scales_host(); }),
                                PublishedRegime::kOneRow)),
      level);
}

std::vector<IntervalCheck> check_intervals(const std::vector<PublishedPrediction>& predictions,
                                           PublishedRegime regime, double level) {
  const Predictions all = pointers(predictions);
  std::vector<IntervalCheck> checks;
  for (const auto& seen : residuals_of(scaled(all, regime))) {
    const Predictions others = where(all, [&](const auto* p) { return p->source != seen.first; });
    checks.push_back(
        check(seen.first, seen.second, spread_of(residuals_of(scaled(others, regime)), level)));
  }
  return checks;
}

std::vector<IntervalCheck> check_unseen(const std::vector<PublishedPrediction>& runs,
                                        const StepSpread& spread) {
  std::vector<IntervalCheck> checks;
  for (const auto& [source, residuals] : residuals_of(plain(pointers(runs)))) {
    checks.push_back(check(source, residuals, spread));
  }
  return checks;
}

double mean_coverage(const std::vector<IntervalCheck>& checks) {
  double sum = 0;
  for (const IntervalCheck& c : checks) {
    sum += static_cast<double>(c.held) / static_cast<double>(c.rows);
  }
  return checks.empty() ? 0 : sum / static_cast<double>(checks.size());
}

}  // namespace stepcast::validation
