#include "validation/suite.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace stepcast::validation {

bool Bar::met(const studies::ErrorStatistics& e) const {
  const auto within = [](const std::optional<double>& bar, double value) {
    return !bar || value <= *bar;
  };
  return e.n > 0 && within(median, e.median) && within(mean, e.mean) && within(p90, e.p90) &&
         within(worst, e.worst) && within(bias, std::abs(e.bias));
}

std::string Bar::text() const {
  std::string out;
  for (const auto& [what, bar] : {std::pair{"median <=", median},
                                  {"mean <=", mean},
                                  {"p90 <=", p90},
                                  {"worst <=", worst},
                                  {"bias within", bias}}) {
    if (bar) {
      out += fmt::format("{}{} {:.4g} %", out.empty() ? "" : ", ", what, 100 * *bar);
    }
  }
  return out;
}

Group group_of(std::string name, const std::vector<Row>& rows, std::string baseline) {
  Group group{.name = std::move(name), .baseline = std::move(baseline)};
  std::vector<double> errors;
  std::vector<const Row*> scored;
  std::vector<double> naive;
  double noise = 0;
  for (const Row& row : rows) {
    if (row.skipped) {
      ++group.skipped;
      continue;
    }
    scored.push_back(&row);
    errors.push_back(row.error());
    naive.push_back(row.naive / row.measured - 1);
    noise += row.noise;
    group.in_range_share += row.in_range ? 1 : 0;
  }
  group.errors = studies::statistics_of(errors);
  if (!scored.empty()) {
    const auto n = static_cast<double>(scored.size());
    group.worst_row = scored[group.errors.worst_index]->id;
    group.in_range_share /= n;
    if (!group.baseline.empty()) {
      group.baseline_errors = studies::statistics_of(naive);
      group.baseline_mean = group.baseline_errors->mean;
    }
    group.repeat_noise = noise > 0 ? std::optional(noise / n) : std::nullopt;
  }
  return group;
}

double positive_or_say(std::string_view column, std::string_view field, std::string& unusable) {
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error == std::errc() && end == field.data() + field.size() && value > 0 && value <= 1e15) {
    return value;
  }
  if (unusable.empty()) {
    unusable = fmt::format("{}: found '{}', expected a positive number", column, field);
  }
  return 0;
}

}  // namespace stepcast::validation
