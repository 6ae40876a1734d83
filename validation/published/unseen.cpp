#include "validation/published/unseen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "validation/published/select.h"

namespace stepcast::validation {
namespace {

/// Over sources of many rows and of few alike.
ValidationGroup each_source_once(const Scores& of) {
  std::map<std::string, std::vector<ScaledPrediction>> sources;
  for (const ScaledPrediction& s : of) {
    if (s.prediction->skipped.empty()) {
      sources[s.prediction->source].push_back(s);
    }
  }
  std::vector<ValidationRow> rows;
  double naive = 0;
  for (const auto& [source, scores] : sources) {
    const ValidationGroup group = published_group(source, scores);
    naive += group.baseline_mean;
    rows.push_back({source, 1, 1 + std::copysign(group.errors.mean, group.errors.bias), {}});
  }
  ValidationGroup all = group_of("runs: mean of each source, sources alike", rows);
  all.baseline = "constant MFU";
  all.baseline_mean = naive / std::max<double>(1, static_cast<double>(rows.size()));
  return all;
}

}  // namespace

IntervalCount count_held(const std::vector<PublishedPrediction>& runs, const StepSpread& spread) {
  IntervalCount count{spread, 0, 0, 0};
  std::map<std::string, std::pair<double, double>> sources;  // held, rows
  for (const PublishedPrediction& p : runs) {
    if (p.skipped.empty()) {
      const bool held = spread.holds(std::log(p.measured / p.seconds(1)));
      auto& [inside, rows] = sources[p.source];
      inside += held ? 1 : 0;
      rows += 1;
      count.held += held ? 1 : 0;
      ++count.rows;
    }
  }
  for (const auto& [source, of] : sources) {
    count.by_source += of.first / of.second / static_cast<double>(sources.size());
  }
  return count;
}

ValidationSuite validate_unseen(const std::vector<PublishedPrediction>& runs,
                                const std::vector<PublishedPrediction>& others) {
  const Scores scaled = scaled_from(pointers(runs), pointers(others));
  Scores plain = scaled;
  for (ScaledPrediction& s : plain) {
    s.seconds = s.prediction->skipped.empty() ? s.prediction->seconds(1) : 0;
  }
  ValidationSuite suite = published_by_source(scaled);
  std::size_t skipped = 0;
  for (const PublishedPrediction& p : runs) {
    skipped += p.skipped.empty() ? 0 : 1;
  }
  const auto add = [&suite](const std::string& name, const Scores& of) {
    if (!of.empty()) {
      ValidationGroup group = published_group("runs: " + name, of);
      group.bound.clear();  // half of the baseline's error is asked of one source at a time
      group.pass = true;
      suite.groups.push_back(std::move(group));
    }
  };
  const auto hours = [](const char* of) {
    return [of](const PublishedPrediction& p) { return p.row->hours_of == of; };
  };
  add("all, no scalar", plain);
  add("all", scaled);
  suite.groups.push_back(each_source_once(scaled));
  add("steps", where(scaled, hours("steps")));
  add("whole runs", where(scaled, hours("run")));
  add("plan stated", where(scaled, [](const auto& p) { return !p.row->plan_by_rule; }));
  add("plan by rule", where(scaled, [](const auto& p) { return p.row->plan_by_rule; }));
  for (const double level : {0.8, 0.9}) {
    const IntervalCount count = count_held(runs, published_spread(others, SpreadOf::kPlain, level));
    suite.notes.push_back(fmt::format(
        "intervals of the other table, x{:.3f} .. x{:.3f} of the prediction without a scalar, said "
        "to hold {:.0f} %, hold {} of {} rows, {:.0f} % on the mean of sources",
        std::exp(count.spread.low), std::exp(count.spread.high), 100 * level, count.held,
        count.rows, 100 * count.by_source));
  }
  suite.pass = skipped == 0;
  suite.bound = fmt::format("every row is predicted ({} are not)", skipped);
  return suite;
}

}  // namespace stepcast::validation
