#include "validation/models.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

namespace stepcast::validation {
namespace {

/// Median of |time / mean of its repeats - 1| over rows measured more than once.
std::optional<double> repeat_noise(const std::vector<Row>& rows) {
  std::map<std::string, std::vector<double>> by_shape;
  for (const Row& row : rows) {
    if (!row.skipped) {
      by_shape[row.id.substr(0, row.id.find(" @ "))].push_back(row.measured);
    }
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

constexpr Bar kElementwiseBar{.mean = 0.015};
constexpr Bar kLookupBar{.worst = 0.15};
constexpr Bar kRowWiseBar{.median = 0.06};
/// For kernels that were not seen, against others of their kind.
constexpr std::array<std::pair<OpKind, Bar>, 7> kBars{
    {{OpKind::kAttentionForward, {.median = 0.04, .p90 = 0.10}},
     {OpKind::kAdd, kElementwiseBar},
     {OpKind::kActivationForward, kElementwiseBar},
     {OpKind::kEmbeddingForward, kLookupBar},
     {OpKind::kEmbeddingBackward, kLookupBar},
     {OpKind::kNormForward, kRowWiseBar},
     {OpKind::kCrossEntropyLoss, kRowWiseBar}}};

Group statistics(const std::string& name, const std::vector<const ScoredGroup*>& groups,
                 const std::optional<Bar>& bar) {
  std::vector<Row> rows;
  for (const ScoredGroup* group : groups) {
    rows.insert(rows.end(), group->rows.begin(), group->rows.end());
  }
  Group g = group_of(name, rows, "roofline of hardware facts");
  g.repeat_noise = repeat_noise(rows);
  if (g.errors.n == 0) {
    g.baseline.clear();
  }
  if (bar) {
    g.hold_to(*bar);
  }
  return g;
}

}  // namespace

std::string GroupKey::name() const {
  return fmt::format("{} {} / {} / {}{}{}",
                     model.substr(0, model.rfind("." + std::string(name_of(format)))),
                     name_of(format), device, framework, variant.empty() ? "" : " / " + variant,
                     across_machines ? " / across machines" : "");
}

std::optional<Bar> bar_of(const GroupKey& key, const ValidateModelsOptions& options) {
  const bool pairs = options.holdout == Holdout::kPairs;
  if (is_collective(key.kind)) {
    return options.holdout == Holdout::kRanks && key.across_machines && !options.form_only &&
                   key.kind == OpKind::kAllGather
               ? std::optional(Bar{.median = 0.08})
               : std::nullopt;
  }
  if (key.kind == OpKind::kGemm && key.format == Format::kBf16) {
    if (options.holdout == Holdout::kDevice) {
      return key.device == "h100-sxm-80gb" ? std::optional(Bar{.median = 0.15}) : std::nullopt;
    }
    if (pairs) {
      return options.form_only ? Bar{.median = 0.05, .p90 = 0.15}
                               : Bar{.median = 0.03, .p90 = 0.10};
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

std::optional<Bar> bar_of_machine(const std::string& framework,
                                  const ValidateModelsOptions& options) {
  if (framework.rfind("nccl", 0) != 0 || options.form_only) {
    return std::nullopt;
  }
  switch (options.holdout) {
    case Holdout::kSizes:
      return Bar{.median = 0.035, .p90 = 0.10};
    case Holdout::kRanks:
      return Bar{.median = 0.08};
    default:
      return std::nullopt;
  }
}

void ScoredGroup::skip(std::string id, double measured, std::string reason) {
  rows.push_back({std::move(id), measured, 0, std::move(reason)});
}

void add_group(ScoredGroup group, const ValidateModelsOptions& options, Suite& to) {
  const std::string name = group.key.name() + group.note;
  to.groups.push_back(statistics(name, {&group}, bar_of(group.key, options)));
  to.rows.insert(to.rows.end(), std::make_move_iterator(group.rows.begin()),
                 std::make_move_iterator(group.rows.end()));
}

void add_summary(const std::string& name, const std::vector<const ScoredGroup*>& groups,
                 const std::optional<Bar>& bar, Suite& to) {
  Group summary = statistics(name, groups, bar);
  if (summary.errors.n > 0) {
    summary.skipped = 0;  // counted by the groups
    to.groups.push_back(std::move(summary));
  }
}

void close_suite(const ValidateModelsOptions& options, Suite& to) {
  std::size_t gated = 0;
  std::size_t failed = 0;
  std::size_t skipped = 0;
  for (const Group& g : to.groups) {
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
