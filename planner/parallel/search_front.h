#pragma once
#include <limits>
#include <vector>

#include "planner/parallel/parallel_search.h"

namespace stepcast::planner {

/// The best few candidates, and the front of time and memory, of all that were offered. What it
/// holds in the end does not depend on the order of offers.
class CandidateShelf {
 public:
  CandidateShelf(std::size_t keep, bool front) : keep_(keep), near_(keep), wants_front_(front) {}
  /// Keeps at most `keep`, and none that takes over 1 + `margin` times as long as the `near`-th.
  CandidateShelf(std::size_t keep, std::size_t near, double margin, bool front)
      : keep_(keep), near_(near), margin_(margin), wants_front_(front) {}

  void offer(const ParallelCandidate& candidate);
  /// Would a candidate that is no faster and no smaller change anything?
  [[nodiscard]] bool beaten(double seconds, double bytes) const;
  /// Seconds beyond which no candidate is among the best; infinite while there is room for any.
  [[nodiscard]] double limit() const;
  void take(const CandidateShelf& other);

  [[nodiscard]] const std::vector<ParallelCandidate>& best() const { return best_; }
  [[nodiscard]] const std::vector<ParallelCandidate>& front() const { return front_; }

 private:
  std::size_t keep_, near_;
  double margin_ = std::numeric_limits<double>::infinity();
  bool wants_front_;
  std::vector<ParallelCandidate> best_;
  std::vector<ParallelCandidate> front_;  // ascending by time, so descending by memory
};

}  // namespace stepcast::planner
