#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/graph/execution_order.h"
#include "core/graph/op_enums.h"
#include "core/graph/program_fwd.h"

namespace stepcast::planner {

/// Cost of transfers in a walk: as the engine's rules say | a lower bound,
/// however passes and steps follow one another. For the least, nothing slows compute, and a
/// transfer on a stream of its own that waits for nothing in the walk takes no time, as it may be
/// done before.
enum class CostBasis : std::uint8_t { kUsual, kLowerBound };

/// The clock of one rank whose partners are never late: what segments of its program take by
/// themselves. The rules are the event engine's (streams run in order, events order streams,
/// compute slows while transfers overlap), without queues between ranks.
///
///   RankTimeline walk(program, seconds_by_op, dispatch, slowdown);
///   walk.run(forward);
///   double forward_time = walk.now();
///
/// A receive takes no time here: when its message comes is the pipeline's business.
class RankTimeline {
 public:
  RankTimeline(const Program& program, std::span<const double> op_seconds, double dispatch,
               double slowdown, CostBasis clock = CostBasis::kUsual);
  /// Adds to `by_layer` at layer + 1 what the compute stream spends on each layer of the model, at
  /// 0 on ops of none, or of layers beyond; waiting counts to the op that is waited for.
  void run(const Segment& segment, std::span<double> by_layer = {});
  [[nodiscard]] double now() const { return clock_.front(); }  ///< of the compute stream
  [[nodiscard]] double drained() const;                        ///< of the last stream
  /// The clock when the first op of the phase was reached; negative: none was.
  [[nodiscard]] double reached(Phase phase) const {
    return reached_[static_cast<std::size_t>(phase)];
  }

 private:
  [[nodiscard]] double computed(double begin, double work);

  const Program& program_;
  std::span<const double> seconds_;
  double dispatch_, slowdown_;
  bool least_;
  /// `follows`: cannot have been made before this walk, it waits for something in it.
  struct Record {
    double time = 0;
    bool follows = false;
    std::int16_t layer = -1;  ///< of the op that made it
  };
  std::vector<double> clock_;  // by stream
  LatestRecords<Record> records_;
  std::vector<char> follows_;  // by stream, as Record::follows
  struct Transfer {
    double begin, end;
  };
  std::vector<Transfer> in_flight_;
  std::vector<double> reached_;
};

}  // namespace stepcast::planner
