#include "validation/multi_hot_access.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace stepcast::validation {
namespace {

constexpr double kWider = 1.1;  ///< from one bin of ids to the next
constexpr double kEdge = 1e-3;  ///< of a reuse count, either side of it

}  // namespace

Access multi_hot_access(const Access& one_hot, double ids_per_bag, double samples) {
  if (ids_per_bag <= 1) {
    return one_hot;
  }
  const auto rows = static_cast<double>(one_hot.rows());
  std::vector<ReuseBin> bins;
  double left = rows;
  double before = 0;
  for (double first = 0; first < rows;) {
    const double last = std::min(rows, std::max(first + 1, std::floor(first * kWider)));
    const double share = one_hot.cdf(last).value;
    const double held = std::min(left, (last - first) * ids_per_bag);
    if (held >= 1) {
      bins.push_back({.unique_rows = held});
    }
    bins.back().accesses += (share - before) * samples * ids_per_bag;
    left -= held;
    before = share;
    first = last;
  }
  for (ReuseBin& bin : bins) {
    const double reuse = bin.accesses / bin.unique_rows;
    bin.reuse_low = reuse * (1 - kEdge);
    bin.reuse_high = reuse * (1 + kEdge);
  }
  std::sort(bins.begin(), bins.end(),
            [](const ReuseBin& a, const ReuseBin& b) { return a.reuse_low < b.reuse_low; });
  return Access::histogram(one_hot.rows(), std::move(bins), samples * ids_per_bag);
}

}  // namespace stepcast::validation
