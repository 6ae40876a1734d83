#include "traces/events/oddities.h"

namespace stepcast::traces {
namespace {

struct Description {
  std::string_view name;
  std::string_view meaning;
};

Description description_of(Oddity kind) {
  switch (kind) {
    case Oddity::kOrphan:
      return {"orphan", "device work without the host call that launched it"};
    case Oddity::kLaunchWithoutWork:
      return {"launch-without-work", "launches whose device record is missing"};
    case Oddity::kOverlap:
      return {"overlap", "two pieces of work at once on one stream"};
    case Oddity::kBeforeLaunch:
      return {"before-launch", "device work that begins before its own launch"};
    case Oddity::kCrossing:
      return {"crossing", "host ranges of one thread that overlap without nesting"};
    case Oddity::kDropped:
      return {"dropped", "records that the profiler says it lost"};
    case Oddity::kDownsampled:
      return {"downsampled", "the profiler recorded only some of the events"};
    case Oddity::kNoTime:
      return {"no-time", "records without begin or duration; skipped"};
    case Oddity::kNegativeDuration:
      return {"negative-duration", "records that end before they begin; skipped"};
    case Oddity::kSubNanosecond:
      return {"sub-nanosecond", "times with digits below the nanosecond; rounded"};
    case Oddity::kBadText:
      return {"bad-text", "texts that are not valid UTF-8 or escapes; bytes replaced"};
    case Oddity::kUnknownCategory:
      return {"unknown-category", "events of a category unknown here; kept as other"};
    case Oddity::kUnreadRecord:
      return {"unread-record", "counters, instants and flows that the model does not hold"};
    case Oddity::kDuplicateCorrelation:
      return {"duplicate-correlation", "host calls with one correlation id; the first is taken"};
    case Oddity::kUnpairedWait:
      return {"unpaired-wait", "stream waits whose event record is not in the trace"};
    case Oddity::kUnsizedCollective:
      return {"unsized-collective", "collectives whose bytes the trace does not say"};
    case Oddity::kUnknownCollective:
      return {"unknown-collective", "collectives whose kind the trace does not say"};
    case Oddity::kRankGuessed:
      return {"rank-guessed", "ranks taken from a file name, not from metadata"};
    case Oddity::kMissingRank:
      return {"missing-rank", "ranks the trace names that were not given"};
    case Oddity::kClockApart:
      return {"clock-apart", "ranks whose records do not overlap in time"};
    case Oddity::kUnknownDependency:
      return {"unknown-dependency", "dependencies on nodes that are not there; left out"};
    case Oddity::kCount:
      break;
  }
  return {"?", "?"};
}

}  // namespace

std::string_view name_of(Oddity kind) { return description_of(kind).name; }
std::string_view meaning_of(Oddity kind) { return description_of(kind).meaning; }

void Oddities::merge(const Oddities& other) {
  for (std::size_t k = 0; k < entries_.size(); ++k) {
    add(
        static_cast<Oddity>(k), [&] { return other.entries_[k].example; }, other.entries_[k].count);
  }
}

std::uint64_t Oddities::total() const {
  std::uint64_t sum = 0;
  for (const Entry& e : entries_) {
    sum += e.count;
  }
  return sum;
}

}  // namespace stepcast::traces
