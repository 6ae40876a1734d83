#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "core/error.h"
#include "profiler/capture/captured_parts.h"

namespace stepcast::profiler {
namespace {

using traces::NameId;
using traces::Nanoseconds;
using traces::RankRecording;
using traces::Recording;

std::int64_t number(const RankRecording& rank, const char* key) {
  const auto found = rank.metadata.find(key);
  std::int64_t value = 0;
  if (found != rank.metadata.end()) {
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
  }
  return value;
}

std::uint64_t device_work(const RankRecording& rank) {
  return static_cast<std::uint64_t>(std::count_if(
      rank.events.category.begin(), rank.events.category.end(), traces::is_device_work));
}

void rename(RankRecording& rank, const std::vector<NameId>& to) {
  const auto one = [&to](NameId& id) { id = id == traces::kNoName ? id : to[id]; };
  for (NameId& id : rank.events.name) {
    one(id);
  }
  for (traces::Lane& lane : rank.lanes) {
    one(lane.name);
  }
  for (traces::OpInfo& op : rank.ops) {
    one(op.shapes);
    one(op.types);
    one(op.inputs);
  }
  for (traces::CollectiveInfo& c : rank.collectives) {
    one(c.name);
    one(c.dtype);
  }
}

void shift(RankRecording& rank, Nanoseconds by) {
  for (Nanoseconds& t : rank.events.begin) {
    t += by;
  }
  for (traces::StepRange& s : rank.steps) {
    s.begin += by;
    s.end += by;
  }
}

/// Each rank knows its own place in a communicator; together they know all.
void name_members(std::vector<RankRecording>& ranks) {
  std::map<std::string, std::vector<std::int32_t>> members;
  for (const RankRecording& rank : ranks) {
    for (const traces::Group& g : rank.groups) {
      auto& all = members.try_emplace(g.name, g.ranks).first->second;
      for (std::size_t i = 0; i < std::min(all.size(), g.ranks.size()); ++i) {
        all[i] = std::max(all[i], g.ranks[i]);
      }
    }
  }
  for (RankRecording& rank : ranks) {
    for (traces::Group& g : rank.groups) {
      g.ranks = members[g.name];
    }
    for (traces::CollectiveInfo& c : rank.collectives) {
      if (c.group >= 0 && c.peer >= 0) {
        const auto& of = rank.groups[static_cast<std::size_t>(c.group)].ranks;
        const auto peer = static_cast<std::size_t>(c.peer);
        c.peer = peer < of.size() ? of[peer] : -1;
      }
    }
    for (traces::Group& g : rank.groups) {
      if (std::count(g.ranks.begin(), g.ranks.end(), -1) > 0) {
        g.ranks.clear();  // some member was not captured
      }
    }
  }
}

std::int64_t own_rank(const RankRecording& rank, const traces::Group& group) {
  return number(rank, ("nccl.rank." + group.name).c_str());
}

/// For a process that knew none: that in its largest communicator, else the lowest.
std::int32_t free_rank(const RankRecording& rank, const std::set<std::int32_t>& taken) {
  const auto largest = std::max_element(
      rank.groups.begin(), rank.groups.end(),
      [](const traces::Group& a, const traces::Group& b) { return a.size < b.size; });
  if (largest != rank.groups.end()) {
    const auto own = static_cast<std::int32_t>(own_rank(rank, *largest));
    if (taken.count(own) == 0) {
      return own;
    }
  }
  std::int32_t lowest = 0;
  while (taken.count(lowest) > 0) {
    ++lowest;
  }
  return lowest;
}

/// Ranks each once; see merge_ranks.
void settle_ranks(std::vector<Recording>& parts, traces::ParseWarnings& oddities) {
  const auto rank_of = [](const Recording& r) -> const RankRecording& { return r.ranks.front(); };
  std::stable_sort(parts.begin(), parts.end(), [&](const Recording& a, const Recording& b) {
    return rank_of(a).rank != rank_of(b).rank ? rank_of(a).rank < rank_of(b).rank
                                              : device_work(rank_of(a)) > device_work(rank_of(b));
  });
  std::set<std::int32_t> taken;
  std::vector<Recording> kept, unknown;
  for (Recording& part : parts) {
    const RankRecording& rank = rank_of(part);
    if (rank.rank < 0) {
      unknown.push_back(std::move(part));
    } else if (taken.insert(rank.rank).second) {
      kept.push_back(std::move(part));
    } else {
      oddities.add(traces::ParseWarning::kRankGuessed, [&] {
        return fmt::format("{}: is rank {} too, with less device work; left out", rank.source,
                           rank.rank);
      });
    }
  }
  std::stable_sort(unknown.begin(), unknown.end(), [&](const Recording& a, const Recording& b) {
    return number(rank_of(a), "clock.realtime_ns") < number(rank_of(b), "clock.realtime_ns");
  });
  const bool alone = unknown.size() == 1 && kept.empty();
  for (Recording& part : unknown) {
    RankRecording& rank = part.ranks.front();
    const std::int32_t given = free_rank(rank, taken);
    taken.insert(given);
    rank.rank = given;
    for (traces::Group& g : rank.groups) {
      const auto own = static_cast<std::size_t>(own_rank(rank, g));
      if (own < g.ranks.size()) {
        g.ranks[own] = given;
      }
    }
    if (!alone) {
      rank.oddities.add(traces::ParseWarning::kRankGuessed,
                        [&] { return fmt::format("{}: taken for rank {}", rank.source, given); });
    }
    kept.push_back(std::move(part));
  }
  parts = std::move(kept);
  std::stable_sort(parts.begin(), parts.end(), [&](const Recording& a, const Recording& b) {
    return rank_of(a).rank < rank_of(b).rank;
  });
}

}  // namespace

Recording merge_ranks(std::vector<Recording> parts) {
  std::erase_if(parts, [](const Recording& r) { return r.ranks.size() != 1; });
  // A launcher may look at the devices of its ranks: that makes it none.
  const auto works = [](const Recording& r) { return device_work(r.ranks.front()) > 0; };
  if (std::any_of(parts.begin(), parts.end(), works)) {
    std::erase_if(parts,
                  [&works](const Recording& r) { return r.ranks.front().rank < 0 && !works(r); });
  }
  if (parts.empty()) {
    throw InputError("capture", "has no part; was anything recorded?");
  }
  Recording all;
  settle_ranks(parts, all.oddities);
  all.format = parts.front().format;
  all.producer = parts.front().producer;
  all.absolute = true;
  // One offset from the capture's clock to the time of day per boot of a machine.
  std::map<std::string, std::int64_t> offsets;
  std::vector<Nanoseconds> origins;
  for (const Recording& part : parts) {
    const RankRecording& rank = part.ranks.front();
    const auto boot = rank.metadata.find("clock.boot");
    const std::string key = boot == rank.metadata.end() ? rank.source : boot->second;
    const std::int64_t offset =
        number(rank, "clock.realtime_ns") - number(rank, "clock.capture_ns");
    origins.push_back(part.origin + Nanoseconds(offsets.try_emplace(key, offset).first->second));
  }
  all.origin = *std::min_element(origins.begin(), origins.end());
  std::int32_t world = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Recording& part = parts[i];
    std::vector<NameId> names;
    for (NameId n = 0; n < part.names.size(); ++n) {
      names.push_back(all.names.intern(part.names.view(n)));
    }
    RankRecording& rank = part.ranks.front();
    rename(rank, names);
    shift(rank, origins[i] - all.origin);
    world = std::max(world, rank.world_size);
    all.oddities.merge(part.oddities);
    all.ranks.push_back(std::move(rank));
  }
  const auto given = static_cast<std::int32_t>(all.ranks.size());
  for (RankRecording& rank : all.ranks) {
    rank.world_size = std::max(world, given);
  }
  if (world > given) {
    all.oddities.add(
        traces::ParseWarning::kMissingRank,
        [&] { return fmt::format("{} of {} ranks were captured", given, world); },
        static_cast<std::uint64_t>(world - given));
  }
  name_members(all.ranks);
  return all;
}

}  // namespace stepcast::profiler
