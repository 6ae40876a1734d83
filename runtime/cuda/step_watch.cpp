#include "runtime/cuda/step_watch.h"

#include <algorithm>
#include <future>
#include <memory>

#include "core/error.h"
#include "runtime/cuda/host_clock.h"

namespace stepcast::runtime::cuda {
namespace {

constexpr std::int64_t kLook = 50'000'000;  // 50 ms
constexpr double kPatience = 10;

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

StepWatch::~StepWatch() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ends_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

std::int64_t StepWatch::now() { return now_ns(); }

void StepWatch::issuing(const Communicators& communicators) {
  if (!abort_) {
    return;
  }
  op_ = nullptr;
  since_ns_ = now();
  step_ns_ = collectives_.empty() ? now() : 0;
  const std::lock_guard lock(mutex_);
  watched_ = &communicators;
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { run(); });
  }
}

void StepWatch::issued() {
  const std::lock_guard lock(mutex_);
  watched_ = nullptr;
  limit_ = timeout_;
}

void StepWatch::run() {
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, std::chrono::nanoseconds(kLook), [this] { return end_; })) {
    try {
      if (collectives_.empty()) {
        look_after_step();
      } else if (watched_ != nullptr) {
        look_after_issue(*watched_);
      }
    } catch (const std::exception& e) {
      abort_(e);
    }
  }
}

/// Calls nothing of CUDA, which might block as the launch does, and nothing of NCCL unless the
/// thread that issues is stuck elsewhere: one communicator serves one thread.
void StepWatch::look_after_issue(const Communicators& communicators) const {
  const double age = seconds(now() - std::max(since_ns_.load(), communicators.last_look_ns()));
  constexpr double kStuck = 1;
  if (age < kStuck) {
    return;
  }
  communicators.check_background();
  constexpr double kGrace = 2;  // waits within an op know their own names, and speak first
  const Op* op = op_.load();
  if (op != nullptr && age > limit_.count() + kGrace) {
    throw RunError(
        fmt::format("'{}' cannot be launched for {:.1f} s (deadline {:.1f} s): the device's queue "
                    "is full behind {}; a rank is lost or hangs",
                    program_.name(*op), age, limit_.count(), first_that_has_not_ended()));
  }
}

/// Says which op the host has come to, as the device tells of none.
void StepWatch::look_after_step() const {
  const std::int64_t begin = step_ns_;
  const double age = seconds(now() - begin);
  const double limit =
      std::max(kPatience * timeout_.count(), limit_.count()) + 2 * seconds(longest_ns_);
  if (begin != 0 && age > limit) {
    const Op* op = op_.load();
    throw RunError(fmt::format(
        "the device has not finished a step for {:.1f} s (the longest took {:.3g} s, deadline "
        "{:.1f} s); the host has launched up to '{}': a kernel or the device hangs",
        age, seconds(longest_ns_), limit,
        op == nullptr ? "the captured step" : program_.name(*op)));
  }
}

/// Asks CUDA on a thread that may stay blocked: the run ends in any case.
std::string StepWatch::first_that_has_not_ended() const {
  auto found = std::make_shared<std::promise<std::string>>();
  std::future<std::string> name = found->get_future();
  std::thread([this, found] {
    std::string text = "a collective";
    try {
      for (const Collective& c : collectives_) {
        if (!c.end->happened()) {
          text = fmt::format("'{}' on '{}'", program_.name(*c.op), c.communicator->name());
          break;
        }
      }
    } catch (
        const std::exception&) {  // NOLINT(bugprone-empty-catch): the name only adds to the error
    }
    found->set_value(text);
  }).detach();
  return name.wait_for(std::chrono::seconds(1)) == std::future_status::ready ? name.get()
                                                                             : "a collective";
}

void StepWatch::wait_for(const Event& event, bool replayed, const Communicators& communicators,
                         const DoesWork& does_work) {
  std::fill(turns_.begin(), turns_.end(), Turn{});
  const std::int64_t begin = now();
  if (collectives_.empty() && !replayed) {  // nobody can be lost: a wait that profilers see
    event.wait();
    if (const std::int64_t step = step_ns_; step != 0) {
      longest_ns_ = std::max<std::int64_t>(longest_ns_, now() - step);
    }
    return;
  }
  std::int64_t looked = begin;
  while (!event.happened()) {
    std::this_thread::yield();
    if (now() - looked < kLook) {
      continue;
    }
    since_ns_ = looked = now();
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
  longest_ns_ = std::max<std::int64_t>(longest_ns_, now() - begin);
}

void StepWatch::look_after_replay(std::int64_t age_ns) const {
  if (seconds(age_ns) > timeout_.count() + 2 * seconds(longest_ns_)) {
    throw RunError(
        fmt::format("the captured step has not finished for {:.1f} s (the longest took "
                    "{:.3g} s, deadline {:.1f} s); a rank is lost or hangs",
                    seconds(age_ns), seconds(longest_ns_), timeout_.count()));
  }
}

void StepWatch::look_after_collectives(const DoesWork& does_work) {
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
      turn = {&c, now()};
    } else if (const double age = seconds(now() - turn.since_ns); age > timeout_.count()) {
      throw RunError(
          fmt::format("'{}' on '{}' has not finished for {:.1f} s (deadline {:.1f} "
                      "s); a rank is lost or hangs",
                      program_.name(*c.op), c.communicator->name(), age, timeout_.count()));
    }
  }
}

}  // namespace stepcast::runtime::cuda
