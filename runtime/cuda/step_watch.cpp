#include "runtime/cuda/step_watch.h"

#include <algorithm>
#include <thread>

#include "core/error.h"
#include "runtime/cuda/host_clock.h"

namespace stepcast::runtime::cuda {

void StepWatch::wait_for(const Event& end, bool replayed, const Communicators& communicators,
                         const std::function<bool(const Op&)>& does_work) {
  std::fill(turns_.begin(), turns_.end(), Turn{});
  const std::int64_t begin = now_ns();
  if (collectives_.empty() && !replayed) {  // nobody can be lost: a wait that profilers see
    end.wait();
    return;
  }
  std::int64_t looked = begin;
  constexpr std::int64_t kLook = 50'000'000;  // 50 ms
  while (!end.happened()) {
    std::this_thread::yield();
    if (now_ns() - looked < kLook) {
      continue;
    }
    looked = now_ns();
    communicators.check_background();
    if (replayed) {
      look_after_replay(looked - begin);
    } else {
      look_after_collectives(does_work);
    }
  }
  if (!collectives_.empty()) {
    communicators.check_background();
  }
  longest_ns_ = std::max(longest_ns_, now_ns() - begin);
}

void StepWatch::look_after_replay(std::int64_t age_ns) const {
  const double age = static_cast<double>(age_ns) * 1e-9;
  const double usual = static_cast<double>(longest_ns_) * 1e-9;
  if (age > timeout_.count() + 2 * usual) {
    throw RunError(
        fmt::format("the captured step has not finished for {:.1f} s (the longest took "
                    "{:.3g} s, deadline {:.1f} s); a rank is lost or hangs",
                    age, usual, timeout_.count()));
  }
}

void StepWatch::look_after_collectives(const std::function<bool(const Op&)>& does_work) {
  std::vector<bool> seen(turns_.size(), false);
  for (const Collective& c : collectives_) {
    if (seen[c.stream] || !does_work(*c.op) || c.end->happened()) {
      continue;
    }
    seen[c.stream] = true;  // the first of its stream that has not ended
    Turn& turn = turns_[c.stream];
    if (!c.begin->happened()) {
      turn = {&c, 0};
    } else if (turn.collective != &c || turn.since_ns == 0) {
      turn = {&c, now_ns()};
    } else {
      const double age = static_cast<double>(now_ns() - turn.since_ns) * 1e-9;
      if (age > timeout_.count()) {
        throw RunError(
            fmt::format("'{}' on '{}' has not finished for {:.1f} s (deadline {:.1f} "
                        "s); a rank is lost or hangs",
                        program_.name(*c.op), c.communicator->name(), age, timeout_.count()));
      }
    }
  }
}

}  // namespace stepcast::runtime::cuda
