#include "profiler/cupti/record_parser.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <unordered_set>

#include "traces/events/host_calls.h"

namespace stepcast::profiler::cupti {
namespace {

using traces::EventCategory;
using traces::ParseWarning;
using traces::SyncInfo;

/// The struct behind a record's head. Copied: records are packed, their fields may lie unaligned.
template <class Specific>
Specific as(const Record& record) {
  Specific specific;
  std::memcpy(&specific, &record, sizeof specific);
  return specific;
}

template <std::size_t N>
std::string_view pick(const std::array<std::string_view, N>& names, std::uint32_t i) {
  return i < N ? names[i] : std::string_view("?");
}

/// "Memcpy HtoD (pageable -> device)": whether memory is pageable decides whether the call waits.
std::string copy_name(std::uint32_t kind, std::uint32_t from, std::uint32_t to) {
  constexpr std::array<std::string_view, 11> kKinds{"?",    "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                                    "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"};
  constexpr std::array<std::string_view, 8> kMemory{
      "?", "pageable", "pinned", "device", "array", "managed", "device static", "managed static"};
  return fmt::format("Memcpy {} ({} -> {})", pick(kKinds, kind), pick(kMemory, from),
                     pick(kMemory, to));
}

std::string_view overhead_name(CUpti_ActivityOverheadKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_OVERHEAD_DRIVER_COMPILER:
      return "driver compiler";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_BUFFER_FLUSH:
      return "CUPTI buffer flush";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_INSTRUMENTATION:
      return "CUPTI instrumentation";
    case CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE:
      return "CUPTI resource";
    case CUPTI_ACTIVITY_OVERHEAD_RUNTIME_TRIGGERED_MODULE_LOADING:
      return "module loading";
    case CUPTI_ACTIVITY_OVERHEAD_LAZY_FUNCTION_LOADING:
      return "lazy function loading";
    case CUPTI_ACTIVITY_OVERHEAD_COMMAND_BUFFER_FULL:
      return traces::kQueueFullOverhead;
    case CUPTI_ACTIVITY_OVERHEAD_ACTIVITY_BUFFER_REQUEST:
      return "CUPTI buffer request";
    case CUPTI_ACTIVITY_OVERHEAD_UVM_ACTIVITY_INIT:
      return "unified memory activity";
    default:
      return "overhead";
  }
}

std::int32_t small(std::uint64_t value) {
  return value <= INT32_MAX ? static_cast<std::int32_t>(value) : -1;
}

void add_unread(const Record& record, traces::RankRecording& rank) {
  rank.oddities.add(ParseWarning::kUnreadRecord, [&] {
    return fmt::format("{}: activity kind {}", rank.source, static_cast<int>(record.kind));
  });
}

}  // namespace

RecordParser::RecordParser(std::string source, ApiName api_name) : api_name_(std::move(api_name)) {
  builder_ = std::make_unique<traces::RankBuilder>(recording_.names, std::move(source));
}

bool RecordParser::complete() const {
  std::unordered_set<std::uint32_t> done;
  for (const Work& w : work_) {
    done.insert(w.correlation);
  }
  struct Call {
    const Api* api;
    bool done, open;
  };
  std::vector<Call> calls;
  calls.reserve(apis_.size());
  for (const Api& api : apis_) {
    calls.push_back({&api, done.count(api.correlation) > 0, false});
  }
  std::sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) {
    return std::tuple(a.api->thread, a.api->begin, -a.api->end) <
           std::tuple(b.api->thread, b.api->begin, -b.api->end);
  });
  // Work may bear the number of the driver call within a runtime call, or the other way round. Of
  // the calls that begin before one, that which ends last is around it if any is; of those that
  // begin after it, that which ends first is within it.
  std::int64_t last_end = 0;
  const Call* before = nullptr;
  for (Call& c : calls) {
    last_end = before != nullptr && before->api->thread == c.api->thread ? last_end : INT64_MIN;
    last_end = c.done ? std::max(last_end, c.api->end) : last_end;
    c.open = !c.done && last_end < c.api->end &&
             traces::host_call_of(recording_.names.view(c.api->name)) == traces::HostCall::kLaunch;
    before = &c;
  }
  std::int64_t first_end = 0;
  for (std::size_t i = calls.size(); i-- > 0;) {
    const Call& c = calls[i];
    const bool same = i + 1 < calls.size() && calls[i + 1].api->thread == c.api->thread;
    first_end = same ? first_end : INT64_MAX;
    first_end = c.done ? std::min(first_end, c.api->end) : first_end;
    if (c.open && first_end > c.api->end) {
      return false;
    }
  }
  return true;
}

