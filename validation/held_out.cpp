#include "validation/held_out.h"

#include <array>
#include <cmath>
#include <numeric>

#include "core/statistics.h"

namespace stepcast::validation {
namespace {

constexpr std::array<const char*, 5> kHoldouts{"pairs", "sizes", "ranks", "device", "rows"};

/// For kernels that were not seen, against others of their kind.
constexpr std::array<std::pair<OpKind, Bar>, 7> kBars{
    {{OpKind::kAttentionForward, {.median = 0.04, .p90 = 0.10}},
     {OpKind::kAdd, {.mean = 0.015}},
     {OpKind::kActivationForward, {.mean = 0.015}},
     {OpKind::kEmbeddingForward, {.worst = 0.15}},
     {OpKind::kEmbeddingBackward, {.worst = 0.15}},
     {OpKind::kNormForward, {.median = 0.06}},
     {OpKind::kCrossEntropyLoss, {.median = 0.06}}}};

}  // namespace

std::optional<Holdout> holdout_named(std::string_view name) {
  const auto at = std::find(kHoldouts.begin(), kHoldouts.end(), name);
  return at == kHoldouts.end() ? std::nullopt : std::optional(Holdout(at - kHoldouts.begin()));
}

std::string GroupKey::name() const {
  return fmt::format("{} {} / {} / {}{}{}{}{}",
                     model.substr(0, model.rfind("." + std::string(name_of(format)))),
                     name_of(format), device, framework, variant.empty() ? "" : " / ", variant,
                     apart.empty() ? "" : " / ", apart);
}

std::optional<Bar> bar_of(const GroupKey& key, const ValidateModelsOptions& options) {
  const bool form = options.form_only;
  if (is_collective(key.kind)) {
    const bool held = options.holdout == Holdout::kRanks && !form && !key.apart.empty();
    return held && key.kind == OpKind::kAllGather ? std::optional(Bar{.median = 0.08})
                                                  : std::nullopt;
  }
  const bool product = key.kind == OpKind::kGemm && key.format == Format::kBf16;
  if (product && options.holdout == Holdout::kDevice && key.device == "h100-sxm-80gb") {
    return Bar{.median = 0.15};
  }
  if (options.holdout != Holdout::kPairs || (form && !product)) {
    return std::nullopt;
  }
  if (product) {
    return form ? Bar{.median = 0.05, .p90 = 0.15} : Bar{.median = 0.03, .p90 = 0.10};
  }
  const auto bar = std::find_if(kBars.begin(), kBars.end(),
                                [&key](const auto& b) { return b.first == key.kind; });
  return bar == kBars.end() ? std::nullopt : std::optional(bar->second);
}

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

void close_suite(const ValidateModelsOptions& options, Suite& suite) {
  const std::vector<Group>& groups = suite.groups;
  const auto skipped = std::accumulate(groups.begin(), groups.end(), std::size_t{0},
                                       [](auto sum, const Group& g) { return sum + g.skipped; });
  const auto gated =
      std::count_if(groups.begin(), groups.end(), [](auto& g) { return !g.bound.empty(); });
  const auto failed = std::count_if(groups.begin(), groups.end(), [](auto& g) { return !g.pass; });
  suite.pass = failed == 0 && !groups.empty();
  suite.bound = gated == 0
                    ? "no group of these rows has a bar"
                    : fmt::format("{} of {} groups with a bar meet it", gated - failed, gated);
  suite.notes.push_back(fmt::format(
      "held out: {}; {}; every prediction comes from a fit that did not see the row; {} rows not "
      "scored",
      kHoldouts.at(static_cast<std::size_t>(options.holdout)),
      options.holdout == Holdout::kDevice ? "constants carried over from another device"
      : options.form_only                 ? "analytical form only"
                                          : "form and residual points",
      skipped));
}

}  // namespace stepcast::validation
