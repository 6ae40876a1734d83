#include "validation/published/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "core/device_names.h"
#include "core/statistics.h"

namespace stepcast::validation {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr const char* kConstantRate = "constant rate";

using SourceOnDevice = std::pair<std::string, std::string>;  // source, device
SourceOnDevice key_of(const PublishedPrediction& p) { return {p.source, p.device}; }

/// The share of the peak at which a constant rate runs: the middle one of rows of its device and
/// format; where there are none, of its format; of all.
double rate_of(const Predictions& rows, const PublishedPrediction& of) {
  for (const auto& [same_device, same_format] :
       {std::pair{true, true}, {false, true}, {false, false}}) {
    std::vector<double> shares;
    for (const PublishedPrediction* p : rows) {
      if (p->at_peak > 0 && (p->device == of.device || !same_device) &&
          (p->format == of.format || !same_format)) {
        shares.push_back(p->at_peak / p->measured);
      }
    }
    if (!shares.empty()) {
      return middle_of(std::move(shares));
    }
  }
  return 1;
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
  using As = Figure::As;
  const double share = p.capacity > 0 ? p.memory / p.capacity : 0;
  row.run = {{"run/source", "", p.source, As::kText},
             {"run/gpu", "", p.device, As::kText},
             {"run/framework", "", p.framework, As::kText},
             {"run/plan", "", p.plan, As::kText},
             {"run/format", "", p.format, As::kText},
             {"run/kernels_only_s", "", p.kernels, As::kSeconds},
             {"run/fits", "", p.fits() ? 1.0 : 0, As::kYes},
             {"run/fit", "", std::string(name_of(p.fit())), As::kText},
             {"run/memory_over", "", p.over},
             {"run/memory_share", "", share},
             {"run/generation", "", p.generation, As::kText},
             {"run/training", "", p.family, As::kText},
             {"run/release", "", p.release, As::kText}};
  if (p.row->memory_gib > 0) {
    row.run.push_back({"measured_memory_bytes", "", p.row->memory_gib * kGiB});
    row.run.push_back({"predicted_memory_bytes", "", p.memory});
  }
  return row;
}

/// Rows that the prediction of a row may know, and their efficiencies.
struct Known {
  Predictions rows;
  EfficiencyTable table;
};

/// Every row on what it may know; those that were not predicted stay empty.
template <typename KnownOf>
Scores on_known(const Predictions& all, KnownOf known_of) {
  Scores out;
  std::map<std::tuple<const Known*, std::string, std::string>, double> rates;
  for (const PublishedPrediction* p : all) {
    ScaledPrediction s{p};
    if (p->skipped.empty()) {
      const Known& known = known_of(*p);
      const EfficiencyKeys keys = keys_of(*p);
      const EfficiencyGroup* group = nearest_efficiency(known.table, keys);
      s.seconds = p->seconds(1) * (group != nullptr ? group->factor : 1);
      s.width = group != nullptr ? efficiency_width(known.table, *group, keys) : 0;
      const auto [rate, fresh] = rates.try_emplace({&known, p->device, p->format}, 0);
      if (fresh) {
        rate->second = rate_of(known.rows, *p);
      }
      s.naive = p->at_peak / rate->second;
    }
    out.push_back(std::move(s));
  }
  return out;
}

/// Rows on what the rest of `all` knows, a part left out in turn; of a given table its
/// efficiencies.
Scores left_out(const Predictions& all, LeaveOut what, const EfficiencyTable* table) {
  const Predictions give = where(all, gives_efficiency);
  std::map<std::string, Known> parts;
  return on_known(all, [&](const PublishedPrediction& p) -> const Known& {
    const std::string block = block_of(p, what);
    const auto [at, fresh] = parts.try_emplace(block);
    if (fresh) {
      Known& known = at->second;
      known.rows = where(give, [&](const auto* other) { return block_of(*other, what) != block; });
      known.table = table != nullptr ? *table : fit_efficiencies(known.rows);
    }
    return at->second;
  });
}

/// Rows of a source and device are calibrated by its first row: its step or its host's cost.
Scores by_one_row(const Predictions& all) {
  std::map<SourceOnDevice, std::pair<double, double>> scalars;
  Scores out;
  for (const PublishedPrediction* p : all) {
    ScaledPrediction s{p};
    if (p->skipped.empty()) {
      const auto [at, first] = scalars.try_emplace(key_of(*p));
      if (first) {
        at->second = {published_scalar({p}), rate_of({p}, *p)};
        s.reference = fmt::format("gives the scalar of {} / {}, x{:.4g}", p->source, p->device,
                                  at->second.first);
      }
      s.seconds = p->seconds(at->second.first);
      s.naive = p->at_peak / at->second.second;
    }
    out.push_back(std::move(s));
  }
  return out;
}

void add(const std::string& name, const Scores& of, Suite& to) {
  if (!of.empty()) {
    to.groups.push_back(published_group(name, of));
  }
}

/// The groups that answer for all of it, and a line of each.
void add_headline(const Scores& scores, Suite& suite) {
  constexpr int kYear = 2026;
  const Scores scored = where(scores, is_scored);
  const auto h100 = device_named("H100");
  const auto of = [&](const std::string& name, auto wanted) {
    const Scores rows = where(scored, wanted);
    if (rows.empty()) {
      return;
    }
    suite.groups.push_back(published_group("headline: " + name, rows));
    const Group& g = suite.groups.back();
    const studies::ErrorStatistics& naive = *g.baseline_errors;
    suite.notes.push_back(fmt::format(
        "{}: {} rows, median {:.1f}, p90 {:.1f}, bias {:+.1f} %; at a constant rate {:.1f}, "
        "{:.1f}, "
        "{:+.1f} %{}",
        name, g.errors.n, 100 * g.errors.median, 100 * g.errors.p90, 100 * g.errors.bias,
        100 * naive.median, 100 * naive.p90, 100 * naive.bias,
        g.covered ? fmt::format("; 90 % intervals hold {:.0f} %", 100 * *g.covered) : ""));
  };
  of("all", [](const auto&) { return true; });
  of(fmt::format("Blackwell, software of {}", kYear),
     [](const auto& s) { return s->generation == "Blackwell" && s->year() >= kYear; });
  of("H100", [&](const auto& s) { return s->device == h100->device; });
}

/// The same rows by what they have in common.
void add_cuts(const Scores& all, Suite& suite) {
  using P = PublishedPrediction;
  const Scores scored = where(all, is_scored);
  for (const auto& [name, key] : {std::pair{"plans", &P::plan},
                                  {"training", &P::family},
                                  {"GPU", &P::device},
                                  {"generation", &P::generation},
                                  {"framework", &P::framework},
                                  {"format", &P::format}}) {
    std::map<std::string, Scores> cuts;
    for (const ScaledPrediction& s : scored) {
      cuts[s.prediction->*key].push_back(s);
    }
    for (const auto& [of, scores] : cuts) {
      add(fmt::format("{}: {}", name, of), scores, suite);
    }
  }
  add("does not fit by our ledger", where(scored, [](const auto& s) { return !s->fits(); }), suite);
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
  return fmt::format("{} rows: {} predicted, of which {} do not fit by our ledger; {} refused{}",
                     scores.size(), predicted, tight, rejected, apart);
}

/// Every row; the headline, then a group per source and GPU in the order they appear.
Suite by_source(const Scores& scores) {
  Suite out{.name = "published"};
  add_headline(scores, out);
  std::vector<SourceOnDevice> order;
  std::map<SourceOnDevice, Scores> sources;
  for (const ScaledPrediction& s : scores) {
    out.rows.push_back(shown(s));
    const auto [of, fresh] = sources.try_emplace(key_of(*s.prediction));
    if (fresh) {
      order.push_back(of->first);
    }
    if (s->left_out.empty()) {
      of->second.push_back(s);
    }
  }
  for (const SourceOnDevice& key : order) {
    add(fmt::format("{} / {}", key.first.empty() ? "unknown source" : key.first, key.second),
        sources.at(key), out);
  }
  add_cuts(scores, out);
  out.notes.push_back(counts_of(scores));
  return out;
}

}  // namespace

