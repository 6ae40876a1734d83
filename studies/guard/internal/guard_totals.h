#pragma once
#include <map>

#include "core/baseline.h"

namespace stepcast::studies::internal {

/// Device time of a step, by run: the sum over all ops, small ones too. Medians, so that one
/// step that stood still does not count; standard errors add in squares.
BaselineTimes device_time_of(const Baseline& baseline);
/// The same by kernel kind.
std::map<KernelKind, BaselineTimes> time_by_kind(const Baseline& baseline);
/// How many ops a kind has, and how many of them are not in `other`.
struct KindCensus {
  std::size_t ops = 0, unmatched = 0;
};
std::map<KernelKind, KindCensus> census_of(const Baseline& baseline, const Baseline& other);
/// Share of the device time of `baseline` in ops that `other` has too.
double matched_share(const Baseline& baseline, const Baseline& other);

}  // namespace stepcast::studies::internal
