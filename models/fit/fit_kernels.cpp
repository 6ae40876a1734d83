#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "models/fit/fit.h"
#include "models/fit/least_squares.h"
#include "models/fit/points.h"
#include "models/kernels/kernel_form.h"
#include "models/residual.h"

namespace stepcast::models {
namespace {

struct Row {
  OpFacts facts;
  double time;
  std::int64_t configuration;
  std::vector<double> coordinates;
};
using KernelRows = std::vector<const Row*>;

std::vector<const Row*> every_nth(const KernelRows& rows, std::size_t limit) {
  KernelRows out;
  const double stride =
      std::max(1.0, static_cast<double>(rows.size()) / static_cast<double>(limit));
  for (double at = 0; at < static_cast<double>(rows.size()); at += stride) {
    out.push_back(rows[static_cast<std::size_t>(at)]);
  }
  return out;
}

std::vector<double> times_of(const KernelRows& rows) {
  std::vector<double> times;
  for (const Row* row : rows) {
    times.push_back(row->time);
  }
  return times;
}

double form_time(const KernelForm& form, const Device& device, const Row& row,
                 std::span<const double> c) {
  return form.predict(row.facts, device, c).time.base();
}

constexpr std::size_t kManyRows = 1000;

/// Constants alone.
FittedModel fit_constants(const KernelForm& form, const Device& device, const KernelRows& all,
                          const FitOptions& options, const FittedModel* like) {
  const KernelRows rows = every_nth(all, options.max_rows);
  return search_constants(form.name(), form.constants(device), like, times_of(rows), options.pull,
                          [&](std::size_t row, std::span<const double> c) {
                            return form_time(form, device, *rows[row], c);
                          });
}

FittedModel fit_form(const KernelForm& form, const Device& device, const KernelRows& rows,
                     const FitOptions& options, bool points, const FittedModel* like) {
  FittedModel model = fit_constants(form, device, rows, options, like);
  if (points && options.max_points > 0) {
    const std::vector<double> c = constants_of(form, device, &model);
    std::vector<FittedModel::Point> residuals;
    std::vector<std::int64_t> configurations;
    const auto collect = [&](const Row* row) {
      residuals.push_back(
          {row->coordinates, std::log(row->time / form_time(form, device, *row, c))});
      configurations.push_back(row->configuration);
    };
    std::for_each(rows.begin(), rows.end(), collect);
    if (add_curves(model, residuals, configurations, options.max_points)) {
      return model;
    }
    if (rows.size() > options.max_surface_rows) {
      residuals.clear();
      configurations.clear();
      for (const Row* row : every_nth(rows, options.max_surface_rows)) {
        collect(row);
      }
    }
    add_surface(model, residuals, configurations, options.max_points);
  }
  return model;
}

std::vector<double> predict_rows(const KernelForm& form, const Device& device,
                                 const FittedModel& model, const KernelRows& rows) {
  const std::vector<double> c = constants_of(form, device, &model);
  const ResidualSurface surface(model);
  std::vector<double> out;
  for (const Row* row : rows) {
    const double time = form_time(form, device, *row, c) * std::exp(surface.at(row->coordinates));
    out.push_back(std::max(time, form.limit(row->facts, device).base()));
  }
  return out;
}

void score(FittedModel& model, const KernelForm& form, const Device& device, const KernelRows& rows,
           const FitOptions& options, bool points, const FittedModel* like) {
  std::vector<std::int64_t> configurations;
  for (const Row* row : rows) {
    configurations.push_back(row->configuration);
  }
  const std::set<std::int64_t> distinct(configurations.begin(), configurations.end());
  const bool hold_out = options.folds >= 2 && rows.size() >= 2 * kMinimumRows &&
                        (distinct.size() > 1 || distinct.contains(-1));
  // With many rows, leaving a quarter out moves the constants little: warm start.
  const FittedModel whole = model;
  const FittedModel* start = rows.size() >= kManyRows ? &whole : like;
  set_error(model, times_of(rows), configurations, hold_out ? options.folds : 0, kMinimumRows,
            [&](const std::vector<std::size_t>& kept, const std::vector<std::size_t>& held) {
              const FittedModel of_kept =
                  kept.size() == rows.size()
                      ? whole
                      : fit_form(form, device, rows_at(rows, kept), options, points, start);
              return predict_rows(form, device, of_kept, rows_at(rows, held));
            });
  model.source = options.source + (hold_out ? " (errors on held-out configurations)"
                                            : " (errors on the fitted rows)");
}

void set_ranges(FittedModel& model, const KernelForm& form, const KernelRows& rows) {
  const std::vector<std::string_view> names = form.coordinate_names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    double low = rows.front()->coordinates[i];
    double high = low;
    for (const Row* row : rows) {
      low = std::min(low, row->coordinates[i]);
      high = std::max(high, row->coordinates[i]);
    }
    model.range[std::string(names[i])] = {low, high};
  }
  model.samples = static_cast<std::int64_t>(rows.size());
}

/// Key of an op's rows: by variant for kinds that have one, by format only when the rows hold
/// several.
std::string key_of(const Op& op, bool several_formats) {
  const std::vector<std::string> keys = fitted_keys(op);
  const bool by_format =
      keys.front() == std::string(name_of(op.kind)) + "." + std::string(name_of(op.format));
  return by_format && !several_formats ? std::string(name_of(op.kind)) : keys.front();
}

/// Places of the form's coordinates that the rows lie at.
std::size_t places_of(const KernelRows& rows) {
  std::set<std::vector<std::int64_t>> places;
  for (const Row* row : rows) {
    places.insert(place_key(row->coordinates));
  }
  return places.size();
}

/// Does the op say something of other memory-bound kinds? The router of experts and casts to narrow
/// formats do not: they are kernels of their own.
bool like_its_class(const Op& op, const KernelForm& form) {
  const bool narrow_cast = op.kind == OpKind::kCast && bits_per_element(op.format, 1024) < 16;
  return class_of(op.kind) == OpClass::kMemoryBound && form.like_its_class() && !narrow_cast;
}

/// Time left for the ops that carry the key of the first, once the others are priced: no less
/// than this share, since fused kernels hide what the others would take alone.
constexpr double kLeastShare = 0.3;

/// Rows of several ops (layers of experts): the fitted ops' share of the time is that of their
/// FLOPs, which is also that of their weights.
void add_shares(std::vector<Row>& rows, const MeasuredOp& measured, const CostModel& cost) {
  const std::span<const Op> ops(measured.op, measured.count);
  const std::string key = fitted_keys(ops.front()).front();
  double others = 0;
  double flops = 0;
  for (const Op& op : ops) {
    const bool own = fitted_keys(op).front() == key;
    flops += own ? op.flops.base() : 0;
    others += own ? 0 : cost.kernel(OpFacts(*measured.program, op)).time.base();
  }
  const double time = measured.time.base();
  const double left = std::max(time - others, kLeastShare * time);
  for (const Op& op : ops) {
    if (fitted_keys(op).front() == key) {
      rows.push_back({OpFacts(*measured.program, op),
                      left * op.flops.base() / flops,
                      measured.configuration,
                      {}});
    }
  }
}

/// Models of rows that took several ops, priced with `fitted` in the place of the device's own.
FittedModels fit_layers(const Device& device, std::span<const MeasuredOp> measured,
                        const FittedModels& fitted, const FitOptions& options) {
  System system;
  system.device = device;
  for (const auto& [key, model] : fitted) {
    system.device.fitted[key] = model;
  }
  const CostModel cost(system, {});
  const bool on_core = device.multiprocessors <= 1;
  std::vector<Row> rows;
  std::map<std::string, KernelRows> by_key;
  for (const MeasuredOp& m : measured) {
    if (m.count > 1 && m.time > Seconds{}) {
      add_shares(rows, m, cost);
    }
  }
  FittedModels models;
  for (Row& row : rows) {
    row.coordinates = form_for(*row.facts.op, on_core).coordinates(row.facts);
    by_key[fitted_keys(*row.facts.op).front()].push_back(&row);
  }
  for (const auto& [key, of_key] : by_key) {
    const KernelForm& form = form_for(*of_key.front()->facts.op, on_core);
    FittedModel& model = models[key] = fit_form(form, device, of_key, options, true, nullptr);
    score(model, form, device, of_key, options, true, nullptr);
    set_ranges(model, form, of_key);
  }
  return models;
}

}  // namespace

