#pragma once
#include <algorithm>
#include <iterator>
#include <vector>

#include "validation/published/published.h"

namespace stepcast::validation {

using Predictions = std::vector<const PublishedPrediction*>;
using Scores = std::vector<ScaledPrediction>;

inline Predictions pointers(const std::vector<PublishedPrediction>& of) {
  Predictions all;
  for (const PublishedPrediction& p : of) {
    all.push_back(&p);
  }
  return all;
}

/// Those predictions that are `wanted`, in their order.
template <typename Wanted>
Predictions where(const Predictions& all, Wanted wanted) {
  Predictions some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some),
               [&](const PublishedPrediction* p) { return wanted(*p); });
  return some;
}

/// Those scores whose prediction is `wanted`.
template <typename Wanted>
Scores where(const Scores& all, Wanted wanted) {
  Scores some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some),
               [&](const ScaledPrediction& s) { return wanted(*s.prediction); });
  return some;
}

}  // namespace stepcast::validation
