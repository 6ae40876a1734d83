#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "core/error.h"
#include "models/collective_form.h"
#include "models/fit/fit.h"
#include "models/fit/least_squares.h"
#include "models/fit/points.h"
#include "models/residual.h"

namespace stepcast::models {
namespace {

using Rows = std::vector<const MeasuredCollective*>;

double form_time(const CollectiveForm& form, const System& system, const MeasuredCollective& row,
                 std::span<const double> c) {
  return form.predict(row.kind, row.bytes, row.group, system, c).time.base();
}

std::vector<double> constants_in(const CollectiveForm& form, const System& system,
                                 const FittedModel& model) {
  std::vector<double> c;
  for (const Constant& k : form.constants(system)) {
    c.push_back(model.constants.at(std::string(k.name)));
  }
  return c;
}

double log_bytes_of(const MeasuredCollective& row) { return std::log(std::max(row.bytes, 1.0)); }
double log_size_of(const MeasuredCollective& row) {
  return std::log(static_cast<double>(row.group.size));
}

/// Points of one group size within a factor of 1.35 in bytes become one, their median: a curve
/// through every single measurement would follow its noise.
std::vector<FittedModel::Point> smoothed(std::vector<FittedModel::Point> points) {
  std::sort(points.begin(), points.end(),
            [](const FittedModel::Point& a, const FittedModel::Point& b) {
              return std::tie(a.features[1], a.features[0], a.log_ratio) <
                     std::tie(b.features[1], b.features[0], b.log_ratio);
            });
  std::vector<FittedModel::Point> merged;
  for (std::size_t first = 0; first < points.size();) {
    std::size_t last = first;
    std::vector<double> sizes;
    std::vector<double> ratios;
    while (last < points.size() && points[last].features[1] == points[first].features[1] &&
           points[last].features[0] - points[first].features[0] < 0.3) {
      sizes.push_back(points[last].features[0]);
      ratios.push_back(points[last].log_ratio);
      ++last;
    }
    merged.push_back({{quantile(sizes, 0.5), points[first].features[1]}, quantile(ratios, 0.5)});
    first = last;
  }
  return merged;
}

FittedModel fit_form(const CollectiveForm& form, const System& system, const Rows& rows,
                     const FitOptions& options) {
  const std::vector<Constant> constants = form.constants(system);
  LeastSquares problem;
  problem.rows = rows.size();
  for (const Constant& c : constants) {
    problem.start.push_back(std::log(std::clamp(c.start, c.low, c.high)));
    problem.low.push_back(std::log(c.low));
    problem.high.push_back(std::log(c.high));
  }
  std::vector<double> values(constants.size());
  problem.residuals = [&](std::span<const double> x, std::span<double> r) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      values[i] = std::exp(x[i]);
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      r[i] = std::log(form_time(form, system, *rows[i], values) / rows[i]->time.base());
    }
  };
  const std::vector<double> x = minimise(problem);
  FittedModel model;
  model.form = form.name();
  for (std::size_t i = 0; i < x.size(); ++i) {
    model.constants[std::string(constants[i].name)] = std::exp(x[i]);
  }
  if (options.max_points > 0) {
    const std::vector<double> c = constants_in(form, system, model);
    for (const MeasuredCollective* row : rows) {
      model.points.push_back({{log_bytes_of(*row), log_size_of(*row)},
                              std::log(row->time.base() / form_time(form, system, *row, c))});
    }
    model.points = thin_points(smoothed(std::move(model.points)), options.max_points);
  }
  return model;
}

double predict_row(const CollectiveForm& form, const System& system, const FittedModel& model,
                   const CollectiveCurves& curves, const MeasuredCollective& row) {
  const std::vector<double> c = constants_in(form, system, model);
  const double base = form_time(form, system, row, c);
  return base * std::exp(curves.at(log_bytes_of(row), log_size_of(row), [&](double log_bytes) {
           MeasuredCollective other = row;
           other.bytes = std::exp(log_bytes);
           return std::log(form_time(form, system, other, c));
         }));
}

void score(FittedModel& model, const CollectiveForm& form, const System& system, const Rows& rows,
           const FitOptions& options) {
  // Held out by size: a repeat of a fitted size would only show the repeat noise.
  std::vector<std::int64_t> sizes;
  for (const MeasuredCollective* row : rows) {
    sizes.push_back(std::llround(log_bytes_of(*row) * 1e3) * 64 + row->group.size % 64);
  }
  std::vector<double> predicted;
  std::vector<double> measured;
  const auto add = [&](const FittedModel& from, const Rows& held) {
    const CollectiveCurves curves(from);
    for (const MeasuredCollective* row : held) {
      predicted.push_back(predict_row(form, system, from, curves, *row));
      measured.push_back(row->time.base());
    }
  };
  const bool hold_out = options.folds >= 2 && rows.size() >= 2 * kMinimumRows;
  if (hold_out) {
    const std::vector<std::int64_t> fold = folds_of(sizes, options.folds);
    for (std::int64_t f = 0; f < options.folds; ++f) {
      Rows kept;
      Rows held;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        (fold[i] == f ? held : kept).push_back(rows[i]);
      }
      if (!held.empty() && kept.size() >= kMinimumRows) {
        add(fit_form(form, system, kept, options), held);
      }
    }
  } else {
    add(model, rows);
  }
  model.error = error_of(predicted, measured);
  std::vector<double> logs;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    logs.push_back(std::log(measured[i] / predicted[i]));
  }
  model.log_sigma = robust_sigma(logs);
  model.samples = static_cast<std::int64_t>(rows.size());
  model.source =
      options.source + (hold_out ? " (errors on held-out sizes)" : " (errors on the fitted rows)");
}

}  // namespace

FittedModels fit_collectives(const System& system, std::span<const MeasuredCollective> measured,
                             std::string_view form_name, const FitOptions& options) {
  const CollectiveForm* form = collective_form_named(form_name);
  STEPCAST_CHECK(form != nullptr, "no collective form named '{}'", form_name);
  std::map<std::pair<OpKind, Format>, Rows> by_kind;
  for (const MeasuredCollective& row : measured) {
    if (row.group.size > 1 && row.time > Seconds{}) {
      by_kind[{row.kind, row.format}].push_back(&row);
    }
  }
  FittedModels models;
  for (const auto& [key, rows] : by_kind) {
    if (rows.size() < kMinimumRows && key.first != OpKind::kBarrier) {
      continue;
    }
    FittedModel& model = models[collective_keys(key.first, key.second).front()] =
        fit_form(*form, system, rows, options);
    score(model, *form, system, rows, options);
    const auto range = [&](const std::string& name, auto of) {
      double low = of(*rows.front());
      double high = low;
      for (const MeasuredCollective* row : rows) {
        low = std::min(low, of(*row));
        high = std::max(high, of(*row));
      }
      model.range[name] = {low, high};
    };
    range("log_bytes", log_bytes_of);
    range("log_size", log_size_of);
  }
  return models;
}

}  // namespace stepcast::models
