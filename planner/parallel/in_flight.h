#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "core/job.h"

namespace stepcast::planner {

/// A moment of a stage's schedule: micro-batches in flight by chunk (the one at work included), and
/// the pass it is in.
struct FlightMoment {
  std::vector<std::int32_t> in_flight;
  std::int32_t chunk = 0;
  bool forward = true;
  auto operator<=>(const FlightMoment&) const = default;
};

/// The same where all chunks but the last are alike: how many of those, how many of the last.
struct FlightPeak {
  std::int32_t others = 0, top = 0;
  std::int32_t chunk = 0;
  bool forward = true;
};

/// The moments at which a stage of a pipeline can hold most, read off the schedule itself
/// (workloads::pipeline_schedule) and kept: moments with no more in flight of any chunk than
/// another one in the same pass are left out. One per thread.
class InFlight {
 public:
  struct Most {
    std::vector<FlightMoment> moments;
    std::vector<FlightPeak> peaks;
    /// The moments' counts, chunk by chunk, as a sum over chunks of all moments reads them.
    std::vector<double> counts;

    /// Most bytes at any moment: keeps[chunk] of each micro-batch in flight, and
    /// during[2 * chunk + forward] of the pass at work. `at_moment` is scratch.
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
