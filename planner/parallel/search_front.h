#pragma once
#include <algorithm>
#include <limits>
#include <vector>

#include "planner/parallel/parallel_search.h"

namespace stepcast::planner {

/// The best few candidates, at most so many of a kind.
class BestCandidates {
 public:
  /// `at_most`: seconds beyond which none is kept.
  BestCandidates(std::size_t keep, const ParallelSearchOptions& options, std::size_t near,
                 double at_most = std::numeric_limits<double>::infinity())
      : keep_(keep), each_(options.each), near_(near), margin_(options.margin), at_most_(at_most) {}

  void offer(const ParallelCandidate& candidate);
  /// Seconds beyond which no candidate is among the best; infinite while there is room for any.
  [[nodiscard]] double limit() const { return limit_; }
  /// Least seconds of what was offered and is not among the best.
  [[nodiscard]] double others_at_least() const { return std::min(limit_, crowded_out_); }
  /// Notes that others left out candidates from so many seconds on for the sake of their kind.
  void crowd_out(double seconds) { crowded_out_ = std::min(crowded_out_, seconds); }
  [[nodiscard]] double crowded_out() const { return crowded_out_; }
  [[nodiscard]] const std::vector<ParallelCandidate>& list() const { return best_; }

 private:
  [[nodiscard]] double best_of_near_kind() const;

  std::size_t keep_, each_, near_;
  double margin_, at_most_;
  double limit_ = at_most_;
  double crowded_out_ = std::numeric_limits<double>::infinity();  // by others of its kind, seconds
  std::vector<ParallelCandidate> best_;
};

/// The best candidates of all, those of each family, and the front of time and memory, of all that
/// were offered. What it holds in the end does not depend on the order of offers.
class CandidateShelf {
 public:
  explicit CandidateShelf(const ParallelSearchOptions& options);

  void offer(const ParallelCandidate& candidate);
  /// True if a candidate of the family that is no faster and no smaller changes nothing.
  [[nodiscard]] bool beaten(PlanFamily family, double seconds, double bytes) const;
  /// Seconds beyond which no candidate is among the best of all; infinite while there is room.
  [[nodiscard]] double limit() const { return all_.limit(); }
  /// Least seconds of what was offered and is not among the best.
  [[nodiscard]] double others_at_least() const { return all_.others_at_least(); }
  void take(const CandidateShelf& other);

  [[nodiscard]] const std::vector<ParallelCandidate>& best() const { return all_.list(); }
  /// The best of each family, those too far behind left out: ascending.
  [[nodiscard]] std::vector<ParallelCandidate> of_families() const;
  [[nodiscard]] const std::vector<ParallelCandidate>& front() const { return front_; }

 private:
  [[nodiscard]] double slowest_of_families() const;

  double rival_;  // seconds
  bool wants_front_;
  BestCandidates all_;
  std::vector<BestCandidates> families_;  // by PlanFamily; none where they are not wanted
  std::vector<ParallelCandidate> front_;  // ascending by time, so descending by memory
};

}  // namespace stepcast::planner
