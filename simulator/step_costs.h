#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/cost_model.h"
#include "simulator/folding.h"

namespace stepcast::simulator {

/// Why an op takes its time (models::Prediction), for reports: the engine never looks.
struct OpReason {
  std::string_view bound;  ///< "" where nothing was predicted
  float overhead = 0;      ///< seconds
  bool in_range = false;
};

/// Costs of the op templates of one simulated rank, in picoseconds; index = op template of its
/// program. For a collective: the transfer once its partners are there; all-to-all-v: until this
/// rank is done.
struct OpCosts {
  std::vector<std::int64_t> ticks;
  std::vector<std::int32_t> model;  ///< index into StepCosts::models: who answered
  std::vector<float> log_sigma;     ///< residual of that model
  std::vector<std::int64_t> issue;  ///< host, before each op; empty: StepCosts::issue for all
  /// Device, from the issue of each op until it may begin; empty: none. Hidden while the stream has
  /// work.
  std::vector<std::int64_t> latency;
  /// Device, before each op once its stream is free and its waits are over; empty: none.
  std::vector<std::int64_t> delay;
  // Collectives only.
  std::vector<float> link_share;    ///< of its busiest link, used when alone
  std::vector<std::int32_t> path;   ///< index into StepCosts::paths, -1: shares no link
  std::vector<std::int32_t> needs;  ///< index into StepCosts::needs, -1: all members
  std::vector<OpReason> reason;     ///< made by price(), empty otherwise
};

/// Level of the fabric on a transfer's way, and how much of a rank's links there, out and in, it
/// uses beside its busiest.
struct LevelUse {
  std::int32_t level = 0;
  double sent = 1, received = 1;
  auto operator<=>(const LevelUse&) const = default;
};

/// All durations a simulation needs, as plain arrays: the engine never asks a model. Made by
/// price() from a CostModel, or by hand in tests from blank_costs().
struct StepCosts {
  Folding folding;
  std::vector<OpCosts> ops;         ///< by instance
  std::vector<std::string> models;  ///< names, e.g. "gemm.roofline"
  std::vector<std::vector<std::int32_t>>
      needs;  ///< instances an all-to-all-v exchanges bytes with, ascending; symmetric
  std::vector<std::vector<LevelUse>> paths;  ///< fabric levels a transfer uses, innermost first
  std::int32_t levels = 1;                   ///< of the fabric
  std::int64_t issue = 0;                    ///< host, per op
  std::int64_t dispatch = 0;                 ///< stream, per op
  std::int64_t step = 0;                     ///< host, before the first issue
  std::int64_t finish = 0;                   ///< host, after its last op has ended
  std::int64_t queue_depth = 1024;           ///< ops issued to a stream and not yet ended, at most
  bool shares_core = false;                  ///< host thread and compute take turns on one core
  bool collectives_hold_core = false;        ///< transfers need that core too (no paced fabric)
  /// With shares_core, by instance: the core that its host and its compute run on, where ranks
  /// share cores (fewer cores than ranks on a machine); empty: one each.
  std::vector<std::int32_t> core_of;
  double slowdown = 1;  ///< of compute while a transfer of the rank is in flight
  models::Straggler straggler;
  bool in_range = true;  ///< every prediction was in its calibrated range
};

struct PricingOptions {
  bool unfold = false;
  /// On a system whose host shares a core: transfers are done by the CPU (true), or by a fabric
  /// that the ranks only wait for (false: emulated links).
  bool collectives_hold_core = true;
};

/// Longest step that the clock of a simulation (integer picoseconds, 106 days) holds with room to
/// spare.
constexpr Seconds kLongestStep = Seconds(100 * 86400.0);
/// Throws InputError: what is named takes longer than the clock of a simulation holds.
[[noreturn]] void reject_longer(std::string_view what, Seconds time);

/// Asks the model once per op template and group shape. Errors: InputError naming an op that takes
/// longer than kLongestStep.
StepCosts price(const ExecutionGraph& graph, const models::CostModel& model,
                const PricingOptions& options = {});

/// Costs of the right shape, all zero; one fabric level that every collective fills.
StepCosts blank_costs(const ExecutionGraph& graph, bool unfold = false);

}  // namespace stepcast::simulator
