#pragma once
#include <vector>

#include "planner/parallel/parallel_search.h"

namespace stepcast::planner {

/// The best few candidates, and the front of time and memory, of all that were offered.
class CandidateShelf {
 public:
  CandidateShelf(std::size_t keep, bool front) : keep_(keep), wants_front_(front) {}

  void offer(const ParallelCandidate& candidate);
  /// Would a candidate that is no faster and no smaller change anything?
  [[nodiscard]] bool beaten(double seconds, double bytes) const;
  void take(const CandidateShelf& other);

  [[nodiscard]] const std::vector<ParallelCandidate>& best() const { return best_; }
  [[nodiscard]] const std::vector<ParallelCandidate>& front() const { return front_; }

 private:
  std::size_t keep_;
  bool wants_front_;
  std::vector<ParallelCandidate> best_;
  std::vector<ParallelCandidate> front_;  // ascending by time, so descending by memory
};

}  // namespace stepcast::planner