std::optional<PublishedBasis> basis_named(std::string_view name) {
  using R = PublishedRegime;
  const std::tuple<const char*, R, LeaveOut> kNames[] = {
      {"facts", R::kFacts, LeaveOut::kSource},
      {"shipped", R::kShipped, LeaveOut::kSource},
      {"one-row", R::kOneRow, LeaveOut::kSource},
      {"loso", R::kLeftOut, LeaveOut::kSource},
      {"source", R::kLeftOut, LeaveOut::kSource},
      {"vendor", R::kLeftOut, LeaveOut::kVendor},
      {"gpu-generation", R::kLeftOut, LeaveOut::kGeneration},
      {"release", R::kLeftOut, LeaveOut::kRelease}};
  for (const auto& [written, regime, leave_out] : kNames) {
    if (name == written) {
      return PublishedBasis{regime, leave_out, {}};
    }
  }
  return std::nullopt;
}

Scores scaled(const Predictions& all, const PublishedBasis& basis) {
  const EfficiencyTable none;
  if (basis.regime == PublishedRegime::kOneRow) {
    return by_one_row(all);
  }
  const bool facts = basis.regime == PublishedRegime::kFacts;
  Scores scores = left_out(all, basis.leave_out,
                           facts                                       ? &none
                           : basis.regime == PublishedRegime::kShipped ? &basis.shipped
                                                                       : nullptr);
  for (ScaledPrediction& s : scores) {
    s.seconds = facts ? s->facts : s.seconds;
  }
  return scores;
}

