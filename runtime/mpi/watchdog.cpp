#include "runtime/mpi/watchdog.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>

#include "runtime/futex.h"

namespace stepcast::runtime {
namespace {

std::string name_of(const InFlight& slot) {
  const char* what = slot.what.load(std::memory_order_relaxed);
  return fmt::format("{} on '{}'", what == nullptr ? "a collective" : what, slot.communicator);
}

}  // namespace

Watchdog::Watchdog(Limit deadline, OnTimeout on_timeout)
    : deadline_(deadline), on_timeout_(std::move(on_timeout)), thread_([this] { patrol(); }) {}

Watchdog::~Watchdog() { stop(); }

void Watchdog::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

InFlight& Watchdog::watch(std::string communicator) {
  const std::lock_guard lock(mutex_);
  InFlight& slot = slots_.emplace_back();
  slot.communicator = std::move(communicator);
  return slot;
}

void Watchdog::on_patrol(std::function<std::string()> look) {
  const std::lock_guard lock(mutex_);
  look_ = std::move(look);
}

std::string Watchdog::here() {
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(slots_.begin(), slots_.end(), [](const InFlight& slot) {
    return slot.since_ns.load(std::memory_order_relaxed) != 0;
  });
  return at == slots_.end() ? "no exchange" : name_of(*at);
}

Watchdog::Overdue Watchdog::overdue(std::int64_t not_before_ns) {
  const std::int64_t now = steady_ns();
  if (now < not_before_ns) {
    return {};
  }
  const double deadline = deadline_.load().count();
  const std::lock_guard lock(mutex_);
  for (const InFlight& slot : slots_) {
    const std::int64_t since = slot.since_ns.load(std::memory_order_relaxed);
    const double age = static_cast<double>(now - since) * 1e-9;
    if (since != 0 && age > deadline) {
      return {fmt::format("{} has not finished for {:.1f} s (deadline {:.1f} s)", name_of(slot),
                          age, deadline),
              age / deadline};
    }
  }
  return {};
}

void Watchdog::patrol() {
  // It answers for its rank where ranks of real time poll on all cores, if that is permitted.
  sched_param parameters{};
  parameters.sched_priority = 5;  // as theirs
  pthread_setschedparam(pthread_self(), SCHED_RR, &parameters);
  // Waking a few times per deadline disturbs nothing and is late by a quarter of it at most.
  const auto period = [this] { return std::clamp(deadline_.load() / 4, Limit(0.05), Limit(1)); };
  std::int64_t patient_until_ns = 0;
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, period(), [this] { return stopping_; })) {
    const auto look = look_;
    lock.unlock();
    Overdue found = overdue(patient_until_ns);
    if (found.why.empty() && look) {
      found.why = look();
    }
    if (!found.why.empty()) {
      if (on_timeout_(found.why, found.after)) {
        return;
      }
      patient_until_ns = steady_ns() + static_cast<std::int64_t>(deadline_.load().count() * 1e9);
    }
    lock.lock();
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
