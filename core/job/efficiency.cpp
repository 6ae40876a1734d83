#include "core/job/efficiency.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace stepcast {

std::string_view name_of(PlanFamily family) {
  constexpr std::array<std::string_view, 3> kNames{"tensor/pipeline", "fsdp", "experts"};
  return kNames[static_cast<std::size_t>(family)];
}

std::optional<PlanFamily> plan_family(const Job& job) {
  const TransformerWorkload* w = job.workload.transformer();
  if (w == nullptr) {
    return std::nullopt;
  }
  return w->moe                   ? PlanFamily::kExperts
         : job.parallel.zero == 3 ? PlanFamily::kSharded
                                  : PlanFamily::kTensorPipeline;
}

const EfficiencyGroup* nearest_efficiency(const EfficiencyTable& table, std::string_view device,
                                          std::string_view framework, std::string_view family) {
  using Keys = std::array<std::string_view, 3>;
  const std::array<Keys, 5> chain{Keys{device, framework, family}, Keys{"", framework, family},
                                  Keys{device, "", family}, Keys{"", "", family}, Keys{"", "", ""}};
  for (const auto& [of_device, of_framework, of_family] : chain) {
    for (const EfficiencyGroup& group : table.groups) {
      if (group.device == of_device && group.framework == of_framework &&
          group.family == of_family) {
        return &group;
      }
    }
  }
  return nullptr;
}

std::string efficiency_key(PlanFamily family) {
  return "transformer_step." + std::string(name_of(family));
}

FittedModel fitted_efficiency(const Efficiency& efficiency) {
  FittedModel model;
  model.form = "step.pace";
  model.constants = {{"factor", efficiency.factor},
                     {"low", efficiency.low},
                     {"high", efficiency.high},
                     {"sources", static_cast<double>(efficiency.sources)},
                     {"own", efficiency.own ? 1 : 0}};
  model.samples = efficiency.rows;
  model.source = efficiency.measured;
  return model;
}

std::optional<Efficiency> efficiency_of(const Job& job) {
  const auto family = plan_family(job);
  if (!family || job.phase != JobPhase::kTrain ||
      job.calibration.kind != Calibration::Kind::kAuto) {
    return std::nullopt;
  }
  const auto carried = job.system.fitted.find(efficiency_key(*family));
  if (carried == job.system.fitted.end()) {
    return std::nullopt;
  }
  const FittedModel& model = carried->second;
  const auto constant = [&model](const char* name) { return model.constants.at(name); };
  return Efficiency{.factor = constant("factor"),
                    .low = constant("low"),
                    .high = constant("high"),
                    .rows = model.samples,
                    .sources = std::llround(constant("sources")),
                    .own = constant("own") > 0,
                    .measured = model.source};
}

}  // namespace stepcast
