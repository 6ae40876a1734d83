#include "studies/fit_few.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "models/collective_curves.h"
#include "models/collective_form.h"
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

void few_collectives(System& system, const StepRows& rows, const models::FitOptions& options) {
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
      const double rest = form.after_rest(row->bytes, row->since_use, constants).base();
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
