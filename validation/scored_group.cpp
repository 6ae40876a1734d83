#include "validation/scored_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

namespace stepcast::validation {
namespace {

/// Median of |time / mean of its repeats - 1| over rows measured more than once.
std::optional<double> repeat_noise(const std::vector<ValidationRow>& rows) {
  std::map<std::string, std::vector<double>> by_shape;
  for (const ValidationRow& row : rows) {
    by_shape[row.id.substr(0, row.id.find(" @ "))].push_back(row.measured);
  }
  std::vector<double> spread;
  for (const auto& [shape, times] : by_shape) {
    double mean = 0;
    for (const double t : times) {
      mean += t / static_cast<double>(times.size());
    }
    for (const double t : times) {
      if (times.size() > 1) {
        spread.push_back(std::abs(t / mean - 1));
      }
    }
  }
  return spread.empty() ? std::nullopt : std::optional(median_of(std::move(spread)));
}

Bar median_bar(double median) { return {.median = median, .mean = {}, .p90 = {}, .worst = {}}; }

constexpr Bar kElementwiseBar{.median = {}, .mean = 0.015, .p90 = {}, .worst = {}};
constexpr Bar kLookupBar{.median = {}, .mean = {}, .p90 = {}, .worst = 0.15};
constexpr Bar kRowWiseBar{.median = 0.06, .mean = {}, .p90 = {}, .worst = {}};
/// For kernels that were not seen, against others of their kind.
constexpr std::array<std::pair<OpKind, Bar>, 7> kBars{
    {{OpKind::kAttentionForward, {.median = 0.04, .mean = {}, .p90 = 0.10, .worst = {}}},
     {OpKind::kAdd, kElementwiseBar},
     {OpKind::kActivationForward, kElementwiseBar},
     {OpKind::kEmbeddingForward, kLookupBar},
     {OpKind::kEmbeddingBackward, kLookupBar},
     {OpKind::kNormForward, kRowWiseBar},
     {OpKind::kCrossEntropyLoss, kRowWiseBar}}};

ValidationGroup statistics(const std::string& name, const std::vector<const ScoredGroup*>& groups,
                           const std::optional<Bar>& bar) {
  std::vector<ValidationRow> scored;
  std::size_t skipped = 0;
  double in_range = 0;
  double naive = 0;
  for (const ScoredGroup* group : groups) {
    auto detail = group->details.begin();
    for (const ValidationRow& row : group->rows) {
      if (row.skipped) {
        ++skipped;
        continue;
      }
      scored.push_back(row);
      in_range += detail->in_range ? 1 : 0;
      naive += std::abs(detail->naive / row.measured - 1);
      ++detail;
    }
  }
  ValidationGroup g = group_of(name, scored);
  g.skipped = skipped;
  g.repeat_noise = repeat_noise(scored);
  if (!scored.empty()) {
    const auto n = static_cast<double>(scored.size());
    g.baseline = "roofline of hardware facts";
    g.baseline_mean = naive / n;
    g.in_range_share = in_range / n;
  }
  if (bar) {
    g.bound = bar->text();
    g.pass = bar->met(g.errors);
  }
  return g;
}

}  // namespace

bool Bar::met(const studies::ErrorStatistics& e) const {
  const auto within = [](const std::optional<double>& bar, double value) {
    return !bar || value <= *bar;
  };
  return e.n > 0 && within(median, e.median) && within(mean, e.mean) && within(p90, e.p90) &&
         within(worst, e.worst);
}

std::string Bar::text() const {
  std::string out;
  const auto add = [&out](const char* what, const std::optional<double>& bar) {
    if (bar) {
      out += fmt::format("{}{} <= {:.4g} %", out.empty() ? "" : ", ", what, 100 * *bar);
    }
  };
  add("median", median);
  add("mean", mean);
  add("p90", p90);
  add("worst", worst);
  return out;
}

std::string GroupKey::name() const {
  return fmt::format("{} {} / {} / {}{}{}",
                     model.substr(0, model.rfind("." + std::string(name_of(format)))),
                     name_of(format), device, stack, variant.empty() ? "" : " / " + variant,
                     across_machines ? " / across machines" : "");
}

std::optional<Bar> bar_of(const GroupKey& key, const ValidateModelsOptions& options) {
  const bool pairs = options.holdout == Holdout::kPairs;
  if (is_collective(key.kind)) {
    return options.holdout == Holdout::kRanks && key.across_machines && !options.form_only &&
                   key.kind == OpKind::kAllGather
               ? std::optional(median_bar(0.08))
               : std::nullopt;
  }
  if (key.kind == OpKind::kGemm && key.format == Format::kBf16) {
    if (options.holdout == Holdout::kDevice) {
      return key.device == "h100-sxm-80gb"
                 ? std::optional(Bar{.median = 0.15, .mean = {}, .p90 = {}, .worst = {}})
                 : std::nullopt;
    }
    if (pairs) {
      return options.form_only ? Bar{.median = 0.05, .mean = {}, .p90 = 0.15, .worst = {}}
                               : Bar{.median = 0.03, .mean = {}, .p90 = 0.10, .worst = {}};
    }
    return std::nullopt;
  }
  if (!pairs || options.form_only) {
    return std::nullopt;
  }
  const auto bar = std::find_if(kBars.begin(), kBars.end(),
                                [&key](const auto& b) { return b.first == key.kind; });
  return bar == kBars.end() ? std::nullopt : std::optional(bar->second);
}

std::optional<Bar> bar_of_machine(const std::string& stack, const ValidateModelsOptions& options) {
  if (stack.rfind("nccl", 0) != 0 || options.form_only) {
    return std::nullopt;
  }
  switch (options.holdout) {
    case Holdout::kSizes:
      return Bar{.median = 0.035, .mean = {}, .p90 = 0.10, .worst = {}};
    case Holdout::kRanks:
      return median_bar(0.08);
    default:
      return std::nullopt;
  }
}

void ScoredGroup::add(std::string id, double measured, double predicted, Detail detail) {
  rows.push_back({std::move(id), measured, predicted, std::nullopt});
  details.push_back(detail);
}

void ScoredGroup::skip(std::string id, double measured, std::string reason) {
  rows.push_back({std::move(id), measured, 0, std::move(reason)});
}

void add_group(ScoredGroup group, const ValidateModelsOptions& options, ValidationSuite& to) {
  const std::string name = group.key.name() + group.note;
  to.groups.push_back(statistics(name, {&group}, bar_of(group.key, options)));
  to.rows.insert(to.rows.end(), std::make_move_iterator(group.rows.begin()),
                 std::make_move_iterator(group.rows.end()));
}

void add_summary(const std::string& name, const std::vector<const ScoredGroup*>& groups,
                 const std::optional<Bar>& bar, ValidationSuite& to) {
  ValidationGroup summary = statistics(name, groups, bar);
  if (summary.errors.n > 0) {
    summary.skipped = 0;  // counted by the groups
    to.groups.push_back(std::move(summary));
  }
}

void close_suite(const ValidateModelsOptions& options, ValidationSuite& to) {
  std::size_t gated = 0;
  std::size_t failed = 0;
  std::size_t skipped = 0;
  for (const ValidationGroup& g : to.groups) {
    gated += g.bound.empty() ? 0 : 1;
    failed += g.bound.empty() || g.pass ? 0 : 1;
    skipped += g.skipped;
  }
  to.pass = failed == 0 && !to.groups.empty();
  to.bound = gated == 0 ? "no group of these rows has a bar"
                        : fmt::format("{} of {} groups with a bar meet it", gated - failed, gated);
  to.notes.push_back(fmt::format(
      "held out: {}; {}; every prediction comes from a fit that did not see the row; {} rows not "
      "scored",
      name_of(options.holdout),
      options.holdout == Holdout::kDevice ? "constants carried over from another device"
      : options.form_only                 ? "analytical form only"
                                          : "form and residual points",
      skipped));
}

}  // namespace stepcast::validation
