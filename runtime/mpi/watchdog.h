#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>

namespace stepcast::runtime {

/// The collective a thread of this rank is inside of, seen by the watchdog. `what` is a literal.
struct InFlight {
  std::string communicator;
  std::atomic<const char*> what{nullptr};
  std::atomic<std::int64_t> since_ns{0};  ///< 0: none
};

/// Notices that a collective of this rank has been running for longer than a deadline (a lost
/// rank, ranks that disagree about what comes next) and calls `on_timeout` from its own thread,
/// with the collective's name and age, until that says that it is over.
class Watchdog {
 public:
  using Limit = std::chrono::duration<double>;
  /// `after`: age in deadlines. Returns false to wait for one more deadline.
  using OnTimeout = std::function<bool(const std::string& why, double after)>;
  Watchdog(Limit deadline, OnTimeout on_timeout);
  ~Watchdog();
  /// Ends its thread, which until then may call back into what holds the watchdog.
  void stop();
  /// A slot that lives as long as the watchdog.
  InFlight& watch(std::string communicator);
  /// Called from its thread a few times per deadline; returns why to end the run, or nothing.
  void on_patrol(std::function<std::string()> look);
  /// Exchange that this rank is in now: "barrier on 'all ranks'".
  [[nodiscard]] std::string here();
  /// Another deadline from now on, also of what is in flight.
  void set_deadline(Limit deadline) { deadline_ = deadline; }

 private:
  struct Overdue {
    std::string why;  ///< empty: nothing
    double after = 0;
  };
  void patrol();
  [[nodiscard]] Overdue overdue(std::int64_t not_before_ns);

  std::atomic<Limit> deadline_;
  OnTimeout on_timeout_;
  std::function<std::string()> look_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::list<InFlight> slots_;
  std::thread thread_;
};

/// Marks a collective as in flight for its scope.
class Flight {
 public:
  Flight(InFlight& slot, const char* what);
  ~Flight() { slot_.since_ns.store(outer_since_, std::memory_order_relaxed); }
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

 private:
  InFlight& slot_;
  std::int64_t outer_since_;
};

}  // namespace stepcast::runtime
