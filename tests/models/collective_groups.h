#pragma once
// A cluster of machines, groups on it, and constants that a fit could have written.
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "models/collectives/collective_form.h"
#include "models/cost_model.h"

namespace stepcast::models::test {

inline System cluster(bool in_switch = false, double oversubscription = 1) {
  System s;
  s.name = "cluster";
  s.device.launch = microseconds(2);
  s.fabric = {{"nvlink", 8, GBps(450), microseconds(2), 1, in_switch},
              {"network", 64, GBps(50), microseconds(5), oversubscription, false}};
  s.host.devices = 8;
  return s;
}

inline std::vector<std::int32_t> strided(std::int32_t count, std::int32_t stride,
                                         std::int32_t first = 0) {
  std::vector<std::int32_t> ranks;
  for (std::int32_t i = 0; i < count; ++i) {
    ranks.push_back(first + i * stride);
  }
  return ranks;
}

inline Op collective_of(OpKind kind, double bytes) {
  Op op;
  op.kind = kind;
  op.format = Format::kInt8;
  op.shape[0] = static_cast<std::int64_t>(bytes);
  return op;
}

inline double time_of(const CostModel& cost, OpKind kind, double bytes, const GroupShape& group) {
  return cost.collective(collective_of(kind, bytes), group).time.base();
}

inline const std::vector<OpKind> kSized{
    OpKind::kAllReduce, OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kAllToAll,
    OpKind::kAllToAllV, OpKind::kBroadcast, OpKind::kSend,          OpKind::kRecv};

/// Any model a fit could write: constants anywhere within their bounds (evenly in logarithm), and
/// points that rise and fall by up to a factor of two on three groups.
inline FittedModels random_models(const System& system, const std::string& form,
                                  std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> share(0, 1);
  FittedModel m;
  m.form = form;
  for (const Constant& c : collective_form_named(form)->constants(system)) {
    m.constants[std::string(c.name)] = c.low * std::pow(c.high / c.low, share(engine));
  }
  const std::array<std::pair<double, double>, 3> groups{{{4, 4}, {16, 8}, {64, 8}}};
  for (const auto& [size, members] : groups) {
    for (double log_bytes = 6; log_bytes < 22; log_bytes += 0.2 + 2 * share(engine)) {
      m.points.push_back({{log_bytes, std::log(size), std::log(members)},
                          std::log(2.0) * (2 * share(engine) - 1)});
    }
  }
  m.samples = 100;
  m.range = {{"log_bytes", {6, 22}},
             {"log_size", {std::log(4), std::log(64)}},
             {"log_members", {std::log(4), std::log(8)}}};
  m.log_sigma = 0.1;
  return {{"collective", m}};
}

}  // namespace stepcast::models::test
