#include "planner/parallel/search_front.h"

#include <cmath>
#include <iterator>

#include "core/clearly_less.h"

namespace stepcast::planner {

bool ranks_before(const ParallelCandidate& a, const ParallelCandidate& b) {
  if (comparable(a.seconds) != comparable(b.seconds)) {
    return clearly_less(a.seconds, b.seconds);
  }
  return a.bytes != b.bytes ? a.bytes < b.bytes : a.point < b.point;
}

/// Infinite while there are fewer kinds.
double BestCandidates::best_of_near_kind() const {
  std::vector<PlanKind> kinds;
  for (const ParallelCandidate& c : best_) {
    const PlanKind kind = kind_of(c.point);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
      kinds.push_back(kind);
      if (kinds.size() == near_) {
        return c.seconds;
      }
    }
  }
  return std::numeric_limits<double>::infinity();
}

void BestCandidates::offer(const ParallelCandidate& c) {
  if (clearly_less(limit_, c.seconds) ||
      (best_.size() >= keep_ && !ranks_before(c, best_.back()))) {
    return;
  }
  const auto place = std::upper_bound(best_.begin(), best_.end(), c, ranks_before);
  if (place != best_.begin() && std::prev(place)->point == c.point) {
    return;  // shelves that began alike bring the same candidates
  }
  best_.insert(place, c);
  const auto alike = [kind = kind_of(c.point)](const ParallelCandidate& o) {
    return kind_of(o.point) == kind;
  };
  if (static_cast<std::size_t>(std::count_if(best_.begin(), best_.end(), alike)) > each_) {
    const auto last = std::find_if(best_.rbegin(), best_.rend(), alike);
    crowd_out(last->seconds);
    best_.erase(std::next(last).base());
  }
  // The kinds among the best change with what is left out, so that is looked at again.
  const auto set_limit = [this] {
    limit_ = std::min(
        {at_most_,
         best_.size() >= keep_ ? best_.back().seconds : std::numeric_limits<double>::infinity(),
         std::isinf(margin_) ? margin_ : best_of_near_kind() * (1 + margin_)});
  };
  set_limit();
  while (best_.size() > keep_ || clearly_less(limit_, best_.back().seconds)) {
    best_.pop_back();
    set_limit();
  }
}

CandidateShelf::CandidateShelf(const ParallelSearchOptions& options)
    : rival_(options.rival),
      wants_front_(options.front && !options.below),
      all_(options.keep, options, options.near, options.at_most) {
  if (options.keep_of_family > 0) {
    families_.assign(std::size(kPlanFamilies), {options.keep_of_family, options, 1});
  }
}

double CandidateShelf::slowest_of_families() const {
  return (best().empty() ? rival_ : std::min(rival_, best().front().seconds)) * (1 + kFamilyMargin);
}

void CandidateShelf::offer(const ParallelCandidate& c) {
  all_.offer(c);
  if (!families_.empty()) {
    families_[static_cast<std::size_t>(family_of(c.point))].offer(c);
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

bool CandidateShelf::beaten(PlanFamily family, double seconds, double bytes) const {
  // An equal time is decided by memory and order, which the bound does not know.
  if (!clearly_less(limit(), seconds)) {
    return false;
  }
  if (!families_.empty() &&
      !clearly_less(
          std::min(families_[static_cast<std::size_t>(family)].limit(), slowest_of_families()),
          seconds)) {
    return false;
  }
  if (!wants_front_) {
    return true;
  }
  const auto after = std::lower_bound(
      front_.begin(), front_.end(), seconds,
      [](const ParallelCandidate& f, double s) { return clearly_less(f.seconds, s); });
  return after != front_.begin() && std::prev(after)->bytes <= bytes;
}

std::vector<ParallelCandidate> CandidateShelf::of_families() const {
  std::vector<ParallelCandidate> all;
  for (const BestCandidates& family : families_) {
    std::copy_if(family.list().begin(), family.list().end(), std::back_inserter(all),
                 [this](const ParallelCandidate& c) {
                   return !clearly_less(slowest_of_families(), c.seconds);
                 });
  }
  std::sort(all.begin(), all.end(), ranks_before);
  return all;
}

void CandidateShelf::take(const CandidateShelf& other) {
  all_.crowd_out(other.all_.crowded_out());
  for (const auto* list : {&other.best(), &other.front_}) {
    for (const ParallelCandidate& c : *list) {
      offer(c);
    }
  }
  for (const BestCandidates& family : other.families_) {
    for (const ParallelCandidate& c : family.list()) {
      offer(c);
    }
  }
}

}  // namespace stepcast::planner