FittedModels fit_kernels(const Device& device, std::span<const MeasuredOp> measured,
                         const FitOptions& options) {
  const bool on_core = device.multiprocessors <= 1;
  std::map<OpKind, std::set<Format>> formats;
  for (const MeasuredOp& m : measured) {
    formats[m.op->kind].insert(m.op->format);
  }
  std::vector<Row> rows;
  rows.reserve(measured.size());
  std::map<std::string, KernelRows> by_key;
  std::map<std::string, const KernelForm*> form_of;
  KernelRows memory_bound;
  for (const MeasuredOp& m : measured) {
    if (is_collective(m.op->kind) || m.time <= Seconds{} || m.count > 1) {
      continue;
    }
    const KernelForm* form = &form_for(*m.op, on_core);
    rows.push_back({OpFacts(*m.program, *m.op), m.time.base(), m.configuration, {}});
    Row& row = rows.back();
    row.coordinates = form->coordinates(row.facts);
    const std::string key = key_of(*m.op, formats[m.op->kind].size() > 1);
    by_key[key].push_back(&row);
    form_of[key] = form;
    if (like_its_class(*m.op, *form)) {
      memory_bound.push_back(&row);
      form_of[std::string(name_of(OpClass::kMemoryBound))] = form;
    }
  }
  FittedModels models;
  const FittedModel* like = nullptr;
  if (memory_bound.size() >= kMinimumRows) {
    const std::string key(name_of(OpClass::kMemoryBound));
    const KernelForm& form = *form_of[key];
    FittedModel& model = models[key] =
        fit_form(form, device, memory_bound, options, false, nullptr);
    FitOptions once = options;
    once.folds = 1;
    score(model, form, device, memory_bound, once, false, nullptr);
    model.samples =
        static_cast<std::int64_t>(memory_bound.size());  // no range: other kinds are extrapolation
    like = options.pooled ? &model : nullptr;
  }
  for (const auto& [key, of_key] : by_key) {
    if (of_key.size() >= kMinimumRows && places_of(of_key) >= options.fewest_places) {
      const KernelForm& form = *form_of[key];
      FittedModel& model = models[key] = fit_form(form, device, of_key, options, true, like);
      score(model, form, device, of_key, options, true, like);
      set_ranges(model, form, of_key);
    }
  }
  models.merge(fit_layers(device, measured, models, options));
  return models;
}

}  // namespace stepcast::models
