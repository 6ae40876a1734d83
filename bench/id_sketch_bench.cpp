// Ids a second that the sketch takes on one core, beside a plain pass over the same ids (their
// sum). The bar: 50 M ids/s.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "core/access/access.h"
#include "core/access/id_sketch.h"

namespace {

using stepcast::Access;
using stepcast::AccessSampler;
using stepcast::IdSketch;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The best of three runs, in seconds.
template <class Run>
double best_of(Run&& run) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const double begin = now();
    run();
    best = std::min(best, now() - begin);
  }
  return best;
}

void measure(const char* name, const Access& law) {
  std::vector<std::int64_t> ids(20'000'000);
  AccessSampler(law, 1).fill_rows(ids);
  std::int64_t sum = 0;
  const double pass = best_of([&] {
    for (const std::int64_t id : ids) {
      sum += id;
    }
    asm volatile("" : "+r"(sum));
  });
  IdSketch last;
  const double sketch = best_of([&] {
    IdSketch s;
    s.add(ids);
    last = s;
  });
  const auto n = static_cast<double>(ids.size());
  std::printf(
      "%-24s %7.1f M ids/s  plain pass %7.1f M ids/s  ratio %5.1f  distinct %.4g +- %.2f %%\n",
      name, n / sketch / 1e6, n / pass / 1e6, sketch / pass, last.distinct(),
      100 * last.distinct_error());
}

}  // namespace

int main() {
  measure("zipf 1.05, 40 M rows", Access::zipf(40'000'000, 1.05));
  measure("zipf 1.2, 40 M rows", Access::zipf(40'000'000, 1.2));
  measure("zipf 0.8, 1 G rows", Access::zipf(1'000'000'000, 0.8));
  measure("uniform, 1 G rows", Access::uniform(1'000'000'000));
  measure("zipf 1.05, 50 k rows", Access::zipf(50'000, 1.05));
  return 0;
}