void RecordParser::add(const Record& record) {
  auto& counts = builder_->rank().records;
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_KERNEL:
      ++counts["kernel"];
      add_kernel(as<KernelRecord>(record));
      return;
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      ++counts["memcpy"];
      const auto r = as<CopyRecord>(record);
      add_work(r, recording_.names.intern(copy_name(r.copyKind, r.srcKind, r.dstKind)),
               EventCategory::kMemcpy, append_copy(r.bytes, -1));
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
      ++counts["memcpy between devices"];
      const auto r = as<PeerCopyRecord>(record);
      const std::uint32_t peer = r.deviceId == r.srcDeviceId ? r.dstDeviceId : r.srcDeviceId;
      add_work(r, recording_.names.intern(copy_name(r.copyKind, r.srcKind, r.dstKind)),
               EventCategory::kMemcpy, append_copy(r.bytes, small(peer)));
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      ++counts["memset"];
      const auto r = as<FillRecord>(record);
      add_work(r, recording_.names.intern("Memset"), EventCategory::kMemset,
               append_copy(r.bytes, -1));
      return;
    }
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: {
      ++counts["graph"];
      const auto r = as<GraphRecord>(record);
      add_work(r, recording_.names.intern(fmt::format("CUDA graph {}", r.graphId)),
               EventCategory::kKernel, traces::kNoDetail);
      return;
    }
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER:
      ++counts[record.kind == CUPTI_ACTIVITY_KIND_RUNTIME ? "runtime" : "driver"];
      add_api(as<ApiRecord>(record), record.kind == CUPTI_ACTIVITY_KIND_RUNTIME);
      return;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      ++counts["synchronization"];
      add_sync(as<SyncRecord>(record));
      return;
    case CUPTI_ACTIVITY_KIND_CUDA_EVENT:
      ++counts["event"];
      add_event(as<EventRecord>(record));
      return;
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
      ++counts["external correlation"];
      add_external(as<ExternalRecord>(record));
      return;
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      ++counts["overhead"];
      add_overhead(as<OverheadRecord>(record));
      return;
    case CUPTI_ACTIVITY_KIND_MARKER:
      ++counts["marker"];
      add_marker(as<MarkerRecord>(record));
      return;
    case CUPTI_ACTIVITY_KIND_DEVICE:
      ++counts["device"];
      add_device(as<DeviceRecord>(record));
      return;
    case CUPTI_ACTIVITY_KIND_CONTEXT:
      ++counts["context"];
      devices_[as<ContextRecord>(record).contextId] = as<ContextRecord>(record).deviceId;
      return;
    case CUPTI_ACTIVITY_KIND_STREAM:
      ++counts["stream"];
      add_stream(as<StreamRecord>(record));
      return;
    default:
      ++counts["other"];
      add_unread(record, builder_->rank());
  }
}

std::int32_t RecordParser::append_copy(std::uint64_t bytes, std::int32_t peer) {
  auto& copies = builder_->rank().copies;
  copies.push_back({bytes > INT64_MAX ? -1 : static_cast<std::int64_t>(bytes), peer});
  return static_cast<std::int32_t>(copies.size() - 1);
}

