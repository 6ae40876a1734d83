#include "studies/guard/internal/late_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/statistics.h"

namespace stepcast::studies::internal {
namespace {

constexpr double kLate = 0.05;  ///< beyond the median, as a share of it

/// Sums over the steps of one kind.
struct Mean {
  double sum = 0, count = 0;
  void add(double value) {
    sum += value;
    count += 1;
  }
  [[nodiscard]] double of() const { return count > 0 ? sum / count : 0; }
};

/// Steps of a run that lie in the upper half of what it has beyond its median.
std::vector<std::size_t> late(const std::vector<double>& steps) {
  const double median = middle_of(steps);
  const double most = *std::max_element(steps.begin(), steps.end());
  std::vector<std::size_t> result;
  for (std::size_t s = 0; s < steps.size() && most > (1 + kLate) * median; ++s) {
    if (steps[s] > (median + most) / 2) {
      result.push_back(s);
    }
  }
  return result;
}

/// The distance from each late step to the next, where it is the same in all runs; else 0.
std::size_t period_of(const std::vector<std::vector<std::size_t>>& runs) {
  std::size_t period = 0, seen = 0;
  for (const std::vector<std::size_t>& steps : runs) {
    for (std::size_t i = 1; i < steps.size(); ++i, ++seen) {
      const std::size_t distance = steps[i] - steps[i - 1];
      if (period != 0 && distance != period) {
        return 0;
      }
      period = distance;
    }
  }
  return seen > 1 ? period : 0;
}

std::string ordinal(std::size_t n) {
  const std::size_t tens = n / 10 % 10, ones = n % 10;
  const char* end = tens == 1   ? "th"
                    : ones == 1 ? "st"
                    : ones == 2 ? "nd"
                    : ones == 3 ? "rd"
                                : "th";
  return fmt::format("{}{}", n, end);
}

}  // namespace

std::string late_steps(std::span<const GuardSamples> runs) {
  std::vector<std::vector<std::size_t>> slow;
  Mean slow_step, other_step;
  std::map<std::string, std::pair<Mean, Mean>> ops;
  double steps = 0;
  for (const GuardSamples& run : runs) {
    slow.push_back(late(run.step));
    std::vector<bool> is_late(run.step.size(), false);
    for (const std::size_t s : slow.back()) {
      is_late[s] = true;
    }
    for (std::size_t s = 0; s < run.step.size(); ++s) {
      (is_late[s] ? slow_step : other_step).add(run.step[s]);
      for (const GuardSamples::Op& op : run.ops) {
        auto& [when_late, else_] = ops[op.name];
        (is_late[s] ? when_late : else_).add(op.seconds[s]);
      }
    }
    steps += static_cast<double>(run.step.size());
  }
  if (slow_step.count == 0) {
    return {};
  }
  const std::size_t period = period_of(slow);
  std::string text =
      period > 1 ? fmt::format("every {} step takes", ordinal(period))
      : period == 1 ? "one stretch of steps takes"
                    : fmt::format("{:.0f} of {:.0f} steps take", slow_step.count, steps);
  text += fmt::format(" {:.3g} ms, the others {:.3g} ms", 1e3 * slow_step.of(),
                      1e3 * other_step.of());
  const auto most = std::max_element(ops.begin(), ops.end(), [](const auto& a, const auto& b) {
    return a.second.first.of() - a.second.second.of() < b.second.first.of() - b.second.second.of();
  });
  if (most != ops.end()) {
    const double more = most->second.first.of() - most->second.second.of();
    if (more > (slow_step.of() - other_step.of()) / 4) {
      text += fmt::format("; {} {:+.3g} ms in them", most->first, 1e3 * more);
    }
  }
  return text;
}

}  // namespace stepcast::studies::internal
