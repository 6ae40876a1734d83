#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/job/job.h"

namespace stepcast {

/// Kinds of plans of a transformer: with experts; else with weights sharded over the replicas
/// (ZeRO 3, FSDP); else split by tensor ranks and stages, or only replicated.
enum class PlanFamily : std::uint8_t { kTensorPipeline, kSharded, kExperts };
inline constexpr PlanFamily kPlanFamilies[] = {PlanFamily::kTensorPipeline, PlanFamily::kSharded,
                                               PlanFamily::kExperts};
std::string_view name_of(PlanFamily family);  ///< "tensor/pipeline", "fsdp", "experts"
/// nullopt where the workload is no transformer.
std::optional<PlanFamily> plan_family(const Job& job);

/// Kinds of training whose simulations miss different things. Properties of what is trained, never
/// of a plan: all plans of a job have one efficiency, which cannot reorder them.
enum class EfficiencyFamily : std::uint8_t { kDense, kExperts, kAdapters, kRecommender };
/// Families of transformers, whose efficiencies stand in one table.
inline constexpr EfficiencyFamily kEfficiencyFamilies[] = {
    EfficiencyFamily::kDense, EfficiencyFamily::kExperts, EfficiencyFamily::kAdapters};
std::string_view name_of(EfficiencyFamily family);  ///< "dense", "experts", "adapters", ...
/// nullopt where the workload is no transformer and has no embedding tables.
std::optional<EfficiencyFamily> efficiency_family(const Job& job);

/// Whose steps: an empty key is any.
struct EfficiencyKeys {
  std::string generation;  ///< of GPUs, "Hopper"
  std::string device;      ///< "h100-sxm-80gb"
  std::string framework;   ///< "megatron-core"
  std::string family;      ///< name_of an EfficiencyFamily; empty: all without a group of their own
  bool operator==(const EfficiencyKeys&) const = default;
  friend bool operator<(const EfficiencyKeys& a, const EfficiencyKeys& b) {
    const auto all = [](const EfficiencyKeys& k) {
      return std::tie(k.generation, k.device, k.framework, k.family);
    };
    return all(a) < all(b);
  }
};

/// How measured steps of a group of published runs lie to their simulations.
struct EfficiencyGroup {
  EfficiencyKeys of;
  double factor = 1;  ///< measured over simulated step, shrunk toward the wider group
  double error = 0;   ///< median distance of its rows from there, relative
  std::int64_t rows = 0, sources = 0;
};

/// How narrow a group is.
enum class EfficiencyScope : std::uint8_t { kAll, kGeneration, kFramework, kDevice };
std::string_view name_of(EfficiencyScope scope);  ///< "all", "generation", "framework", "device"
/// How narrowly a group speaks for steps of a family: for experts and adapters that have no group
/// of their own there, so that other steps stand for them, as the next wider one.
EfficiencyScope scope_of(const EfficiencyKeys& of, std::string_view family);

/// How far steps of a source to come lie from the factor of a group that narrow: nine of ten
/// between exp(-width) and exp(width) times it. An empty generation is one that was not measured
/// so.
struct EfficiencySpread {
  EfficiencyScope scope = EfficiencyScope::kAll;
  std::string generation, family;
  double width = 0;
  std::int64_t sources = 0;
};

/// Efficiencies of all groups that were measured.
struct EfficiencyTable {
  std::vector<EfficiencyGroup> groups;
  std::vector<EfficiencySpread> spreads;
  double scatter = 0;  ///< standard deviation of ln(measured / simulated) within a source
  std::string source;  ///< command, date and tables it was made from
};

/// The narrowest group that was measured: framework on the device; framework on the device's
/// generation; the generation; all runs. At each, a family with a group of its own goes first;
/// experts and adapters take another one of a device from 5 rows on. Null for a table without them.
const EfficiencyGroup* nearest_efficiency(const EfficiencyTable& table, const EfficiencyKeys& keys);
/// Width of the interval about the factor of a group, for steps of a generation and family.
double efficiency_width(const EfficiencyTable& table, const EfficiencyGroup& group,
                        const EfficiencyKeys& keys);

/// The efficiency of one kind of training as a system carries it: entry
/// "transformer_step.<family>" of its fitted models, form "step.efficiency".
struct Efficiency {
  double factor = 1;         ///< measured over simulated step
  double low = 1, high = 1;  ///< nine of ten steps of a source to come lie between, same ratio
  std::int64_t rows = 0, sources = 0;
  bool own = false;         ///< measured on this device, with this framework
  bool generation = false;  ///< measured on GPUs of its generation at least
  double scatter = 0;       ///< as EfficiencyTable: plans closer than that tie
  std::string measured;     ///< "megatron-core on h100-sxm-80gb"
};
std::string efficiency_key(EfficiencyFamily family);
FittedModel fitted_efficiency(const Efficiency& efficiency);

/// The efficiency of a training step of the job; nullopt where none applies: the system carries
/// none, another workload or phase, a scalar of the user's own, no calibration.
std::optional<Efficiency> efficiency_of(const Job& job);

}  // namespace stepcast
