#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "profiler/cupti/record_parser.h"
#include "traces/events/host_calls.h"

namespace stepcast::profiler::cupti {
namespace {

using traces::EventCategory;
using traces::Nanoseconds;
using traces::NewEvent;
using traces::ParseWarning;
using traces::SyncInfo;

constexpr std::string_view kStepMark = "ProfilerStep#";

std::int32_t small(std::uint32_t id) {
  return id <= INT32_MAX ? static_cast<std::int32_t>(id) : -1;
}

template <class Map>
std::int64_t find_or(const Map& map, std::uint32_t key, std::int64_t otherwise) {
  const auto found = map.find(key);
  return found == map.end() ? otherwise : static_cast<std::int64_t>(found->second);
}

}  // namespace

std::uint32_t RecordParser::joined(std::uint32_t correlation) const {
  const auto outer = outer_.find(correlation);
  return outer == outer_.end() ? correlation : outer->second;
}

std::int32_t RecordParser::device_of(std::uint32_t context) const {
  return static_cast<std::int32_t>(find_or(devices_, context, -1));
}

std::int32_t RecordParser::stream_number(std::uint32_t context, std::uint32_t stream) {
  if (stream == CUPTI_SYNCHRONIZATION_INVALID_VALUE || stream > INT32_MAX) {
    return -1;
  }
  const auto [found, fresh] = streams_.try_emplace({context, stream}, 0);
  if (fresh) {
    auto number = static_cast<std::int32_t>(stream);
    if (!stream_taken_.try_emplace(number, context).second) {
      number = stream_taken_.rbegin()->first;
      number = number < INT32_MAX ? number + 1 : -1;
      stream_taken_.try_emplace(number, context);
    }
    found->second = number;
  }
  return found->second;
}

/// Driver calls within a runtime call of their thread: what they launched, the runtime call did.
void RecordParser::join_nested_calls() {
  std::stable_sort(apis_.begin(), apis_.end(), [](const Api& a, const Api& b) {
    return std::tuple(a.process, a.thread, a.begin, -a.end, !a.runtime) <
           std::tuple(b.process, b.thread, b.begin, -b.end, !b.runtime);
  });
  std::uint64_t nested = 0;
  const Api* around = nullptr;
  std::vector<Api> kept;
  kept.reserve(apis_.size());
  for (const Api& api : apis_) {
    const bool inside = around != nullptr && around->thread == api.thread &&
                        around->process == api.process && api.end <= around->end;
    if (inside && !api.runtime) {
      ++nested;
      if (api.correlation != around->correlation) {
        outer_[api.correlation] = around->correlation;
        if (const auto op = op_ids_.find(api.correlation); op != op_ids_.end()) {
          op_ids_.try_emplace(around->correlation, op->second);
        }
        if (const auto call = nccl_ids_.find(api.correlation); call != nccl_ids_.end()) {
          nccl_ids_.try_emplace(around->correlation, call->second);
        }
      }
      continue;
    }
    if (api.runtime && !inside) {
      around = &api;
    }
    kept.push_back(api);
  }
  apis_ = std::move(kept);
  if (nested > 0) {
    builder_->rank().records["driver calls within runtime calls"] = nested;
  }
}

void RecordParser::cut(const CaptureFacts& facts) {
  std::unordered_map<std::uint32_t, std::int64_t> called;  // by correlation: begin of the call
  for (const Api& api : apis_) {
    called[api.correlation] = api.begin;
  }
  const auto within = [&facts](std::int64_t t) { return t >= facts.begin && t < facts.end; };
  std::uint64_t outside = 0;
  const auto drop = [&outside](auto& list, const auto& outside_window) {
    outside += std::erase_if(list, outside_window);
  };
  drop(work_, [&](const Work& w) {
    const auto call = called.find(joined(w.correlation));
    const bool known = call != called.end();
    return !(known && within(call->second)) &&
           ((known && call->second >= facts.end) || w.end <= facts.begin || w.begin >= facts.end);
  });
  drop(syncs_, [&](const Sync& s) {
    const auto call = called.find(joined(s.correlation));
    return !within(call == called.end() ? s.begin : call->second);
  });
  drop(apis_, [&](const Api& a) { return !within(a.begin); });
  drop(ranges_, [&](const Range& r) { return !within(r.begin); });
  if (outside > 0) {
    builder_->rank().records["outside the window"] = outside;
  }
}

void RecordParser::name_calls_in_windows() {
  std::sort(windows_.begin(), windows_.end(),
            [](const OpWindow& a, const OpWindow& b) { return a.begin < b.begin; });
  for (const Api& api : apis_) {
    const auto next =
        std::upper_bound(windows_.begin(), windows_.end(), api.begin,
                         [](std::int64_t t, const OpWindow& w) { return t < w.begin; });
    if (next != windows_.begin() && api.begin < (next - 1)->end) {
      op_ids_.try_emplace(joined(api.correlation), (next - 1)->op);
    }
  }
}

void RecordParser::write_calls() {
  for (const Api& api : apis_) {
    builder_->add({.begin = Nanoseconds(api.begin),
                   .duration = Nanoseconds(api.end - api.begin),
                   .name = api.name,
                   .category = EventCategory::kRuntimeCall,
                   .lane = builder_->host_lane(api.process, api.thread),
                   .correlation = api.correlation,
                   .external = find_or(op_ids_, api.correlation, -1)});
  }
}

void RecordParser::write_work() {
  // Streams are numbered in order of their first work, so that the same records give the same
  // bytes.
  std::stable_sort(work_.begin(), work_.end(),
                   [](const Work& a, const Work& b) { return a.begin < b.begin; });
  std::map<std::pair<std::uint64_t, OpKind>, std::vector<std::size_t>> by_launch;
  const auto kind_of = [this](const Work& w) {
    return traces::collective_kind_of(recording_.names.view(w.name)).value_or(OpKind::kCount);
  };
  for (std::size_t i = 0; i < work_.size(); ++i) {
    const auto launch = nccl_ids_.find(joined(work_[i].correlation));
    if (work_[i].category == EventCategory::kCollective && launch != nccl_ids_.end()) {
      by_launch[{launch->second, kind_of(work_[i])}].push_back(i);
    }
  }
  for (const auto& [key, kernels] : by_launch) {
    for (std::size_t nth = 0; nth < kernels.size(); ++nth) {
      work_[kernels[nth]].detail =
          nccl_.detail_of(*builder_, key.first, key.second, nth, kernels.size());
    }
  }
  for (const Work& w : work_) {
    const std::uint32_t correlation = joined(w.correlation);
    const auto node = node_ops_.find(w.node);
    builder_->add({.begin = Nanoseconds(w.begin),
                   .duration = Nanoseconds(w.end - w.begin),
                   .name = w.name,
                   .category = w.category,
                   .lane = builder_->stream_lane(small(w.device), small(w.context),
                                                 stream_number(w.context, w.stream)),
                   .correlation = correlation,
                   .external = node != node_ops_.end() ? static_cast<std::int64_t>(node->second)
                                                       : find_or(op_ids_, correlation, -1),
                   .detail = w.detail});
  }
}

void RecordParser::write_syncs() {
  traces::RankRecording& rank = builder_->rank();
  std::unordered_map<std::uint64_t, const Recorded*> by_sync;
  for (const Recorded& r : records_) {
    by_sync[r.sync_id] = &r;
  }
  std::unordered_map<std::uint32_t, std::int64_t> called;
  for (const Api& api : apis_) {
    called[api.correlation] = api.begin;
  }
  const auto lane = [this](std::uint32_t context, std::int32_t stream) {
    return builder_->stream_lane(device_of(context), small(context), stream);
  };
  const auto add = [&](NewEvent event, const SyncInfo& info) {
    rank.syncs.push_back(info);
    event.detail = static_cast<std::int32_t>(rank.syncs.size() - 1);
    builder_->add(event);
  };
  for (const Recorded& r : records_) {
    const std::uint32_t correlation = joined(r.correlation);
    const auto call = called.find(correlation);
    if (call == called.end()) {
      continue;  // outside the window; it may still be waited for
    }
    const std::int32_t stream = stream_number(r.context, r.stream);
    add({.begin = Nanoseconds(call->second),
         .name = recording_.names.intern("event record"),
         .category = EventCategory::kEventRecord,
         .lane = lane(r.context, stream),
         .correlation = correlation},
        {SyncInfo::Kind::kRecord, stream, -1, r.event, correlation});
  }
  for (const Sync& s : syncs_) {
    SyncInfo info{s.kind, stream_number(s.context, s.stream), -1, -1, -1};
    const bool of_event =
        s.kind == SyncInfo::Kind::kStreamWait || s.kind == SyncInfo::Kind::kEventSync;
    if (of_event) {
      info.event = s.event == CUPTI_SYNCHRONIZATION_INVALID_VALUE ? -1 : std::int64_t{s.event};
      const auto recorded = by_sync.find(s.sync_id);
      if (recorded != by_sync.end()) {
        info.source_stream = stream_number(recorded->second->context, recorded->second->stream);
        info.record_correlation = joined(recorded->second->correlation);
      } else if (s.kind == SyncInfo::Kind::kStreamWait) {
        rank.oddities.add(ParseWarning::kUnpairedWait, [&] {
          return fmt::format("{}: stream {} waits for event {}", rank.source, info.stream,
                             info.event);
        });
      }
    }
    constexpr std::array<std::string_view, 5> kNames{"event record", "stream wait event",
                                                     "event synchronize", "stream synchronize",
                                                     "context synchronize"};
    add({.begin = Nanoseconds(s.begin),
         .duration = Nanoseconds(s.end - s.begin),
         .name = recording_.names.intern(kNames[static_cast<std::size_t>(s.kind)]),
         .category = EventCategory::kSync,
         .lane = lane(s.context, info.stream),
         .correlation = joined(s.correlation)},
        info);
  }
}

void RecordParser::write_ranges(const CaptureFacts& facts) {
  const auto process = static_cast<std::uint32_t>(facts.process);
  // A step that was seen while the program ran stands for the range that marked it.
  StepNames names(facts.mark);
  for (Range& r : ranges_) {
    if (r.category != EventCategory::kUserRange) {
      continue;
    }
    const std::string_view name = recording_.names.view(r.name);
    if (!facts.steps.empty()) {
      if (name.starts_with(kStepMark)) {
        r.name = traces::kNoName;
      }
    } else if (const auto step = names.step(name)) {
      r.name = recording_.names.intern(fmt::format("{}{}", kStepMark, *step));
    }
  }
  std::erase_if(ranges_, [](const Range& r) { return r.name == traces::kNoName; });
  for (const StepMark& s : facts.steps) {
    if (s.end >= s.begin) {
      ranges_.push_back({s.begin, s.end, process, static_cast<std::uint32_t>(s.thread), 0,
                         recording_.names.intern(fmt::format("{}{}", kStepMark, s.number)),
                         EventCategory::kUserRange});
    }
  }
  for (const Range& r : ranges_) {
    builder_->add({.begin = Nanoseconds(r.begin),
                   .duration = Nanoseconds(r.end - r.begin),
                   .name = r.name,
                   .category = r.category,
                   .lane = builder_->host_lane(r.process == 0 ? process : r.process, r.thread),
                   .correlation = joined(r.correlation)});
  }
  if (!open_.empty()) {
    builder_->rank().records["ranges still open"] = open_.size();
  }
}

traces::Recording RecordParser::finish(const CaptureFacts& facts) && {
  join_nested_calls();
  name_calls_in_windows();
  cut(facts);
  traces::RankRecording& rank = builder_->rank();
  rank.rank = facts.rank;
  rank.world_size = facts.world_size;
  rank.metadata.insert(facts.metadata.begin(), facts.metadata.end());
  rank.metadata["clock.capture_ns"] = std::to_string(facts.first.capture);
  rank.metadata["clock.realtime_ns"] = std::to_string(facts.first.realtime);
  rank.metadata["clock.drift_ns"] = std::to_string((facts.last.realtime - facts.first.realtime) -
                                                   (facts.last.capture - facts.first.capture));
  rank.oddities.add(
      ParseWarning::kDropped, [&] { return fmt::format("{}: CUPTI's own count", rank.source); },
      facts.dropped);
  nccl_.write(*builder_, facts.process, facts.rank, facts.begin, facts.end);
  write_work();
  write_calls();
  write_syncs();
  write_ranges(facts);
  const auto& begins = rank.events.begin;
  const Nanoseconds origin =
      begins.empty() ? Nanoseconds(0) : *std::min_element(begins.begin(), begins.end());
  recording_.format = "cupti";
  recording_.origin = origin;
  recording_.ranks.push_back(std::move(*builder_).finish(-origin));
  return std::move(recording_);
}

}  // namespace stepcast::profiler::cupti
