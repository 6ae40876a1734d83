#include "studies/run/core_pace.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/statistics.h"
#include "runtime/calibration/core_probe.h"
#include "runtime/launch.h"

namespace stepcast::studies {
namespace {

/// From the system's model `pace`, where it has one and that says it.
double constant_of_pace(const System& system, const std::string& name, double otherwise) {
  const auto model = system.device.fitted.find("pace");
  if (model == system.device.fitted.end()) {
    return otherwise;
  }
  const auto constant = model->second.constants.find(name);
  return constant == model->second.constants.end() ? otherwise : constant->second;
}

}  // namespace

std::vector<ProbeTimes> probe_cores(runtime::MpiSession& session) {
  session.world().barrier();
  const bool own_core = session.local_size() <= session.cores();
  const bool exchange = session.size() > 1 && session.sum({own_core ? 0.0 : 1.0})[0] == 0;
  const runtime::calibration::CoreProbe own =
      runtime::calibration::probe_core(own_core ? runtime::nth_core(session.local_rank()) : -1,
                                       exchange ? &session.world() : nullptr);
  constexpr std::size_t kEach = std::tuple_size_v<ProbeTimes>;
  const auto rank = static_cast<std::size_t>(session.rank());
  std::vector<double> all(kEach * static_cast<std::size_t>(session.size()), 0.0);
  all[kEach * rank] = own.multiply.base();
  all[kEach * rank + 1] = own.stream.base();
  all[kEach * rank + 2] = own.exchange.base();
  all = session.sum(std::move(all));
  std::vector<ProbeTimes> probes;
  for (std::size_t i = 0; i < all.size(); i += kEach) {
    probes.push_back({Seconds(all[i]), Seconds(all[i + 1]), Seconds(all[i + 2])});
  }
  return probes;
}

std::vector<ProbeTimes> mean_of(std::span<const ProbeTimes> before,
                                std::span<const ProbeTimes> after) {
  STEPCAST_CHECK(before.size() == after.size(), "probes of {} and {} ranks", before.size(),
                 after.size());
  std::vector<ProbeTimes> mean;
  for (std::size_t r = 0; r < before.size(); ++r) {
    mean.push_back({(before[r][0] + after[r][0]) / 2, (before[r][1] + after[r][1]) / 2,
                    (before[r][2] + after[r][2]) / 2});
  }
  return mean;
}

double pace_of(const ProbeTimes& probe, const ProbeTimes& reference) {
  double product = 1;
  for (std::size_t i = 0; i < 2; ++i) {
    if (probe[i] <= Seconds{} || reference[i] <= Seconds{}) {
      return 1;
    }
    product *= probe[i] / reference[i];
  }
  return std::sqrt(product);
}

double exchange_pace_of(const ProbeTimes& probe, const ProbeTimes& reference) {
  return probe[2] > Seconds{} && reference[2] > Seconds{} ? probe[2] / reference[2] : 1;
}

bool from_core_to_core(Bytes bytes, const System& system) {
  return system.device.l2 <= Bytes{} || bytes <= system.device.l2;
}

ProbeTimes reference_probe(const System& system) {
  return {Seconds(constant_of_pace(system, "multiply", 0)),
          Seconds(constant_of_pace(system, "stream", 0)),
          Seconds(constant_of_pace(system, "exchange", 0))};
}

double exchange_power(const System& system) {
  return constant_of_pace(system, "exchange_power", 1);
}

FittedModel reference_model(const ProbeTimes& reference, double exchange_power,
                            std::int64_t samples, const std::string& source) {
  FittedModel model;
  model.form = "pace.probe";
  model.constants = {{"multiply", reference[0].base()}, {"stream", reference[1].base()}};
  if (reference[2] > Seconds{}) {
    model.constants["exchange"] = reference[2].base();
    model.constants["exchange_power"] = exchange_power;
  }
  model.samples = samples;
  model.source = source;
  return model;
}

PaceRange range_of(const std::vector<double>& paces) {
  if (paces.empty()) {
    return {};
  }
  const double middle = median_of(paces);
  return {quantile_of(paces, 0.05) / middle, quantile_of(paces, 0.95) / middle};
}

void note_paces_met(FittedModel& pace, const PacesMet& met) {
  pace.constants["core_p5"] = met.core.low;
  pace.constants["core_p95"] = met.core.high;
  pace.constants["exchange_p5"] = met.exchange.low;
  pace.constants["exchange_p95"] = met.exchange.high;
}

PacesMet paces_met(const System& system) {
  const auto constant = [&system](const char* name) { return constant_of_pace(system, name, 1); };
  return {{constant("core_p5"), constant("core_p95")},
          {constant("exchange_p5"), constant("exchange_p95")}};
}

StepPace step_pace(std::span<const ProbeTimes> probes, const System& system, double transfers) {
  const ProbeTimes reference = reference_probe(system);
  StepPace pace{.core = probes.empty() ? 1.0 : 0.0, .transfers = transfers};
  std::vector<double> exchange;
  for (const ProbeTimes& probe : probes) {
    pace.core = std::max(pace.core, pace_of(probe, reference));
    exchange.push_back(exchange_pace_of(probe, reference));
  }
  pace.exchange = exchange.empty() ? 1 : std::pow(median_of(exchange), exchange_power(system));
  return pace;
}

Seconds transfers_from_core_to_core(std::span<const OpSpan> ops, const Program& program,
                                    std::int32_t rank, const System& system) {
  Seconds sum;
  for (const OpSpan& s : ops) {
    if (s.rank == rank && is_collective(program.ops[s.ref.op].kind) &&
        from_core_to_core(Bytes(s.bytes), system)) {
      sum += to_seconds(SimTime{ticks(s.end) - ticks(s.ready)});
    }
  }
  return sum;
}

}  // namespace stepcast::studies
