#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "validation/published/published.h"

// Bars to which the project holds its predictions of published runs: one group per bar, each in the
// regime the bar names.
namespace stepcast::validation {
namespace {

/// Each table asks for the fastest of its rows.
void rank_tables(const Scores& of, Group& g) {
  constexpr double kTau = 0.75;
  constexpr double kRegret = 0.05;
  rank_plans(of, PlansOf::kTable, g);
  g.bound += fmt::format(", tau >= {}, regret <= {} %", kTau, 100 * kRegret);
  g.pass = g.pass && g.kendall_tau.value_or(0) >= kTau && g.regret.value_or(1) <= kRegret;
}

/// Utilisation in points, each step of a cumulative ablation beside the row before it.
Group ablation_bar(const Scores& scores) {
  constexpr std::array<std::string_view, 3> kOverlaps{"TP overlap", "PP overlap", "DP overlap"};
  std::vector<double> off;
  std::vector<std::string> names;
  Group g{.name = "bar: MegaScale ablation, MFU gained by each overlap, one-row"};
  for (std::size_t i = 1; i < scores.size(); ++i) {
    const ScaledPrediction& now = scores[i];
    const ScaledPrediction& before = scores[i - 1];
    if (std::none_of(kOverlaps.begin(), kOverlaps.end(),
                     [&](std::string_view s) { return now->row->framework.ends_with(s); })) {
      continue;
    }
    if (!now->skipped.empty() || !before->skipped.empty()) {
      ++g.skipped;
      continue;
    }
    off.push_back(now->at_peak / now.seconds - before->at_peak / before.seconds -
                  (now->row->mfu - before->row->mfu));
    names.push_back(now->row->id);
  }
  g.errors = studies::statistics_of(off);
  if (!off.empty()) {
    g.worst_row = names[g.errors.worst_index];
  }
  g.hold_to({.worst = 0.03});
  g.pass = g.pass && g.skipped == 0;
  return g;
}

/// Memory that libraries and allocators take besides the tensors is one amount per source and
/// device: the first row with a measurement gives it and is not scored.
Group memory_bar(const Predictions& measured) {
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  std::map<std::pair<std::string, std::string>, double> reserves;
  std::vector<Row> rows;
  std::size_t wrong = 0;
  for (const PublishedPrediction* p : measured) {
    Row row{p->row->id, p->row->memory_gib * kGiB};
    if (!p->skipped.empty()) {
      row.skipped = p->skipped;
      rows.push_back(row);
      continue;
    }
    const auto [reserve, first] =
        reserves.try_emplace({p->source, p->device}, row.measured - p->memory);
    row.predicted = p->memory + reserve->second;
    wrong +=
        simulator::fit_of(Bytes(row.predicted), Bytes(p->capacity), p->over) == simulator::Fit::kNo
            ? 1
            : 0;  // it ran, so it did fit
    if (!first) {
      rows.push_back(row);
    }
  }
  Group g = group_of("bar: memory of the fullest device, one reserve per source", rows);
  g.hold_to({.mean = 0.05});
  g.bound += fmt::format(", all fit ({} predicted not to)", wrong);
  g.pass = g.pass && wrong == 0;
  return g;
}

}  // namespace

std::vector<Group> published_bars(const std::vector<PublishedPrediction>& predictions) {
  const Predictions all = pointers(predictions);
  const Scores loso = scaled(all, {});
  const Scores one_row = scaled(all, {.regime = PublishedRegime::kOneRow});
  const Scores folds =
      scaled_by_folds(where(all, [](const auto* p) { return p->source == "vTrain"; }));
  const auto of = [](const Scores& scores, const std::set<std::string>& sources) {
    return where(scores, [&](const auto& s) { return sources.contains(s->source); });
  };
  const struct {
    const char* name;
    Scores scores;
    Bar bar;
    void (*ask_more)(const Scores&, Group&) = nullptr;
  } kBars[] = {
      {"seqsel Table 5, one-row", of(one_row, {"seqsel"}), {.mean = 0.03, .worst = 0.07}},
      {"SC21 Table 1, loso", of(loso, {"SC21"}), {.mean = 0.06}},
      {"vTrain single node, folds by (hidden, devices)", folds, {.mean = 0.10}},
      {"BLOOM topology and heads, one-row", of(one_row, {"BLOOM"}), {.mean = 0.08}, rank_tables},
      {"H100 vendor tables and MLPerf, loso",
       of(loso, {"MCore 0.8", "MLPerf v3.0", "NeMo 24.07", "Megatron-Bridge", "DGXC"}),
       {.median = 0.08, .p90 = 0.15}},
      {"adapters (LoRA), loso",
       where(loso, [](const auto& s) { return s->row->task == "lora"; }),
       {.median = 0.12}}};
  std::vector<Group> bars;
  for (const auto& b : kBars) {
    if (!b.scores.empty()) {
      bars.push_back(published_group(std::string("bar: ") + b.name, b.scores));
      bars.back().hold_to(b.bar);
      if (b.ask_more != nullptr) {
        b.ask_more(b.scores, bars.back());
      }
    }
  }
  if (const Scores ablation = of(one_row, {"MegaScale"}); !ablation.empty()) {
    bars.push_back(ablation_bar(ablation));
  }
  const Predictions measured = where(all, [](const auto* p) { return p->row->memory_gib > 0; });
  if (!measured.empty()) {
    bars.push_back(memory_bar(measured));
  }
  return bars;
}

}  // namespace stepcast::validation
