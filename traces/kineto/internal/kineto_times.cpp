#include <algorithm>

#include "core/error.h"
#include "traces/kineto/internal/decimal.h"
#include "traces/kineto/internal/kineto_rank.h"

namespace stepcast::traces::internal {
namespace {

constexpr Nanoseconds kLongestRecording = std::chrono::hours(24 * 30);

}  // namespace

bool KinetoRank::times(const RawEvent& e, std::uint64_t offset, Nanoseconds& begin,
                       Nanoseconds& duration) {
  ParseWarnings& oddities = builder_.rank().oddities;
  const bool whole = e.phase == 'X';  // else its end comes later
  if (e.begin.empty() || (whole && e.duration.empty())) {
    oddities.add(ParseWarning::kNoTime, [&] { return place(offset); });
    return false;
  }
  const auto at = nanoseconds_of_microseconds(e.begin);
  const auto lasts = whole ? nanoseconds_of_microseconds(e.duration) : DecimalTime{};
  if (!at || !lasts || Nanoseconds(lasts->nanoseconds) > kLongestRecording) {
    oddities.add(ParseWarning::kBadTime, [&] {
      return fmt::format("{}: {} '{}'", place(offset), at ? "dur" : "ts",
                         bare(at ? e.duration : e.begin).substr(0, 40));
    });
    return false;
  }
  if (at->rounded || lasts->rounded) {
    oddities.add(ParseWarning::kSubNanosecond, [&] { return place(offset); });
  }
  if (lasts->nanoseconds < 0) {
    oddities.add(ParseWarning::kNegativeDuration, [&] { return place(offset); });
    return false;
  }
  begin = Nanoseconds(at->nanoseconds);
  duration = Nanoseconds(lasts->nanoseconds);
  first_ = first_.value_or(begin);
  apart_ = apart_ || begin > *first_ + kLongestRecording || begin < *first_ - kLongestRecording;
  return true;
}

void KinetoRank::end_range(const RawEvent& e, std::uint64_t offset) {
  Events& events = builder_.rank().events;
  const auto open = open_.find({number_of(e.process), number_of(e.thread)});
  const auto at = nanoseconds_of_microseconds(e.begin);
  if (open == open_.end() || open->second.empty() || !at) {
    builder_.rank().oddities.add(ParseWarning::kNoTime, [&] { return place(offset); });
    return;
  }
  const EventId begun = open->second.back();
  open->second.pop_back();
  events.duration.set(begun,
                      std::max(Nanoseconds{0}, Nanoseconds(at->nanoseconds) - events.begin[begun]));
}

void KinetoRank::drop_far() {
  std::vector<Nanoseconds> begins = builder_.rank().events.begin;
  const auto middle = begins.begin() + static_cast<std::ptrdiff_t>(begins.size() / 2);
  std::nth_element(begins.begin(), middle, begins.end());
  std::size_t far = 0;
  Events& e = builder_.rank().events;
  for (EventId i = 0; i < e.size(); ++i) {
    if (e.begin[i] > *middle + kLongestRecording || e.begin[i] < *middle - kLongestRecording) {
      builder_.rank().oddities.add(ParseWarning::kBadTime, [&] {
        return fmt::format(
            "{}: '{}' {:.1f} days from most", input_.label(), names_.view(e.name[i]).substr(0, 40),
            (static_cast<double>(e.begin[i].count()) - static_cast<double>(middle->count())) /
                86400e9);
      });
      e.begin[i] = *middle;
      builder_.drop(i);
      ++far;
    }
  }
  if (10 * far > e.size()) {
    throw InputError(input_.label(),
                     fmt::format("{} of {} events are more than 30 days from the middle one; "
                                 "expected one run: a clock jumped, or files were joined",
                                 far, e.size()));
  }
}

}  // namespace stepcast::traces::internal
