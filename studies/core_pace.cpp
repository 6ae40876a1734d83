#include "studies/core_pace.h"

#include <cmath>

#include "core/error.h"
#include "runtime/calibration/core_probe.h"
#include "runtime/launch.h"

namespace stepcast::studies {

std::vector<ProbeTimes> probe_cores(runtime::MpiSession& session) {
  session.world().barrier();
  const bool own_core = session.local_size() <= session.cores();
  const runtime::calibration::CoreProbe own =
      runtime::calibration::probe_core(own_core ? runtime::nth_core(session.local_rank()) : -1);
  const auto rank = static_cast<std::size_t>(session.rank());
  std::vector<double> all(2 * static_cast<std::size_t>(session.size()), 0.0);
  all[2 * rank] = own.multiply.base();
  all[2 * rank + 1] = own.stream.base();
  all = session.sum(std::move(all));
  std::vector<ProbeTimes> probes;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    probes.push_back({Seconds(all[i]), Seconds(all[i + 1])});
  }
  return probes;
}

std::vector<ProbeTimes> mean_of(std::span<const ProbeTimes> before,
                                std::span<const ProbeTimes> after) {
  STEPCAST_CHECK(before.size() == after.size(), "probes of {} and {} ranks", before.size(),
                 after.size());
  std::vector<ProbeTimes> mean;
  for (std::size_t r = 0; r < before.size(); ++r) {
    mean.push_back({(before[r][0] + after[r][0]) / 2, (before[r][1] + after[r][1]) / 2});
  }
  return mean;
}

double pace_of(const ProbeTimes& probe, const ProbeTimes& reference) {
  double product = 1;
  for (std::size_t i = 0; i < probe.size(); ++i) {
    if (probe[i] <= Seconds{} || reference[i] <= Seconds{}) {
      return 1;
    }
    product *= probe[i] / reference[i];
  }
  return std::sqrt(product);
}

ProbeTimes reference_probe(const System& system) {
  const auto it = system.device.fitted.find("pace");
  return it == system.device.fitted.end() ? ProbeTimes{}
                                          : ProbeTimes{Seconds(it->second.constants.at("multiply")),
                                                       Seconds(it->second.constants.at("stream"))};
}

FittedModel reference_model(const ProbeTimes& reference, std::int64_t samples,
                            const std::string& source) {
  FittedModel model;
  model.form = "pace.probe";
  model.constants = {{"multiply", reference[0].base()}, {"stream", reference[1].base()}};
  model.samples = samples;
  model.source = source;
  return model;
}

}  // namespace stepcast::studies
