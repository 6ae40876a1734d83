#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "core/graph/program.h"
#include "runtime/cuda/communicator.h"
#include "runtime/cuda/streams.h"

namespace stepcast::runtime::cuda {

/// Waits for the end of a step, and notices when it will not come: a collective whose turn has come
/// and that does not end, because a rank is lost or ranks disagree about what comes next.
class StepWatch {
 public:
  /// A collective of several ranks, with the events around it.
  struct Collective {
    const Op* op = nullptr;
    const Communicator* communicator = nullptr;
    const Event* begin = nullptr;
    const Event* end = nullptr;
    std::size_t stream = 0;
  };

  StepWatch(const Program& program, std::size_t streams, std::chrono::duration<double> timeout)
      : program_(program), timeout_(timeout), turns_(streams) {}
  /// In issue order.
  void add(Collective collective) { collectives_.push_back(collective); }

  /// Waits by polling: a sleeping host would wake late. `replayed`: the step is a captured one,
  /// whose events keep their last state until they are reached again, so that only its age says
  /// that it hangs. Errors: RunError when a collective that `does_work` in this step, or the
  /// captured step, is over its deadline, and for what NCCL has met in the background.
  void wait_for(const Event& end, bool replayed, const Communicators& communicators,
                const std::function<bool(const Op&)>& does_work);

 private:
  void look_after_replay(std::int64_t age_ns) const;
  void look_after_collectives(const std::function<bool(const Op&)>& does_work);

  /// The collective that a stream has come to, and since when.
  struct Turn {
    const Collective* collective = nullptr;
    std::int64_t since_ns = 0;
  };

  const Program& program_;
  const std::chrono::duration<double> timeout_;
  std::vector<Collective> collectives_;
  std::vector<Turn> turns_;
  std::int64_t longest_ns_ = 0;  ///< longest wait for the end of a step
};

}  // namespace stepcast::runtime::cuda
