#include "studies/fit_few.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "models/collective_curves.h"
#include "models/collective_form.h"
#include "models/fit/least_squares.h"
#include "models/kernel_form.h"
#include "models/residual.h"

namespace stepcast::studies {
namespace {

using models::MeasuredCollective;
using models::MeasuredOp;

void finish(FittedModel& model, const std::vector<double>& predicted,
            const std::vector<double>& measured, const std::string& source) {
  model.error = models::error_of(predicted, measured);
  model.samples = static_cast<std::int64_t>(measured.size());
  model.source = source;
}

Seconds form_time(const models::CollectiveForm& form, const System& system,
                  const MeasuredCollective& row, const std::vector<double>& constants) {
  return form.predict(row.kind, row.bytes, row.group, system, constants).time;
}

/// Constants of a form from rows of every kind together.
FittedModel fit_together(const models::CollectiveForm& form, const System& system,
                         const std::vector<const MeasuredCollective*>& rows,
                         const models::FitOptions& options) {
  const std::vector<models::Constant> constants = form.constants(system);
  models::LeastSquares problem;
  problem.rows = rows.size();
  for (const models::Constant& c : constants) {
    problem.start.push_back(std::log(std::clamp(c.start, c.low, c.high)));
    problem.low.push_back(std::log(c.low));
    problem.high.push_back(std::log(c.high));
  }
  problem.prior_sigma = 1;  // a few sizes of one or two kinds say little about the other constants
  std::vector<double> values(constants.size());
  problem.residuals = [&](std::span<const double> x, std::span<double> r) {
    std::transform(x.begin(), x.end(), values.begin(), [](double v) { return std::exp(v); });
    for (std::size_t i = 0; i < rows.size(); ++i) {
      r[i] = std::log(form_time(form, system, *rows[i], values) / rows[i]->time);
    }
  };
  const std::vector<double> x = models::minimise(problem);
  FittedModel model;
  model.form = form.name();
  for (std::size_t i = 0; i < x.size(); ++i) {
    values[i] = std::exp(x[i]);
    model.constants[std::string(constants[i].name)] = values[i];
  }
  if (model.constants.contains("cold")) {  // these rows are not told apart by the rest before them
    model.constants["cold"] = model.constants["cold_byte"] = 0;
  }
  std::vector<double> predicted, measured;
  for (const MeasuredCollective* row : rows) {
    predicted.push_back(form_time(form, system, *row, values).base());
    measured.push_back(row->time.base());
  }
  finish(model, predicted, measured, options.source + " (all kinds together)");
  return model;
}

void few_collectives(System& system, const StepRows& rows, const models::FitOptions& options) {
  std::map<std::string, std::vector<const MeasuredCollective*>> by_key;
  std::vector<const MeasuredCollective*> all;
  for (const MeasuredCollective& row : rows.collectives) {
    if (row.group.size > 1 && row.time > Seconds{} && row.kind != OpKind::kBarrier) {
      by_key[models::collective_keys(row.kind, row.format).front()].push_back(&row);
      all.push_back(&row);
    }
  }
  if (all.size() < models::kMinimumRows) {
    return;
  }
  const models::CollectiveForm& form = *models::collective_form_named(
      system.host.shares_core ? "collective.knee" : "collective.fabric");
  const FittedModel together = fit_together(form, system, all, options);
  std::vector<double> constants;
  for (const models::Constant& c : form.constants(system)) {
    constants.push_back(together.constants.at(std::string(c.name)));
  }
  for (const auto& [key, of_key] : by_key) {
    if (system.fitted.contains(key)) {
      continue;
    }
    FittedModel model = together;
    std::vector<double> measured;
    for (const MeasuredCollective* row : of_key) {
      const models::CollectivePlace place = models::place_of(row->bytes, row->group);
      model.points.push_back({{place.log_bytes, place.log_size, place.log_members},
                              std::log(row->time / form_time(form, system, *row, constants))});
      measured.push_back(row->time.base());
    }
    finish(model, measured, measured, options.source + " (all kinds together, own points)");
    model.log_sigma = together.error.mean;
    system.fitted[key] = std::move(model);
  }
  system.fitted.try_emplace("collective", together);
}

/// The form's time with the constants of a model.
double kernel_time(const models::KernelForm& form, const Device& device, const FittedModel& model,
                   const models::OpFacts& facts) {
  return form.predict(facts, device, models::constants_of(form, device, &model)).time.base();
}

void few_kernels(Device& device, const StepRows& rows, const models::FitOptions& options) {
  std::map<std::string, std::vector<MeasuredOp>> by_key;
  for (const MeasuredOp& row : rows.ops) {
    const std::vector<std::string> keys = models::fitted_keys(*row.op);
    const std::string kind(name_of(row.op->kind));
    if (!device.fitted.contains(keys.front()) && !device.fitted.contains(kind)) {
      // A kind's format tells its rows apart only where several were measured: here none was.
      const bool by_format = keys.front() == kind + "." + std::string(name_of(row.op->format));
      by_key[by_format ? kind : keys.front()].push_back(row);
    }
  }
  const std::string class_key(name_of(OpClass::kMemoryBound));
  const auto of_class = device.fitted.find(class_key);
  for (auto& [key, of_key] : by_key) {
    if (class_of(of_key.front().op->kind) != OpClass::kMemoryBound ||
        of_class == device.fitted.end()) {
      const std::size_t own = of_key.size();
      while (of_key.size() < models::kMinimumRows) {
        of_key.push_back(of_key[of_key.size() - own]);
      }
      for (auto& [fitted, model] : models::fit_kernels(device, of_key, options)) {
        model.samples = static_cast<std::int64_t>(own);
        device.fitted.try_emplace(fitted, model);
      }
      continue;
    }
    FittedModel model = of_class->second;
    const models::KernelForm& form = *models::kernel_form_named(model.form);
    model.points.clear();
    model.range.clear();
    model.constants["residual_scale"] = 8;
    model.constants["residual_noise"] = 0.1;
    std::vector<double> predicted, measured;
    for (const MeasuredOp& row : of_key) {
      const models::OpFacts facts(*row.program, *row.op);
      predicted.push_back(kernel_time(form, device, of_class->second, facts));
      measured.push_back(row.time.base());
      model.points.push_back(
          {form.coordinates(facts), std::log(measured.back() / predicted.back())});
    }
    const models::ResidualSurface surface(model);
    for (std::size_t i = 0; i < predicted.size(); ++i) {
      predicted[i] *= std::exp(surface.at(model.points[i].features));
    }
    finish(model, predicted, measured, options.source + " (constants of the class, own points)");
    device.fitted[key] = std::move(model);
  }
}

}  // namespace

void fit_few(System& system, const StepRows& rows, const models::FitOptions& options) {
  few_kernels(system.device, rows, options);
  few_collectives(system, rows, options);
}

}  // namespace stepcast::studies
