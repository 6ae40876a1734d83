#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "core/job/job.h"
#include "workloads/schedule/schedule.h"

namespace stepcast::planner {

/// Time of one pass of one micro-batch on every virtual stage, receiving included; index = chunk
/// * stages + stage.
struct PipelinePasses {
  std::int32_t stages = 1;
  std::int32_t chunks = 1;
  std::int64_t microbatches = 1;
  std::vector<double> forward, backward;
  std::vector<double> weights;  ///< empty where they are no pass of their own

  [[nodiscard]] std::size_t at(std::int32_t stage, std::int32_t chunk) const {
    return static_cast<std::size_t>(chunk) * static_cast<std::size_t>(stages) +
           static_cast<std::size_t>(stage);
  }
  [[nodiscard]] double weights_at(std::size_t i) const { return weights.empty() ? 0 : weights[i]; }
};

/// A lower bound, in closed form, of when each stage ends its last backward pass: the longest of
/// the few paths through the schedule that usually decide. p stages, v chunks, m micro-batches, f
/// and b of stage s; S_s = sum over its chunks of f + b.
///
///   GPipe        end_s = sum f + (m - 1) max f + sum_{i >= s} b_i + (m - 1) max_{i >= s} b_i, exact
///   1F1B and     paths that stay on one stage s for all micro-batches, m S_s + head_s + tail_s. The
///   interleaved  head is the first micro-batch's way to s, either straight (sum_{i < s} f) or
///                through the last virtual stage and back, which replaces the warm-up forwards of
///                s; the tail mirrors it for the last micro-batch.
///   ZB-H1, -H2   the same for one chunk, with the weight gradients that the order puts before the
///                point where a path leaves its stage, and those that a stage has left after its
///                last backward pass.
///   V            m (f + b + w) of both chunks after the first micro-batch's way to s; one
///                micro-batch's way down, back and up again to s.
/// For equal stages the first two are (m + p - 1)(f + b) and m v (f + b) + (p - 1)(f + b), exact
/// (arXiv 2104.04473, section 2.2).
///
/// O(p v). `ends` has p entries and is scratch the caller keeps.
void pipeline_bound(ScheduleKind kind, const PipelinePasses& passes, std::vector<double>& ends);

/// The same exactly: the longest path through the orders of workloads::pipeline_schedule, whatever
/// the schedule. Beyond a few rounds of p micro-batches each further round adds what the last one
/// added, and no stage ends before its bound. Schedules are kept. O(p^2 v). One per thread.
class ScheduleTimeline {
 public:
  void ends(ScheduleKind kind, const PipelinePasses& passes, std::vector<double>& ends);

 private:
  struct Step {
    /// This pass's slot: 2 * (virtual stage * m + micro-batch) + backward; -1: nothing needs it.
    std::int32_t slot = -1;
    std::int32_t after = -1;  ///< the pass of another stage it needs
    std::int32_t pass = 0;    ///< virtual stage
    workloads::Pass kind = workloads::Pass::kForward;
  };
  using Order = std::vector<std::vector<Step>>;  ///< by stage
  const Order& order(ScheduleKind kind, const PipelinePasses& passes, std::int64_t microbatches);

  void walk(const PipelinePasses& passes, const Order& order, std::int64_t microbatches,
            std::vector<double>& ends);

  std::map<std::tuple<ScheduleKind, std::int32_t, std::int32_t, std::int64_t>, Order> known_;
  std::vector<double> done_, before_;
  std::vector<std::size_t> next_;
};

/// Forwards before a stage's first backward, in the schedule of workloads/schedule/schedule.h.
std::int64_t warm_up_passes(ScheduleKind kind, const PipelinePasses& passes, std::int32_t stage);

}  // namespace stepcast::planner