Scores scaled_by_folds(const Predictions& of) {
  using Fold = std::pair<std::int64_t, std::int64_t>;
  const auto fold = [](const PublishedPrediction& p) {
    return Fold{p.row->hidden, p.row->devices};
  };
  std::map<Fold, std::pair<double, double>> scalars;
  Scores out;
  for (const PublishedPrediction* p : where(of, [](const auto* p) { return p->skipped.empty(); })) {
    const auto [at, fresh] = scalars.try_emplace(fold(*p));
    if (fresh) {
      const Predictions others = where(of, [&](const auto* o) {
        return o->skipped.empty() && o->plausible() && fold(*o) != fold(*p);
      });
      at->second = {published_scalar(others), rate_of(others, *p)};
    }
    out.push_back({p, p->seconds(at->second.first), p->at_peak / at->second.second});
  }
  return out;
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
    if (s->skipped.empty() && s->row->memory_gib > 0) {
      memory.push_back(s->memory / (s->row->memory_gib * kGiB) - 1);
    }
    if (s.reference.empty()) {
      rows.push_back(shown(s));
    }
  }
  Group group = group_of(name, rows, kConstantRate);
  if (!memory.empty()) {
    group.memory = studies::statistics_of(memory);
  }
  rank_plans(of, PlansOf::kModel, group);
  const Scores known = where(of, [](const auto& s) { return is_scored(s) && s.width > 0; });
  if (!known.empty()) {
    const auto held = std::count_if(known.begin(), known.end(), [](const auto& s) {
      return std::abs(std::log(s->measured / s.seconds)) <= s.width;
    });
    group.covered = static_cast<double>(held) / static_cast<double>(known.size());
  }
  return group;
}

Suite validate_published(const std::vector<PublishedPrediction>& predictions,
                         const PublishedBasis& basis) {
  Suite suite = by_source(scaled(pointers(predictions), basis));
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
  Known known{where(pointers(others), gives_efficiency), {}};
  known.table = fit_efficiencies(known.rows);
  const Scores scores =
      on_known(pointers(runs), [&](const auto&) -> const Known& { return known; });
  Scores no_scalar = scores;  // naive as with one
  for (ScaledPrediction& s : no_scalar) {
    s.seconds = s->skipped.empty() ? s->seconds(1) : 0;
  }
  Suite suite = by_source(scores);
  add("runs: all, no scalar", no_scalar, suite);
  add("runs: all", scores, suite);
  add("runs: steps", where(scores, [](const auto& s) { return s->row->hours_of == "steps"; }),
      suite);
  add("runs: whole runs", where(scores, [](const auto& s) { return s->row->hours_of == "run"; }),
      suite);
  const auto skipped =
      std::count_if(runs.begin(), runs.end(), [](const auto& p) { return !p.skipped.empty(); });
  suite.pass = skipped == 0;
  suite.bound = fmt::format("every row is predicted ({} are not)", skipped);
  return suite;
}

StepSpread published_spread(const std::vector<PublishedPrediction>& predictions, SpreadOf of,
                            double level) {
  const Predictions all = pointers(predictions);
  const EfficiencyTable none;
  Residuals residuals;
  for (const ScaledPrediction& s :
       of == SpreadOf::kPlain
           ? left_out(all, LeaveOut::kSource, &none)
           : by_one_row(where(all, [](const auto* p) { return !p->scales_host(); }))) {
    if (is_scored(s) && s.seconds > 0) {
      residuals[s->source].push_back(std::log(s->measured / s.seconds));
    }
  }
  return spread_of(residuals, level);
}

}  // namespace stepcast::validation
