#include "core/access/row_cache_model.h"

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

RowCacheModel::RowCacheModel(Access access, double capacity, double lookups, RowCachePolicy policy,
                             double under_way)
    : access_(std::move(access)),
      capacity_(std::max(0.0, capacity)),
      lookups_(lookups),
      policy_(policy),
      under_way_(under_way) {
  if (policy == RowCachePolicy::kLfu) {
    const auto hot = static_cast<std::int64_t>(capacity_);
    if (hot < access_.rows()) {
      cold_ = access_.ranks(hot, access_.rows());
    }
    return;
  }
  capacity = under_way > 0 ? std::max(capacity, distinct(under_way)) : capacity;
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

double RowCacheModel::cold(double lookups) const {
  return cold_ && lookups * cold_->second > 0 ? cold_->first.unique(lookups * cold_->second).value
                                              : 0;
}

RowTraffic RowCacheModel::counted_batch(double number) const {
  RowTraffic t;
  t.lookups = lookups_;
  t.touched = distinct(lookups_);
  t.fetched = t.written = std::max(0.0, cold(under_way_ + lookups_) - cold(under_way_));
  if (number >= 0) {
    const double before = distinct(number * lookups_);
    const double after = distinct((number + 1) * lookups_);
    const bool filling = before < capacity_;
    t.fetched = filling ? after - before : std::max(t.fetched, after - before);
    t.written = filling ? std::max(0.0, after - capacity_) : t.fetched;
  }
  return t;
}

RowTraffic RowCacheModel::batch(double number) const {
  if (policy_ == RowCachePolicy::kLfu) {
    return counted_batch(number);
  }
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

double RowCacheModel::most_rows() const {
  return policy_ == RowCachePolicy::kLfu
             ? std::min(distinct(kForEver), capacity_) + cold(under_way_ + lookups_)
             : distinct(memory_ + lookups_);
}

}  // namespace stepcast
