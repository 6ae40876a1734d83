#pragma once
#include <chrono>
#include <string>

#include "cli/support/console.h"

namespace stepcast::cli {

/// Progress on the console of the thread, each time; without one on stderr: on a terminal a bar,
/// when the work takes over a second, erased when done; elsewhere a line every half minute.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// `done` of `total` units of work are finished; `note` names the one in hand.
  void update(double done, double total, const std::string& note = "");
  /// The share that is finished, as studies tell it: `study.progress = std::ref(progress)`.
  void operator()(double done, const std::string& note = "") { update(done, 1, note); }

 private:
  std::string what_;
  const Console* console_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
  bool terminal_;
  bool shown_ = false;
};

}  // namespace stepcast::cli
