#include "models/fit/transfer.h"

#include <algorithm>
#include <cmath>

namespace stepcast::models {
namespace {

constexpr double kTestedStep = 1.5;  // A100 to H100: 300 to 450 GB/s

}  // namespace

FittedModels transferred(const FittedModels& models, const System& from, const System& to,
                         double transfer_sigma) {
  FittedModels out;
  if (from.fabric.empty() || to.fabric.empty()) {
    return out;
  }
  const FabricLevel& a = from.fabric.front();
  const FabricLevel& b = to.fabric.front();
  const double ratio = std::clamp(a.bandwidth / b.bandwidth, 1 / kTestedStep, kTestedStep);
  const double latency = b.latency > Seconds{} ? a.latency / b.latency : 1.0;
  for (const auto& [key, model] : models) {
    if (model.form != "collective.fabric" || key.find('.') != std::string::npos) {
      continue;
    }
    FittedModel& m = out[key];
    m.form = model.form;
    m.constants = model.constants;
    for (const char* time : {"start", "peer", "ramp"}) {
      if (const auto it = m.constants.find(time); it != m.constants.end()) {
        it->second *= ratio;
      }
    }
    for (const char* factor : {"latency", "bulk"}) {
      if (const auto it = m.constants.find(factor); it != m.constants.end()) {
        it->second *= ratio * latency;
      }
    }
    if (const auto it = m.constants.find("outer"); it != m.constants.end()) {
      it->second /= ratio * latency;
    }
    m.log_sigma = std::hypot(model.log_sigma, transfer_sigma);
    m.source = "transferred from " + from.name + ": " + model.source;
  }
  return out;
}

}  // namespace stepcast::models
