#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace stepcast::traces {

/// Oddity that a reader met, could live with and did not hide. Anything worse is an InputError.
enum class ParseWarning : std::uint8_t {
  kOrphan,             ///< device work without the host call that launched it (before the window)
  kLaunchWithoutWork,  ///< a launch whose device record is missing: dropped or after the window
  kOverlap,            ///< two pieces of work at once on one stream
  kBeforeLaunch,       ///< device work that begins before its own launch: clocks disagree
  kCrossing,           ///< host ranges of one thread that overlap without nesting
  kDropped,            ///< records that the profiler itself says it lost
  kDownsampled,        ///< the profiler recorded only some of the events
  kNoTime,             ///< a record without begin or duration, or never finished; skipped
  kNegativeDuration,   ///< an end before its begin; skipped
  kBadTime,            ///< a time that is no number, or a month from all others; skipped
  kRepeated,           ///< a record that stands there twice; the second is skipped
  kOverrun,            ///< a duration that runs over several that follow on its stream; cut
  kSubNanosecond,      ///< digits below the nanosecond, rounded away
  kBadText,            ///< a text that is no valid UTF-8 or escape; bytes replaced
  kUnknownCategory,    ///< an event category this version does not know; kept as "other"
  kUnreadRecord,       ///< counters, instants, flows of other kinds: not part of the model
  kDuplicateCorrelation,  ///< two launches with one correlation id; the first is taken
  kUnpairedWait,          ///< a stream waits for an event whose record is not in the trace
  kUnsizedCollective,     ///< a collective whose bytes the trace does not say
  kUnknownCollective,     ///< a collective whose kind its name does not say
  kRankGuessed,           ///< the rank stands in no metadata; taken from the file's name or order
  kMissingRank,           ///< the trace names more ranks than were given
  kClockApart,            ///< ranks whose records do not overlap in time at all
  kUnknownDependency,  ///< a node that names a predecessor which is not there; the edge is left out
  kCount
};
/// "orphan", "overlap", ... as printed and written.
std::string_view name_of(ParseWarning kind);
/// One line that says what it means for the reader of a report.
std::string_view meaning_of(ParseWarning kind);

/// Counts by kind, with the first of each as an example ("worker1.json.gz: byte 3021: ...").
class ParseWarnings {
 public:
  struct Entry {
    std::uint64_t count = 0;
    std::string example;
  };
  /// `example` is called only for the first of its kind.
  template <typename Example>
  void add(ParseWarning kind, Example&& example, std::uint64_t count = 1) {
    Entry& e = entries_[static_cast<std::size_t>(kind)];
    if (e.count == 0 && count > 0) {
      e.example = example();
    }
    e.count += count;
  }
  void merge(const ParseWarnings& other);
  [[nodiscard]] const Entry& operator[](ParseWarning kind) const {
    return entries_[static_cast<std::size_t>(kind)];
  }
  [[nodiscard]] std::uint64_t total() const;

 private:
  std::array<Entry, static_cast<std::size_t>(ParseWarning::kCount)> entries_;
};

}  // namespace stepcast::traces
