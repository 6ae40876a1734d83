#include "core/job/efficiency.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace stepcast {
namespace {

constexpr const char* kForm = "step.efficiency";

/// True if a group stands for steps of the family. A few dense runs on one device say nothing of
/// experts there: its siblings, which may be slower GPUs, would have another factor by chance.
bool speaks_for(const EfficiencyGroup& group, std::string_view family) {
  constexpr std::int64_t kRows = 5;
  const bool other = group.of.family.empty() && (family == name_of(EfficiencyFamily::kExperts) ||
                                                 family == name_of(EfficiencyFamily::kAdapters));
  return group.of.device.empty() || !other || group.rows >= kRows;
}

}  // namespace

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

std::string_view name_of(EfficiencyFamily family) {
  constexpr std::array<std::string_view, 4> kNames{"dense", "experts", "adapters", "recommender"};
  return kNames[static_cast<std::size_t>(family)];
}

std::optional<EfficiencyFamily> efficiency_family(const Job& job) {
  if (const LayeredWorkload* layers = job.workload.layered()) {
    return layers->tables.empty() ? std::nullopt : std::optional(EfficiencyFamily::kRecommender);
  }
  const TransformerWorkload* w = job.workload.transformer();
  if (w == nullptr) {
    return std::nullopt;
  }
  return job.lora ? EfficiencyFamily::kAdapters
         : w->moe ? EfficiencyFamily::kExperts
                  : EfficiencyFamily::kDense;
}

const EfficiencyGroup* nearest_efficiency(const EfficiencyTable& table,
                                          const EfficiencyKeys& keys) {
  const auto& [generation, device, framework, family] = keys;
  for (const EfficiencyKeys& wider : {EfficiencyKeys{generation, device, framework, ""},
                                      {generation, "", framework, ""},
                                      {generation, "", "", ""},
                                      {}}) {
    for (const std::string& of_family : {family, std::string()}) {
      EfficiencyKeys wanted = wider;
      wanted.family = of_family;
      const auto found = std::find_if(
          table.groups.begin(), table.groups.end(),
          [&](const EfficiencyGroup& g) { return g.of == wanted && speaks_for(g, keys.family); });
      if (found != table.groups.end()) {
        return &*found;
      }
    }
  }
  return nullptr;
}

std::string_view name_of(EfficiencyScope scope) {
  constexpr std::array<std::string_view, 4> kNames{"all", "generation", "framework", "device"};
  return kNames[static_cast<std::size_t>(scope)];
}

EfficiencyScope scope_of(const EfficiencyKeys& of, std::string_view family) {
  const int named = static_cast<int>(!of.generation.empty()) +
                    static_cast<int>(!of.framework.empty()) + static_cast<int>(!of.device.empty());
  const bool of_others = of.family.empty() && (family == name_of(EfficiencyFamily::kExperts) ||
                                               family == name_of(EfficiencyFamily::kAdapters));
  return static_cast<EfficiencyScope>(std::max(0, of_others ? named - 1 : named));
}

double efficiency_width(const EfficiencyTable& table, const EfficiencyGroup& group,
                        const EfficiencyKeys& keys) {
  const EfficiencyScope scope = scope_of(group.of, keys.family);
  double widest = 0;
  for (const std::string& generation : {keys.generation, std::string()}) {
    for (const EfficiencySpread& spread : table.spreads) {
      if (spread.scope == scope && spread.generation == generation &&
          spread.family == keys.family) {
        return spread.width;
      }
      widest = std::max(widest, spread.width);
    }
  }
  return widest;
}

std::string efficiency_key(EfficiencyFamily family) {
  return family == EfficiencyFamily::kRecommender
             ? "recommender_step"
             : "transformer_step." + std::string(name_of(family));
}

FittedModel fitted_efficiency(const Efficiency& efficiency) {
  FittedModel model;
  model.form = kForm;
  model.constants = {
      {"factor", efficiency.factor},   {"low", efficiency.low},
      {"high", efficiency.high},       {"sources", static_cast<double>(efficiency.sources)},
      {"own", efficiency.own ? 1 : 0}, {"generation", efficiency.generation ? 1 : 0},
      {"scatter", efficiency.scatter}};
  model.samples = efficiency.rows;
  model.source = efficiency.measured;
  return model;
}

std::optional<Efficiency> efficiency_of(const Job& job) {
  const auto family = efficiency_family(job);
  if (!family || job.phase != JobPhase::kTrain ||
      job.calibration.kind != Calibration::Kind::kAuto) {
    return std::nullopt;
  }
  const auto carried = job.system.fitted.find(efficiency_key(*family));
  if (carried == job.system.fitted.end() || carried->second.form != kForm) {
    return std::nullopt;
  }
  const FittedModel& model = carried->second;
  const auto constant = [&model](const char* name, double otherwise) {
    const auto found = model.constants.find(name);
    return found == model.constants.end() ? otherwise : found->second;
  };
  const double factor = constant("factor", 1);
  return Efficiency{.factor = factor,
                    .low = constant("low", factor),
                    .high = constant("high", factor),
                    .rows = model.samples,
                    .sources = std::llround(constant("sources", 0)),
                    .own = constant("own", 0) > 0,
                    .generation = constant("generation", 0) > 0,
                    .scatter = constant("scatter", 0),
                    .measured = model.source};
}

}  // namespace stepcast
