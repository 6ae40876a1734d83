#include "planner/embedding/capacity.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/graph/program.h"
#include "core/job/tier_units.h"
#include "planner/embedding/ledger.h"
#include "planner/embedding/shard_bytes.h"
#include "simulator/reports/framework_memory.h"
#include "workloads/embedding_plan/plan_layout.h"

namespace stepcast::planner {

std::vector<TierCapacity> capacities_of(const Job& job, bool slow_tiers) {
  const Device& device = job.system.device;
  if (!(device.memory.base() > 0)) {
    throw InputError(
        "job: system.device.memory",
        fmt::format("device '{}' has a memory of 0; a plan needs its capacity", device.name));
  }
  const auto ranks = static_cast<std::size_t>(job.devices);
  std::vector<TierCapacity> tiers;
  // Every plan of several ranks talks on the communicator of the dense gradients.
  const std::vector<std::size_t> least(job.devices > 1 ? 1 : 0, ranks);
  const double left = device.memory.base() - dense_bytes(job) -
                      simulator::framework_memory(device, least, {}).total().base();
  tiers.push_back(
      {"hbm", 1, std::vector<std::int64_t>(ranks, static_cast<std::int64_t>(std::floor(left)))});
  const std::vector<Tier>& all = job.system.tiers;  // the first is the device's own memory
  for (std::size_t t = 1; slow_tiers && t < std::min(all.size(), kMaxTiers); ++t) {
    const Tier& tier = all[t];
    if (!(tier.capacity.base() > 0) || !(tier.bandwidth.base() > 0)) {
      throw InputError(fmt::format("job: system.tiers.{}", tier.name),
                       "a tier needs a capacity and a bandwidth above 0");
    }
    const auto shared = static_cast<std::int32_t>(std::max<std::int64_t>(1, tier.shared_by));
    const auto units = static_cast<std::size_t>(units_of(job.devices, shared));
    tiers.push_back(
        {tier.name, shared,
         std::vector<std::int64_t>(units, static_cast<std::int64_t>(tier.capacity.base()))});
  }
  return tiers;
}

Bytes further_communicators(const Job& job, const EmbeddingPlan& plan) {
  auto sizes = communicator_sizes(workloads::embedding_layout(job, plan), job.sptt);
  sizes.erase(sizes.begin(), sizes.begin() + (job.devices > 1 ? 1 : 0));
  return simulator::framework_memory(job.system.device, sizes, {}).communicators;
}

}  // namespace stepcast::planner
