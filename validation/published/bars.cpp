#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "studies/fit/error_statistics.h"
#include "validation/published/published.h"
#include "validation/published/select.h"

// What the project holds its predictions of published runs to: one group per bar, each in the
// regime the bar names.
namespace stepcast::validation {
namespace {

constexpr std::array<std::string_view, 5> kVendorTables{"MCore 0.8", "MLPerf v3.0", "NeMo 24.07",
                                                        "Megatron-Bridge", "DGXC"};

Scores of_source(const Scores& all, std::string_view source) {
  return where(all, [source](const PublishedPrediction& p) { return p.source == source; });
}

void hold(ValidationGroup& g, const Bar& bar) {
  g.bound = bar.text();
  g.pass = bar.met(g.errors);
}

ValidationGroup ranked_bar(const Scores& of) {
  constexpr double kTau = 0.75;
  constexpr double kRegret = 0.05;
  ValidationGroup g = published_group("bar: BLOOM topology and heads, one-row", of);
  rank_plans(of, PlansOf::kTable, g);  // each table asks for the fastest of its rows
  hold(g, {.median = {}, .mean = 0.08, .p90 = {}, .worst = {}});
  g.bound += fmt::format(", tau >= {}, regret <= {} %", kTau, 100 * kRegret);
  g.pass = g.pass && g.kendall_tau.value_or(0) >= kTau && g.regret.value_or(1) <= kRegret;
  return g;
}

/// Utilisation in points, each step of a cumulative ablation beside the row before it.
ValidationGroup ablation_bar(const Scores& scores) {
  constexpr double kPoints = 0.03;
  constexpr std::array<std::string_view, 3> kSteps{"TP overlap", "PP overlap", "DP overlap"};
  std::vector<double> off;
  std::vector<std::string> names;
  std::size_t skipped = 0;
  for (std::size_t i = 1; i < scores.size(); ++i) {
    const PublishedPrediction& now = *scores[i].prediction;
    const PublishedPrediction& before = *scores[i - 1].prediction;
    const bool step = std::any_of(kSteps.begin(), kSteps.end(), [&](std::string_view s) {
      return now.row->framework.ends_with(s);
    });
    if (!step) {
      continue;
    }
    if (!now.skipped.empty() || !before.skipped.empty()) {
      ++skipped;
      continue;
    }
    const double predicted =
        now.at_peak / scores[i].seconds - before.at_peak / scores[i - 1].seconds;
    off.push_back(predicted - (now.row->mfu - before.row->mfu));
    names.push_back(now.row->id);
  }
  ValidationGroup g;
  g.name = "bar: MegaScale ablation, MFU gained by each overlap, one-row";
  g.errors = studies::statistics_of(off);
  g.skipped = skipped;
  if (!off.empty()) {
    g.worst_row = names[g.errors.worst_index];
  }
  hold(g, {.median = {}, .mean = {}, .p90 = {}, .worst = kPoints});
  g.pass = g.pass && skipped == 0;
  return g;
}

/// What libraries and allocators take besides the tensors is one amount per source and device: the
/// first row with a measurement gives it and is not scored.
ValidationGroup memory_bar(const std::vector<PublishedPrediction>& all) {
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  std::map<std::pair<std::string, std::string>, double> reserves;
  std::vector<ValidationRow> rows;
  std::size_t wrong = 0;
  std::size_t skipped = 0;
  for (const PublishedPrediction& p : all) {
    if (p.row->memory_gib <= 0) {
      continue;
    }
    if (!p.skipped.empty()) {
      ++skipped;
      continue;
    }
    const double measured = p.row->memory_gib * kGiB;
    const auto [reserve, first] = reserves.try_emplace({p.source, p.device}, measured - p.memory);
    const double predicted = p.memory + reserve->second;
    wrong += predicted > p.capacity ? 1 : 0;  // it ran, so it did fit
    if (!first) {
      rows.push_back({p.row->id, measured, predicted, {}});
    }
  }
  ValidationGroup g = group_of("bar: memory of the fullest device, one reserve per source", rows);
  hold(g, {.median = {}, .mean = 0.05, .p90 = {}, .worst = {}});
  g.bound += fmt::format(", all fit ({} predicted not to)", wrong);
  g.pass = g.pass && wrong == 0;
  g.skipped = skipped;
  return g;
}

}  // namespace

std::vector<ValidationGroup> published_bars(const std::vector<PublishedPrediction>& predictions) {
  // For plans that fit: the others were not the jobs that ran.
  const Predictions all = where(pointers(predictions), [](const PublishedPrediction& p) {
    return !p.skipped.empty() || p.fits();
  });
  const Scores loso = scaled(all, PublishedRegime::kLoso);
  const Scores one_row = scaled(all, PublishedRegime::kOneRow);
  std::vector<ValidationGroup> bars;
  const auto add = [&bars](ValidationGroup group, const Scores& of) {
    if (!of.empty()) {
      bars.push_back(std::move(group));
    }
  };
  const auto plain = [&](const std::string& name, const Scores& of, const Bar& bar) {
    ValidationGroup g = published_group("bar: " + name, of);
    hold(g, bar);
    add(std::move(g), of);
  };
  plain("seqsel Table 5, one-row", of_source(one_row, "seqsel"),
        {.median = {}, .mean = 0.03, .p90 = {}, .worst = 0.07});
  plain("SC21 Table 1, loso", of_source(loso, "SC21"),
        {.median = {}, .mean = 0.06, .p90 = {}, .worst = {}});
  Predictions vtrain;
  std::copy_if(all.begin(), all.end(), std::back_inserter(vtrain),
               [](const PublishedPrediction* p) { return p->source == "vTrain"; });
  plain("vTrain single node, folds by (hidden, devices)", scaled_by_folds(vtrain),
        {.median = {}, .mean = 0.10, .p90 = {}, .worst = {}});
  const Scores bloom = of_source(one_row, "BLOOM");
  add(ranked_bar(bloom), bloom);
  plain("H100 vendor tables and MLPerf, loso",
        where(loso,
              [](const PublishedPrediction& p) {
                return std::find(kVendorTables.begin(), kVendorTables.end(), p.source) !=
                       kVendorTables.end();
              }),
        {.median = 0.08, .mean = {}, .p90 = 0.15, .worst = {}});
  plain("adapters (LoRA), loso",
        where(loso, [](const PublishedPrediction& p) { return p.row->task == "lora"; }),
        {.median = 0.12, .mean = {}, .p90 = {}, .worst = {}});
  const Scores ablation = of_source(one_row, "MegaScale");
  add(ablation_bar(ablation), ablation);
  const bool measured = std::any_of(predictions.begin(), predictions.end(),
                                    [](const auto& p) { return p.row->memory_gib > 0; });
  if (measured) {
    bars.push_back(memory_bar(predictions));
  }
  return bars;
}

}  // namespace stepcast::validation
