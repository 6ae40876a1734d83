#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/graph/program.h"
#include "runtime/cuda/communicator.h"
#include "runtime/cuda/streams.h"

namespace stepcast::runtime::cuda {

/// Notices that a step will not end: a collective whose turn has come and that does not end,
/// because a rank is lost or ranks disagree about what comes next. The calling thread looks where
/// it waits. While it issues, a thread of its own looks after it: behind a collective that waits
/// for a lost peer the device's queue is full, and a launch does not return. A rank without
/// collectives has nobody to lose, but a kernel that does not end: its step has kPatience deadlines
/// beyond twice the longest one.
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
  using DoesWork = std::function<bool(const Op& op)>;  ///< in this step
  /// Tells the error and ends the run; does not return.
  using Abort = std::function<void(const std::exception&)>;

  StepWatch(const Program& program, std::size_t streams, const Options& options, Abort abort)
      : program_(program),
        timeout_(options.timeout),
        abort_(std::move(abort)),
        turns_(streams),
        limit_(options.setup_timeout()) {}
  ~StepWatch();
  StepWatch(const StepWatch&) = delete;
  StepWatch& operator=(const StepWatch&) = delete;
  /// In issue order.
  void add(Collective collective) { collectives_.push_back(collective); }

  /// From here to issued() the calling thread issues; it says which op it comes to. `communicators`
  /// lives as long.
  void issuing(const Communicators& communicators);
  void issuing(const Op& op) {
    op_ = &op;
    since_ns_ = now();
  }
  void issued();
  /// The step is over, or failed.
  void ended() { step_ns_ = 0; }

  /// Waits by polling: a sleeping host would wake late. `replayed`: the step is a captured one,
  /// whose events keep their last state until they are reached again, so that only its age says
  /// that it hangs. Errors: RunError when a collective that `does_work` in this step, or the
  /// captured step, is over its deadline, and for what NCCL has met in the background.
  void wait_for(const Event& event, bool replayed, const Communicators& communicators,
                const DoesWork& does_work);

 private:
  static std::int64_t now();
  void look_after_replay(std::int64_t age_ns) const;
  void look_after_collectives(const DoesWork& does_work);
  void run();
  void look_after_issue(const Communicators& communicators) const;
  void look_after_step() const;
  [[nodiscard]] std::string first_that_has_not_ended() const;

  /// The collective that a stream has come to, and since when.
  struct Turn {
    const Collective* collective = nullptr;
    std::int64_t since_ns = 0;
  };

  const Program& program_;
  const std::chrono::duration<double> timeout_;
  const Abort abort_;
  std::vector<Collective> collectives_;
  std::vector<Turn> turns_;
  std::atomic<std::int64_t> longest_ns_ = 0;  ///< longest wait; of a rank alone, step
  std::atomic<std::int64_t> step_ns_ = 0;     ///< begin of the step of a rank alone; 0: none

  std::atomic<const Op*> op_{nullptr};
  std::atomic<std::int64_t> since_ns_{0};  ///< sign of life of the thread that issues
  std::chrono::duration<double> limit_;    ///< of one launch: kernels are loaded in the first step
  std::mutex mutex_;
  std::condition_variable ends_;
  const Communicators* watched_ = nullptr;  ///< while the thread looks
  bool end_ = false;
  std::thread thread_;
};

}  // namespace stepcast::runtime::cuda