bool RecordParser::timed(std::uint64_t begin, std::uint64_t end, std::string_view what) {
  auto& rank = builder_->rank();
  const auto place = [&] { return fmt::format("{}: {} [{}, {}]", rank.source, what, begin, end); };
  constexpr std::uint64_t kLatest = std::uint64_t{1} << 61;
  if (begin == 0 || end == 0 || begin > kLatest || end > kLatest) {
    rank.oddities.add(ParseWarning::kNoTime, place);
    return false;
  }
  if (end < begin) {
    rank.oddities.add(ParseWarning::kNegativeDuration, place);
    return false;
  }
  return true;
}

RecordParser::NameId RecordParser::kernel_name(const char* mangled) {
  if (mangled == nullptr) {
    return recording_.names.intern("?");
  }
  const auto [found, fresh] = demangled_.try_emplace(mangled, traces::kNoName);
  if (fresh) {
    int status = 0;
    char* plain = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
    found->second = recording_.names.intern(plain != nullptr && status == 0 ? plain : mangled);
    std::free(plain);
  }
  return found->second;
}

bool RecordParser::communicates(NameId kernel) {
  const auto [found, fresh] = communicates_.try_emplace(kernel, false);
  if (fresh) {
    found->second = traces::is_collective_kernel(recording_.names.view(kernel));
  }
  return found->second;
}

template <typename DeviceRecordType>
void RecordParser::add_work(const DeviceRecordType& r, NameId name, EventCategory category,
                            std::int32_t detail) {
  devices_.try_emplace(r.contextId, r.deviceId);
  if (!timed(r.start, r.end, recording_.names.view(name))) {
    return;
  }
  Work work{time(r.start), time(r.end), r.correlationId, r.deviceId, r.contextId,
            r.streamId,    name,        category,        detail};
  if constexpr (requires { r.graphNodeId; }) {
    work.node = r.graphNodeId;
  }
  work_.push_back(work);
}

void RecordParser::add_event(const EventRecord& r) {
  records_.push_back({r.correlationId, r.contextId, r.streamId, r.eventId, r.cudaEventSyncId});
  devices_.try_emplace(r.contextId, r.deviceId);
}

void RecordParser::add_external(const ExternalRecord& r) {
  // The innermost id of a kind comes with the call; the last one of a repeated call is kept.
  if (r.externalKind == kOpIds) {
    op_ids_[r.correlationId] = r.externalId;
  } else if (r.externalKind == kNcclIds) {
    nccl_ids_[r.correlationId] = r.externalId;
  }
}

void RecordParser::add_kernel(const KernelRecord& r) {
  traces::LaunchInfo info;
  info.grid = {r.gridX, r.gridY, r.gridZ};
  info.block = {r.blockX, r.blockY, r.blockZ};
  info.registers = r.registersPerThread;
  const std::int64_t shared = std::int64_t{r.staticSharedMemory} + r.dynamicSharedMemory;
  info.shared_memory = shared >= 0 && shared <= INT32_MAX ? static_cast<std::int32_t>(shared) : -1;
  if (r.graphNodeId != 0) {
    info.graph = r.graphId;
    info.graph_node = static_cast<std::int64_t>(r.graphNodeId);
  }
  const NameId name = kernel_name(r.name);
  const bool collective = communicates(name);
  add_work(r, name, collective ? EventCategory::kCollective : EventCategory::kKernel,
           collective ? traces::kNoDetail : builder_->launch(info));
}

void RecordParser::add_api(const ApiRecord& r, bool runtime) {
  const auto [found, fresh] = api_names_.try_emplace({runtime, r.cbid}, traces::kNoName);
  if (fresh) {
    found->second = recording_.names.intern(api_name_(runtime, r.cbid));
  }
  if (r.threadId == own_thread_ && own_thread_ != 0) {
    last_own_call_ = std::max(last_own_call_, time(r.start));
  } else if (timed(r.start, r.end, recording_.names.view(found->second))) {
    apis_.push_back({time(r.start), time(r.end), r.correlationId, r.processId, r.threadId,
                     found->second, runtime});
  }
}

