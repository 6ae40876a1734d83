#pragma once
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/graph/collective_schedule.h"
#include "core/graph/program_fwd.h"
#include "core/job/job.h"
#include "core/system.h"

namespace stepcast::models {

struct OpFacts;

/// A predicted duration with its reasons.
struct Prediction {
  Seconds time;
  Seconds compute;              ///< time at the compute limit
  Seconds memory;               ///< time at the memory (or link) limit
  Seconds overhead;             ///< launch, latency
  std::string_view bound = "";  ///< the term that decided: "compute", "memory", "latency", "link"
  std::string_view model = "";  ///< which model answered
  std::string_view algorithm = "";  ///< collectives: which algorithm, and how its levels combine
  bool in_range =
      false;  ///< inside the range the constants were fitted on; always false without calibration
  double log_sigma = 0;  ///< fitted residual, the source of intervals
};

/// How much of the time that its bytes take a rank's port is busy, in each direction.
struct PortUse {
  double sent = 0, received = 0;
};

/// A personalised exchange: when each member is done after the common start, and how far that is to
/// be trusted.
struct ExchangePrediction {
  std::vector<Seconds> ends;
  std::vector<Seconds> overheads;  ///< by rank: what the same messages take without their bytes
  std::vector<PortUse> ports;      ///< [rank * levels + level]
  std::string_view model = "";
  bool in_range = false;  ///< what the busiest member moves, and the group, were measured
  double log_sigma = 0;
};

/// Host side of issuing ops: what one issue costs, how many ops may wait in a stream's queue, what
/// a step costs outside its ops.
struct HostCost {
  Seconds issue;     ///< host thread, per op
  Seconds dispatch;  ///< stream side, per op: from the previous op's end to this op's begin
  Seconds step;      ///< once per step: start, final synchronisation
  std::int64_t queue_depth = 1024;
  bool shares_core = false;  ///< host thread and streams take turns on one core
  /// kFull: `issue` is 0 and `step` has the one launch.
  Graphs graphs = Graphs::kNone;
  Seconds expert_layer;  ///< router, counts and permutation of a layer of experts, each pass
};

/// Waiting for the slowest of n equal ranks: wait = sigma * sqrt(1 - rho) * d_n (reference:
/// embedding-and-step-time 9.1).
struct Straggler {
  double log_sigma = 0;  ///< standard deviation of a rank's segment time, relative
  double rho = 0;        ///< share correlated over ranks: makes no wait
};
/// Expected maximum of n standard normals, d_n = Phi^-1((n - 0.375) / (n + 0.25)) (Blom); 0 for
/// one.
double expected_maximum(std::int64_t n);

/// Op -> time on one system: the one door through which simulator, planner and studies ask for
/// costs.
///
///   const CostModel cost(job.system, job.calibration);
///   Prediction p = cost.kernel(program, op);
class CostModel {
 public:
  CostModel(const System& system, const Calibration& calibration);
  ~CostModel();
  CostModel(CostModel&&) noexcept;

  /// Device time of a computing op. Every op kind is covered by at least the plain analytical form.
  [[nodiscard]] Prediction kernel(const Program& program, const Op& op) const;
  /// The same of an op alone (OpFacts).
  [[nodiscard]] Prediction kernel(const Op& op) const;
  /// The same of an op whose facts are at hand: a search that asks for many shards of one table
  /// counts its distinct rows once.
  [[nodiscard]] Prediction kernel(const OpFacts& facts) const;
  /// Time to move so much between the device and a slower memory tier, over the device's own link
  /// (link_of_device). A tier without a bandwidth takes no time, out of range.
  [[nodiscard]] Prediction tier_move(const Tier& tier, Bytes moved) const;
  /// True if the answer depends on the op's own fields alone, not on its program (KernelMemo).
  [[nodiscard]] bool of_op_alone(const Op& op) const;
  /// Transfer time of a symmetric collective, send or recv once all members have arrived.
  /// `elements` and format from the op. For a send or recv pass the shape of the pair; of a larger
  /// group the outermost level it spans is taken.
  /// `idle_time`: what the rank computes between the communicator's last use and this one
  /// (models/collectives/idle_time.h); negative: not known, taken as just now.
  [[nodiscard]] Prediction collective(const Op& op, const GroupShape& group,
                                      Seconds idle_time = Seconds(-1)) const;
  /// All-to-all-v: when each member is done after the common start; `send` is the full matrix of
  /// bytes, row = sender.
  /// `format` of the elements: what is exchanged decides what a receiver does with it.
  [[nodiscard]] ExchangePrediction all_to_all_v(std::span<const double> send,
                                                std::span<const std::int32_t> ranks,
                                                Format format = Format::kFp32,
                                                Seconds idle_time = Seconds(-1)) const;
  /// Does any collective cost more after a rest? Otherwise `idle_time` need not be found out.
  [[nodiscard]] bool rest_matters() const;
  [[nodiscard]] HostCost host() const;
  [[nodiscard]] Straggler straggler() const;
  /// Factor on compute time while a collective of the same rank is in flight (>= 1).
  [[nodiscard]] double compute_slowdown() const;
  [[nodiscard]] const System& system() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stepcast::models
