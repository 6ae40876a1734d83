#include "traces/events/profiler_records.h"

#include <utility>

#include "core/error.h"
#include "traces/events/host_calls.h"

namespace stepcast::traces {
namespace {

std::int32_t number_or_none(std::int64_t value) {
  return std::in_range<std::int32_t>(value) ? static_cast<std::int32_t>(value) : -1;
}

}  // namespace

ProfilerRecords::ProfilerRecords(Names& names, const std::string& source)
    : builder_(names, source) {
  rank().rank = -1;
}

std::uint16_t ProfilerRecords::lane_of(const Stream& stream) {
  return builder_.stream_lane(number_or_none(stream.device), number_or_none(stream.context),
                              number_or_none(stream.stream));
}

void ProfilerRecords::add(const Span& span, EventCategory category, std::uint16_t lane,
                          std::int32_t detail) {
  constexpr std::int64_t kLongest = std::int64_t{30} * 86400 * 1'000'000'000;
  ++rank().records[std::string(name_of(category))];
  if (span.begin < 0 || span.end < span.begin || span.end - span.begin > kLongest) {
    rank().oddities.add(ParseWarning::kNegativeDuration, [&] {
      return fmt::format("{}: '{}' from {} to {} ns", rank().source, span.name.substr(0, 40),
                         span.begin, span.end);
    });
    return;
  }
  builder_.add({.begin = Nanoseconds(span.begin),
                .duration = Nanoseconds(span.end - span.begin),
                .name = builder_.names().intern(span.name),
                .category = category,
                .lane = lane,
                .correlation = span.correlation,
                .detail = detail});
}

void ProfilerRecords::call(const Span& span, const Thread& thread) {
  add(span, EventCategory::kRuntimeCall, builder_.host_lane(thread.process, thread.thread),
      kNoDetail);
}

void ProfilerRecords::range(const Span& span, const Thread& thread) {
  add(span, EventCategory::kUserRange, builder_.host_lane(thread.process, thread.thread),
      kNoDetail);
}

void ProfilerRecords::python(const Span& span, const Thread& thread) {
  add(span, EventCategory::kPythonFunction, builder_.host_lane(thread.process, thread.thread),
      kNoDetail);
}

void ProfilerRecords::step(const Span& span, const Thread& thread, std::int64_t number) {
  const std::size_t before = rank().events.size();
  range(span, thread);
  if (rank().events.size() > before) {
    builder_.step(static_cast<EventId>(before), number);
  }
}

void ProfilerRecords::kernel(const Span& span, const Stream& stream, const LaunchInfo& launch) {
  const bool collective = is_collective_kernel(span.name);
  add(span, collective ? EventCategory::kCollective : EventCategory::kKernel, lane_of(stream),
      collective ? kNoDetail : builder_.launch(launch));
}

void ProfilerRecords::copy(const Span& span, const Stream& stream, EventCategory category,
                           std::int64_t bytes) {
  rank().copies.push_back({bytes, -1});
  add(span, category, lane_of(stream), static_cast<std::int32_t>(rank().copies.size() - 1));
}

void ProfilerRecords::synchronisation(const Span& span, const Stream& stream) {
  const bool all = stream.stream < 0;
  rank().syncs.push_back({all ? SyncInfo::Kind::kContextSync : SyncInfo::Kind::kStreamSync,
                          number_or_none(stream.stream), -1, -1, -1});
  add(span, EventCategory::kSync, lane_of(stream),
      static_cast<std::int32_t>(rank().syncs.size() - 1));
}

RankRecording ProfilerRecords::finish(std::int64_t base) && {
  if (rank().events.size() == 0) {
    throw InputError(rank().source, "holds no call, range, kernel or copy; was a device profiled?");
  }
  return std::move(builder_).finish(Nanoseconds(base));
}

}  // namespace stepcast::traces