void RecordParser::add_sync(const SyncRecord& r) {
  SyncInfo::Kind kind = SyncInfo::Kind::kContextSync;
  switch (r.type) {
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE:
      kind = SyncInfo::Kind::kEventSync;
      break;
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT:
      kind = SyncInfo::Kind::kStreamWait;
      break;
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE:
      kind = SyncInfo::Kind::kStreamSync;
      break;
    default:
      break;
  }
  if (timed(r.start, r.end, "synchronization")) {
    syncs_.push_back({time(r.start), time(r.end), r.correlationId, r.contextId, r.streamId,
                      r.cudaEventId, r.cudaEventSyncId, kind});
  }
}

void RecordParser::add_overhead(const OverheadRecord& r) {
  std::free(r.overheadData);  // ours to free, and nothing in it is kept
  const std::string_view name = overhead_name(r.overheadKind);
  if (timed(r.start, r.end, name)) {
    const bool thread = r.objectKind == CUPTI_ACTIVITY_OBJECT_THREAD;
    const bool process = thread || r.objectKind == CUPTI_ACTIVITY_OBJECT_PROCESS;
    ranges_.push_back({time(r.start), time(r.end), process ? r.objectId.pt.processId : 0,
                       thread ? r.objectId.pt.threadId : 0, r.correlationId,
                       recording_.names.intern(name), EventCategory::kOverhead});
  }
}

void RecordParser::add_marker(const MarkerRecord& r) {
  if (r.timestamp == 0) {
    builder_->rank().oddities.add(ParseWarning::kNoTime, [&] {
      return fmt::format("{}: marker {}", builder_->rank().source, r.id);
    });
    return;
  }
  const bool thread = r.objectKind == CUPTI_ACTIVITY_OBJECT_THREAD;
  if ((r.flags & CUPTI_ACTIVITY_FLAG_MARKER_START) != 0) {
    const std::string_view name = r.name == nullptr ? "range" : r.name;
    const NameId full = r.domain == nullptr
                            ? recording_.names.intern(name)
                            : recording_.names.intern(fmt::format("{}: {}", r.domain, name));
    open_[r.id] = {r.timestamp, r.objectId.pt.processId, thread ? r.objectId.pt.threadId : 0, full};
  } else if ((r.flags & CUPTI_ACTIVITY_FLAG_MARKER_END) != 0) {
    const auto begun = open_.find(r.id);
    if (begun == open_.end()) {
      ++builder_->rank().records["ranges begun before the capture"];
      return;
    }
    const OpenRange& o = begun->second;
    if (timed(o.begin, r.timestamp, recording_.names.view(o.name))) {
      ranges_.push_back({time(o.begin), time(r.timestamp), o.process, o.thread, 0, o.name,
                         EventCategory::kUserRange});
    }
    open_.erase(begun);
  } else {
    ++builder_->rank().records["instants"];
  }
}

void RecordParser::add_device(const DeviceRecord& r) {
  constexpr std::uint32_t kMost = 1024;
  if (r.id >= kMost || r.name == nullptr) {
    return;
  }
  auto& rank = builder_->rank();
  if (rank.devices.size() <= r.id) {
    rank.devices.resize(r.id + 1);
  }
  rank.devices[r.id] = r.name;
  rank.metadata[fmt::format("device {}", r.id)] = fmt::format(
      "{}, compute {}.{}, {} multiprocessors, {} bytes of memory at {} kB/s{}", r.name,
      r.computeCapabilityMajor, r.computeCapabilityMinor, r.numMultiprocessors, r.globalMemorySize,
      r.globalMemoryBandwidth, r.isMigEnabled != 0 ? ", a MIG instance" : "");
}

void RecordParser::add_stream(const StreamRecord& r) {
  const char* flag = r.flag == CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NON_BLOCKING ? "non-blocking"
                     : r.flag == CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NULL       ? "null stream"
                                                                              : "blocking";
  builder_->rank().metadata[fmt::format("stream {} of context {}", r.streamId, r.contextId)] =
      fmt::format("{}, priority {}", flag, static_cast<std::int32_t>(r.priority));
}

}  // namespace stepcast::profiler::cupti
