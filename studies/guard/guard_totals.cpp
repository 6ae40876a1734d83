#include <cmath>
#include <set>
#include <tuple>

#include "core/graph/op.h"
#include "core/graph/op_enums.h"
#include "core/statistics.h"
#include "studies/guard/internal/guard_totals.h"

namespace stepcast::studies::internal {
namespace {

using Key = std::tuple<std::string, OpKind, Phase>;

std::set<Key> keys_of(const Baseline& baseline) {
  std::set<Key> keys;
  for (const BaselineOp& op : baseline.ops) {
    keys.emplace(op.name, op.kind, op.phase);
  }
  return keys;
}

void add(BaselineTimes& sum, const BaselineTimes& times) {
  sum.median.resize(times.median.size(), 0);
  sum.standard_error.resize(times.median.size(), 0);
  for (std::size_t r = 0; r < times.median.size(); ++r) {
    sum.median[r] += times.median[r];
    sum.standard_error[r] = std::hypot(sum.standard_error[r], times.standard_error[r]);
  }
}

}  // namespace

BaselineTimes device_time_of(const Baseline& baseline) {
  BaselineTimes sum;
  for (const BaselineOp& op : baseline.ops) {
    add(sum, op.time);
  }
  return sum;
}

std::map<KernelKind, BaselineTimes> time_by_kind(const Baseline& baseline) {
  std::map<KernelKind, BaselineTimes> kinds;
  for (const BaselineOp& op : baseline.ops) {
    add(kinds[op.kernel], op.time);
  }
  return kinds;
}

std::map<KernelKind, KindCensus> census_of(const Baseline& baseline, const Baseline& other) {
  const std::set<Key> theirs = keys_of(other);
  std::map<KernelKind, KindCensus> kinds;
  for (const BaselineOp& op : baseline.ops) {
    KindCensus& kind = kinds[op.kernel];
    ++kind.ops;
    kind.unmatched += theirs.contains({op.name, op.kind, op.phase}) ? 0 : 1;
  }
  return kinds;
}

double matched_share(const Baseline& baseline, const Baseline& other) {
  const std::set<Key> theirs = keys_of(other);
  double all = 0, matched = 0;
  for (const BaselineOp& op : baseline.ops) {
    const double time = middle_of(op.time.median);
    all += time;
    matched += theirs.contains({op.name, op.kind, op.phase}) ? time : 0;
  }
  return all > 0 ? matched / all : 1;
}

}  // namespace stepcast::studies::internal
