#include "traces/events/edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "traces/events/host_calls.h"
#include "traces/graph/step_marks.h"

namespace stepcast::traces {
namespace {

template <typename Column>
void keep(Column& column, const std::vector<bool>& kept) {
  Column left;
  for (std::size_t i = 0; i < column.size(); ++i) {
    if (kept[i]) {
      left.push_back(column[i]);
    }
  }
  column = std::move(left);
}

void keep_events(RankRecording& rank, const std::vector<bool>& kept) {
  Events& e = rank.events;
  std::vector<EventId> place(e.size(), kNoEvent);
  EventId next = 0;
  for (EventId i = 0; i < e.size(); ++i) {
    place[i] = kept[i] ? next++ : kNoEvent;
  }
  for (Lane& lane : rank.lanes) {
    const EventId end = lane.first + lane.count;
    const auto count =
        static_cast<std::uint32_t>(std::count(kept.begin() + lane.first, kept.begin() + end, true));
    EventId before = lane.first;
    while (before < kept.size() && !kept[before]) {
      ++before;
    }
    lane.first = before < kept.size() ? place[before] : next;
    lane.count = count;
  }
  Dependencies left;
  left.added = rank.dependencies.added;
  if (!rank.dependencies.offsets.empty()) {
    left.offsets.push_back(0);
    for (EventId i = 0; i < e.size(); ++i) {
      if (!kept[i]) {
        continue;
      }
      for (std::uint32_t d = rank.dependencies.offsets[i]; d < rank.dependencies.offsets[i + 1];
           ++d) {
        if (kept[rank.dependencies.targets[d]]) {
          left.targets.push_back(place[rank.dependencies.targets[d]]);
          left.kinds.push_back(rank.dependencies.kinds[d]);
        }
      }
      left.offsets.push_back(static_cast<std::uint32_t>(left.targets.size()));
    }
  }
  rank.dependencies = std::move(left);
  for (EventId& link : e.link) {
    link = link == kNoEvent ? kNoEvent : place[link];
  }
  std::erase_if(rank.steps, [&kept](const StepRange& s) { return !kept[s.event]; });
  for (StepRange& s : rank.steps) {
    s.event = place[s.event];
  }
  e.each_column([&kept](auto& column) { keep(column, kept); });
  keep(e.link, kept);
}

/// Rows of a detail table that are still named, in order of first use.
template <typename T>
class Used {
 public:
  explicit Used(std::vector<T>& table) : table_(table), place_(table.size(), kNoDetail) {}
  void keep(std::int32_t& row) {
    if (row == kNoDetail) {
      return;
    }
    std::int32_t& place = place_[static_cast<std::size_t>(row)];
    if (place == kNoDetail) {
      place = static_cast<std::int32_t>(kept_.size());
      kept_.push_back(std::move(table_[static_cast<std::size_t>(row)]));
    }
    row = place;
  }
  void finish() { table_ = std::move(kept_); }

