#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/job/job.h"

namespace stepcast {

/// Kinds of plans of a transformer whose simulations miss different things: with experts; else with
/// weights sharded over the replicas (ZeRO 3, FSDP); else split by tensor ranks and stages, or only
/// replicated.
enum class PlanFamily : std::uint8_t { kTensorPipeline, kSharded, kExperts };
inline constexpr PlanFamily kPlanFamilies[] = {PlanFamily::kTensorPipeline, PlanFamily::kSharded,
                                               PlanFamily::kExperts};
std::string_view name_of(PlanFamily family);  ///< "tensor/pipeline", "fsdp", "experts"
/// nullopt where the workload is no transformer.
std::optional<PlanFamily> plan_family(const Job& job);

/// How measured steps of a group of published runs lie to their simulations. An empty key is any.
struct EfficiencyGroup {
  std::string device;        ///< "h100-sxm-80gb"
  std::string framework;     ///< "megatron-core"
  std::string family;        ///< name_of a PlanFamily
  double factor = 1;         ///< measured over simulated step, the middle
  double low = 1, high = 1;  ///< nine of ten steps of a source to come lie between, same ratio
  std::int64_t rows = 0, sources = 0;
};

/// Paces of all groups that were measured.
struct EfficiencyTable {
  std::vector<EfficiencyGroup> groups;
  std::string source;  ///< command, date and tables it was made from
};

/// The group nearest to the keys that was measured: device, framework and family; framework and
/// family on any device; device and family under any framework; the family; all runs. Null for a
/// table without them.
const EfficiencyGroup* nearest_efficiency(const EfficiencyTable& table, std::string_view device,
                                          std::string_view framework, std::string_view family);

/// The efficiency of one kind of plan as a system carries it: entry "transformer_step.<family>" of
/// its fitted models, form "step.pace".
struct Efficiency {
  double factor = 1, low = 1, high = 1;  ///< as EfficiencyGroup
  std::int64_t rows = 0, sources = 0;
  bool own = false;      ///< measured on this device, with this framework and family of plan
  std::string measured;  ///< "megatron-core on h100-sxm-80gb"
};
std::string efficiency_key(PlanFamily family);
FittedModel fitted_efficiency(const Efficiency& efficiency);

/// The efficiency of a training step of the job; nullopt where none applies: the system carries
/// none, another workload or phase, a scalar of the user's own, no calibration.
std::optional<Efficiency> efficiency_of(const Job& job);

}  // namespace stepcast
