#include <fmt/ranges.h>

#include <span>

#include "traces/native/internal/event_tables.h"

namespace stepcast::traces::internal {
namespace {

using nlohmann::json;
/// kNoName is written as -1.
std::int64_t written(NameId id) { return id == kNoName ? -1 : static_cast<std::int64_t>(id); }

/// Examples name the file; the folder that it lay in stays behind.
json json_of(const ParseWarnings& oddities, const std::string& source) {
  const std::string folder = source.substr(0, source.rfind('/') + 1);
  json j = json::object();
  for (std::size_t k = 0; k < static_cast<std::size_t>(ParseWarning::kCount); ++k) {
    const auto kind = static_cast<ParseWarning>(k);
    if (auto [count, example] = oddities[kind]; count > 0) {
      j[std::string(name_of(kind))] = {
          count, example.substr(example.starts_with(folder) ? folder.size() : 0)};
    }
  }
  return j;
}

json json_of(const RankRecording& rank) {
  json lanes = json::array();
  for (const Lane& l : rank.lanes) {
    lanes.push_back({static_cast<int>(l.kind), l.process, l.thread, l.device, l.stream, l.context,
                     written(l.name), l.count});
  }
  json ops = json::array();
  for (const OpInfo& o : rank.ops) {
    ops.push_back({written(o.shapes), written(o.types), written(o.inputs), o.sequence,
                   o.record_function, o.forward_thread, o.collective});
  }
  json launches = json::array();
  for (const LaunchInfo& l : rank.launches) {
    launches.push_back({l.grid, l.block, l.registers, l.shared_memory});
    if (l.graph >= 0) {
      launches.back().push_back(l.graph);
      launches.back().push_back(l.graph_node);
    }
  }
  json copies = json::array();
  for (const CopyInfo& c : rank.copies) {
    copies.push_back({c.bytes, c.peer});
  }
  json collectives = json::array();
  for (const CollectiveInfo& c : rank.collectives) {
    collectives.push_back({c.kind == OpKind::kCount ? "" : name_of(c.kind), written(c.name),
                           c.group, c.sequence, c.elements_in, c.elements_out, written(c.dtype),
                           c.bytes, c.peer, c.split_in, c.split_out, c.from_host});
  }
  json syncs = json::array();
  for (const SyncInfo& s : rank.syncs) {
    syncs.push_back(
        {static_cast<int>(s.kind), s.stream, s.source_stream, s.event, s.record_correlation});
  }
  json groups = json::array();
  for (const Group& g : rank.groups) {
    groups.push_back({g.name, g.description, g.ranks, g.size});
  }
  json j = {{"rank", rank.rank},
            {"world_size", rank.world_size},
            {"timing", static_cast<int>(rank.timing)},
            {"lanes", lanes},
            {"ops", ops},
            {"launches", launches},
            {"copies", copies},
            {"collectives", collectives},
            {"syncs", syncs},
            {"groups", groups},
            {"devices", rank.devices},
            {"metadata", rank.metadata},
            {"records", rank.records},
            {"oddities", json_of(rank.oddities, rank.source)}};
  if (rank.dependencies.added) {
    j["edges_added"] = true;
  }
  return j;
}

}  // namespace

std::string events_csv(const RankRecording& rank) {
  const Events& e = rank.events;
  fmt::memory_buffer out;
  const auto line = std::back_inserter(out);
  for (EventId i = 0; i < e.size(); ++i) {
    fmt::format_to(line, "event,{},{},{},{},{},{},{},{}\n", e.lane[i], e.begin[i].count(),
                   e.duration[i].count(), name_of(e.category[i]), written(e.name[i]),
                   e.correlation[i], e.external[i], e.detail[i]);
  }
  for (const StepRange& s : rank.steps) {
    fmt::format_to(line, "step,{},{},{},{}\n", s.number, s.begin.count(), s.end.count(), s.event);
  }
  for (EventId i = 0; !rank.dependencies.offsets.empty() && i < e.size(); ++i) {
    for (std::uint32_t d = rank.dependencies.offsets[i]; d < rank.dependencies.offsets[i + 1];
         ++d) {
      fmt::format_to(line, "edge,{},{},{}\n", i, rank.dependencies.targets[d],
                     static_cast<int>(rank.dependencies.kinds[d]));
    }
  }
  for (const auto& [node, fields] : rank.node_fields) {
    fmt::format_to(
        line, "node,{},{:02x}\n", node,
        fmt::join(std::span(reinterpret_cast<const unsigned char*>(fields.data()), fields.size()),
                  ""));
  }
  fmt::format_to(line, "end,{}\n", e.size());
  return fmt::to_string(out);
}

json event_tables(const Recording& recording) {
  json ranks = json::array();
  for (const RankRecording& rank : recording.ranks) {
    ranks.push_back(json_of(rank));
  }
  json names = json::array();
  for (NameId i = 0; i < recording.names.size(); ++i) {
    names.push_back(recording.names.view(i));
  }
  return {{"format", recording.format},
          {"origin_ns", recording.origin.count()},
          {"absolute", recording.absolute},
          {"names", names},
          {"ranks", ranks},
          {"oddities", json_of(recording.oddities,
                               recording.ranks.empty() ? "" : recording.ranks.front().source)}};
}

}  // namespace stepcast::traces::internal
