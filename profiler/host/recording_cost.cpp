#include "profiler/host/recording_cost.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "core/graph/observer.h"
#include "core/statistics.h"

namespace stepcast::profiler {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBlocks = 41;
constexpr std::size_t kPerBlock = 512;

double nanoseconds_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double, std::nano>(b - a).count();
}

}  // namespace

RecordingCost recording_cost() {
  std::vector<OpSpan> records;
  records.reserve(kBlocks * kPerBlock);
  std::vector<double> clock, both;
  for (std::size_t block = 0; block < kBlocks; ++block) {
    Clock::time_point begin = Clock::now(), last = begin;
    for (std::size_t i = 0; i < kPerBlock; ++i) {
      last = Clock::now();
    }
    clock.push_back(nanoseconds_between(begin, last) / kPerBlock);
    begin = Clock::now();
    for (std::size_t i = 0; i < kPerBlock; ++i) {
      last = Clock::now();
      OpSpan span;
      span.begin = SimTime{last.time_since_epoch().count()};
      records.push_back(span);
    }
    both.push_back(nanoseconds_between(begin, Clock::now()) / kPerBlock);
  }
  const double reading = median_of(clock);
  return {nanoseconds(reading), nanoseconds(std::max(0.0, median_of(both) - reading))};
}

}  // namespace stepcast::profiler
