#include "profiler/capture/device_times.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace stepcast::profiler {
namespace {

using traces::EventId;
using traces::Nanoseconds;

struct Measured {
  Nanoseconds issued = Nanoseconds::max(), begin = Nanoseconds::max(), end = Nanoseconds::min();
};

SimTime time_of(Nanoseconds t) { return SimTime{t.count() * 1000}; }

}  // namespace

std::uint64_t op_id(OpRef ref) { return (std::uint64_t{ref.call} << 32) | ref.op; }

DeviceTimes take_device_times(traces::RankTrace& rank, const Program& program,
                              const traces::Recording& recording, Nanoseconds epoch) {
  DeviceTimes found;
  std::map<std::pair<std::int32_t, std::int64_t>, Measured> measured;  // by step and op
  for (const traces::RankRecording& recorded : recording.ranks) {
    const traces::Events& e = recorded.events;
    found.dropped += recorded.oddities[traces::ParseWarning::kDropped].count;
    for (EventId i = 0; i < e.size(); ++i) {
      if (!traces::is_device_work(e.category[i])) {
        continue;
      }
      const auto on_trace = [&](Nanoseconds t) { return t + recording.origin - epoch; };
      const bool known = e.link[i] != traces::kNoEvent;
      const Nanoseconds called = on_trace(e.begin[known ? e.link[i] : i]);
      const auto next =
          std::upper_bound(rank.steps.begin(), rank.steps.end(), time_of(called),
                           [](SimTime t, const traces::StepMark& mark) { return t < mark.begin; });
      if (next == rank.steps.begin()) {
        continue;  // of the warm-up
      }
      if (!known || e.external[i] < 0) {
        ++found.unnamed;
        continue;
      }
      Measured& m = measured[{(next - 1)->step, e.external[i]}];
      m.issued = std::min(m.issued, called);
      m.begin = std::min(m.begin, on_trace(e.begin[i]));
      m.end = std::max(m.end, on_trace(e.end(i)));
    }
  }
  std::vector<SimTime> free(program.streams.size());
  for (OpSpan& span : rank.ops) {
    SimTime& before = free.at(program.ops.at(span.ref.op).stream);
    const auto m = measured.find({span.step, static_cast<std::int64_t>(op_id(span.ref))});
    if (m == measured.end()) {
      ++found.without;
      span.begin = span.ready = span.end = std::max(span.issued, before);
      continue;
    }
    ++found.ops;
    span.issued = time_of(m->second.issued);
    span.begin = span.ready = time_of(m->second.begin);
    span.end = time_of(m->second.end);
    before = std::max(before, span.end);
  }
  rank.dropped += found.dropped;
  return found;
}

}  // namespace stepcast::profiler