 private:
  std::vector<T>& table_;
  std::vector<std::int32_t> place_;
  std::vector<T> kept_;
};

/// Drops rows of tables that no event names any more.
void prune_tables(RankRecording& rank) {
  Used ops(rank.ops);
  Used launches(rank.launches);
  Used copies(rank.copies);
  Used collectives(rank.collectives);
  Used syncs(rank.syncs);
  Events& e = rank.events;
  for (EventId i = 0; i < e.size(); ++i) {
    switch (e.category[i]) {
      case EventCategory::kCpuOp:
      case EventCategory::kUserRange:
        ops.keep(e.detail[i]);
        break;
      case EventCategory::kKernel:
        launches.keep(e.detail[i]);
        break;
      case EventCategory::kCollective:
        collectives.keep(e.detail[i]);
        break;
      case EventCategory::kMemcpy:
      case EventCategory::kMemset:
        copies.keep(e.detail[i]);
        break;
      case EventCategory::kSync:
      case EventCategory::kEventRecord:
        syncs.keep(e.detail[i]);
        break;
      default:
        break;
    }
  }
  ops.finish();
  for (OpInfo& op : rank.ops) {
    collectives.keep(op.collective);
  }
  launches.finish();
  copies.finish();
  collectives.finish();
  syncs.finish();
}

/// Drops texts that nothing names any more.
void prune_names(Recording& recording) {
  Names names;
  const auto keep_name = [&](NameId& id) {
    id = id == kNoName ? kNoName : names.intern(recording.names.view(id));
  };
  for (RankRecording& rank : recording.ranks) {
    std::for_each(rank.events.name.begin(), rank.events.name.end(), keep_name);
    for (Lane& lane : rank.lanes) {
      keep_name(lane.name);
    }
    for (OpInfo& op : rank.ops) {
      keep_name(op.shapes);
      keep_name(op.types);
      keep_name(op.inputs);
    }
    for (CollectiveInfo& c : rank.collectives) {
      keep_name(c.name);
      keep_name(c.dtype);
    }
  }
  recording.names = std::move(names);
}

}  // namespace

void add_loss(Losses& losses, std::string what, std::uint64_t count) {
  if (count > 0) {
    losses.push_back({std::move(what), count});
  }
}

namespace {

/// For our own runtime, whose records name their steps.
GraphRun cut_own(GraphRun trace, std::int64_t first, std::int64_t last) {
  const auto beyond = [&](const auto& record) {
    return record.step < first || record.step >= last;
  };
  for (RankTrace& rank : trace.ranks) {
    std::erase_if(rank.ops, beyond);
    std::erase_if(rank.host, beyond);
    std::erase_if(rank.steps, beyond);
    if (rank.ops.empty()) {
      throw InputError("--steps", fmt::format("found {}:{}; rank {} has nothing of them", first,
                                              last, rank.rank));
    }
  }
  return trace;
}

}  // namespace

void cut_steps(Recording& recording, std::int64_t first, std::int64_t last) {
  if (recording.own != nullptr) {
    recording.own = std::make_shared<const GraphRun>(cut_own(*recording.own, first, last));
    return;
  }
  const StepMarks marks = step_marks(recording, {});
  for (std::size_t r = 0; r < recording.ranks.size(); ++r) {
    RankRecording& rank = recording.ranks[r];
    const bool marked = !rank.steps.empty();  // also where they launched no device work
    const std::vector<StepRange>& steps = marked ? rank.steps : marks.ranks[r];
    const std::int64_t count = marked || !marks.by.empty() ? std::ssize(steps) : 0;
    if (first >= count) {
      throw InputError(
          "--steps", fmt::format("found {}:{}; {} has {} steps", first, last, rank.source, count));
    }
    const Nanoseconds begin = steps[static_cast<std::size_t>(first)].begin;
    const std::int64_t final_step = std::min(last, count) - 1;
    const Nanoseconds end = final_step + 1 < count
                                ? steps[static_cast<std::size_t>(final_step + 1)].begin
                                : steps[static_cast<std::size_t>(final_step)].end;
    const Events& e = rank.events;
    std::vector<bool> kept(e.size());
    for (EventId i = 0; i < e.size(); ++i) {
      const EventId call = on_device(e.category[i]) ? e.link[i] : kNoEvent;
      const Nanoseconds at = call == kNoEvent ? e.begin[i] : e.begin[call];
      kept[i] = at >= begin && at < end;
    }
    keep_events(rank, kept);
    prune_tables(rank);
  }
  prune_names(recording);
}

void anonymize(Recording& recording) {
  Names names;
  std::map<std::pair<EventCategory, NameId>, NameId> renamed;
  std::map<EventCategory, std::uint64_t> next;
  const auto name_for = [&](EventCategory category, NameId id) {
    const auto [it, fresh] = renamed.try_emplace({category, id}, kNoName);
    if (!fresh) {
      return it->second;
    }
    const std::string_view text = recording.names.view(id);
    const bool words_of_the_api =
        category == EventCategory::kRuntimeCall || category == EventCategory::kSync ||
        text.starts_with("ProfilerStep#") ||
        (category == EventCategory::kCollective && is_collective_kernel(text)) ||
        text.starts_with("nccl:") || text == "record_param_comms" ||
        category == EventCategory::kMemcpy || category == EventCategory::kMemset;
    it->second =
        names.intern(words_of_the_api ? std::string(text)
                                      : fmt::format("{} {}", name_of(category), ++next[category]));
    return it->second;
  };
  const auto same = [&](NameId id) {
    return id == kNoName ? kNoName : names.intern(recording.names.view(id));
  };
  for (RankRecording& rank : recording.ranks) {
    Events& e = rank.events;
    for (EventId i = 0; i < e.size(); ++i) {
      e.name[i] = name_for(e.category[i], e.name[i]);
      if (e.category[i] == EventCategory::kKernel) {
        e.detail[i] = kNoDetail;  // a grid tells the shape
      }
    }
    rank.launches.clear();
    for (Lane& lane : rank.lanes) {
      lane.name = kNoName;
      if (lane.kind == Lane::Kind::kHostThread) {
        lane.process = rank.rank;
        lane.thread = &lane - rank.lanes.data();
      }
    }
    for (OpInfo& op : rank.ops) {
      op.shapes = op.types = op.inputs = kNoName;
      op.forward_thread = -1;
    }
    for (CollectiveInfo& c : rank.collectives) {
      c.dtype = same(c.dtype);
      c.name = c.kind == OpKind::kCount ? kNoName : names.intern(name_of(c.kind));
    }
    for (Group& g : rank.groups) {
      g.name = fmt::format("group {}", &g - rank.groups.data());
      g.description.clear();
    }
    rank.node_fields.clear();
    rank.metadata.clear();
    rank.devices.clear();
    rank.oddities = {};
    rank.source = fmt::format("rank {}", rank.rank);
  }
  recording.names = std::move(names);
  recording.oddities = {};
  recording.job.clear();
  recording.producer.clear();
  recording.origin = Nanoseconds{0};  // not even the day
  recording.absolute = false;
}

}  // namespace stepcast::traces
