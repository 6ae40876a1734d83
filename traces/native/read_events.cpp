#include <charconv>

#include "core/input/csv.h"
#include "traces/events/internal/link_events.h"
#include "traces/native/internal/event_tables.h"

namespace stepcast::traces::internal {
namespace {

using Node = JsonNode;

ParseWarning oddity_named(const std::string& name) {
  for (std::size_t k = 0; k < static_cast<std::size_t>(ParseWarning::kCount); ++k) {
    if (name_of(static_cast<ParseWarning>(k)) == name) {
      return static_cast<ParseWarning>(k);
    }
  }
  return ParseWarning::kCount;
}

void read_oddities(const Node& node, ParseWarnings& to) {
  for (const auto& [key, value] : node.object().items()) {
    const ParseWarning kind = oddity_named(key);
    const Node entry = node.member(key);
    if (kind == ParseWarning::kCount) {
      entry.fail("is no oddity this version knows");
    }
    to.add(
        kind, [&] { return entry[1].text(); }, entry[0].whole<std::uint64_t>(0));
  }
}

void read_lanes(const Node& node, const Names& names, RankRecording& rank) {
  const Node lanes = node["lanes"];
  EventId first = 0;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const Node n = lanes[i];
    Lane l;
    l.kind = static_cast<Lane::Kind>(n[0].whole<int>(0, 1));
    l.process = n[1].whole<std::int64_t>();
    l.thread = n[2].whole<std::int64_t>();
    l.device = n[3].whole<std::int32_t>();
    l.stream = n[4].whole<std::int32_t>();
    l.context = n[5].whole<std::int32_t>();
    l.name = n[6].name(names);
    l.count = n[7].whole<std::uint32_t>();
    l.first = first;
    if (l.count >= kNoEvent - first) {
      n.fail("more than 4 billion events");
    }
    first += l.count;
    rank.lanes.push_back(l);
  }
}

void read_collectives(const Node& node, const Names& names, RankRecording& rank) {
  const Node collectives = node["collectives"];
  const auto last_group = static_cast<std::int64_t>(rank.groups.size()) - 1;
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    const Node n = collectives[i];
    CollectiveInfo c;
    const std::string kind = n[0].text();
    c.kind = kind.empty() ? OpKind::kCount : op_kind_named(kind).value_or(OpKind::kCount);
    if (!kind.empty() && (c.kind == OpKind::kCount || !is_collective(c.kind))) {
      n[0].fail(fmt::format("'{}' is no collective", kind.substr(0, 40)));
    }
    c.name = n[1].name(names);
    c.group = n[2].whole<std::int32_t>(-1, last_group);
    c.sequence = n[3].whole<std::int64_t>();
    c.elements_in = n[4].whole<std::int64_t>(-1);
    c.elements_out = n[5].whole<std::int64_t>(-1);
    c.dtype = n[6].name(names);
    c.bytes = n[7].whole<std::int64_t>(-1);
    c.peer = n[8].whole<std::int32_t>();
    c.split_in = n[9].list<std::int64_t>();
    c.split_out = n[10].list<std::int64_t>();
    c.from_host = n[11].truth();
    rank.collectives.push_back(std::move(c));
  }
}

void read_ops(const Node& node, const Names& names, RankRecording& rank) {
  const Node ops = node["ops"];
  const auto last_collective = static_cast<std::int64_t>(rank.collectives.size()) - 1;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Node n = ops[i];
    rank.ops.push_back({.shapes = n[0].name(names),
                        .types = n[1].name(names),
                        .inputs = n[2].name(names),
                        .collective = n[6].whole<std::int32_t>(-1, last_collective),
                        .sequence = n[3].whole<std::int64_t>(),
                        .record_function = n[4].whole<std::int64_t>(),
                        .forward_thread = n[5].whole<std::int64_t>()});
  }
}

void read_launches(const Node& node, RankRecording& rank) {
  const Node launches = node["launches"];
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const Node n = launches[i];
    LaunchInfo l;
    for (std::size_t d = 0; d < 3; ++d) {
      l.grid[d] = n[0][d].whole<std::int32_t>();
      l.block[d] = n[1][d].whole<std::int32_t>();
    }
    l.registers = n[2].whole<std::int32_t>();
    l.shared_memory = n[3].whole<std::int32_t>();
    if (n.size() > 4) {
      l.graph = n[4].whole<std::int64_t>();
      l.graph_node = n[5].whole<std::int64_t>();
    }
    rank.launches.push_back(l);
  }
}

