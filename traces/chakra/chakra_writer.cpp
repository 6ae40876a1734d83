#include "traces/chakra/chakra_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "core/error.h"
#include "traces/chakra/internal/edges.h"
#include "traces/chakra/internal/node.h"
#include "traces/input/gzip.h"
#include "traces/input/rank_files.h"
#include "traces/input/wire.h"

namespace stepcast::traces {
namespace {

using internal::NodeType;
using internal::put_bytes;
using internal::put_integer;
using internal::put_varint;

// Fields of the schema.
constexpr std::uint32_t kInt64Value = 9;
constexpr std::uint32_t kUint64Value = 13;
constexpr std::uint32_t kBoolValue = 27;
constexpr std::uint32_t kStringValue = 29;

void put_attribute(std::string& node, std::string_view name, std::uint32_t kind,
                   std::int64_t value) {
  std::string a;
  put_bytes(a, 1, name);
  put_integer(a, kind, static_cast<std::uint64_t>(value));
  put_bytes(node, 10, a);
}
void put_attribute(std::string& node, std::string_view name, std::string_view value) {
  std::string a;
  put_bytes(a, 1, name);
  put_bytes(a, kStringValue, value);
  put_bytes(node, 10, a);
}
void put_message(std::string& to, std::string_view message) {
  put_varint(to, message.size());
  to += message;
}

NodeType type_of(EventCategory category, const CollectiveInfo* collective) {
  switch (category) {
    case EventCategory::kCollective:
      return collective != nullptr && collective->kind == OpKind::kSend   ? NodeType::kSend
             : collective != nullptr && collective->kind == OpKind::kRecv ? NodeType::kReceive
                                                                          : NodeType::kCollective;
    case EventCategory::kKernel:
    case EventCategory::kMemcpy:
    case EventCategory::kMemset:
    case EventCategory::kCpuOp:
    case EventCategory::kRuntimeCall:
    case EventCategory::kUserRange:
    case EventCategory::kPythonFunction:
      return NodeType::kCompute;
    default:
      return NodeType::kMetadata;
  }
}

class RankWriter {
 public:
  RankWriter(const Recording& recording, const RankRecording& rank)
      : recording_(recording),
        rank_(rank),
        graph_(rank.timing != Timing::kTimeline ||
               (!rank.dependencies.empty() && !rank.dependencies.added)),
        own_(internal::own_times(rank, recording.names)) {}

  std::string file(Losses& losses) {
    set_ids();
    edges_ =
        graph_ ? rank_.dependencies : internal::edges_of_timeline(rank_, recording_.names, true);
    EventId stuck = internal::find_cycle(edges_, rank_.events.size());
    if (stuck != kNoEvent && !graph_) {
      edges_ = internal::edges_of_timeline(rank_, recording_.names, false);
      stuck = internal::find_cycle(edges_, rank_.events.size());
      add_loss(losses, "waits of the host for the device, which the clocks contradict", 1);
    }
    if (stuck != kNoEvent) {
      throw InputError(rank_.source,
                       fmt::format("node {} waits for itself through others; a Chakra "
                                   "graph has no cycles",
                                   ids_[stuck]));
    }
    std::string out;
    put_message(out, metadata());
    for (EventId i = 0; i < rank_.events.size(); ++i) {
      put_message(out, node(i));
    }
    return out;
  }

 private:
  void set_ids() {
    const Events& e = rank_.events;
    std::unordered_set<std::int64_t> seen;
    ids_.resize(e.size());
    for (EventId i = 0; i < e.size(); ++i) {
      ids_[i] = graph_ ? e.external[i] : std::int64_t{i} + 1;
      if (!seen.insert(ids_[i]).second) {
        throw InputError(rank_.source,
                         fmt::format("two nodes have id {}; Chakra needs each once", ids_[i]));
      }
    }
  }

