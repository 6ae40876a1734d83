#include "planner/parallel/search_front.h"

#include <algorithm>

namespace stepcast::planner {

bool ranks_before(const ParallelCandidate& a, const ParallelCandidate& b) {
  const auto time = static_cast<float>(a.seconds);
  const auto other = static_cast<float>(b.seconds);
  if (time != other) {
    return time < other;
  }
  return a.bytes != b.bytes ? a.bytes < b.bytes : a.point < b.point;
}

double CandidateShelf::limit() const {
  double seconds = std::numeric_limits<double>::infinity();
  if (best_.size() >= keep_) {
    seconds = best_.back().seconds;
  }
  if (best_.size() >= near_) {
    seconds = std::min(seconds, best_[near_ - 1].seconds * (1 + margin_));
  }
  return seconds;
}

void CandidateShelf::offer(const ParallelCandidate& c) {
  if (c.seconds <= limit() && (best_.size() < keep_ || ranks_before(c, best_.back()))) {
    const auto place = std::upper_bound(best_.begin(), best_.end(), c, ranks_before);
    if (place != best_.begin() && std::prev(place)->point == c.point) {
      return;  // shelves that began alike bring the same candidates
    }
    best_.insert(place, c);
    while (best_.size() > keep_ || best_.back().seconds > limit()) {
      best_.pop_back();
    }
  }
  if (!wants_front_) {
    return;
  }
  // The last one that ranks before it decides: of those it has the least memory.
  const auto after = std::upper_bound(front_.begin(), front_.end(), c, ranks_before);
  if (after != front_.begin() && std::prev(after)->bytes <= c.bytes) {
    return;
  }
  const auto kept = std::find_if(after, front_.end(),
                                 [&c](const ParallelCandidate& f) { return f.bytes < c.bytes; });
  front_.insert(front_.erase(after, kept), c);
}

bool CandidateShelf::beaten(double seconds, double bytes) const {
  // Strictly: an equal time is decided by memory and order, which the bound does not know.
  if (!(seconds > limit())) {
    return false;
  }
  if (!wants_front_) {
    return true;
  }
  const auto after =
      std::lower_bound(front_.begin(), front_.end(), seconds,
                       [](const ParallelCandidate& f, double s) { return f.seconds < s; });
  return after != front_.begin() && std::prev(after)->bytes <= bytes;
}

void CandidateShelf::take(const CandidateShelf& other) {
  for (const ParallelCandidate& c : other.best_) {
    offer(c);
  }
  for (const ParallelCandidate& c : other.front_) {
    offer(c);
  }
}

}  // namespace stepcast::planner
