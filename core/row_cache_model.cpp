#include "core/row_cache_model.h"

#include <algorithm>
#include <cmath>

namespace stepcast {
namespace {

/// Beyond this many lookups every row that can be seen has been.
constexpr double kForEver = 1e18;

}  // namespace

RowTraffic& RowTraffic::operator+=(const RowTraffic& o) {
  lookups += o.lookups;
  touched += o.touched;
  fetched += o.fetched;
  written += o.written;
  fetched_bytes += o.fetched_bytes;
  written_bytes += o.written_bytes;
  return *this;
}

RowTraffic& RowTraffic::operator*=(double factor) {
  for (double* part : {&lookups, &touched, &fetched, &written, &fetched_bytes, &written_bytes}) {
    *part *= factor;
  }
  return *this;
}

RowCacheModel::RowCacheModel(Access access, double capacity, double lookups)
    : access_(std::move(access)), lookups_(lookups), memory_(0) {
  if (capacity <= 0) {
    return;
  }
  double low = capacity;  // U(t) <= t
  double high = low;
  while (high < kForEver && distinct(high) < capacity) {
    low = high;
    high *= 4;
  }
  if (high >= kForEver) {
    memory_ = kForEver;
    return;
  }
  for (int i = 0; i < 100 && high - low > 1e-9 * high; ++i) {
    const double middle = std::sqrt(low * high);
    (distinct(middle) < capacity ? low : high) = middle;
  }
  memory_ = high;
}

double RowCacheModel::distinct(double lookups) const {
  return lookups > 0 ? access_.unique(lookups).value : 0;
}

RowTraffic RowCacheModel::batch(double number) const {
  const double remembered = number < 0 ? memory_ : std::min(memory_, number * lookups_);
  const double then = number < 0 ? memory_ : std::min(memory_, (number + 1) * lookups_);
  const double before = distinct(remembered);
  const double during = distinct(remembered + lookups_);
  RowTraffic t;
  t.lookups = lookups_;
  t.touched = distinct(lookups_);
  t.fetched = std::max(0.0, during - before);
  t.written = std::max(0.0, during - distinct(then));
  return t;
}

double RowCacheModel::most_rows() const { return distinct(memory_ + lookups_); }

}  // namespace stepcast