  std::string metadata() const {
    std::string m;
    put_bytes(m, 1, "0.0.4");
    for (const auto& [key, value] : rank_.metadata) {
      if (key != "version") {
        std::string a;
        put_bytes(a, 1, key);
        put_bytes(a, kStringValue, value);
        put_bytes(m, 2, a);
      }
    }
    for (const auto& [key, value] :
         {std::pair("rank", rank_.rank), {"world_size", rank_.world_size}}) {
      std::string a;
      put_bytes(a, 1, key);
      put_integer(a, kInt64Value, static_cast<std::uint64_t>(value));
      put_bytes(m, 2, a);
    }
    return m;
  }

  const CollectiveInfo* collective(EventId i) const {
    const Events& e = rank_.events;
    if (e.detail[i] == kNoDetail) {
      return nullptr;
    }
    const auto at = static_cast<std::size_t>(e.detail[i]);
    if (e.category[i] == EventCategory::kCollective) {
      return &rank_.collectives[at];
    }
    return nullptr;
  }

  void put_operands(std::string& n, EventId i) const {
    const Events& e = rank_.events;
    const bool op =
        e.category[i] == EventCategory::kCpuOp || e.category[i] == EventCategory::kUserRange;
    if (!op || e.detail[i] == kNoDetail) {
      return;
    }
    const OpInfo& info = rank_.ops[static_cast<std::size_t>(e.detail[i])];
    std::string operands;
    std::uint32_t field = 1;
    for (const NameId text : {info.inputs, info.shapes, info.types}) {
      if (text != kNoName) {
        put_bytes(operands, field, recording_.names.view(text));
      }
      ++field;
    }
    put_bytes(n, 8, operands);
    for (const auto& [name, value] : {std::pair("rf_id", info.record_function),
                                      {"seq_id", info.sequence},
                                      {"fw_tid", info.forward_thread}}) {
      if (value != -1) {
        put_attribute(n, name, kInt64Value, value);
      }
    }
  }

  std::string node(EventId i) const {
    const Events& e = rank_.events;
    const Lane& lane = rank_.lanes[e.lane[i]];
    const CollectiveInfo* const c = collective(i);
    std::string n;
    if (ids_[i] != 0) {
      put_integer(n, 1, static_cast<std::uint64_t>(ids_[i]));
    }
    put_bytes(n, 2, recording_.names.view(e.name[i]));
    put_integer(n, 3, static_cast<std::uint64_t>(type_of(e.category[i], c)));
    std::string control;
    std::string data;
    for (std::uint32_t d = edges_.offsets.empty() ? 0 : edges_.offsets[i];
         !edges_.offsets.empty() && d < edges_.offsets[i + 1]; ++d) {
      put_varint(edges_.kinds[d] == Dependencies::Kind::kControl ? control : data,
                 static_cast<std::uint64_t>(ids_[edges_.targets[d]]));
    }
    for (const auto& [field, list] : {std::pair(4U, &control), {5U, &data}}) {
      if (!list->empty()) {
        put_bytes(n, field, *list);
      }
    }
    const auto whole_us = [](Nanoseconds t) {
      return static_cast<std::uint64_t>((t.count() + 500) / 1000);
    };
    const Nanoseconds begin = e.begin[i] + recording_.origin;
    if (rank_.timing == Timing::kTimeline && begin >= Nanoseconds{0}) {
      put_integer(n, 6, whole_us(begin));
    }
    if (rank_.timing != Timing::kNone) {
      put_integer(n, 7, whole_us(own_[i]));
    }
    put_operands(n, i);
    const bool device = on_device(e.category[i]);
    put_attribute(n, "is_cpu_op", kBoolValue, device ? 0 : 1);
    put_attribute(n, "tid", kInt64Value, lane.thread);
    if (device) {
      put_attribute(n, "stream", kInt64Value, lane.stream);
    }
    put_collective(n, c);
    put_ours(n, i, lane);
    const auto more = graph_ ? rank_.node_fields.find(ids_[i]) : rank_.node_fields.end();
    if (more != rank_.node_fields.end()) {
      n += more->second;
    }
    return n;
  }

