#include "traces/events/oddities.h"

namespace stepcast::traces {
namespace {

struct Description {
  std::string_view name;
  std::string_view meaning;
};

Description description_of(ParseWarning kind) {
  switch (kind) {
    case ParseWarning::kOrphan:
      return {"orphan", "device work without the host call that launched it"};
    case ParseWarning::kLaunchWithoutWork:
      return {"launch-without-work", "launches whose device record is missing"};
    case ParseWarning::kOverlap:
      return {"overlap", "two pieces of work at once on one stream"};
    case ParseWarning::kBeforeLaunch:
      return {"before-launch", "device work that begins before its own launch"};
    case ParseWarning::kCrossing:
      return {"crossing", "host ranges of one thread that overlap without nesting"};
    case ParseWarning::kDropped:
      return {"dropped", "records that the profiler says it lost"};
    case ParseWarning::kDownsampled:
      return {"downsampled", "the profiler recorded only some of the events"};
    case ParseWarning::kNoTime:
      return {"no-time", "records without begin or duration; skipped"};
    case ParseWarning::kNegativeDuration:
      return {"negative-duration", "records that end before they begin; skipped"};
    case ParseWarning::kBadTime:
      return {"bad-time",
              "records whose times are no numbers, or a month from all others; skipped"};
    case ParseWarning::kRepeated:
      return {"repeated", "records that stand there twice; the second is skipped"};
    case ParseWarning::kOverrun:
      return {"overrun", "durations that run over several that follow on their stream; cut there"};
    case ParseWarning::kSubNanosecond:
      return {"sub-nanosecond", "times with digits below the nanosecond; rounded"};
    case ParseWarning::kBadText:
      return {"bad-text", "texts that are not valid UTF-8 or escapes; bytes replaced"};
    case ParseWarning::kUnknownCategory:
      return {"unknown-category", "events of a category unknown here; kept as other"};
    case ParseWarning::kUnreadRecord:
      return {"unread-record", "counters, instants and flows that the model does not hold"};
    case ParseWarning::kDuplicateCorrelation:
      return {"duplicate-correlation", "host calls with one correlation id; the first is taken"};
    case ParseWarning::kUnpairedWait:
      return {"unpaired-wait", "stream waits whose event record is not in the trace"};
    case ParseWarning::kUnsizedCollective:
      return {"unsized-collective", "collectives whose bytes the trace does not say"};
    case ParseWarning::kUnknownCollective:
      return {"unknown-collective", "collectives whose kind the trace does not say"};
    case ParseWarning::kRankGuessed:
      return {"rank-guessed", "ranks taken from a file name, not from metadata"};
    case ParseWarning::kMissingRank:
      return {"missing-rank", "ranks the trace names that were not given"};
    case ParseWarning::kClockApart:
      return {"clock-apart", "ranks whose records do not overlap in time"};
    case ParseWarning::kUnknownDependency:
      return {"unknown-dependency", "dependencies on nodes that are not there; left out"};
    case ParseWarning::kCount:
      break;
  }
  return {"?", "?"};
}

}  // namespace

std::string_view name_of(ParseWarning kind) { return description_of(kind).name; }
std::string_view meaning_of(ParseWarning kind) { return description_of(kind).meaning; }

void ParseWarnings::merge(const ParseWarnings& other) {
  for (std::size_t k = 0; k < entries_.size(); ++k) {
    add(
        static_cast<ParseWarning>(k), [&] { return other.entries_[k].example; },
        other.entries_[k].count);
  }
}

std::uint64_t ParseWarnings::total() const {
  std::uint64_t sum = 0;
  for (const Entry& e : entries_) {
    sum += e.count;
  }
  return sum;
}

}  // namespace stepcast::traces
