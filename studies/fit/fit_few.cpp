#include "studies/fit/fit_few.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "models/collectives/collective_curves.h"
#include "models/collectives/collective_form.h"
#include "models/fit/points.h"
#include "models/kernels/kernel_form.h"
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

void few_collectives(System& system, const FitRows& rows, const models::FitOptions& options) {
  std::map<std::string, std::vector<const MeasuredCollective*>> by_key;
  for (const MeasuredCollective& row : rows.collectives) {
    if (row.group.size > 1 && row.time > Seconds{} && row.kind != OpKind::kBarrier) {
      by_key[models::collective_keys(row.kind, row.format).front()].push_back(&row);
    }
  }
  const auto found = system.fitted.find("collective");
  if (found == system.fitted.end()) {
    return;  // too few rows of all kinds together
  }
  const FittedModel together = found->second;
  const models::CollectiveForm& form = *models::collective_form_named(
      system.host.shares_core ? "collective.knee" : "collective.fabric");
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
      const double time = row->time.base();
      const double rest = form.after_rest(row->bytes, row->idle_time, constants).base();
      model.points.push_back({{place.log_bytes, place.log_size, place.log_members},
                              std::log(std::max(time - rest, time / 5) /
                                       form_time(form, system, *row, constants).base())});
      measured.push_back(row->time.base());
    }
    finish(model, measured, measured, options.source + " (all kinds together, own points)");
    model.log_sigma = together.log_sigma;
    system.fitted[key] = std::move(model);
  }
}

/// The form's time with the constants of a model.
double kernel_time(const models::KernelForm& form, const Device& device, const FittedModel& model,
                   const models::OpFacts& facts) {
  return form.predict(facts, device, models::constants_of(form, device, &model)).time.base();
}

/// The constants of `model` and what its form leaves of the rows, one point for each shape.
FittedModel with_own_points(const Device& device, FittedModel model,
                            const std::vector<MeasuredOp>& rows) {
  const models::KernelForm& form = *models::kernel_form_named(model.form);
  std::vector<FittedModel::Point> left;
  for (const MeasuredOp& row : rows) {
    const models::OpFacts facts(*row.program, *row.op);
    left.push_back({form.coordinates(facts),
                    std::log(row.time.base() / kernel_time(form, device, model, facts))});
  }
  model.points = models::thin_points(std::move(left), rows.size());
  model.range.clear();
  model.constants["residual_scale"] = 8;
  model.constants["residual_noise"] = 0.01;
  return model;
}

/// Errors of a kernel's model on the rows themselves.
void finish(FittedModel& model, const std::vector<MeasuredOp>& rows, const Device& device,
            const std::string& source) {
  const models::KernelForm& form = *models::kernel_form_named(model.form);
  const models::ResidualSurface surface(model);
  std::vector<double> predicted, measured;
  for (const MeasuredOp& row : rows) {
    const models::OpFacts facts(*row.program, *row.op);
    predicted.push_back(kernel_time(form, device, model, facts) *
                        std::exp(surface.at(form.coordinates(facts))));
    measured.push_back(row.time.base());
  }
  finish(model, predicted, measured, source);
}

void few_kernels(Device& device, const FitRows& rows, const models::FitOptions& options) {
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
    const bool in_class = class_of(of_key.front().op->kind) == OpClass::kMemoryBound &&
                          of_class != device.fitted.end();
    if (in_class) {
      device.fitted[key] = with_own_points(device, of_class->second, of_key);
      finish(device.fitted[key], of_key, device,
             options.source + " (constants of the class, own points)");
      continue;
    }
    std::vector<MeasuredOp> enough = of_key;
    while (enough.size() < models::kMinimumRows) {
      enough.push_back(of_key[enough.size() % of_key.size()]);
    }
    models::FitOptions all = options;
    all.fewest_places = 1;
    for (auto& [fitted, model] : models::fit_kernels(device, enough, all)) {
      if (fitted == key) {
        const auto range = model.range;
        model = with_own_points(device, model, of_key);
        model.range = range;
        finish(model, of_key, device, options.source + " (own points)");
      }
      device.fitted.try_emplace(fitted, model);
    }
  }
}

}  // namespace

void fit_few(System& system, const FitRows& rows, const models::FitOptions& options) {
  few_kernels(system.device, rows, options);
  few_collectives(system, rows, options);
}

}  // namespace stepcast::studies