RankRecording rank_of(const Node& node, const Names& names) {
  RankRecording rank;
  rank.rank = node["rank"].whole<std::int32_t>(0);
  rank.world_size = node["world_size"].whole<std::int32_t>(0);
  rank.timing = static_cast<Timing>(node["timing"].whole<int>(0, 2));
  read_lanes(node, names, rank);
  const Node groups = node["groups"];
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const Node n = groups[i];
    rank.groups.push_back(
        {n[0].text(), n[1].text(), n[2].list<std::int32_t>(), n[3].whole<std::int32_t>(0)});
  }
  read_collectives(node, names, rank);
  read_ops(node, names, rank);
  read_launches(node, rank);
  const Node copies = node["copies"];
  for (std::size_t i = 0; i < copies.size(); ++i) {
    rank.copies.push_back(
        {copies[i][0].whole<std::int64_t>(-1), copies[i][1].whole<std::int32_t>()});
  }
  const Node syncs = node["syncs"];
  for (std::size_t i = 0; i < syncs.size(); ++i) {
    const Node n = syncs[i];
    rank.syncs.push_back({static_cast<SyncInfo::Kind>(n[0].whole<int>(0, 4)),
                          n[1].whole<std::int32_t>(), n[2].whole<std::int32_t>(),
                          n[3].whole<std::int64_t>(), n[4].whole<std::int64_t>()});
  }
  const Node devices = node["devices"];
  for (std::size_t i = 0; i < devices.size(); ++i) {
    rank.devices.push_back(devices[i].text());
  }
  for (const auto& [key, value] : node["metadata"].object().items()) {
    rank.metadata[key] = node["metadata"].member(key).text();
  }
  for (const auto& [key, value] : node["records"].object().items()) {
    rank.records[key] = node["records"].member(key).whole<std::uint64_t>(0);
  }
  rank.dependencies.added = node.has("edges_added");
  read_oddities(node["oddities"], rank.oddities);
  return rank;
}

/// Reads rank-R.csv into a rank whose tables are there.
class EventsReader {
 public:
  EventsReader(Input file, RankRecording& rank, const Names& names)
      : line_(std::move(file)), rank_(rank), names_(names) {}

  void read() {
    const EventId expected =
        rank_.lanes.empty() ? 0 : rank_.lanes.back().first + rank_.lanes.back().count;
    Dependencies& d = rank_.dependencies;
    bool ended = false;
    while (!ended && line_.next()) {
      const std::string_view kind = line_.word();
      if (kind == "event") {
        event(expected);
      } else if (kind == "step") {
        StepRange s;
        s.number = line_.whole(INT64_MIN, INT64_MAX);
        s.begin = Nanoseconds(line_.whole(-kLatest, kLatest));
        s.end = Nanoseconds(line_.whole(s.begin.count(), kLatest));
        s.event = static_cast<EventId>(line_.whole(0, std::int64_t{expected} - 1));
        rank_.steps.push_back(s);
      } else if (kind == "edge") {
        d.offsets.resize(std::size_t{expected} + 1);
        const auto from = static_cast<EventId>(line_.whole(last_edge_, std::int64_t{expected} - 1));
        last_edge_ = from;
        d.targets.push_back(static_cast<EventId>(line_.whole(0, std::int64_t{expected} - 1)));
        d.kinds.push_back(static_cast<Dependencies::Kind>(line_.whole(0, 1)));
        ++d.offsets[from + 1];
      } else if (kind == "node") {
        const std::int64_t node = line_.whole(INT64_MIN, INT64_MAX);
        rank_.node_fields[node] = fields(line_.word());
      } else if (kind == "end") {
        line_.whole(rank_.events.size() == expected ? expected : -1, expected);
        ended = rank_.events.size() == expected;
      } else {
        line_.fail(fmt::format("starts with '{}', none of event, step, edge, node, end",
                               kind.substr(0, 20)));
      }
      line_.end_record();
    }
    if (!ended) {
      line_.fail(fmt::format("found {} events; expected {} and a closing 'end' line",
                             rank_.events.size(), expected));
    }
    for (std::size_t i = 1; i < d.offsets.size(); ++i) {
      d.offsets[i] += d.offsets[i - 1];
    }
  }