  void put_collective(std::string& n, const CollectiveInfo* c) const {
    if (c == nullptr) {
      return;
    }
    if (const std::int64_t type = internal::comm_type_of(c->kind); type >= 0) {
      put_attribute(n, "comm_type", kInt64Value, type);
    }
    // Signed, as the converter of mlcommons/chakra writes it and its feeder reads it. The feeder
    // demands a size of every collective: 0 where the trace does not say, told as a loss.
    put_attribute(n, "comm_size", kInt64Value, std::max<std::int64_t>(c->bytes, 0));
    if (c->group >= 0) {
      put_attribute(n, "pg_name", rank_.groups[static_cast<std::size_t>(c->group)].name);
    }
    if (c->peer >= 0) {
      put_attribute(n, c->kind == OpKind::kRecv ? "comm_src" : "comm_dst", kInt64Value, c->peer);
    }
  }

  void put_ours(std::string& n, EventId i, const Lane& lane) const {
    const Events& e = rank_.events;
    put_attribute(n, "category", kInt64Value, static_cast<std::int64_t>(e.category[i]));
    if (rank_.timing == Timing::kTimeline) {
      put_attribute(n, "begin_ns", kInt64Value, (e.begin[i] + recording_.origin).count());
      put_attribute(n, "duration_ns", kInt64Value, e.duration[i].count());
    }
    if (e.correlation[i] != 0) {
      put_attribute(n, "correlation", kInt64Value, e.correlation[i]);
    }
    if (!graph_ && e.external[i] != -1) {
      put_attribute(n, "external", kInt64Value, e.external[i]);
    }
    if (lane.kind == Lane::Kind::kHostThread) {
      put_attribute(n, "process", kInt64Value, lane.process);
      if (lane.name != kNoName) {
        put_attribute(n, "lane_name", recording_.names.view(lane.name));
      }
    } else {
      put_attribute(n, "device", kInt64Value, lane.device);
      put_attribute(n, "context", kInt64Value, lane.context);
    }
    const bool copy =
        e.category[i] == EventCategory::kMemcpy || e.category[i] == EventCategory::kMemset;
    if (copy && e.detail[i] != kNoDetail) {
      put_attribute(n, "bytes", kInt64Value,
                    rank_.copies[static_cast<std::size_t>(e.detail[i])].bytes);
    }
  }

  const Recording& recording_;
  const RankRecording& rank_;
  bool graph_;
  std::vector<Nanoseconds> own_;
  std::vector<std::int64_t> ids_;
  Dependencies edges_;
};

}  // namespace

Losses write_chakra(const std::filesystem::path& out, const Recording& recording) {
  Losses losses;
  std::uint64_t kernels = 0;
  std::uint64_t syncs = 0;
  std::uint64_t collectives = 0;
  std::uint64_t unsized = 0;
  std::vector<std::string> files;
  for (const RankRecording& rank : recording.ranks) {
    files.push_back(RankWriter(recording, rank).file(losses));
    kernels += rank.launches.empty() ? 0 : rank.count(EventCategory::kKernel);
    syncs += rank.syncs.size();
    collectives += rank.collectives.size();
    unsized += static_cast<std::uint64_t>(
        std::count_if(rank.collectives.begin(), rank.collectives.end(),
                      [](const CollectiveInfo& c) { return c.bytes < 0; }));
  }
  add_loss(losses, "grid and block sizes of kernels", kernels);
  add_loss(losses, "details of device-side waits (their order is kept as edges)", syncs);
  add_loss(losses, "element counts, types and parts of collectives (bytes stay)", collectives);
  add_loss(losses, "collectives of unknown size: written with comm_size 0", unsized);
  add_loss(losses, "job", recording.job.empty() ? 0 : 1);
  if (files.size() == 1) {
    write_by_extension(out, files.front());
    return losses;
  }
  std::vector<std::int32_t> ranks;
  for (const RankRecording& rank : recording.ranks) {
    ranks.push_back(rank.rank);
  }
  write_rank_files(out, "rank.", ".et", ranks,
                   [&files](std::size_t r) { return std::move(files[r]); });
  return losses;
}

}  // namespace stepcast::traces
