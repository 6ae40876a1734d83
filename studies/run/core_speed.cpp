#include "studies/run/core_speed.h"

#include <fmt/format.h>

#include "core/statistics.h"
#include "runtime/calibration/core_probe.h"
#include "runtime/launch.h"

namespace stepcast::studies {
Seconds probe_cores(runtime::MpiSession& session) {
  session.world().barrier();
  const bool own_core = session.local_size() <= session.cores();
  const Seconds own =
      runtime::calibration::probe_core(own_core ? runtime::nth_core(session.local_rank()) : -1);
  return Seconds(session.maximum({own.base()})[0]);
}

FittedModel core_probe_model(std::span<const double> probes, const std::string& source) {
  FittedModel model;
  model.form = "core.probe";
  model.constants["seconds"] = median_of({probes.begin(), probes.end()});
  model.samples = static_cast<std::int64_t>(probes.size());
  model.source = source;
  return model;
}

std::optional<std::string> core_speed_warning(Seconds probe, const System& system) {
  const auto model = system.device.fitted.find(kCoreProbeModel);
  if (model == system.device.fitted.end() || probe <= Seconds{}) {
    return std::nullopt;
  }
  const double speed = model->second.constants.at("seconds") / probe.base();
  if (speed >= kSlowCores && speed <= kFastCores) {
    return std::nullopt;
  }
  return fmt::format("the cores ran at {:.2g} of the speed of the calibration", speed);
}

}  // namespace stepcast::studies
