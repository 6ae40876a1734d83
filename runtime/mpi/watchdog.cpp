#include "runtime/mpi/watchdog.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/futex.h"

namespace stepcast::runtime {

Watchdog::Watchdog(std::chrono::duration<double> deadline,
                   std::function<void(const std::string&)> on_timeout)
    : deadline_(deadline), on_timeout_(std::move(on_timeout)), thread_([this] { patrol(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

InFlight& Watchdog::watch(std::string communicator) {
  const std::lock_guard lock(mutex_);
  InFlight& slot = slots_.emplace_back();
  slot.communicator = std::move(communicator);
  return slot;
}

void Watchdog::patrol() {
  // Waking a few times per deadline disturbs nothing and is late by a quarter of it at most.
  const auto period = std::clamp(deadline_ / 4, std::chrono::duration<double>(0.05),
                                 std::chrono::duration<double>(1));
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, period, [this] { return stopping_; })) {
    const std::int64_t now = steady_ns();
    for (const InFlight& slot : slots_) {
      const std::int64_t since = slot.since_ns.load(std::memory_order_relaxed);
      const double age = static_cast<double>(now - since) * 1e-9;
      if (since != 0 && age > deadline_.count()) {
        const char* what = slot.what.load(std::memory_order_relaxed);
        on_timeout_(fmt::format("{} on '{}' has not finished for {:.1f} s (deadline {:.1f} s)",
                                what == nullptr ? "a collective" : what, slot.communicator, age,
                                deadline_.count()));
        return;
      }
    }
  }
}

Flight::Flight(InFlight& slot, const char* what)
    : slot_(slot), outer_since_(slot.since_ns.load(std::memory_order_relaxed)) {
  if (outer_since_ == 0) {
    slot.what.store(what, std::memory_order_relaxed);
    slot.since_ns.store(steady_ns(), std::memory_order_relaxed);
  }
}

}  // namespace stepcast::runtime
