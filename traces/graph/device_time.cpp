#include "traces/graph/device_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "core/error.h"
#include "traces/graph/operator_join.h"
#include "traces/graph/step_marks.h"

namespace stepcast::traces {
namespace {

constexpr std::string_view kModule = "nn.Module: ";

/// The module or range that each host event lies in.
class Modules {
 public:
  Modules(const Recording& recording, const RankRecording& rank)
      : names_(recording.names), e_(rank.events), of_(e_.size(), kNoName) {
    std::unordered_map<std::int64_t, NameId> forward;  // by sequence number
    for (int pass = 0; pass < 2; ++pass) {
      for (const Lane& lane : rank.lanes) {
        if (lane.kind == Lane::Kind::kHostThread) {
          read(rank, lane, pass == 0, forward);
        }
      }
    }
  }
  [[nodiscard]] std::string_view of(EventId host) const {
    return host == kNoEvent || of_[host] == kNoName ? std::string_view("(none)")
                                                    : names_.view(of_[host]);
  }

 private:
  struct Open {
    Nanoseconds end;
    NameId module, range;
  };

  /// First forward operators tell their module, then backward ones take it over.
  void read(const RankRecording& rank, const Lane& lane, bool forward_pass,
            std::unordered_map<std::int64_t, NameId>& forward) {
    std::vector<Open> open;
    for (EventId i = lane.first; i < lane.first + lane.count; ++i) {
      while (!open.empty() && open.back().end <= e_.begin[i]) {
        open.pop_back();
      }
      Open here{e_.end(i), open.empty() ? kNoName : open.back().module,
                open.empty() ? kNoName : open.back().range};
      const std::string_view name = names_.view(e_.name[i]);
      if (e_.category[i] == EventCategory::kPythonFunction && name.starts_with(kModule)) {
        here.module = e_.name[i];
      } else if (e_.category[i] == EventCategory::kUserRange &&
                 !name.starts_with("ProfilerStep#")) {
        here.range = e_.name[i];
      } else if (e_.category[i] == EventCategory::kCpuOp && e_.detail[i] != kNoDetail) {
        const OpInfo& op = rank.ops[static_cast<std::size_t>(e_.detail[i])];
        const NameId told = here.module != kNoName ? here.module : here.range;
        if (op.sequence >= 0 && forward_pass && told != kNoName) {
          forward.try_emplace(op.sequence, told);
        } else if (const auto found = forward.find(op.sequence);
                   op.sequence >= 0 && !forward_pass && found != forward.end() &&
                   here.module == kNoName && op.forward_thread > 0) {
          here.module = found->second;
        }
      }
      of_[i] = here.module != kNoName ? here.module : here.range;
      open.push_back(here);
    }
  }

  const Names& names_;
  const Events& e_;
  std::vector<NameId> of_;  ///< by event
};

struct Sums {
  double launches = 0, nanoseconds = 0;
};

void add_rank(const Recording& recording, const RankRecording& rank, TimeBy by, Nanoseconds from,
              Nanoseconds to, std::map<std::string, Sums>& sums) {
  const OperatorJoin operators(recording, rank);
  const Modules modules(recording, rank);
  const Events& e = rank.events;
  for (EventId i = 0; i < e.size(); ++i) {
    const Nanoseconds at = e.link[i] == kNoEvent ? e.begin[i] : e.begin[e.link[i]];
    if (!is_device_work(e.category[i]) || at < from || at >= to) {
      continue;
    }
    const Lane& lane = rank.lanes[e.lane[i]];
    Sums& sum =
        sums[by == TimeBy::kKind     ? std::string(name_of(operators.kind_of(i).kind))
             : by == TimeBy::kModule ? std::string(modules.of(e.link[i]))
                                     : fmt::format("device {} stream {}", lane.device, lane.stream)];
    sum.launches += 1;
    sum.nanoseconds += static_cast<double>(e.duration[i].count());
  }
}

}  // namespace

std::vector<DeviceTime> device_time_by(const Recording& recording, TimeBy by, std::string_view mark,
                                       std::optional<std::int32_t> rank) {
  const StepMarks marks = step_marks(recording, mark);
  std::map<std::string, Sums> sums;
  bool found = false;
  double steps = 1;
  for (std::size_t r = 0; r < recording.ranks.size(); ++r) {
    if ((rank && recording.ranks[r].rank != *rank) || marks.ranks[r].empty()) {
      continue;
    }
    found = true;
    const std::vector<StepRange>& windows = marks.ranks[r];
    const std::size_t first = windows.size() > 1 ? 1 : 0;
    steps = static_cast<double>(windows.size() - first);
    add_rank(recording, recording.ranks[r], by, windows[first].begin, windows.back().end, sums);
  }
  if (!found) {
    throw InputError("--rank", rank ? fmt::format("found {}, which is not in the trace", *rank)
                                    : "the trace holds no step");
  }
  std::vector<DeviceTime> all;
  for (const auto& [name, sum] : sums) {
    all.push_back({name, sum.launches / steps, sum.nanoseconds / steps});
  }
  std::stable_sort(all.begin(), all.end(), [](const DeviceTime& a, const DeviceTime& b) {
    return a.nanoseconds > b.nanoseconds;
  });
  return all;
}

}  // namespace stepcast::traces
