#pragma once
#include <algorithm>
#include <limits>
#include <vector>

#include "planner/parallel/parallel_search.h"

namespace stepcast::planner {

/// The best few candidates, at most so many of a kind, and the front of time and memory, of all
/// that were offered. What it holds in the end does not depend on the order of offers.
class CandidateShelf {
 public:
  explicit CandidateShelf(const ParallelSearchOptions& options);

  void offer(const ParallelCandidate& candidate);
  /// True if a candidate that is no faster and no smaller changes nothing.
  [[nodiscard]] bool beaten(double seconds, double bytes) const;
  /// Seconds beyond which no candidate is among the best; infinite while there is room for any.
  [[nodiscard]] double limit() const { return limit_; }
  /// Least seconds of what was offered and is not among the best.
  [[nodiscard]] double others_at_least() const { return std::min(limit(), crowded_out_); }
  void take(const CandidateShelf& other);

  [[nodiscard]] const std::vector<ParallelCandidate>& best() const { return best_; }
  [[nodiscard]] const std::vector<ParallelCandidate>& front() const { return front_; }

 private:
  [[nodiscard]] double best_of_near_kind() const;

  std::size_t keep_, each_, near_;
  double margin_, at_most_;
  bool wants_front_;
  double limit_ = at_most_;
  double crowded_out_ = std::numeric_limits<double>::infinity();  // by others of its kind, seconds
  std::vector<ParallelCandidate> best_;
  std::vector<ParallelCandidate> front_;  // ascending by time, so descending by memory
};

}  // namespace stepcast::planner