 private:
  static constexpr std::int64_t kLatest = std::int64_t{1} << 62;

  [[nodiscard]] std::size_t details(EventCategory category) const {
    switch (category) {
      case EventCategory::kCpuOp:
      case EventCategory::kUserRange:
        return rank_.ops.size();
      case EventCategory::kKernel:
        return rank_.launches.size();
      case EventCategory::kCollective:
        return rank_.collectives.size();
      case EventCategory::kMemcpy:
      case EventCategory::kMemset:
        return rank_.copies.size();
      case EventCategory::kSync:
      case EventCategory::kEventRecord:
        return rank_.syncs.size();
      default:
        return 0;
    }
  }
  /// Bytes written as pairs of hexadecimal digits.
  std::string fields(std::string_view digits) {
    std::string bytes;
    for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
      unsigned char byte = 0;
      const auto [end, error] = std::from_chars(&digits[i], &digits[i] + 2, byte, 16);
      if (error != std::errc{} || end != &digits[i] + 2) {
        line_.fail("found fields of a node that are no hexadecimal digits");
      }
      bytes += static_cast<char>(byte);
    }
    return bytes;
  }
  void event(EventId expected) {
    Events& e = rank_.events;
    const auto i = static_cast<EventId>(e.size());
    if (i == expected) {
      line_.fail("more events than the lanes hold");
    }
    const auto lane = static_cast<std::uint16_t>(line_.whole(0, std::ssize(rank_.lanes) - 1));
    const Lane& l = rank_.lanes[lane];
    if (i < l.first || i - l.first >= l.count) {
      line_.fail(fmt::format("is of lane {}, out of its turn", lane));
    }
    e.lane.push_back(lane);
    e.begin.emplace_back(line_.whole(-kLatest, kLatest));
    if (rank_.timing == Timing::kTimeline && i > l.first && e.begin[i] < e.begin[i - 1]) {
      line_.fail("begins before the event above it on its lane");
    }
    e.duration.push_back(Nanoseconds(line_.whole(0, kLatest / 2)));
    const std::string_view category = line_.word();
    std::size_t c = 0;
    while (c < static_cast<std::size_t>(EventCategory::kCount) &&
           name_of(static_cast<EventCategory>(c)) != category) {
      ++c;
    }
    if (c == static_cast<std::size_t>(EventCategory::kCount)) {
      line_.fail(fmt::format("'{}' is no category", category.substr(0, 24)));
    }
    e.category.push_back(static_cast<EventCategory>(c));
    const std::int64_t name = line_.whole(-1, static_cast<std::int64_t>(names_.size()) - 1);
    e.name.push_back(name < 0 ? kNoName : static_cast<NameId>(name));
    e.correlation.push_back(line_.whole(INT64_MIN, INT64_MAX));
    e.external.push_back(line_.whole(INT64_MIN, INT64_MAX));
    e.detail.push_back(static_cast<std::int32_t>(
        line_.whole(-1, static_cast<std::int64_t>(details(e.category.back())) - 1)));
  }

  CsvReader line_;
  RankRecording& rank_;
  const Names& names_;
  std::int64_t last_edge_ = 0;
};

}  // namespace

Recording read_events(const Node& tables, const OpenPart& open) {
  Recording recording;
  recording.format = tables["format"].text();
  recording.origin = Nanoseconds(tables["origin_ns"].whole<std::int64_t>());
  recording.absolute = tables["absolute"].truth();
  const Node names = tables["names"];
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (recording.names.intern(names[i].text()) != i) {
      names[i].fail("appears twice; expected each name once");
    }
  }
  read_oddities(tables["oddities"], recording.oddities);
  const Node ranks = tables["ranks"];
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    RankRecording rank = rank_of(ranks[i], recording.names);
    if (!recording.ranks.empty() && rank.rank <= recording.ranks.back().rank) {
      ranks[i]["rank"].fail("ranks must ascend, each once");
    }
    EventsReader(open(fmt::format("rank-{}.csv", rank.rank)), rank, recording.names).read();
    const ParseWarnings noted = rank.oddities;
    link_launches(rank, recording.names);
    rank.oddities = noted;
    recording.ranks.push_back(std::move(rank));
  }
  if (recording.ranks.empty()) {
    ranks.fail("expected at least one rank");
  }
  return recording;
}

}  // namespace stepcast::traces::internal
