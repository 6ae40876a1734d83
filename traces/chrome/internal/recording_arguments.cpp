#include "traces/chrome/internal/recording_arguments.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "traces/chrome/internal/chrome_events.h"

namespace stepcast::traces::internal {
namespace {

using nlohmann::json;

/// Appends "key": value, with the comma that is due.
class Members {
 public:
  explicit Members(fmt::memory_buffer& to) : to_(to) {}
  template <typename T>
  void add(std::string_view key, const T& value) {
    fmt::format_to(std::back_inserter(to_), "{}\"{}\":{}", first_ ? "" : ",", key, value);
    first_ = false;
  }
  void known(std::string_view key, std::int64_t value, std::int64_t unknown = -1) {
    if (value != unknown) {
      add(key, value);
    }
  }

 private:
  fmt::memory_buffer& to_;
  bool first_ = true;
};

template <typename T>
std::string list_text(const std::vector<T>& list) {
  return fmt::format("\"[{}]\"", fmt::join(list, ", "));
}

void add_collective(Members& m, const ArgumentWriter& writer, const RankRecording& rank,
                    const CollectiveInfo& c) {
  m.add("Collective name", c.name == kNoName && c.kind != OpKind::kCount
                               ? json_text(name_of(c.kind))
                               : writer.name(c.name));
  m.known("In msg nelems", c.elements_in);
  m.known("Out msg nelems", c.elements_out);
  if (c.dtype != kNoName) {
    m.add("dtype", writer.name(c.dtype));
  }
  m.known("bytes", c.bytes);
  m.known("Seq", c.sequence);
  m.known("Dst Rank", c.peer);
  if (!c.split_in.empty()) {
    m.add("In split size", list_text(c.split_in));
  }
  if (!c.split_out.empty()) {
    m.add("Out split size", list_text(c.split_out));
  }
  if (c.group >= 0) {
    const Group& g = rank.groups[static_cast<std::size_t>(c.group)];
    m.add("Process Group Name", json_text(g.name));
    m.add("Process Group Description", json_text(g.description));
    m.add("Group size", g.size);
    if (!g.ranks.empty()) {
      m.add("Process Group Ranks", list_text(g.ranks));
    }
  }
}

std::string_view words_of(SyncInfo::Kind kind) {
  switch (kind) {
    case SyncInfo::Kind::kStreamWait:
      return "\"Stream Wait Event\"";
    case SyncInfo::Kind::kEventSync:
      return "\"Event Sync\"";
    case SyncInfo::Kind::kStreamSync:
      return "\"Stream Sync\"";
    case SyncInfo::Kind::kContextSync:
    case SyncInfo::Kind::kRecord:
      break;
  }
  return "\"Context Sync\"";
}

}  // namespace

ArgumentWriter::ArgumentWriter(const Recording& recording) : recording_(recording) {
  quoted_.reserve(recording.names.size());
  for (NameId i = 0; i < recording.names.size(); ++i) {
    quoted_.push_back(json_text(recording.names.view(i)));
  }
}

std::string ArgumentWriter::json_or_text(NameId id) const {
  const std::string_view text = recording_.names.view(id);
  return text.starts_with('[') && json::accept(text) ? std::string(text) : name(id);
}

void ArgumentWriter::write(fmt::memory_buffer& to, const RankRecording& rank, EventId i) const {
  const Events& e = rank.events;
  const EventCategory category = e.category[i];
  Members m(to);
  m.known("External id", e.external[i]);
  if (on_device(category)) {
    const Lane& lane = rank.lanes[e.lane[i]];
    m.add("device", lane.device);
    m.known("context", lane.context);
    m.add("stream", lane.stream);
  }
  m.known("correlation", e.correlation[i], 0);
  const auto at = static_cast<std::size_t>(e.detail[i]);
  if (e.detail[i] == kNoDetail) {
    return;
  }
  switch (category) {
    case EventCategory::kCpuOp:
    case EventCategory::kUserRange: {
      const OpInfo& op = rank.ops[at];
      m.known("Record function id", op.record_function);
      m.known("Sequence number", op.sequence);
      m.known("Fwd thread id", op.forward_thread);
      for (const auto& [key, text] : {std::pair("Input Dims", op.shapes),
                                      {"Input type", op.types},
                                      {"Concrete Inputs", op.inputs}}) {
        if (text != kNoName) {
          m.add(key, json_or_text(text));
        }
      }
      if (op.collective != kNoDetail) {
        add_collective(m, *this, rank, rank.collectives[static_cast<std::size_t>(op.collective)]);
      }
      break;
    }
    case EventCategory::kKernel: {
      const LaunchInfo& l = rank.launches[at];
      m.known("registers per thread", l.registers);
      m.known("shared memory", l.shared_memory);
      m.add("grid", fmt::format("[{}]", fmt::join(l.grid, ",")));
      m.add("block", fmt::format("[{}]", fmt::join(l.block, ",")));
      break;
    }
    case EventCategory::kCollective:
      add_collective(m, *this, rank, rank.collectives[at]);
      break;
    case EventCategory::kMemcpy:
    case EventCategory::kMemset:
      m.known("bytes", rank.copies[at].bytes);
      m.known("to device", rank.copies[at].peer);
      break;
    case EventCategory::kSync:
    case EventCategory::kEventRecord: {
      const SyncInfo& s = rank.syncs[at];
      if (category == EventCategory::kSync) {
        m.add("cuda_sync_kind", words_of(s.kind));
        m.add("wait_on_stream", s.source_stream);
        m.add("wait_on_cuda_event_record_corr_id", s.record_correlation);
      }
      m.known(category == EventCategory::kSync ? "wait_on_cuda_event_id" : "event_id", s.event);
      break;
    }
    default:
      break;
  }
}

std::string_view kineto_category(EventCategory category) {
  switch (category) {
    case EventCategory::kCpuOp:
      return "cpu_op";
    case EventCategory::kUserRange:
      return "user_annotation";
    case EventCategory::kPythonFunction:
      return "python_function";
    case EventCategory::kRuntimeCall:
      return "cuda_runtime";
    case EventCategory::kOverhead:
      return "overhead";
    case EventCategory::kKernel:
    case EventCategory::kCollective:
      return "kernel";
    case EventCategory::kMemcpy:
      return "gpu_memcpy";
    case EventCategory::kMemset:
      return "gpu_memset";
    case EventCategory::kSync:
      return "cuda_sync";
    case EventCategory::kEventRecord:
      return "cuda_event";
    case EventCategory::kDeviceRange:
      return "gpu_user_annotation";
    case EventCategory::kDeviceOther:
      return "device_other";
    case EventCategory::kHostOther:
    case EventCategory::kCount:
      break;
  }
  return "host_other";
}

std::string microseconds_of(Nanoseconds t) {
  const std::int64_t ns = t.count();
  const std::uint64_t size =
      ns < 0 ? 0 - static_cast<std::uint64_t>(ns) : static_cast<std::uint64_t>(ns);
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", size / 1000, size % 1000);
}

void check_timeline(const Recording& recording, std::string_view format) {
  for (const RankRecording& rank : recording.ranks) {
    if (rank.timing != Timing::kTimeline) {
      throw InputError(
          rank.source,
          fmt::format("is an execution graph without begin times, which {} cannot hold; "
                      "convert it to native or chakra",
                      format));
    }
  }
}

}  // namespace stepcast::traces::internal
