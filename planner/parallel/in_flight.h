#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "core/job/job.h"

namespace stepcast::planner {

/// The moments at which a stage of a pipeline can hold most, read off the schedule itself
/// (workloads::pipeline_schedule) and kept: moments with no more in flight of any chunk than
/// another one in the same pass are left out. One per thread.
class InFlight {
 public:
  struct Most {
    std::vector<std::size_t> passes;  ///< index of the pass at work, by moment
    /// In flight of chunks 0 .. c - 1 at all moments, for c = 0, then c = 1, ...: chunks in a row
    /// that keep the same are one term.
    std::vector<double> below;

    /// Most bytes at any moment: keeps[chunk] of each micro-batch in flight, and
    /// during[2 * chunk + forward] of the pass at work. Where weight gradients have a pass of their
    /// own: keeps[3 * chunk + i] from forward to backward, from forward to weights, from backward
    /// to weights; during[3 * chunk + i] in the backward, forward, weights. In a V the last of
    /// keeps is what waits between the two chunks of the last stage. `at_moment` is scratch.
    [[nodiscard]] double bytes(const std::vector<double>& keeps, const std::vector<double>& during,
                               std::vector<double>& at_moment) const;
  };
  const Most& most(ScheduleKind kind, std::int32_t stages, std::int32_t chunks,
                   std::int64_t microbatches, std::int32_t stage);

 private:
  using Key = std::tuple<ScheduleKind, std::int32_t, std::int32_t, std::int32_t, std::int32_t>;
  std::map<Key, Most> known_;
};

}  // namespace stepcast::planner
